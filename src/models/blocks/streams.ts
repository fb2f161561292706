// Several rows of a token between layers (AltUp): a layer computes one of them, the residual, and from it those of all.

import { PANEL } from "../../../assembly/layout.ts";
import type { Steps } from "../../base/util/steps.ts";
import { type PackedLinear, wholePanels } from "../../layers/linear/formats.ts";
import type { Rows } from "../../layers/linear/products.ts";
import { type F32Ptr, NULL } from "../../wasm/abi.ts";
import { type Layout, pointer } from "../../wasm/memory.ts";
import type { ModelSpec } from "../spec/spec.ts";
import type { PackedStreams } from "./model.ts";
import { addRows, normRows, projectRows, type RowWork } from "./rows.ts";

/** Streams, at offsets: the rows [count, rows, stride], those of a token, what a router gives for each row, and factors. */
export interface StreamPlaces {
  readonly at: number;
  readonly row: number;
  readonly shares: number;
  readonly factors: number;
  /** Floats from one stream to the next, and between rows. */
  readonly step: number;
  readonly stride: number;
}

/** Places the streams of a model for up to `rows` rows of `stride` floats. */
export function placeStreams(layout: Layout, { streams }: ModelSpec, rows: number, stride: number): StreamPlaces {
  const count = streams?.count ?? 0;
  return {
    at: layout.floats(count * rows * stride),
    row: layout.floats(count * stride),
    shares: layout.floats(rows * wholePanels(count)),
    factors: layout.floats(rows * wholePanels(count * count)),
    ...{ step: rows * stride, stride },
  };
}

const streamAt = ({ base }: RowWork, { at, step, stride }: StreamPlaces, stream: number): Rows => ({
  at: pointer.f32(base + at + 4 * stream * step),
  stride,
});

const rowOf = ({ at, stride }: Rows, row: number): F32Ptr => pointer.f32(at + 4 * row * stride);

function copy({ kernels: { memory } }: RowWork, to: Rows, from: Rows, rows: number): void {
  memory.f32(to.at, rows * to.stride).set(memory.f32(from.at, rows * from.stride));
}

/** The root of the mean of squares of a row. */
function sizeOf({ kernels: { memory } }: RowWork, at: number, n: number): number {
  let sum = 0;
  for (const x of memory.f32(at, n)) sum += x * x;
  return Math.sqrt(sum / n);
}

/** What a row is divided by is at least this root. */
const LEAST = Math.sqrt(1e-5);

/** Projects rows, as large as those of `like`. */
function* projectAlike(
  work: RowWork,
  linear: PackedLinear,
  to: Rows,
  from: Rows,
  like: Rows,
  n: number,
  rows: number,
): Steps {
  yield* projectRows(work, [linear], to, from, rows);
  for (let r = 0; r < rows; r++) {
    const factor = sizeOf(work, rowOf(like, r), n) / Math.max(LEAST, sizeOf(work, rowOf(to, r), n));
    work.kernels.table.cap_logits_f32(rowOf(to, r), n, to.stride, factor, 0, 0, 1);
  }
}

/** The streams of rows before the first layer. */
export function* spreadStreams(
  work: RowWork,
  into: readonly PackedLinear[],
  places: StreamPlaces,
  n: number,
  from: Rows,
  rows: number,
): Steps {
  copy(work, streamAt(work, places, 0), from, rows);
  for (const [i, linear] of into.entries())
    yield* projectAlike(work, linear, streamAt(work, places, i + 1), from, from, n, rows);
}

/** to = the mean of the streams behind the last layer. `other` is overwritten. */
export function* joinStreams(
  work: RowWork,
  out: readonly PackedLinear[],
  places: StreamPlaces,
  n: number,
  to: Rows,
  other: Rows,
  rows: number,
): Steps {
  const first = streamAt(work, places, 0);
  copy(work, to, first, rows);
  for (const [i, linear] of out.entries()) {
    yield* projectAlike(work, linear, other, streamAt(work, places, i + 1), first, n, rows);
    addRows(work, to, to, other, 1, rows);
  }
  work.kernels.table.cap_logits_f32(to.at, n, to.stride, 1 / (out.length + 1), 0, 0, rows);
}

