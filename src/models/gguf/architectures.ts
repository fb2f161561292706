import type { RopeConfig } from "../../attention/rope.ts";

/** What a program knows of an architecture and a file does not say. */
export interface Architecture {
  /**
   * How heads rotate; without it they do not. The rows of queries and keys were permuted for "interleaved" when the
   * file was made from weights in the form of Hugging Face.
   */
  readonly pairing?: RopeConfig["pairing"];
  /** Which layers rotate, where not all do. */
  readonly rotates?: (layer: number, windowed: boolean) => boolean;
  /** Tokens of the window where the file does not name it. */
  readonly window?: number;
  /** Of so many layers in a row, the last sees everything. Default: every layer has the window, where there is one. */
  readonly period?: number;
  /** Layers with the window rotate by this theta where the file does not name it. */
  readonly localTheta?: number;
  /** Layers with the window rotate without scaling. */
  readonly localUnscaled?: true;
  readonly softcap?: number;
  /** Norms of queries and keys are RMS norms and come before RoPE. Those of other architectures are refused. */
  readonly rmsNorm?: true;
  /** In models of so many layers, scores are scaled by the share of dModel that a head has, not by headDim. */
  readonly wideScale?: number;
  readonly alibi?: true;
  /** In models of so many layers, ALiBi stands in for RoPE. */
  readonly alibiLayers?: number;
  readonly causal?: false;
  /** yarn's ramp has bounds between dimensions. */
  readonly smoothRamp?: true;
}

const HALF: Architecture = { pairing: "half" };
const INTERLEAVED: Architecture = { pairing: "interleaved" };
const HALF_NORMED: Architecture = { pairing: "half", rmsNorm: true };
const GEMMA2 = { window: 4096, period: 2, softcap: 50, wideScale: 46 } as const;
const GEMMA3 = { period: 6, localTheta: 10_000, localUnscaled: true, rmsNorm: true, wideScale: 62 } as const;

/** The architectures that are known, by `general.architecture`. Gains of Gemma's norms have their 1 added already. */
export const ARCHITECTURES: Readonly<Record<string, Architecture>> = {
  llama: INTERLEAVED, // and Mistral, Mixtral
  arcee: INTERLEAVED,
  baichuan: { pairing: "interleaved", alibiLayers: 40 },
  bert: { causal: false },
  bloom: { alibi: true },
  chatglm: INTERLEAVED,
  codeshell: HALF,
  "command-r": INTERLEAVED,
  cohere2: { pairing: "interleaved", window: 4096, period: 4, rotates: (_layer, windowed) => windowed },
  deepseek: INTERLEAVED,
  ernie4_5: INTERLEAVED,
  exaone: HALF,
  falcon: HALF,
  gemma: HALF,
  gemma2: { pairing: "half", ...GEMMA2 },
  gemma3: { pairing: "half", ...GEMMA3 },
  glm4: INTERLEAVED,
  "gpt-oss": { pairing: "half", window: 128, period: 2, smoothRamp: true },
  gpt2: {},
  gptneox: HALF,
  granite: INTERLEAVED,
  granitemoe: INTERLEAVED,
  internlm2: INTERLEAVED,
  minicpm: INTERLEAVED,
  mpt: {},
  nemotron: HALF,
  "nomic-bert": { pairing: "half", causal: false },
  olmo: INTERLEAVED,
  olmo2: { pairing: "half", rmsNorm: true, period: 4, localUnscaled: true }, // and OLMo 3
  olmoe: HALF_NORMED,
  orion: HALF,
  phi2: HALF,
  phi3: HALF,
  qwen2: HALF,
  qwen2moe: HALF,
  qwen3: HALF_NORMED,
  qwen3moe: HALF_NORMED,
  refact: { alibi: true },
  seed_oss: HALF,
  smollm3: { pairing: "interleaved", rotates: (layer) => (layer + 1) % 4 !== 0 },
  stablelm: HALF,
  starcoder: {},
  starcoder2: HALF,
  xverse: INTERLEAVED,
};
