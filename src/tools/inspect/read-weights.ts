// The weights of a layer: where they are packed, and as floats: the numbers that a projection multiplies by, in every format.

import type { MatrixLayout } from "../../base/tensor/matrix.ts";
import { createFloats } from "../../base/tensor/tensor.ts";
import { chunksOf } from "../../base/util/rows.ts";
import { createLinear, linear } from "../../layers/api/linear.ts";
import type { CheckedConfig } from "../../layers/attention/config.ts";
import type { PackedLinear } from "../../layers/linear/formats/format.ts";
import type { BlockLayer } from "../../layers/mixer/mixer.ts";
import { embedRows } from "../../models/blocks/rows.ts";
import { EmbedShape } from "../../wasm/abi.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { Layout, pointer } from "../../wasm/memory.ts";

/** The output projection of a layer, which is the last of its products. */
export const outputsOf = (attention: BlockLayer): PackedLinear =>
  attention.mixer.linears(attention).at(-1) as PackedLinear;

/** The head of keys and values that a query head attends. */
export const kvHeadOf = (
  { numHeads, numKvHeads }: Pick<CheckedConfig, "numHeads" | "numKvHeads">,
  head: number,
): number => Math.floor(head / (numHeads / numKvHeads));

/** The fields of a projection, or of a table, that its rows are read by. */
export type PackedRows = Pick<PackedLinear, "k" | "format" | "w" | "mins">;

/** About how many floats are read at a time. */
const READ_FLOATS = 2 ** 20;

/** Rows begin..end of a matrix [outputs, k], some at a time: copies of [rows, k], and the first row of each. */
export function* weightRows(
  where: string,
  kernels: Kernels,
  { k, format, w, mins }: PackedRows,
  begin: number,
  end: number,
): Generator<{ readonly first: number; readonly rows: Float32Array }, void, void> {
  const { memory } = kernels;
  const most = Math.min(end - begin, Math.max(1, Math.floor(READ_FLOATS / k)));
  const layout = new Layout();
  const places = { shape: layout.take(EmbedShape.bytes), ids: layout.floats(most), rows: layout.floats(most * k) };
  for (const [from, to] of chunksOf(end - begin, most)) {
    const count = to - from;
    const first = begin + from;
    const base = memory.scratch(where, layout.bytes);
    memory.u32(base + places.ids, count).set(Array.from({ length: count }, (_, i) => first + i));
    const table = { rows: end, dim: k, format, at: w, mins };
    const out = { at: pointer.f32(base + places.rows), stride: k };
    embedRows({ kernels, base, shape: places.shape }, table, base + places.ids, out, 1, count);
    yield { first, rows: memory.f32(out.at, count * k).slice() };
  }
}

/** Rows begin..end of a matrix [outputs, k], all at once. */
export function readMatrix(
  where: string,
  kernels: Kernels,
  linear: PackedRows,
  begin: number,
  end: number,
): Float32Array {
  const { k } = linear;
  const all = createFloats(where, "weights", (end - begin) * k);
  for (const { first, rows } of weightRows(where, kernels, linear, begin, end)) all.set(rows, (first - begin) * k);
  return all;
}

/** y = x·wᵀ for outputs begin..end of a projection without its bias, in float64, for each of `xs`. */
export function multiplyRows(
  where: string,
  kernels: Kernels,
  linear: PackedRows,
  xs: readonly Float64Array[],
  begin: number,
  end: number,
): Float64Array[] {
  const { k } = linear;
  const ys = xs.map(() => new Float64Array(end - begin));
  for (const { first, rows } of weightRows(where, kernels, linear, begin, end))
    for (let r = 0; r * k < rows.length; r++) {
      const row = rows.subarray(r * k, (r + 1) * k);
      for (const [i, x] of xs.entries()) (ys[i] as Float64Array)[first - begin + r] = dot(row, x);
    }
  return ys;
}

/** Σ a[i]·b[i], in float64. */
export function dot(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += (a[i] as number) * (b[i] as number);
  return sum;
}

/** Multiplies the columns of rows by a vector. */
export function scaleRows(rows: Float32Array, by: Float32Array): void {
  for (let i = 0; i < rows.length; i++) rows[i] = (rows[i] as number) * (by[i % by.length] as number);
}

/** x·w for w [inputs, width] ("in-out"), or x·wᵀ for w [outputs, width] ("out-in"). */
export function multiply(
  kernels: Kernels,
  x: Float32Array,
  w: Float32Array,
  width: number,
  layout: MatrixLayout,
): Float32Array {
  const layer = createLinear(kernels, { weight: { data: w, shape: [w.length / width, width] }, layout });
  try {
    return linear(layer, x);
  } finally {
    layer.release();
  }
}
