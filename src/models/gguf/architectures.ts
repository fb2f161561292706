import type { RopeConfig } from "../../attention/rope.ts";

/** Properties of an architecture that its files do not state. */
export interface Architecture {
  /**
   * The pairing of RoPE; undefined without RoPE. For "interleaved", the rows of queries and keys were permuted when the
   * file was converted from the Hugging Face form.
   */
  readonly pairing?: RopeConfig["pairing"];
  /** Which layers have RoPE, if not all do. `windows`: whether the model has windows at all. */
  readonly rotates?: (layer: number, windowed: boolean, windows: boolean) => boolean;
  /** Tokens of the window if the file does not state it. */
  readonly window?: number;
  /** Only models of this many layers have the window. */
  readonly windowLayers?: number;
  /** The last of every `period` layers has no window. Default: if there is a window, every layer has it. */
  readonly period?: number;
  /** The RoPE theta of layers with the window, if the file does not state it. */
  readonly localTheta?: number;
  /** Layers with the window have no RoPE scaling. */
  readonly localUnscaled?: true;
  readonly softcap?: number;
  /** Norms of queries and keys are RMS norms before RoPE. Norms of other architectures are refused. */
  readonly rmsNorm?: true;
  /** In models of this many layers, scores are scaled by (dModel / numHeads)^-½ instead of headDim^-½. */
  readonly wideScale?: number;
  readonly alibi?: true;
  /** In models of this many layers, ALiBi replaces RoPE. */
  readonly alibiLayers?: number;
  readonly causal?: false;
  /** The bounds of yarn's ramp are not rounded to whole pairs. */
  readonly smoothRamp?: true;
}

const HALF: Architecture = { pairing: "half" };
const INTERLEAVED: Architecture = { pairing: "interleaved" };
const HALF_NORMED: Architecture = { pairing: "half", rmsNorm: true };
const BOTH_WAYS = { pairing: "half", causal: false } as const;

/** The architecture of models with latent attention, which `readGgufLatentLayer` reads. */
export const LATENT_ARCHITECTURE = "deepseek2";

/** The supported architectures, by `general.architecture`. In Gemma files, 1 is already added to the gains of norms. */
export const ARCHITECTURES: Readonly<Record<string, Architecture>> = {
  apertus: HALF_NORMED,
  arcee: INTERLEAVED,
  arctic: INTERLEAVED,
  baichuan: { pairing: "interleaved", alibiLayers: 40 },
  bailingmoe: INTERLEAVED,
  bailingmoe2: HALF_NORMED,
  bert: { causal: false },
  bloom: { alibi: true },
  chatglm: INTERLEAVED,
  codeshell: HALF,
  cohere2: { pairing: "interleaved", window: 4096, period: 4, rotates: (_layer, windowed) => windowed },
  "command-r": INTERLEAVED,
  dbrx: HALF,
  deci: INTERLEAVED,
  deepseek: INTERLEAVED,
  dots1: HALF_NORMED,
  dream: BOTH_WAYS,
  ernie4_5: INTERLEAVED,
  "ernie4_5-moe": INTERLEAVED,
  eurobert: BOTH_WAYS,
  exaone: HALF,
  exaone4: {
    pairing: "half",
    rmsNorm: true,
    window: 4096,
    windowLayers: 64,
    period: 4,
    rotates: (_layer, windowed, windows) => windowed || !windows,
  },
  falcon: HALF,
  gemma: HALF,
  gemma2: { pairing: "half", window: 4096, period: 2, softcap: 50, wideScale: 46 },
  gemma3: { pairing: "half", period: 6, localTheta: 10_000, localUnscaled: true, rmsNorm: true, wideScale: 62 },
  glm4: INTERLEAVED,
  glm4moe: HALF_NORMED,
  "gpt-oss": { pairing: "half", window: 128, period: 2, smoothRamp: true },
  gpt2: {},
  gptneox: HALF,
  granite: INTERLEAVED,
  granitemoe: INTERLEAVED,
  grovemoe: HALF_NORMED,
  internlm2: INTERLEAVED,
  "jina-bert-v2": { alibi: true, causal: false },
  "jina-bert-v3": BOTH_WAYS,
  lfm2: HALF_NORMED,
  lfm2moe: HALF_NORMED,
  llada: { pairing: "interleaved", causal: false },
  "llada-moe": { pairing: "half", rmsNorm: true, causal: false },
  llama: INTERLEAVED, // and Mistral, Mixtral
  "llama-embed": { pairing: "interleaved", causal: false },
  minicpm: INTERLEAVED,
  "minimax-m2": HALF_NORMED,
  mistral3: INTERLEAVED,
  mpt: {},
  nemotron: HALF,
  "nomic-bert": BOTH_WAYS,
  "nomic-bert-moe": BOTH_WAYS,
  olmo: INTERLEAVED,
  olmo2: { pairing: "half", rmsNorm: true, period: 4, localUnscaled: true }, // and OLMo 3
  olmoe: HALF_NORMED,
  openelm: HALF_NORMED,
  orion: HALF,
  "pangu-embedded": HALF,
  phi2: HALF,
  phi3: HALF,
  phimoe: HALF,
  qwen2: HALF,
  qwen2moe: HALF,
  qwen3: HALF_NORMED,
  qwen3moe: HALF_NORMED,
  refact: { alibi: true },
  rnd1: { pairing: "half", rmsNorm: true, causal: false },
  seed_oss: HALF,
  smollm3: { pairing: "interleaved", rotates: (layer) => (layer + 1) % 4 !== 0 },
  stablelm: HALF,
  starcoder: {},
  starcoder2: HALF,
  xverse: INTERLEAVED,
};
