// Around the layers of a decoder: rows of its table of tokens, the largest logits and their softmax, and mixtures of experts; scores of
// the rows of an index.

import {
  PANEL,
  SCORE_BINARY,
  SCORE_EUCLIDEAN,
  SCORE_INT8,
  SCORE_MANHATTAN,
  WEIGHT_BF16,
  WEIGHT_F16,
  WEIGHT_F32,
  WEIGHT_LOOKUP,
  WEIGHT_Q4_K,
  WEIGHT_Q8,
} from "../../assembly/layout.ts";
import type { EmbedShape, Plain, Reference } from "../wasm/abi.ts";
import { minOf, packedLookup, packedQ4, packedQ4K, packedQ8, widenBf16, widenF16 } from "./numbers.ts";
import { packedCodebook } from "./stored-blocks.ts";

/** w[n, i] of packed panels. */
function reader(
  w: Uint8Array,
  mins: Float32Array | null,
  { format, k, block }: Plain<EmbedShape>,
): (n: number, i: number) => number {
  const view = new DataView(w.buffer, w.byteOffset, w.byteLength);
  const at = (n: number, i: number) => (Math.floor(n / PANEL) * k + i) * PANEL + (n % PANEL);
  if (format === WEIGHT_F32) return (n, i) => view.getFloat32(4 * at(n, i), true);
  if (format === WEIGHT_F16) return (n, i) => widenF16(view.getUint16(2 * at(n, i), true));
  if (format === WEIGHT_BF16) return (n, i) => widenBf16(view.getUint16(2 * at(n, i), true));
  if (format === WEIGHT_Q4_K) {
    const packed = packedQ4K(w, k);
    return (n, i) =>
      Math.fround(
        Math.fround(Math.fround(packed.d(n, i) * packed.scale(n, i)) * packed.nibble(n, i)) -
          Math.fround(packed.least(n, i) * packed.minimum(n, i)),
      );
  }
  const integers = () => (format === WEIGHT_Q8 ? packedQ8(w, k, block) : packedQ4(w, k, mins ? 0 : 8));
  const packed =
    format > WEIGHT_Q4_K
      ? packedCodebook(w, k, format)
      : format === WEIGHT_LOOKUP
        ? packedLookup(w, k, block)
        : integers();
  return (n, i) => {
    const product = Math.fround(packed.scale(n, i) * packed.weight(n, i));
    return mins ? Math.fround(product - minOf(mins, k, packed.block, n, i)) : product;
  };
}

/** out[t, i] = scale · w[ids[t], i], for tokens begin..end: rows of a table in the panels of a projection. */
export const embed_rows: Reference["embed_rows"] = (out, ids, w, mins, shape, begin, end) => {
  const read = reader(w, mins, shape);
  for (let t = begin; t < end; t++)
    for (let i = 0; i < shape.k; i++) out[t * shape.k + i] = read(ids[t]!, i) * shape.scale;
};

/** The places of the k largest, descending; of equal ones the lower first, NaN behind all numbers. */
function largestOf(x: readonly number[], k: number): number[] {
  const order = (i: number, j: number) => {
    const [a, b] = [x[i]!, x[j]!];
    if (a !== b && !(Number.isNaN(a) && Number.isNaN(b))) return Number.isNaN(a) || a < b ? 1 : -1;
    return i - j;
  };
  return [...x.keys()].sort(order).slice(0, k);
}

/** values[r, :k] and ids[r, :k] are the k largest of x[r, :n] and where they are, for rows begin..end. */
export const top_k_f32: Reference["top_k_f32"] = (values, ids, x, n, stride, k, begin, end) => {
  for (let r = begin; r < end; r++) {
    const row = [...x.subarray(r * stride, r * stride + n)];
    for (const [j, i] of largestOf(row, k).entries()) {
      values[r * k + j] = row[i]!;
      ids[r * k + j] = i;
    }
  }
};

/** out[r] = largest, Σ exp(x[r, i] - largest), for rows begin..end. */
export const softmax_sums_f32: Reference["softmax_sums_f32"] = (out, x, n, stride, begin, end) => {
  for (let r = begin; r < end; r++) {
    const row = x.subarray(r * stride, r * stride + n);
    const largest = Math.max(...row);
    out[2 * r] = largest;
    out[2 * r + 1] = row.reduce((sum, each) => sum + Math.exp(each - largest), 0);
  }
};

/** out[i, :n] = x[slots[i] / topK, :n], for i in begin..end. */
export const gather_rows_f32: Reference["gather_rows_f32"] = (out, x, slots, topK, n, begin, end) => {
  for (let i = begin; i < end; i++) {
    const token = Math.floor(slots[i]! / topK);
    out.set(x.subarray(token * n, (token + 1) * n), i * n);
  }
};

