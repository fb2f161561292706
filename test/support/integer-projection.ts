// Projections of integers by the twins alone: what a layer must give, whatever its build, its tiles and its path.

import type { StoredTensor, Tensor, WeightFormat } from "../../src/entries/core.ts";
import {
  FORMATS,
  integerRowBytes,
  linearShape,
  type PackedFormat,
  panelsOf,
  quantizing,
} from "../../src/layers/linear/formats.ts";

import { reference } from "../../src/reference/index.ts";
import { readRow } from "../../src/reference/numbers.ts";

/** Rows of k floats as the twin of quantize_rows makes them in `mode` for a format. */
export function integersFor(format: PackedFormat, x: Float32Array, k: number, mode: number): Uint8Array {
  const rows = x.length / k;
  const integers = new Uint8Array(rows * integerRowBytes(k));
  const { block, mode: own } = quantizing(FORMATS[format], k, mode);
  reference.quantize_rows(integers, x, k, k, block, own, 0, rows);
  return integers;
}

/** Rows of k floats as integer projections with exact activations see them, and the scale of each. */
export function quantizedRows(
  x: Float32Array,
  k: number,
): { readonly seen: Float64Array; readonly scales: readonly number[] } {
  const integers = integersFor("q8", x, k, 0);
  const rows = Array.from({ length: x.length / k }, (_, r) => readRow(integers, r, 0, k));
  const seen = Float64Array.from(rows.flatMap(({ scale, integers: row }) => row.slice(0, k).map((q) => scale * q)));
  return { seen, scales: rows.map(({ scale }) => scale) };
}

/** x [rows, k] times a matrix [n, k] that is kept as `format`, without bias: [rows, n]. */
export function projectByTwins(
  w: Tensor | StoredTensor,
  format: WeightFormat,
  x: Float32Array,
  fast = false,
): Float32Array {
  const [n, k] = w.shape as [number, number];
  const [rows, panels, block] = [x.length / k, panelsOf(n), FORMATS[format].block(k)];
  const mode = fast ? 1 : 0;
  const packed = new Uint8Array(panels * FORMATS[format].panelBytes(k));
  const sums = new Uint8Array(panels * FORMATS[format].sumBytes(k));
  if ("dtype" in w && format === "q4") reference.repack_q4(packed, w.bytes, n, k, 0, panels);
  else if ("dtype" in w) reference.repack_q8(packed, sums, w.bytes, n, k, 0, panels);
  else if (format === "q4") reference.pack_q4(packed, w.data, n, k, 0, panels);
  else reference.pack_q8(packed, sums, w.data, n, k, block, 0, panels);
  const [out, stride] = [new Float32Array(rows * panels * 8), panels * 8];
  const integers = integersFor(format, x, k, mode);
  const linear = format === "q4" ? reference.linear_q4 : reference.linear_q8;
  const shape = linearShape(FORMATS[format], { panels, k, outStride: stride, mode });
  linear(out, integers, packed, sums, null, shape, 0, rows);
  return Float32Array.from({ length: rows * n }, (_, i) => out[Math.floor(i / n) * stride + (i % n)] as number);
}
