// How a family of whole models differs from Llama, as data: the type of what each file of a family states.

import type { WeightRole, XIELU } from "../mixers/weight.ts";
import type {
  ActivationSpec,
  BranchFactors,
  EmbedSpec,
  HeadSpec,
  HeadsMore,
  MlpSpec,
  ModelSpec,
  MoeSpec,
  NormRole,
  NormSpec,
  RelativeBias,
  RouterSpec,
  StreamsSpec,
  Temperature,
} from "../spec/spec.ts";
import type { AttentionRules, LatentRules, LayerRules } from "./attention-rules.ts";
import type { Facts, Fields, HfPart } from "./facts.ts";
import type { RecurrentSpec } from "./recurrent.ts";

/** Names of the tensors of an MLP below its prefix, without ".weight" and ".bias". */
export interface MlpNames {
  /** The gate, or with `up` undefined the gate and the other factor in one matrix, in this order. */
  readonly gate?: string;
  /** In that one matrix, the gate comes last. */
  readonly gateLast?: true;
  readonly up?: string;
  readonly down: string;
}

/** Names of the tensors of a mixture of experts, below its layer. */
export interface MoeNames {
  readonly router: string;
  /** The whole name of the vector that is added to scores for the choice. */
  readonly correction?: string;
  /** That vector is a matrix of one row. */
  readonly correctionRow?: boolean;
  /**
   * The prefix of an expert's MLP, and its names; or "stacked": tensors [experts, outputs, inputs] of the same names; or
   * "transposed": the same as [experts, inputs, outputs]; or "interleaved": one tensor of that shape each of gates and factors in
   * turns, and of the last projections.
   */
  readonly expert: ((expert: number) => string) | "stacked" | "transposed" | "interleaved";
  /** Stacked tensors have no ".weight" behind their names. */
  readonly unsuffixed?: true;
  readonly mlp: MlpNames;
  /** The prefix of the MLP that every token takes, and its names where they differ. */
  readonly shared?: string;
  readonly sharedMlp?: MlpNames;
  readonly sharedGate?: string;
  /** The projections on either side of experts that are narrower than the model. */
  readonly expertsIn?: string;
  readonly expertsOut?: string;
  /** Beside stacked experts, that gate is a vector. */
  readonly sharedGateFlat?: boolean;
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
  /** The table of distances, and its norm. */
  readonly distances?: string;
  readonly distancesNorm?: string;
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
  /** The number that multiplies a layer's output, if there is one. */
  readonly layerScale?: string;
  /** The projection that gates the outputs of heads. */
  readonly attentionGate?: string;
  /** The scalars of xIELU below the prefix of the MLP. */
  readonly xielu?: Readonly<Record<keyof typeof XIELU, { readonly name: string; readonly shape: readonly number[] }>>;
  /** The logits of attention sinks, where a layer must have them. */
  readonly sinks?: string;
  /** Whole names of weights that few families have, by their role. Of several alike, "#" is the number of each; else they are stacked. */
  readonly others?: Readonly<Partial<Record<WeightRole, string>>>;
  readonly norms: Readonly<Partial<Record<NormRole, string>>>;
  /** Those of norms whose tensors have no ".weight" behind their names. */
  readonly bareNorms?: readonly NormRole[];
  /** The prefix of the MLP below a layer, and the one that files may have instead. */
  readonly mlpAt: string;
  readonly otherMlpAt?: string;
  readonly mlp: MlpNames;
  readonly finalNorm: string;
  /** Below no root. */
  readonly head: string;
  /** Below no root: the head's bias [1, vocabSize] where it is not NAME.bias. */
  readonly headBias?: string;
  /**
   * Below no root: the projection and the norm before the head of an encoder, which not all files have; and the field of its activation,
   * where that is not the one of MLPs.
   */
  readonly transform?: { readonly dense: string; readonly norm: string; readonly activation?: string };
}

/** How the tensors of a file differ from Llama's besides their names. */
export interface TensorForm {
  /** Which half of a model with two. */
  readonly part?: HfPart;
  /** Matrices are [inputs, outputs]. */
  readonly layout?: "in-out";
  readonly moeNames?: MoeNames;
  /** Layer norms of each head's query and key: the flag, their names, and whether heads have gains of their own. */
  readonly headNorm?: {
    readonly flag: string;
    /** What an absent flag stands for. Default false. */
    readonly otherwise?: true;
    readonly q: string;
    readonly k: string;
    /** "together": one tensor [heads, headDim]; "apart": NAME.norms.N for each head. Default: one for all heads. */
    readonly each?: "together" | "apart";
  };
  /**
   * The matrices of layers have one scale each: as a factor of their products; or they are of -1, 0 and 1, "packed" in pairs of bits,
   * with a scale that multiplies them or by which they are "divided"; or they are stored as floats, and rounded "online" to these.
   */
  readonly scales?: "product" | "packed" | "divided" | "online" | undefined;
  /** Tensors that are not read. */
  readonly ignoredTensors?: RegExp;
  /** The file has towers of other modalities: what lies beside the text model is not read. */
  readonly hasTowers?: true;
  /** Names of attention's tensors, without ".weight", where they are not those of the names in tensor-names.ts. */
  readonly attentionNames?: Readonly<Record<string, string>>;
  /** The projection of queries has rows of queries, then of gates of the outputs, of each head; also in GGUF files. */
  readonly gatedQueries?: true;
  /** The joint projection of attention has so many blocks, each of the rows of its queries, values and keys, in this order. */
  readonly fusedBlocks?: number;
  /**
   * Which biases there are, which shapes do not say, where that is not by the flags `attention_bias` and `mlp_bias`. Parameters are
   * counted by it; what reads files takes those that there are.
   */
  readonly biases?: (facts: Facts) => readonly BiasPart[];
}