/** out[slots[i] / topK, :n] += weights[slots[i]] · y[i, :n], for i in begin..end, in ascending order. */
export const scatter_rows_f32: Reference["scatter_rows_f32"] = (out, y, weights, slots, topK, n, begin, end) => {
  for (let i = begin; i < end; i++) {
    const slot = slots[i]!;
    const to = Math.floor(slot / topK) * n;
    for (let j = 0; j < n; j++) out[to + j] = out[to + j]! + weights[slot]! * y[i * n + j]!;
  }
};

const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));

function softmax(x: readonly number[]): number[] {
  const largest = Math.max(...x);
  const powers = x.map((v) => Math.exp(v - largest));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((v) => v / sum);
}

/** The experts of tokens begin..end and their weights, in descending order of choice; logits become scores. */
export const route_f32: Reference["route_f32"] = (ids, weights, logits, _scratch, correction, shape, begin, end) => {
  const { experts, topK, stride, groups, keepGroups, pairs, renormalise, scale } = shape;
  const size = experts / groups;
  for (let t = begin; t < end; t++) {
    const row = [...logits.subarray(t * stride, t * stride + experts)];
    const scores = shape.sigmoid ? row.map(sigmoid) : softmax(row);
    logits.set(scores, t * stride);
    const choices = scores.map((score, e) => score + (correction ? correction[e]! : 0));
    const numbers = Array.from({ length: groups }, (_, g) =>
      [...choices.slice(g * size, (g + 1) * size).filter((choice) => !Number.isNaN(choice))].sort((a, b) => b - a),
    );
    const best = numbers.map(([first = -Infinity, second = -Infinity]) => (pairs ? first + second : first));
    const kept = new Set(largestOf(best, keepGroups));
    const candidates = [...choices.keys()].filter((e) => kept.has(Math.floor(e / size)));
    const chosen = largestOf(
      candidates.map((e) => choices[e]!),
      topK,
    ).map((place) => candidates[place]!);
    const sum = renormalise ? chosen.reduce((total, e) => total + scores[e]!, 1e-20) : 1;
    for (const [j, e] of chosen.entries()) {
      ids[t * topK + j] = e;
      weights[t * topK + j] = (scores[e]! / sum) * scale;
    }
  }
};

/** out[i] = x[i], begin <= i < end: f16 or bf16 as float32. */
export const widen_f16: Reference["widen_f16"] = (out, x, bf16, begin, end) => {
  const widen = bf16 ? widenBf16 : widenF16;
  for (let i = begin; i < end; i++) out[i] = widen(x[i]!);
};

/** The numbers of vector r: floats, int8 or (`wide`) int16, or bits as -1 and 1, the most significant bit of a byte first. */
function numbersOf(data: Uint8Array, r: number, mode: number, rowBytes: number, wide: boolean): number[] {
  const bytes = wide ? 2 * rowBytes : rowBytes;
  const row = data.slice(r * bytes, (r + 1) * bytes);
  if (mode === SCORE_BINARY)
    return Array.from(row, (byte) => [7, 6, 5, 4, 3, 2, 1, 0].map((i) => 2 * ((byte >> i) & 1) - 1)).flat();
  if (mode !== SCORE_INT8) return [...new Float32Array(row.buffer)];
  return wide ? [...new Int16Array(row.buffer)] : [...new Int8Array(row.buffer)];
}

/** scores[q, r] = score(queries[q], rows[r]) · factors[r], for rows begin..end: products, or minus distances. */
export const score_rows: Reference["score_rows"] = (scores, queries, rows, factors, shape, begin, end) => {
  const { mode, rowBytes, dimensions, stride } = shape;
  const length = mode === SCORE_BINARY ? dimensions : Infinity;
  for (let q = 0; q < shape.queries; q++) {
    const query = numbersOf(queries, q, mode, rowBytes, mode === SCORE_INT8).slice(0, length);
    for (let r = begin; r < end; r++) {
      const row = numbersOf(rows, r, mode, rowBytes, false);
      const sum = (of: (x: number, y: number) => number) => query.reduce((all, x, i) => all + of(x, row[i]!), 0);
      let score: number;
      if (mode === SCORE_EUCLIDEAN) score = -Math.sqrt(sum((x, y) => (x - y) * (x - y)));
      else if (mode === SCORE_MANHATTAN) score = -sum((x, y) => Math.abs(x - y));
      else score = sum((x, y) => x * y);
      scores[q * stride + r] = Math.fround(score) * (factors ? factors[r]! : 1);
    }
  }
};
