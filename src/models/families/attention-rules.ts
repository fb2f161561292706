// How the attention of a family differs from that of Llama, as data: the type of the records that single layers are read by, of
// config.json and of GGUF files.

import type { AttentionConfig, QkNormConfig } from "../../layers/attention/config.ts";
import type { Facts, Fields, HfPart } from "./facts.ts";
import type { RecurrentSpec } from "./recurrent.ts";

/** An AttentionConfig, and what `readAttentionWeights` cannot derive from the shapes of the tensors. */
export type HfAttentionConfig = AttentionConfig & {
  /** Row order of a fused projection: see `WeightsConfig`. */
  readonly fused?: "qkv" | "grouped";
};

/** The sizes of a layer. */
export type Shape = Required<Pick<AttentionConfig, "dModel" | "numHeads" | "numKvHeads" | "headDim">>;

/** The fields that hold the sizes and the number of layers: of several names, the first that is present. */
export type FieldNames = Readonly<Record<keyof Shape | "layers", readonly string[]>>;

export interface WindowRules {
  /** Tokens of the window if the file does not state it; null in a file means no window. Default none. */
  readonly tokens?: number;
  /** Whether the window applies only if the file's `use_sliding_window` is true, whatever `layer_types` states. */
  readonly optIn?: true;
  /**
   * Which layers have the window, if the file has no list of them: all but the last of each period, or with `patterned` of
   * `sliding_window_pattern` of the file; those from a layer on, where `max_window_layers` does; or what `slides` says. Default: every
   * layer. A GGUF file has its own pattern or the period.
   */
  readonly period?: number;
  readonly patterned?: true;
  readonly from?: number;
  readonly slides?: (layer: number, file: Fields) => boolean;
  /** The field of the tokens. Default "sliding_window". */
  readonly field?: string;
  /** What `layer_types` calls layers with the window. Default "sliding_attention". */
  readonly word?: string;
  /** Half of the tokens are before and half after the query, or as many before as after it. */
  readonly bothSides?: true | "each";
}

export interface RopeRules {
  /** Default "half". */
  readonly pairing?: "interleaved";
  /** Default 10 000, as in all GGUF files that do not state it. */
  readonly theta?: number;
  readonly thetaField?: string;
  /** The share of a head that rotates, if the file does not state it. Default 1. */
  readonly share?: number;
  readonly shareField?: string;
  /** The field of the number of components that rotate, instead of a share. */
  readonly dimField?: string;
  /** An odd number of components rotates as the even one above it. */
  readonly oddDim?: true;
  /** Layers with the window have a theta of their own and no scaling, unless the file has `rope_parameters`. */
  readonly local?: { readonly field: string; readonly theta: number };
  /** Layers with the window have no scaling, unless the file has `rope_parameters`. */
  readonly localUnscaled?: true;
  /** Files list sections of several axes of positions, which are the same for text. */
  readonly axes?: true;
  /** A "dynamic" scaling may state `alpha`, of which a power multiplies theta. */
  readonly alphas?: true;
  /** An "ntk" scaling multiplies theta by its factor, and divides each frequency by its (2/dim)-th power besides. */
  readonly grown?: true;
  /** A "proportional" kind rotates the first pairs of a whole head. */
  readonly proportional?: true;
  /** LongRoPE states its factors on cos and sin. */
  readonly mscales?: true;
  /** The scaling if the file does not state one. */
  readonly scaling?: object;
}

interface NormRules extends QkNormConfig {
  /** The field of the epsilon. Default "rms_norm_eps". */
  readonly epsField?: string;
  /** The field that decides whether there is a norm; absent means none. Default: there always is. */
  readonly flag?: string;
}

/** What GGUF files call a model, and what they do not state. */
interface GgufRules {
  /** Values of `general.architecture`, separated by spaces. Default those of `model_type`. */
  readonly names?: string;
  /** The rows of queries and keys were permuted when the file was made, so that pairs of RoPE are interleaved. */
  readonly permuted?: true;
  /** The tokens of the window stand for an absent key. Default: no window then. */
  readonly assumesWindow?: true;
  /** Only models of this many layers have the window. */
  readonly windowLayers?: number;
  /** In models of this many layers, scores are scaled by (dModel / numHeads)^-½ instead of headDim^-½. */
  readonly wideScale?: number;
  /** The factor on scores where the file states none. Default: headDim^-½. */
  readonly scale?: number;
  /** Layers with the window have sizes of their own. */
  readonly windowSizes?: true;
  /** In models of this many layers, ALiBi replaces RoPE. */
  readonly alibiLayers?: number;
  /** Keys, separated by spaces, that single layers refuse, and that whole decoders compute or that change nothing in them. */
  readonly wholeKeys?: string;
  /** The bounds of yarn's ramp are not rounded to whole pairs. */
  readonly smoothRamp?: true;
}

