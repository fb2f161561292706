import { FORMAT_F16, PAGE } from "../../assembly/layout.ts";
import type { AttentionShape, Page, Plain, Reference } from "../wasm/abi.ts";
import { keyAt, quantized, valueAt } from "./cache.ts";

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
  const { qLen, numHeads, numKvHeads, valueDim } = shape;
  const group = numHeads / numKvHeads;
  for (let row = begin; row < end; row++) {
    const kvHead = Math.floor(row / (qLen * group));
    const token = Math.floor((row % (qLen * group)) / group);
    const head = kvHead * group + (row % group);
    const attended = attendedBy(shape, q, pages, token, head, kvHead);

    let top = Number.NEGATIVE_INFINITY;
    for (const { score } of attended) top = Math.max(top, score);
    const shift = top === Number.NEGATIVE_INFINITY ? 0 : top;
    let sum = 0;
    for (const { score } of attended) sum += Math.exp(score - shift);
    for (let d = 0; d < valueDim; d++) {
      let total = 0;
      for (const { score, value } of attended) total += Math.exp(score - shift) * value(d);
      out[token * shape.outStride + head * shape.outHeadStride + d] = total * (sum === 0 ? 0 : 1 / sum);
    }
    if (shape.lse) shape.lse[head * qLen + token] = sum === 0 ? Number.NEGATIVE_INFINITY : shift + Math.log(sum);
  }
};

/** The keys, extras and sink that one row attends. */
export function attendedBy(
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
    if (added === Number.NEGATIVE_INFINITY) continue;
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
