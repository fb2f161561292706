// How a family of models differs from Llama around its attention, as data: the type of the rows of decoders.ts and encoders.ts.

import type { EmbedSpec, HeadSpec, MlpSpec, MoeSpec, NormRole, NormSpec, RelativeBias } from "../spec/spec.ts";
import type { Fields, HfPart } from "./fields.ts";

// How a family of decoders differs from Llama around its attention, as data: what families.ts has a row of for each.

/** Names of the tensors of an MLP below its prefix, without ".weight" and ".bias". */
export interface MlpNames {
  /** The gate, or with `up` undefined the gate and the other factor in one matrix, in this order. */
  readonly gate?: string;
  readonly up?: string;
  readonly down: string;
}

/** Names of the tensors of a mixture of experts, below its layer. */
export interface MoeNames {
  readonly router: string;
  /** The whole name of the vector that is added to scores for the choice. */
  readonly correction?: string;
  /**
   * The prefix of an expert's MLP, and its names; or "stacked": tensors [experts, outputs, inputs] of the same names; or
   * "interleaved": one tensor [experts, inputs, outputs] each of gates and factors in turns, and of the last projections.
   */
  readonly expert: ((expert: number) => string) | "stacked" | "interleaved";
  readonly mlp: MlpNames;
  /** The prefix of the MLP that every token takes, and its names where they differ. */
  readonly shared?: string;
  readonly sharedMlp?: MlpNames;
  readonly sharedGate?: string;
}

/** Names of a model's tensors. Those of layers are below `layers`.N, and all but the head are below one of `roots`. */
export interface Names {
  /** The first below which the table of embeddings is found. */
  readonly roots: readonly string[];
  readonly embed: string;
  readonly embedNorm: string;
  readonly positions: string;
  readonly types?: string;
  /** The table of the bias by relative position, without ".weight". */
  readonly relativeBias?: string;
  /** The two convolutions before the encoder of sounds. */
  readonly stem?: readonly [first: string, second: string];
  readonly projectIn: string;
  readonly projectOut: string;
  readonly layers: string;
  /** What the names of attention's tensors begin with below a layer. */
  readonly attention: string;
  /** The same of cross-attention. */
  readonly cross?: string;
  /** The matrices of attention that a layer must have. */
  readonly projections: readonly string[];
  /** The logits of attention sinks, where a layer must have them. */
  readonly sinks?: string;
  readonly norms: Readonly<Partial<Record<NormRole, string>>>;
  /** The prefix of the MLP below a layer. */
  readonly mlpAt: string;
  readonly mlp: MlpNames;
  readonly finalNorm: string;
  /** Below no root. */
  readonly head: string;
  /** Below no root: the head's bias [1, vocabSize] where it is not NAME.bias. */
  readonly headBias?: string;
  /** Below no root: the projection and the norm before the head of an encoder, which not all files have. */
  readonly transform?: { readonly dense: string; readonly norm: string };
}

/** What differs from Llama. Functions read further fields of config.json. */
export interface Family {
  readonly names?: Partial<Names>;
  /** Names that depend on the file. */
  readonly namesOf?: (file: Fields) => Partial<Names>;
  /** Which half of a model with two, and the family of the encoder where this is the decoder. */
  readonly part?: HfPart;
  readonly encoder?: Family;
  /** The fields that the number of layers can have. */
  readonly layers?: readonly string[];
  /** Matrices are [inputs, outputs]. */
  readonly layout?: "in-out";
  readonly norm?: Partial<NormSpec> & {
    /** The field of the epsilon. Default "rms_norm_eps". */
    readonly field?: string;
    /** What files without it may have instead. */
    readonly otherField?: string;
  };
  /** The field of the activation, and the word that stands for an absent one. Default "hidden_act", "silu". */
  readonly activation?: { readonly fields?: readonly string[]; readonly word?: string };
  /** The word of the activation, and whether the MLP is gated, where one field says both. */
  readonly mlp?: (file: Fields) => { readonly word: string; readonly gated: boolean };
  /** Whether the MLP is gated. Default true. */
  readonly plain?: true;
  /** Floats between the projections of the MLP. Default the field "intermediate_size". */
  readonly mlpDim?: (file: Fields, dModel: number) => number;
  /** A mixture of experts instead of the MLP; undefined for a layer without. */
  readonly moe?: (file: Fields, layer: number, mlp: (dim: number) => MlpSpec) => MoeSpec | undefined;
  readonly moeNames?: MoeNames;
  readonly parallel?: (file: Fields) => boolean;
  readonly addsToNormed?: (file: Fields) => boolean;
  /** What the outputs of branches are multiplied by. Default 1. */
  readonly scale?: (file: Fields) => number;
  readonly embed?: (file: Fields, dModel: number, norm: NormSpec) => Partial<EmbedSpec>;
  readonly relativeBias?: (file: Fields) => RelativeBias;
  /** Layers that have weights of their own, where others repeat them: `order` of ModelSpec. */
  readonly order?: (file: Fields) => readonly number[];
  /** Norms that a layer lacks. */
  readonly lacks?: (layer: number) => readonly NormRole[];
  readonly head?: (file: Fields) => Partial<HeadSpec>;
  /** Layer norms of each head's query and key: the flag, their names, and whether heads have gains of their own. */
  readonly headNorm?: {
    readonly flag: string;
    readonly q: string;
    readonly k: string;
    /** "together": one tensor [heads, headDim]; "apart": NAME.norms.N for each head. Default: one for all heads. */
    readonly each?: "together" | "apart";
  };
  /** Whether there is a norm after the last layer. Default true. */
  readonly finalNorm?: (file: Fields) => boolean;
  /** The field of the number of tokens. Default "max_position_embeddings". */
  readonly lengthField?: string;
  /** The head is shared if config.json does not say it. Default: if the file has none of its own; without a file, it is not. */
  readonly tied?: true;
  /** Fields, and the values besides null with which this package can compute the model. */
  readonly only?: Readonly<Record<string, readonly unknown[]>>;
  /** Fields that mean nothing for the result. */
  readonly ignored?: readonly string[];
  /** Tensors that are not read. */
  readonly ignoredTensors?: RegExp;
}

/** Names of tensors in the files of Llama. */
export const LLAMA_NAMES: Names = {
  roots: ["model.", "", "language_model.model.", "model.language_model."],
  embed: "embed_tokens",
  embedNorm: "embed_norm",
  positions: "embed_positions",
  projectIn: "project_in",
  projectOut: "project_out",
  layers: "layers",
  attention: "self_attn.",
  projections: ["q_proj", "k_proj", "v_proj", "o_proj"],
  norms: { attentionPre: "input_layernorm", mlpPre: "post_attention_layernorm" },
  mlpAt: "mlp",
  mlp: { gate: "gate_proj", up: "up_proj", down: "down_proj" },
  finalNorm: "norm",
  head: "lm_head",
};

// Norms that several families share.

/** Layer norms with the field that most families have for their epsilon. */
export const LAYER_NORM: NonNullable<Family["norm"]> = { kind: "layer", eps: 1e-5, field: "layer_norm_eps" };

/** The same with the field of GPT-2. */
export const LAYER_NORM_EPSILON: NonNullable<Family["norm"]> = { ...LAYER_NORM, field: "layer_norm_epsilon" };

/** Layer norms of the heads of queries and keys. */
export const LAYER_NORMS: NonNullable<Family["headNorm"]> = {
  flag: "qk_layernorm",
  q: "q_layernorm",
  k: "k_layernorm",
};
