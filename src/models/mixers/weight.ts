// A weight of a model, as an entry of the list in spec/weights.ts, and the tensor of a file that holds it, alone or with others.

import type { MatrixLayout } from "../../base/tensor/matrix.ts";
import type { RecurrentMatrix, RecurrentVector } from "../../layers/recurrent/config.ts";
import type { NormRole, NormSpec } from "../spec/spec.ts";

/** Of what mixes the tokens of a layer: of latents, "k" and "v" widen them, and the norms of latents are "qNorm" and "kvNorm". */
export type MixerRole =
  | ("q" | "k" | "v" | "o" | "qDown" | "kvDown")
  | ("qNorm" | "kNorm" | "kvNorm" | "sinks" | "qHeadNorm" | "kHeadNorm")
  | `lambda_${"q" | "k"}${1 | 2}`
  | `recurrent ${RecurrentMatrix | RecurrentVector}`;

/** The scalars of xIELU, and what they are where a file lacks them. */
export const XIELU = { xieluPositive: undefined, xieluNegative: undefined, xieluBeta: 0.5, xieluEps: -1e-6 } as const;

/** The gains of norms that have none. */
export const BARE = { optional: true, constant: 1 } as const;

/** What a weight is for. Those before the first layer and behind the last one, and those of a layer. */
export type WeightRole =
  | ("embed" | "headBias" | "embedNorm" | "positions" | "types" | "firstConv" | "secondConv" | "projectIn")
  | (
      | "projectOut"
      | "relativeBias"
      | "distances"
      | "distancesNorm"
      | "finalNorm"
      | "lastProjection"
      | "head"
      | "dense"
      | "denseNorm"
    )
  | ("attentionGate" | "layerScale" | keyof typeof XIELU)
  | ("perLayerTable" | "perLayerProjection" | "perLayerNorm" | "perLayerGate" | "perLayerOut")
  | ("lowRankDown" | "lowRankUp" | "streamIn" | "streamOut" | "streamRouter" | "streamPredict" | "streamCorrect")
  | "streamScale"
  | (MixerRole | NormRole | "router" | "correction" | "expertScales" | "gate" | "up" | "down" | "sharedGate")
  | ("expertsIn" | "expertsOut");

/** A weight of a model. A matrix or a norm stands for its bias, too. */
export interface Weight<Role extends WeightRole = WeightRole> {
  readonly role: Role;
  /** Index of `blocks`; undefined of what is before the first layer and behind the last one. */
  readonly layer?: number | undefined;
  /** Which of several alike. Whose MLP this is: an expert's, or that of the expert of all tokens; undefined in a layer without experts. */
  readonly expert?: number | "shared" | undefined;
  /** Which mixer of the layer this belongs to, which is packed as a whole: its own, or attention to an encoder's outputs. */
  readonly mixer?: "self" | "cross" | undefined;
  /** A matrix that rows are multiplied with [outputs, inputs], a vector [floats], or a table [rows, floats]. */
  readonly kind: "matrix" | "vector" | "table";
  readonly shape: readonly [n: number, k?: number];
  /** The part of the model whose formats it can have; undefined if it is always float32, such as what rounding would harm. */
  readonly part?: "attention" | "mlp" | "embed" | undefined;
  /** A table that stays outside of linear memory, as the file stores it: it is larger than what kernels read of it. */
  readonly outside?: true | undefined;
  /** Whether it can have a bias. */
  readonly bias?: true | undefined;
  /** Of a norm. */
  readonly norm?: NormSpec | undefined;
  /** Whether some models lack it. */
  readonly optional?: true | undefined;
  /** What all of its floats are where the file has none. */
  readonly constant?: number | undefined;
  /** False of experts that a token does not take; the first ones stand for those that it takes. */
  readonly active: boolean;
}

/** A weight among those of its layer, or of the ends, besides those of mixers. */
export const keyOf = ({ role, expert }: Pick<Weight, "role" | "expert">): string =>
  expert === undefined ? role : `${role} ${expert}`;

/** What a weight has besides its role, kind and shape. */
export type WeightOf = Partial<Omit<Weight, "role" | "kind" | "shape">>;

/** A weight [n, k], or [n] of a vector. */
export const weightOf = <Role extends WeightRole>(
  role: Role,
  kind: Weight["kind"],
  shape: Weight["shape"],
  more: WeightOf = {},
): Weight<Role> => ({ role, kind, shape, active: true, ...more });

/** A tensor of a file. */
export interface Source {
  readonly name: string;
  readonly shape: readonly number[];
  /** The weights of the list that it holds: the outputs of one after those of the other, or as `form` says. */
  readonly weights: readonly Weight[];
  /** They lie in the other order than in the list. */
  readonly reversed?: true | undefined;
  /** Files may lack it. */
  readonly optional?: boolean | undefined;
  readonly bias?: { readonly name: string; readonly shape: readonly number[]; readonly required?: true } | undefined;
  /** Default "out-in". */
  readonly layout?: MatrixLayout | undefined;
  /**
   * "stacked": [experts, outputs, inputs]; "interleaved": [experts, inputs, outputs], where outputs of an expert's weights take turns;
   * "convolution": [outputs, channels, 3]; "gates": the second half of the rows of each of so many `heads`.
   */
  readonly form?: "stacked" | "interleaved" | "convolution" | "gates" | undefined;
  readonly heads?: number | undefined;
}
