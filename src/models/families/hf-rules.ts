// The rules by which config.json describes the attention of a model, as data: a row of a table for each `model_type`.

import type { AttentionConfig, QkNormConfig } from "../../layers/attention/config.ts";
import type { Fields, HfPart } from "./fields.ts";

/** An AttentionConfig, and what `readAttentionWeights` cannot derive from the shapes of the tensors. */
export type HfAttentionConfig = AttentionConfig & {
  /** Row order of a fused projection: see `WeightsConfig`. */
  readonly fused?: "qkv" | "grouped";
};

/** The sizes of a layer. */
export type Shape = Required<Pick<AttentionConfig, "dModel" | "numHeads" | "numKvHeads" | "headDim">>;

/** The fields that hold the sizes and the number of layers: of several names, the first that is present. */
export type Names = Readonly<Record<keyof Shape | "layers", readonly string[]>>;

export const NAMES: Names = {
  dModel: ["hidden_size"],
  numHeads: ["num_attention_heads"],
  numKvHeads: ["num_key_value_heads"],
  headDim: ["head_dim"],
  layers: ["num_hidden_layers"],
};

export interface WindowRules {
  /** Tokens of the window if the file does not state it; null in a file means no window. Default none. */
  readonly tokens?: number;
  /** Whether the window applies only if the file's `use_sliding_window` is true, whatever `layer_types` states. */
  readonly optIn?: true;
  /**
   * Which layers have the window, if the file has no `layer_types`: all but the last of each period, where
   * `sliding_window_pattern` of the file takes precedence; those from a layer on, where `max_window_layers` does; or what
   * `slides` says. Default: every layer.
   */
  readonly period?: number;
  readonly from?: number;
  readonly slides?: (layer: number, file: Fields) => boolean;
  /** The field of the tokens. Default "sliding_window". */
  readonly field?: string;
  /** Half of the tokens are before and half after the query. */
  readonly bothSides?: true;
}

export interface RopeRules {
  /** Default "half". */
  readonly pairing?: "interleaved";
  /** Default 10 000. */
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
  /** The scaling if the file does not state one. */
  readonly scaling?: object;
}

export interface NormRules extends QkNormConfig {
  /** The field of the epsilon. Default "rms_norm_eps". */
  readonly epsField?: string;
  /** The field that decides whether there is a norm; absent means none. Default: there always is. */
  readonly flag?: string;
}

/** How the attention of a model differs from that of Llama. */
export interface Rules {
  readonly names?: Partial<Names>;
  /** Names of the sizes on each side of an encoder-decoder model. */
  readonly sides?: { readonly encoder: Partial<Names>; readonly decoder: Partial<Names> };
  /** Defaults of its class for fields that a file lacks. */
  readonly defaults?: Partial<Shape>;
  /** Default true. "is_decoder": the file's field of this name. */
  readonly causal?: false | "is_decoder";
  readonly rope?: RopeRules | false;
  /** Whether a layer rotates. Default: every layer does. */
  readonly rotates?: (layer: number, windowed: boolean, file: Fields) => boolean;
  readonly window?: WindowRules;
  readonly qkNorm?: NormRules;
  /** The flag of layer norms of queries and keys, which whole decoders compute and single layers of attention do not. */
  readonly layerNormFlag?: string;
  /** The factor on scores. Default: 1/√headDim. */
  readonly scale?: (file: Fields) => number | undefined;
  /** The softcap if the file does not state it, 0 for none; null in a file means none. Default: the field is unknown. */
  readonly softcap?: number;
  readonly fused?: HfAttentionConfig["fused"];
  /** Fields, and the values besides null with which this package can compute the model. */
  readonly only?: Readonly<Record<string, readonly unknown[]>>;
  /** Self-attention adds a bias by relative position, which is not a weight of the layer. */
  readonly relativeBias?: true;
  /** What only this model has, such as slopes, on top of the rest. */
  readonly more?: (file: Fields, shape: Shape, layer: number) => Partial<HfAttentionConfig>;
}

/** What the reader of a layer knows beyond config.json. */
export interface Reading {
  /** Tokens of the longest sequence that will be run. */
  readonly maxSeqLen?: number;
  /** Whether layer norms of queries and keys are computed by whoever runs the layer. */
  readonly layerNorms?: boolean;
  /** Which attention of a model with two halves. Default that of the decoder. */
  readonly part?: HfPart;
}
