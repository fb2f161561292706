import type { MatrixLayout, WeightTensor } from "../tensor/matrix.ts";

/** The weights of a layer that do not depend on how queries, keys and values are stored. */
export interface CommonWeights<Matrix extends WeightTensor = WeightTensor> {
  /** Output projection [dModel, numHeads·valueDim]. */
  readonly wo: Matrix;
  /** Bias of wo, [dModel]. */
  readonly bo?: Float32Array;
  /** Gain of the RMS norm of queries: [headDim], or [numHeads·headDim] for the kind "full". */
  readonly qNorm?: Float32Array;
  /** Gain of the RMS norm of keys: [headDim], or [numKvHeads·headDim] for the kind "full". */
  readonly kNorm?: Float32Array;
  /** Attention sinks: one logit per head, [numHeads], that is part of the softmax's denominator and has no value. */
  readonly sinkLogits?: Float32Array;
  /** One more key [numKvHeads·headDim] that every query may attend, as PyTorch's add_bias_kv. Only together with biasV. */
  readonly biasK?: Float32Array;
  /** The value of that key, [numKvHeads·valueDim]. */
  readonly biasV?: Float32Array;
  /** Whether rows of a matrix are outputs ("out-in", the default) or inputs ("in-out"). */
  readonly layout?: MatrixLayout;
}

/** Weights whose queries, keys and values are projected by matrices of their own. */
export interface SeparateWeights<Matrix extends WeightTensor = WeightTensor> extends CommonWeights<Matrix> {
  /** Query projection [numHeads·headDim, dModel]. */
  readonly wq: Matrix;
  /** Key projection [numKvHeads·headDim, kdim]. */
  readonly wk: Matrix;
  /** Value projection [numKvHeads·valueDim, vdim]. */
  readonly wv: Matrix;
  /** Bias of wq, [numHeads·headDim]. */
  readonly bq?: Float32Array;
  /** Bias of wk, [numKvHeads·headDim]. */
  readonly bk?: Float32Array;
  /** Bias of wv, [numKvHeads·valueDim]. */
  readonly bv?: Float32Array;
  /** Not with wq, wk and wv. */
  readonly wqkv?: undefined;
  /** Not with wq, wk and wv. */
  readonly bqkv?: undefined;
}

/** Weights whose queries, keys and values are projected by one matrix. */
export interface FusedWeights<Matrix extends WeightTensor = WeightTensor> extends CommonWeights<Matrix> {
  /** The rows of wq, then wk, then wv: [(numHeads + numKvHeads)·headDim + numKvHeads·valueDim, dModel]. */
  readonly wqkv: Matrix;
  /** Bias of wqkv: bq, then bk, then bv. */
  readonly bqkv?: Float32Array;
  /** Not with wqkv. */
  readonly wq?: undefined;
  /** Not with wqkv. */
  readonly wk?: undefined;
  /** Not with wqkv. */
  readonly wv?: undefined;
  /** Not with wqkv. */
  readonly bq?: undefined;
  /** Not with wqkv. */
  readonly bk?: undefined;
  /** Not with wqkv. */
  readonly bv?: undefined;
}

/**
 * The weights of one attention layer: either `wq`, `wk` and `wv`, or the fused `wqkv`. Fields of what the layer does not have
 * are undefined. A matrix is a `Tensor`, or a stored tensor of F32, F64, F16, BF16, Q8_0 or Q4_0. Shapes are for the layout
 * "out-in"; with "in-out" every matrix is transposed, and Q8_0 and Q4_0 are not allowed.
 */
export type AttentionWeights<Matrix extends WeightTensor = WeightTensor> =
  | SeparateWeights<Matrix>
  | FusedWeights<Matrix>;

/** Every field of AttentionWeights. */
export const WEIGHT_FIELDS: readonly (keyof AttentionWeights)[] = [
  ...(["wq", "wk", "wv", "wqkv", "wo", "bq", "bk", "bv", "bqkv", "bo", "qNorm", "kNorm"] as const),
  ...(["sinkLogits", "biasK", "biasV", "layout"] as const),
];