/** The product of a matrix with the shares that a router gives the streams by the rows `from`. */
function* factorsOf(
  work: RowWork,
  { router, norm, count }: PackedStreams,
  matrix: PackedLinear,
  places: StreamPlaces,
  from: Rows,
  normed: Rows,
  rows: number,
): Generator<number, Rows, void> {
  const shares = { at: pointer.f32(work.base + places.shares), stride: PANEL * router.panels };
  const factors = { at: pointer.f32(work.base + places.factors), stride: PANEL * matrix.panels };
  normRows(work, norm, normed, from, router.k, rows);
  yield* projectRows(work, [router], shares, normed, rows);
  // A softcap of 1 is tanh.
  work.kernels.table.cap_logits_f32(shares.at, count, shares.stride, 1 / router.k, 1, 0, rows);
  yield* projectRows(work, [matrix], factors, shares, rows);
  return factors;
}

/** Each stream becomes itself and a sum of all; residual = the active one. */
export function* predictStreams(
  work: RowWork,
  own: PackedStreams,
  places: StreamPlaces,
  residual: Rows,
  normed: Rows,
  rows: number,
): Steps {
  const { count, active, predict } = own;
  const { memory, table } = work.kernels;
  const { stride } = places;
  const factors = yield* factorsOf(work, own, predict, places, streamAt(work, places, active), normed, rows);
  for (let r = 0; r < rows; r++) {
    const by = memory.f32(rowOf(factors, r), count * count).slice();
    const from = Array.from({ length: count }, (_, stream) => rowOf(streamAt(work, places, stream), r));
    for (const [stream, start] of from.entries()) {
      const to = pointer.f32(work.base + places.row + 4 * stream * stride);
      for (const [other, at] of from.entries())
        table.add_scaled_f32(to, other === 0 ? start : to, at, stride, by[stream * count + other] as number, 0, 1);
    }
    for (const [stream, at] of from.entries())
      memory.f32(at, stride).set(memory.f32(work.base + places.row + 4 * stream * stride, stride));
  }
  copy(work, residual, streamAt(work, places, active), rows);
}

/** Adds to each stream a share of what the layer changed in the active one; residual = that one, scaled. `branch` is overwritten. */
export function* correctStreams(
  work: RowWork,
  own: PackedStreams,
  places: StreamPlaces,
  residual: Rows,
  normed: Rows,
  branch: Rows,
  rows: number,
): Steps {
  const { count, active, correct, scale, router } = own;
  const { memory, table } = work.kernels;
  const factors = yield* factorsOf(work, own, correct, places, residual, normed, rows);
  addRows(work, branch, residual, streamAt(work, places, active), -1, rows);
  for (let r = 0; r < rows; r++)
    for (const [stream, factor] of memory.f32(rowOf(factors, r), count).slice().entries()) {
      const to = rowOf(streamAt(work, places, stream), r);
      table.add_scaled_f32(to, to, rowOf(branch, r), places.stride, 1 + factor, 0, 1);
    }
  copy(work, residual, streamAt(work, places, active), rows);
  if (scale === NULL) return;
  const by = memory.f32(scale, router.k);
  for (let r = 0; r < rows; r++) {
    const row = memory.f32(rowOf(residual, r), by.length);
    for (const [i, x] of row.entries()) row[i] = x * (by[i] as number);
  }
}

/** Adds rows to all streams but the first. */
export function addToStreams(
  work: RowWork,
  { count }: PackedStreams,
  places: StreamPlaces,
  rows: Rows,
  length: number,
): void {
  for (let stream = 1; stream < count; stream++) {
    const to = streamAt(work, places, stream);
    addRows(work, to, to, rows, 1, length);
  }
}
