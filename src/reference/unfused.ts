// Scores, softmax and weighted sums, one after the other.

import type { Reference } from "../wasm/abi.ts";
import { countColumns, keyAt, mayAttend, valueAt } from "./pages.ts";

const EXCLUDED = Number.NEGATIVE_INFINITY;

/** out[t, j] = exp(scores[t, j]) / (exp(sink) + Σ_i exp(scores[t, i])) for rows t in begin..end; 0 for a score of -Infinity. */
export const masked_softmax_f32: Reference["masked_softmax_f32"] = (out, scores, shape, head, begin, end) => {
  const columns = countColumns(shape);
  const sink = shape.sinks ? shape.sinks[head]! : EXCLUDED;
  for (let t = begin; t < end; t++) {
    const row = Float64Array.from(scores.subarray(t * columns, (t + 1) * columns));
    const largest = row.reduce((a, b) => Math.max(a, b), sink);
    let sum = sink === EXCLUDED ? 0 : Math.exp(sink - largest);
    for (const score of row) if (score !== EXCLUDED) sum += Math.exp(score - largest);
    for (const [j, score] of row.entries())
      out[t * columns + j] = score === EXCLUDED ? 0 : Math.exp(score - largest) / sum;
  }
};

/**
 * out[t] = Σ_j weights[t, j]·v[j] of one head, for queries t in begin..end. Excluded keys, whose weight is 0, are left out,
 * so that a NaN in their value has no effect. A weight of 0 for a key that may be attended takes part.
 */
export const weighted_sum_f32: Reference["weighted_sum_f32"] = (out, weights, pages, shape, head, begin, end) => {
  const columns = countColumns(shape);
  const kvHead = Math.floor(head / (shape.numHeads / shape.numKvHeads));
  for (let t = begin; t < end; t++)
    for (let c = 0; c < shape.valueDim; c++) {
      let sum = 0;
      for (let j = 0; j < shape.kvLen; j++) {
        const weight = weights[t * columns + j]!;
        if (weight !== 0 || mayAttend(shape, head, t, j)) sum += weight * valueAt(pages, shape, kvHead, j, c);
      }
      if (shape.extraKey) sum += weights[t * columns + shape.kvLen]! * shape.extraValue![kvHead * shape.valueDim + c]!;
      out[t * shape.outStride + head * shape.outHeadStride + c] = sum;
    }
};

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