/** Where a bias is. "qkv" is of queries, keys and values, "o" of attention's outputs. */
export type BiasPart = "qkv" | "o" | "mlp" | "router" | "norm" | "headNorm" | "head";

/** How GGUF files of whole models differ from those of Llama besides what config.json states too. */
interface GgufForm {
  /** Of config.json and safetensors, single layers alone are read. */
  readonly alone?: true;
  /** Names of norms where they are not those of their role. */
  readonly norms?: Names["norms"];
  /** Some files have the scales of matrices as factors of their products. */
  readonly scaled?: true;
  /** In layers that lack the norm of the MLP, both branches read the residual. */
  readonly oneNorm?: true;
  /** Whether the weights of a token's experts are divided by their sum, if the file does not state it. Default true. */
  readonly renormalise?: false;
  /** The name of the last norm. */
  readonly finalNorm?: string;
  /**
   * A layer with a state in place of keys and values; undefined for one that attends. `keys` are those of the layer, and `has` looks
   * for its tensors.
   */
  readonly recurrent?: (keys: Facts, has: (tensor: string) => boolean) => RecurrentSpec | undefined;
  /** Such layers also attend: what both give is added. */
  readonly beside?: true;
  /** As `pairs` of the family. */
  readonly pairs?: (keys: Facts, layers: number) => readonly (readonly [mixer: number, mlp: number | undefined])[];
  /** How queries grow with their positions. */
  readonly temperature?: (keys: Facts) => Temperature | undefined;
  /** Experts beside the MLP of the layer, which every token takes: their names, and what differs of their router. */
  readonly experts?: { readonly names: Partial<MoeNames>; router(keys: Facts): Partial<RouterSpec> };
  /** The activation of a layer, whose keys these are, where no word says it. */
  readonly activation?: (keys: Facts) => ActivationSpec;
}

