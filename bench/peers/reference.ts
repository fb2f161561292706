// The answers in float64, and the check of a peer's answer.

import { dense, rotate } from "./float64.ts";
import { toFloats } from "./int-matrix.ts";
import type { Block, Core, Layer, Product, Step, Work } from "./works.ts";

type Floats = ArrayLike<number>;

/** Largest error relative to the largest value of a row: several times that of float32, far below that of a wrong answer. */
const TOLERANCE = 2e-5;
/**
 * The same for integer weights, which are exact, and activations of 8 or 14 bits (exact) or of 7 (fast): more than twice
 * the expected error. A step of 2/255 in x of [-1, 1) is an error of 0.4 % of the answers' deviation, a step of 1/63 one of
 * 0.8 %, and the largest of thousands of errors is as many deviations from zero as the largest of as many answers.
 */
const INTEGER_TOLERANCES = { exact: 1e-2, fast: 2e-2 } as const;

type Heads = Pick<Layer, "numHeads" | "numKvHeads" | "headDim">;

/** One query [numHeads, headDim] over keys and values, one row [numKvHeads, headDim] for each token. */
function attendRow({ numHeads, numKvHeads, headDim }: Heads, q: Floats, k: readonly Floats[], v: readonly Floats[]) {
  const out = new Float64Array(numHeads * headDim);
  for (let h = 0; h < numHeads; h++) {
    const at = Math.floor(h / (numHeads / numKvHeads)) * headDim;
    const scores = k.map((key) => {
      let dot = 0;
      for (let d = 0; d < headDim; d++) dot += q[h * headDim + d]! * key[at + d]!;
      return dot / Math.sqrt(headDim);
    });
    const largest = scores.reduce((most, score) => Math.max(most, score), -Infinity);
    const weights = scores.map((score) => Math.exp(score - largest));
    const sum = weights.reduce((total, weight) => total + weight, 0);
    v.forEach((value, j) => {
      for (let d = 0; d < headDim; d++) out[h * headDim + d]! += (weights[j]! / sum) * value[at + d]!;
    });
  }
  return out;
}

function rotated(row: Float64Array, position: number, { headDim, ropeTheta }: Layer): Float64Array {
  if (ropeTheta !== undefined) rotate(row, position, headDim, ropeTheta);
  return row;
}

/** Token `t` of a layer, whose keys and values so far are given. */
function layerRow(layer: Layer, x: Floats, t: number, k: readonly Floats[], v: readonly Floats[]): Float64Array {
  const q = rotated(dense(x, layer.wq, layer.bq, layer.dModel), t, layer);
  return dense(attendRow(layer, q, k, v), layer.wo, layer.bo, layer.dModel);
}

/** Some rows of a block: the first, one in the middle and the last. */
function blockRows({ layer, qLen, x }: Block): Map<number, Float64Array> {
  const { dModel } = layer;
  const token = (t: number) => x.subarray(t * dModel, (t + 1) * dModel);
  const all = Array.from({ length: qLen }, (_, t) => t);
  const k = all.map((t) => rotated(dense(token(t), layer.wk, layer.bk, dModel), t, layer));
  const v = all.map((t) => dense(token(t), layer.wv, layer.bv, dModel));
  const some = [...new Set([0, qLen >> 1, qLen - 1])];
  return new Map(some.map((t) => [t, layerRow(layer, token(t), t, k.slice(0, t + 1), v.slice(0, t + 1))]));
}

/** [heads, len, headDim] as a row [heads, headDim] for each token. */
function rowsOf(data: Float32Array, { numKvHeads, headDim }: Heads, len: number): Float32Array[] {
  return Array.from({ length: len }, (_, t) =>
    Float32Array.from(
      { length: numKvHeads * headDim },
      (_, i) => data[(Math.floor(i / headDim) * len + t) * headDim + (i % headDim)]!,
    ),
  );
}

function coreRow(work: Core): Float64Array {
  return attendRow(work, work.q, rowsOf(work.k, work, work.kvLen), rowsOf(work.v, work, work.kvLen));
}

function stepRow({ layer, past, x, pastK, pastV }: Step): Float64Array {
  const k = rotated(dense(x, layer.wk, layer.bk, layer.dModel), past, layer);
  const v = dense(x, layer.wv, layer.bv, layer.dModel);
  return layerRow(layer, x, past, [...rowsOf(pastK, layer, past), k], [...rowsOf(pastV, layer, past), v]);
}

function productRows({ m, k, x }: Pick<Product, "m" | "k" | "x">, w: Float32Array): Map<number, Float64Array> {
  const some = [...new Set([0, m >> 1, m - 1])];
  return new Map(some.map((r) => [r, dense(x.subarray(r * k, (r + 1) * k), w, undefined, k)]));
}

/** The expected answer. */
export interface Answer {
  /** Some of its rows, by their number. */
  readonly rows: ReadonlyMap<number, Float64Array>;
  /** The largest error that is accepted, relative to the largest value of its row. */
  readonly tolerance: number;
}

export function answerOf(work: Work): Answer {
  switch (work.kind) {
    case "product":
      return { rows: productRows(work, work.w), tolerance: TOLERANCE };
    case "integer product":
      return { rows: productRows(work, toFloats(work.w)), tolerance: INTEGER_TOLERANCES[work.activations] };
    case "block":
      return { rows: blockRows(work), tolerance: TOLERANCE };
    case "core":
      return { rows: new Map([[0, coreRow(work)]]), tolerance: TOLERANCE };
    case "step":
      return { rows: new Map([[0, stepRow(work)]]), tolerance: TOLERANCE };
  }
}

/** Returns the largest error relative to the largest value of a row. Throws if it exceeds the tolerance. */
export function expectAnswer(who: string, got: Float32Array, { rows, tolerance }: Answer): number {
  let worst = 0;
  for (const [row, want] of rows) {
    const largest = want.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    want.forEach((value, i) => {
      const answer = got[row * want.length + i];
      const error = Math.abs((answer ?? NaN) - value) / largest;
      if (!(error <= tolerance)) throw new Error(`${who} gave ${answer} for ${value} at [${row}, ${i}]`);
      worst = Math.max(worst, error);
    });
  }
  return worst;
}
