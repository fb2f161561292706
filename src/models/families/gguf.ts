// The architectures of GGUF files: of single layers, whole decoders and encoders.

import type { RopeConfig } from "../../layers/attention/rope.ts";
import type { ActivationSpec, NormRole } from "../spec/spec.ts";

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

// The architectures of GGUF files whose whole decoders are read: what differs from Llama around attention. What differs in
// attention is in architectures.ts. Norms of Gemma include the 1.

/** How the decoders of an architecture differ from Llama: RMS norms before attention and MLP, and a gated MLP with SiLU. */
export interface DecoderRules {
  /** Default "rms". */
  readonly norm?: "layer";
  /** Where layers have norms, and their names. Default before attention and MLP. */
  readonly norms?: Readonly<Partial<Record<NormRole, string>>>;
  readonly activation?: ActivationSpec;
  /** The MLP has no gate. */
  readonly plain?: true;
  /** The gate and the other factor are one tensor, `ffn_up`. */
  readonly joinedMlp?: true;
  /** Both branches read the residual; "unless-stated": unless the file says otherwise; "one-norm": in layers that lack that of the MLP. */
  readonly parallel?: "always" | "unless-stated" | "one-norm";
  /** Rows of the table are multiplied by sqrt(dModel). */
  readonly scalesEmbedding?: true;
  /** A table of positions. */
  readonly positions?: true;
  /** A norm of the rows of the table. */
  readonly embedNorm?: true;
  /** There is no norm after the last layer. */
  readonly noFinalNorm?: true;
  /** The head's scale divides logits. */
  readonly dividesLogits?: true;
  /** The factor on logits, and their softcap, if the file does not state them. */
  readonly logitScale?: number;
  readonly softcap?: number;
  /** Whether the weights of a token's experts are divided by their sum, if the file does not state it. Default true. */
  readonly renormalise?: false;
}

const GELU: ActivationSpec = { kind: "gelu", alpha: 1 };
const GELU_TANH: ActivationSpec = { kind: "gelu-tanh", alpha: 1 };

const ONE_NORM = { attentionPre: "attn_norm" } as const;
const SANDWICH_NORMS = {
  attentionPre: "attn_norm",
  attentionPost: "post_attention_norm",
  mlpPre: "ffn_norm",
  mlpPost: "post_ffw_norm",
} as const;
/** Which GELU a model has is as in transformers: its file does not state it. */
const PLAIN = { norm: "layer", plain: true } as const;
const GEMMA = { activation: GELU_TANH, scalesEmbedding: true } as const;

export const DECODERS: Readonly<Record<string, DecoderRules>> = /* @__PURE__ */ (() => ({
  arcee: { plain: true, activation: { kind: "relu-squared", alpha: 1 } },
  bloom: { ...PLAIN, activation: GELU_TANH, embedNorm: true },
  chatglm: { joinedMlp: true },
  cohere2: { norm: "layer", norms: ONE_NORM, parallel: "always", logitScale: 0.0625 },
  "command-r": { norm: "layer", norms: ONE_NORM, parallel: "always", logitScale: 0.0625 },
  deepseek2: { renormalise: false },
  falcon: { ...PLAIN, activation: GELU, norms: ONE_NORM, parallel: "always" },
  gemma: GEMMA,
  gemma2: { ...GEMMA, norms: SANDWICH_NORMS, softcap: 30 },
  gemma3: { ...GEMMA, norms: SANDWICH_NORMS },
  glm4: { joinedMlp: true, norms: SANDWICH_NORMS },
  "gpt-oss": {
    activation: { kind: "swish", alpha: 1.702, limit: 7 },
    norms: { attentionPre: "attn_norm", mlpPre: "post_attention_norm" },
  },
  gpt2: { ...PLAIN, activation: GELU_TANH, positions: true },
  gptneox: { ...PLAIN, activation: GELU, parallel: "unless-stated" },
  granite: { dividesLogits: true },
  granitemoe: { dividesLogits: true },
  llama: {},
  mpt: { ...PLAIN, activation: GELU },
  olmo2: { norms: { attentionPost: "post_attention_norm", mlpPost: "post_ffw_norm" } },
  phi2: { ...PLAIN, activation: GELU_TANH, norms: ONE_NORM, parallel: "always" },
  phi3: { joinedMlp: true },
  qwen2: {},
  qwen2moe: { renormalise: false },
  qwen3: {},
  qwen3moe: {},
  smollm3: {},
  stablelm: { norm: "layer", parallel: "one-norm" },
  starcoder2: { ...PLAIN, activation: GELU_TANH },
}))();

// The architectures of GGUF files whose encoders are read besides those of decoders.ts. Their files do not have heads for masked
// tokens; those that put texts in order have a classifier, which is not read.

const BERT: DecoderRules = {
  norm: "layer",
  norms: { attentionAfter: "attn_output_norm", mlpAfter: "layer_output_norm" },
  embedNorm: true,
  noFinalNorm: true,
};

export const GGUF_ENCODERS: Readonly<Record<string, DecoderRules>> = {
  bert: { ...BERT, plain: true, activation: { kind: "gelu", alpha: 1 }, positions: true },
  "nomic-bert": BERT,
};