/** What files call a model. */
interface Named {
  /** Values of `model_type`, separated by spaces; none of a model that is read of GGUF files alone. */
  readonly types?: string;
  /** Undefined where GGUF files are not read. Those of a model with relatives may stand in the record of one of them. */
  readonly gguf?: GgufRules;
}

/** How the attention of a model differs from that of Llama. */
export interface AttentionRules extends Named {
  /** The kind of mixers that these rules are for. */
  readonly kind?: "heads";
  /** What reads whole models, where that is not `loadModel`. */
  readonly reader?: "loadEncoder" | "loadSeq2Seq";
  readonly names?: Partial<FieldNames>;
  /** Names of the sizes on each side of an encoder-decoder model. */
  readonly sides?: { readonly encoder: Partial<FieldNames>; readonly decoder: Partial<FieldNames> };
  /** Defaults of its class for fields that a file lacks. */
  readonly defaults?: Partial<Shape>;
  /** Default true. "is_decoder": the file's field of this name, false in GGUF files. */
  readonly causal?: false | "is_decoder";
  /** The file's `use_bidirectional_attention` says whether later keys are attended, too: then the window is on both sides. */
  readonly statesDirection?: true;
  /** An encoder although it is causal. */
  readonly isEncoder?: true;
  readonly rope?: RopeRules | false;
  /** What differs of the sizes of a layer. */
  readonly shapeOf?: (file: Fields, layer: number, windowed: boolean) => Partial<Shape>;
  /** Whether a layer rotates: `windowed` if it has the window, `windows` if the model has any. Default: every layer does. */
  readonly rotates?: (layer: number, windowed: boolean, windows: boolean, facts: Facts) => boolean;
  readonly window?: WindowRules;
  /** RMS norms of queries and keys before RoPE. Other norms of GGUF files are refused. */
  readonly qkNorm?: NormRules;
  /** The flag of layer norms of queries and keys, which whole decoders compute and single layers of attention do not. */
  readonly layerNormFlag?: string;
  /** The field of the limit of queries, keys and values, which whole decoders compute, too. */
  readonly limitField?: string;
  /** The factor on scores. Default: 1/√headDim. GGUF files state it. */
  readonly scale?: (file: Fields) => number | undefined;
  /** The softcap if the file does not state it, 0 for none; null in a file means none. Default: the field is unknown. */
  readonly softcap?: number;
  /** Scores have the published slopes of ALiBi. */
  readonly alibi?: true;
  readonly fused?: HfAttentionConfig["fused"];
  /** Fields, and the values besides null with which this package can compute the model. */
  readonly only?: Readonly<Record<string, readonly unknown[]>>;
  /** Fields of the layers beside attention that these models have. */
  readonly beside?: readonly string[];
  /** Self-attention adds a bias by relative position, which is not a weight of the layer. */
  readonly relativeBias?: true;
  /** What only this model has, such as slopes, on top of the rest. */
  readonly more?: (file: Fields, shape: Shape, layer: number) => Partial<HfAttentionConfig>;
}

/** How the latent attention (MLA) of a model differs from that of DeepSeek-V2. */
export interface LatentRules extends Named {
  readonly kind: "latent";
  /** The file's `rope_interleave` says how components are paired: false for halves. Default: they are interleaved. */
  readonly statesPairing?: true;
  /** `partial_rotary_factor` is the share of a whole head that rotates. */
  readonly sharesHead?: true;
  /** Pairs of RoPE are halves. */
  readonly halves?: true;
  /** Nothing rotates. */
  readonly unrotated?: true;
  /** Base of RoPE where the file states none. Default: it must. */
  readonly theta?: number;
  /** The ranks of queries where the file does not state them. Default: it must. */
  readonly qLoraRank?: number;
  /** The width of value heads where the file does not state it is dModel / numHeads. Default: it must. */
  readonly valueShare?: true;
}

/** Layers with a state in place of keys and values. */
export interface RecurrentRules {
  readonly kind: "recurrent";
  read(facts: Facts, layer: number): RecurrentSpec;
}

/** Layers of several mixers side by side, and what the outputs of each are multiplied by. */
export interface ParallelRules {
  readonly kind: "parallel";
  readonly parts: readonly {
    readonly rules: AttentionRules | RecurrentRules;
    /** What the names of its tensors begin with below a layer. */
    readonly at: string;
    scale(facts: Facts): number;
  }[];
}

/** How a layer is read, by its kind. */
export type LayerRules = AttentionRules | LatentRules | RecurrentRules | ParallelRules;

/** What the reader of a layer knows beyond config.json. */
export interface Reading {
  /** Tokens of the longest sequence that will be run. */
  readonly maxSeqLen?: number;
  /** Whether layer norms of queries and keys are computed by whoever runs the layer. */
  readonly layerNorms?: boolean;
  /** Whether the limit of queries, keys and values is. */
  readonly limits?: boolean;
  /** Which attention of a model with two halves. Default that of the decoder. */
  readonly part?: HfPart;
}
