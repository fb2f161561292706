// Pages of keys and values, and attention over them: scores, softmax and weighted sums one after the other, all in one pass, and
// statistics of the weights.

import { FORMAT_F16, PAGE, STATISTICS } from "../../assembly/layout.ts";
import type { AttentionShape, Page, Plain, Reference } from "../wasm/abi.ts";
import { quantized } from "./numbers.ts";
import { countColumns, keyAt, mayAttend, store, valueAt } from "./pages.ts";

// Tokens into pages of keys and values, and back.

/** Appends tokens begin..end to cache pages, in their format: pages[past + t] = k[t], v[t]. */
export const append_pages: Reference["append_pages"] = (pages, k, v, shape, past, begin, end) => {
  const { headDim, valueDim } = shape;
  for (let t = begin; t < end; t++)
    for (let h = 0; h < shape.numKvHeads; h++) {
      const [kAt, vAt] = [t * shape.kStride + h * shape.kHeadStride, t * shape.vStride + h * shape.vHeadStride];
      store(pages, shape, h, true, past + t, k.subarray(kAt, kAt + headDim));
      store(pages, shape, h, false, past + t, v.subarray(vAt, vAt + valueDim));
    }
};

/** Reads tokens begin..end from cache pages of any format: k[t], v[t] = pages[past + t]. */
export const gather_pages: Reference["gather_pages"] = (k, v, pages, shape, past, begin, end) => {
  for (let t = begin; t < end; t++)
    for (let h = 0; h < shape.numKvHeads; h++) {
      for (let d = 0; d < shape.headDim; d++)
        k[t * shape.kStride + h * shape.kHeadStride + d] = keyAt(pages, shape, h, past + t, d);
      for (let c = 0; c < shape.valueDim; c++)
        v[t * shape.vStride + h * shape.vHeadStride + c] = valueAt(pages, shape, h, past + t, c);
    }
};

/** Appends tokens to cache pages of float32: `append_pages` for this one format. */
export const append_f32: Reference["append_f32"] = append_pages;

/** Reads tokens from cache pages of float32: `gather_pages` for this one format. */
export const gather_f32: Reference["gather_f32"] = gather_pages;

// Scores, softmax and weighted sums, one after the other.

const EXCLUDED = -Infinity;

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
        if (!mayAttend(shape, head, t, j)) score = -Infinity;
      }
      out[t * columns + j] = score;
    }
};

/** Scores over cache pages of float32: `scores_pages` for this one format. */
export const scores_f32: Reference["scores_f32"] = scores_pages;

type Shape = Plain<AttentionShape>;

/** Scores are kept in units of ln 2, where this is the lowest float: a finite bias below counts as this. */
const LOWEST_BIAS = -(2 - 2 ** -23) * 2 ** 127 * Math.LN2;

/** One thing that a query attends: its key unless it is none, a score, and d -> the value's component. */
interface Attended {
  readonly key?: number;
  readonly score: number;
  readonly value: (d: number) => number;
}

/**
 * Attention over cache pages of any format: out[t, h] = Σ_j softmax(score)[j] · v[j, kvHead], where
 * score[j] = softcap(scale · q[t, h] · k[j, kvHead]) - slope·|p - j| + bias[j] and p = qStart + t, over the keys j in
 * [p - left, p + right] and below kvLen that keep and bias allow, plus the extra key, the zero key and the sink if there are
 * any. Rows begin..end are those of [numKvHeads, qLen, heads of a group]. The query is rounded to 14 bits for keys in integer
 * formats. The kernel also rounds softmax weights to 14 bits for values in integer formats; this twin does not. scratch is
 * not used.
 */
export const attention_pages: Reference["attention_pages"] = (out, q, pages, _scratch, shape, begin, end) => {
  for (const { token, head, attended, shift, sum, lse } of attendingRows(shape, q, pages, begin, end)) {
    for (let d = 0; d < shape.valueDim; d++) {
      let total = 0;
      for (const { score, value } of attended) total += Math.exp(score - shift) * value(d);
      out[token * shape.outStride + head * shape.outHeadStride + d] = total * (sum === 0 ? 0 : 1 / sum);
    }
    if (shape.lse) shape.lse[head * shape.qLen + token] = lse;
  }
};

/** Rows begin..end: what each attends, its largest score, Σ exp(score - shift), and the logarithm of Σ exp(score). */
function* attendingRows(shape: Shape, q: Float32Array, pages: readonly Page[], begin: number, end: number) {
  const { qLen, numHeads, numKvHeads } = shape;
  const group = numHeads / numKvHeads;
  for (let row = begin; row < end; row++) {
    const kvHead = Math.floor(row / (qLen * group));
    const token = Math.floor((row % (qLen * group)) / group);
    const head = kvHead * group + (row % group);
    const attended = attendedBy(shape, q, pages, token, head, kvHead);
    let top = -Infinity;
    for (const { score } of attended) top = Math.max(top, score);
    const shift = top === -Infinity ? 0 : top;
    let sum = 0;
    for (const { score } of attended) sum += Math.exp(score - shift);
    const lse = sum === 0 ? -Infinity : shift + Math.log(sum);
    yield { token, head, attended, shift, sum, lse };
  }
}

