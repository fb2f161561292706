import type { AttentionShape, Plain, Reference } from "../wasm/abi.ts";
import { keyAt } from "./cache.ts";

/** Whether query token t may attend key j. */
export function mayAttend(shape: Plain<AttentionShape>, head: number, t: number, j: number): boolean {
  const p = shape.qStart + t;
  if (j < p - shape.left || j > p + shape.right || j >= shape.kvLen) return false;
  if (shape.keep?.[head * shape.keepHeadStride + t * shape.keepRowStride + j] === 0) return false;
  return shape.bias?.[head * shape.biasHeadStride + t * shape.biasRowStride + j] !== Number.NEGATIVE_INFINITY;
}

/** Columns of a row of scores or weights: the keys, the extra key, the zero key. */
export function countColumns({ kvLen, extraKey, zeroKey }: Plain<AttentionShape>): number {
  return kvLen + (extraKey ? 1 : 0) + (zeroKey ? 1 : 0);
}

/**
 * Scores of one head for queries t in begin..end, over cache pages of any format. Stage 0: out[t, j] = scale · q[t] · k[j].
 * Stage 1: after the softcap. Stage 2: also - slope·|p - j| + bias[t, j], and -Infinity for excluded keys.
 */
export const scores_pages: Reference["scores_pages"] = (out, q, pages, shape, head, stage, begin, end) => {
  const columns = countColumns(shape);
  const kvHead = Math.floor(head / (shape.numHeads / shape.numKvHeads));
  for (let t = begin; t < end; t++)
    for (let j = 0; j < columns; j++) {
      const isReal = j < shape.kvLen;
      const isExtra = j === shape.kvLen && shape.extraKey !== null;
      let score = 0;
      for (let d = 0; d < shape.headDim; d++) {
        const query = q[t * shape.qStride + head * shape.qHeadStride + d]!;
        if (isReal) score += shape.scale * query * keyAt(pages, shape, kvHead, j, d);
        if (isExtra) score += shape.scale * query * shape.extraKey![kvHead * shape.headDim + d]!;
      }
      if (stage > 0 && shape.softcap !== 0) score = shape.softcap * Math.tanh(score / shape.softcap);
      if (stage > 1 && isReal) {
        if (shape.slopes) score -= shape.slopes[head]! * Math.abs(shape.qStart + t - j);
        if (shape.bias) score += shape.bias[head * shape.biasHeadStride + t * shape.biasRowStride + j]!;
        if (!mayAttend(shape, head, t, j)) score = Number.NEGATIVE_INFINITY;
      }
      out[t * columns + j] = score;
    }
};

/** Scores over cache pages of float32: `scores_pages` for this one format. */
export const scores_f32: Reference["scores_f32"] = scores_pages;
