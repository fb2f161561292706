// The architectures of GGUF files whose whole decoders are read: what differs from Llama around attention. What differs in
// attention is in architectures.ts. Norms of Gemma include the 1.

import type { ActivationSpec, NormRole } from "../decoder/spec.ts";

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

export const DECODERS: Readonly<Record<string, DecoderRules>> = {
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
};