/** The keys, extras and sink that one row attends. */
function attendedBy(
  shape: Shape,
  q: Float32Array,
  pages: readonly Page[],
  token: number,
  head: number,
  kvHead: number,
): Attended[] {
  const { headDim, valueDim, keep, bias, slopes, sinks, extraKey, extraValue } = shape;
  const position = shape.qStart + token;
  const slope = slopes ? slopes[head]! : 0;

  const query = q.subarray(token * shape.qStride + head * shape.qHeadStride).subarray(0, headDim);
  // As the kernel scales queries before they become integers; scores are scaled back.
  const factor = Math.fround(shape.softcap > 0 ? shape.scale / shape.softcap : shape.scale * Math.LOG2E);
  const codes = quantized(
    query.map((x) => x * factor),
    8191,
  );
  const rounded = codes.integers.map((x) => (x * codes.scale) / factor);

  const score = (key: (d: number) => number, from: ArrayLike<number> = query): number => {
    let dot = 0;
    for (let d = 0; d < headDim; d++) dot += from[d]! * key(d);
    const scaled = dot * shape.scale;
    return shape.softcap > 0 ? shape.softcap * Math.tanh(scaled / shape.softcap) : scaled;
  };

  const attended: Attended[] = [];
  if (extraKey && extraValue) {
    const value = (d: number) => extraValue[kvHead * valueDim + d]!;
    attended.push({ score: score((d) => extraKey[kvHead * headDim + d]!), value });
  }
  if (shape.zeroKey) attended.push({ score: 0, value: () => 0 });
  if (sinks) attended.push({ score: sinks[head]!, value: () => 0 });

  const low = Math.max(0, position - shape.left);
  const high = Math.min(shape.kvLen, position + shape.right + 1);
  for (let j = low; j < high; j++) {
    if (keep && keep[head * shape.keepHeadStride + token * shape.keepRowStride + j] === 0) continue;
    const added = bias ? bias[head * shape.biasHeadStride + token * shape.biasRowStride + j]! : 0;
    if (added === -Infinity) continue;
    const page = pages[Math.floor(j / PAGE)]!;
    const integers = "bytes" in page && (page.formats & 3) > FORMAT_F16;
    const dot = score((d) => keyAt(pages, shape, kvHead, j, d), integers ? rounded : query);
    attended.push({
      key: j,
      score: dot - slope * Math.abs(position - j) + Math.max(added, LOWEST_BIAS),
      value: (d) => valueAt(pages, shape, kvHead, j, d),
    });
  }
  return attended;
}

/** Attention over cache pages of float32: `attention_pages` for this one format. */
export const attention_f32: Reference["attention_f32"] = attention_pages;

/** Where the keys have less of the weight, what is of w / W is 0. */
const LEAST = 2 ** -40;

/**
 * attention_pages, and statistics of the weights w[j] = e^(score[j] - lse) of its rows on their keys: rows[h, t] = lse, W = Σ w, that
 * over keys [0, first), that over the last `last` keys of the row's range; of p = w / W the entropy -Σ p ln p, the mean distance
 * Σ p |position - j| and the effective number 1 / Σ p²; 0; the topK largest w, of equal ones the first, and their keys, 0 and -1
 * where there are fewer. received[h, j] += Σ w over the rows.
 */
export const attention_statistics: Reference["attention_statistics"] = (
  out,
  q,
  pages,
  scratch,
  shape,
  statistics,
  begin,
  end,
) => {
  attention_pages(out, q, pages, scratch, shape, begin, end);
  const { topK, first, last, rows, received, receivedStride } = statistics;
  const size = STATISTICS + 2 * topK;
  const ids = new Int32Array(rows.buffer, rows.byteOffset, rows.length);
  for (const { token, head, attended, shift, sum, lse } of attendingRows(shape, q, pages, begin, end)) {
    const position = shape.qStart + token;
    const high = Math.min(shape.kvLen, position + shape.right + 1);
    const keys = attended.flatMap(({ key, score }) => {
      return key === undefined ? [] : { key, weight: sum === 0 ? 0 : Math.exp(score - shift) / sum };
    });

    const total = (of: (one: (typeof keys)[number]) => number) => keys.reduce((all, one) => all + of(one), 0);
    const mass = total(({ weight }) => weight);
    const part = mass <= LEAST ? 0 : 1 / mass;
    const squares = total(({ weight }) => (weight * part) ** 2);
    const at = (head * shape.qLen + token) * size;
    rows[at] = lse;
    rows[at + 1] = mass;
    rows[at + 2] = total(({ key, weight }) => (key < first ? weight : 0));
    rows[at + 3] = total(({ key, weight }) => (key >= high - last ? weight : 0));
    rows[at + 4] = -total(({ weight }) => (weight * part === 0 ? 0 : weight * part * Math.log(weight * part)));
    rows[at + 5] = total(({ key, weight }) => weight * part * Math.abs(position - key));
    rows[at + 6] = squares === 0 ? 0 : 1 / squares;
    rows[at + 7] = 0;
    // Equal ones keep their order.
    const best = [...keys].sort((a, b) => b.weight - a.weight);
    for (let i = 0; i < topK; i++) {
      rows[at + STATISTICS + i] = best[i]?.weight ?? 0;
      ids[at + STATISTICS + topK + i] = best[i]?.key ?? -1;
    }
    if (received) for (const { key, weight } of keys) received[head * receivedStride + key]! += weight;
  }
};