/** What differs from Llama: RMS norms before attention and MLP, a gated MLP with SiLU, and a head of its own. */
export interface Family extends TensorForm {
  readonly attention: AttentionRules | LatentRules;
  /** The rules of a layer that has something else in place of attention. */
  readonly mixer?: (facts: Facts, layer: number) => LayerRules | undefined;
  /** How GGUF files differ, whose whole models are read. */
  readonly gguf?: GgufForm;
  readonly names?: Partial<Names>;
  /** Names that depend on the file. */
  readonly namesOf?: (facts: Facts) => Partial<Names>;
  /** The family of the encoder where this is the decoder of a model with two halves. */
  readonly encoder?: Family;
  /** The fields that the number of layers can have. */
  readonly layers?: readonly string[];
  readonly norm?: Partial<NormSpec> & {
    /** The field of the epsilon. Default "rms_norm_eps". */
    readonly field?: string;
    /** What files without it may have instead. */
    readonly otherField?: string;
  };
  /** How queries of a layer grow with their positions, if they do. */
  readonly temperature?: (file: Fields, layer: number) => Temperature | undefined;
  /** What is computed of heads besides their attention, if anything. `has` looks for a tensor of the layer in a GGUF file. */
  readonly heads?: (facts: Facts, layer: number, has?: (tensor: string) => boolean) => HeadsMore | undefined;
  /** The field of the activation, and the word that stands for an absent one. Default "hidden_act", "silu". */
  readonly activation?: { readonly fields?: readonly string[]; readonly word?: string };
  /** That of experts, where it is none of those that have a word. */
  readonly expertActivation?: ActivationSpec;
  /** The word of the activation, and whether the MLP is gated, where one field says both. */
  readonly mlp?: (file: Fields) => { readonly word: string; readonly gated: boolean };
  /** What is left of the gates of a layer's MLP. */
  readonly sparse?: (file: Fields, layer: number) => ActivationSpec["sparse"];
  /** Rows of a token between layers, if there are several. */
  readonly streams?: (facts: Facts) => StreamsSpec;
  /** The rank of what attention reads beside it. GGUF files say it by the shape of the matrices. */
  readonly lowRank?: (facts: Facts) => number;
  /** The MLP has no gate. */
  readonly plain?: true;
  /** Floats between the projections of the MLP. Default the field "intermediate_size". */
  readonly mlpDim?: (file: Fields, dModel: number, layer: number) => number;
  /** A mixture of experts instead of the MLP; undefined for a layer without. */
  readonly moe?: (file: Fields, layer: number, mlp: (dim: number) => MlpSpec) => MoeSpec | undefined;
  /** Both branches read the residual. */
  readonly parallel?: (facts: Facts) => boolean;
  readonly addsToNormed?: (file: Fields) => boolean;
  /** What the outputs of branches are multiplied by. Default 1. */
  readonly scale?: (facts: Facts) => number;
  /** What the outputs of MLPs are multiplied by besides. Default 1. */
  readonly mlpScale?: (facts: Facts) => number;
  /** What branches and what they are added to are multiplied by, where that is not the same in all layers. Default 1 each. */
  readonly factors?: (facts: Facts, layer: number) => BranchFactors;
  /** What the gates of MLPs are multiplied by in their sigmoid: of SiLU, `mlpScale` has the same factor. Default 1. */
  readonly gateScale?: (facts: Facts) => number;
  readonly embed?: (facts: Facts, dModel: number, norm: NormSpec) => Partial<EmbedSpec>;
  readonly relativeBias?: (file: Fields) => RelativeBias;
  readonly distances?: (file: Fields, norm: NormSpec) => ModelSpec["distances"];
  /** The layers of the file that each layer here consists of, where it numbers mixers and MLPs apart. */
  readonly pairs?: (facts: Facts) => readonly (readonly [mixer: number, mlp: number | undefined])[];
  /** Layers that have weights of their own, where others repeat them: `order` of ModelSpec. */
  readonly order?: (file: Fields) => readonly number[];
  /** Norms that a layer lacks. */
  readonly lacks?: (layer: number, file: Fields) => readonly NormRole[];
  readonly head?: (facts: Facts) => Partial<HeadSpec>;
  /** Logits have no softcap beside towers, as transformers computes them. */
  readonly cappedAlone?: true;
  /** Floats that a projection behind the last norm makes of an encoder's rows. Default: there is none. */
  readonly vectorDim?: (facts: Facts) => number;
  /** Whether there is a norm after the last layer. Default true. */
  readonly finalNorm?: (facts: Facts) => boolean;
  /** The field of the number of tokens. Default "max_position_embeddings". */
  readonly lengthField?: string;
  /**
   * The head is shared if config.json does not say it. Default: if the file has none of its own; without a file, it is not. "never": it is
   * of its own whatever config.json says.
   */
  readonly tied?: true | "never";
  /** Fields, and the values besides null with which this package can compute the model. */
  readonly only?: Readonly<Record<string, readonly unknown[]>>;
  /** Fields that mean nothing for the result. */
  readonly ignored?: readonly string[];
  /** What fields without a default of their own stand for where the file lacks them, in families whose files lack some. */
  readonly absent?: Readonly<Record<string, unknown>>;
}

/** The tensors of an MLP with a gate. */
export const GATED_MLP: MlpNames = { gate: "gate_proj", up: "up_proj", down: "down_proj" };

/** Names of tensors in the files of Llama. */
export const LLAMA_NAMES: Names = {
  roots: ["model.", "", "language_model.model.", "model.language_model.", "model.text_model."],
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
  mlp: GATED_MLP,
  finalNorm: "norm",
  head: "lm_head",
};

// What several families share. Objects have no spread here and in the records of attention, so that bundlers can drop them.

/** Layer norms with the field that most families have for their epsilon. */
export const LAYER_NORM: NonNullable<Family["norm"]> = { kind: "layer", eps: 1e-5, field: "layer_norm_eps" };

/** The same with the field of GPT-2. */
export const LAYER_NORM_EPSILON: NonNullable<Family["norm"]> = {
  kind: "layer",
  eps: 1e-5,
  field: "layer_norm_epsilon",
};

/** Layer norms of the heads of queries and keys. */
export const HEAD_NORMS = { flag: "qk_layernorm", q: "q_layernorm", k: "k_layernorm" } as const;

/** In GGUF files: the norm of the MLP has the name of one on attention's outputs. */
export const SECOND_NORM: Names["norms"] = { attentionPre: "attn_norm", mlpPre: "post_attention_norm" };

/** One norm for both branches. */
export const ONE_NORM: Names["norms"] = { attentionPre: "input_layernorm" };

/** The gate and the other factor in one matrix. */
export const FUSED_MLP: MlpNames = { gate: "gate_up_proj", down: "down_proj" };

/** Four matrices of attention of which the last is out_proj. */
export const OUT_PROJ: Names["projections"] = ["q_proj", "k_proj", "v_proj", "out_proj"];

/** Models with biases throughout. */
export const ALL_BIASES = (): readonly BiasPart[] => ["qkv", "o", "mlp", "norm"];
