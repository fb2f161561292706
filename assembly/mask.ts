// Which keys a query may attend, for the unfused path: a range of positions, and in it the bytes of keep and -Infinity
// in the bias. The fields are those of AttentionShape.

import { AttentionShape, F32PtrOrNull, U8PtrOrNull } from "./types";

/** First key of query token t's range. */
// @ts-ignore: decorator
@inline
export function first_key(shape: AttentionShape, t: i32): i32 {
  return max(0, shape.qStart + t - shape.left);
}

/** The key behind the last of query token t's range, which is empty unless this is above the first. */
// @ts-ignore: decorator
@inline
export function end_key(shape: AttentionShape, t: i32): i32 {
  return min(shape.kvLen, shape.qStart + t + shape.right + 1);
}

// Rows of attention are numbered [kv head][token][head of the group].

/** The token of row r. */
// @ts-ignore: decorator
@inline
export function token_of(shape: AttentionShape, r: i32): i32 {
  return (r / (shape.numHeads / shape.numKvHeads)) % shape.qLen;
}

/** The head of row r. */
// @ts-ignore: decorator
@inline
export function head_of(shape: AttentionShape, r: i32): i32 {
  const group = shape.numHeads / shape.numKvHeads;
  return (r / (group * shape.qLen)) * group + (r % group);
}

/** keep[head, t, 0..kvLen], or null. */
// @ts-ignore: decorator
@inline
export function keep_row(shape: AttentionShape, head: i32, t: i32): U8PtrOrNull {
  if (!shape.keep) return 0;
  return shape.keep + <usize>head * shape.keepHeadStride + <usize>t * shape.keepRowStride;
}

/** bias[head, t, 0..kvLen], or null. */
// @ts-ignore: decorator
@inline
export function bias_row(shape: AttentionShape, head: i32, t: i32): F32PtrOrNull {
  if (!shape.bias) return 0;
  return shape.bias + ((<usize>head * shape.biasHeadStride + <usize>t * shape.biasRowStride) << 2);
}

/** Whether key j of the range is excluded by these rows of keep and bias. */
// @ts-ignore: decorator
@inline
export function is_excluded(keep: U8PtrOrNull, bias: F32PtrOrNull, j: i32): bool {
  if (keep != 0 && load<u8>(keep + j) == 0) return true;
  return bias != 0 && load<f32>(bias + (<usize>j << 2)) == f32.NEGATIVE_INFINITY;
}

/** The columns that stand behind the kvLen real ones in scores and weights: the extra key's, then the zero key's. */
// @ts-ignore: decorator
@inline
export function extra_columns(shape: AttentionShape): i32 {
  return (shape.extraKey ? 1 : 0) + (shape.zeroKey ? 1 : 0);
}

/** Whether keep or bias may exclude keys of a range. */
// @ts-ignore: decorator
@inline
export function is_masked(shape: AttentionShape): bool {
  return shape.keep != 0 || shape.bias != 0;
}
