import type { MatrixLayout, WeightTensor } from "../tensor/matrix.ts";

/**
 * The weights of one attention layer: either `wq`, `wk` and `wv`, or `wqkv`. What a layer lacks is undefined. A matrix is
 * floats, or as a file stores it: F32, F64, F16, BF16, Q8_0 or Q4_0, the last two "out-in".
 */
export interface AttentionWeights<Matrix extends WeightTensor = WeightTensor> {
  /** [numHeads·headDim, dModel]; with layout "in-out" [dModel, numHeads·headDim]. The same turn for each matrix. */
  readonly wq?: Matrix;
  /** [numKvHeads·headDim, kdim]. */
  readonly wk?: Matrix;
  /** [numKvHeads·valueDim, vdim]. */
  readonly wv?: Matrix;
  /** [numHeads·headDim + numKvHeads·headDim + numKvHeads·valueDim, dModel]: the rows of q, then k, then v. */
  readonly wqkv?: Matrix;
  /** [dModel, numHeads·valueDim]. */
  readonly wo: Matrix;
  /** One float for each output of the matrix. */
  readonly bq?: Float32Array;
  readonly bk?: Float32Array;
  readonly bv?: Float32Array;
  readonly bqkv?: Float32Array;
  readonly bo?: Float32Array;
  /** Gains of the RMS norm of queries and keys: [headDim], or [numHeads·headDim] and [numKvHeads·headDim]. */
  readonly qNorm?: Float32Array;
  readonly kNorm?: Float32Array;
  /** [numHeads]. One logit a head in the softmax's denominator; it has no value. */
  readonly sinkLogits?: Float32Array;
  /** One more key [numKvHeads·headDim] and value [numKvHeads·valueDim] behind the projected ones (add_bias_kv). */
  readonly biasK?: Float32Array;
  readonly biasV?: Float32Array;
  /** How the matrices lie; default "out-in". */
  readonly layout?: MatrixLayout;
}

/** Every field of AttentionWeights. */
export const WEIGHT_FIELDS: readonly (keyof AttentionWeights)[] = [
  ...(["wq", "wk", "wv", "wqkv", "wo", "bq", "bk", "bv", "bqkv", "bo", "qNorm", "kNorm"] as const),
  ...(["sinkLogits", "biasK", "biasV", "layout"] as const),
];
