// Matrices in linear memory: how they are packed into panels, and their products with rows. Pieces are copied to linear memory and
// packed by a kernel one at a time, so that no matrix is held twice, or as float32 without need.

import { PANEL, ROUNDED } from "../../../assembly/layout.ts";
import type { StoredTensor } from "../../base/tensor/dtypes.ts";
import { type MatrixLayout, rowsOf, sizeIn, transposedColumnsOf } from "../../base/tensor/matrix.ts";
import { chunksOf } from "../../base/util/rows.ts";
import type { Steps } from "../../base/util/steps.ts";
import { type F32Ptr, LinearShape } from "../../wasm/abi.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { aligned, type Layout, pointer } from "../../wasm/memory.ts";
import {
  FORMATS,
  integerRowBytes,
  type LinearInput,
  type LinearSize,
  linearShape,
  type PackedFormat,
  type PackedLinear,
  type PackedPlace,
  panelsOf,
  quantizing,
} from "./formats.ts";

/** Floats of a piece, if no panel and no row is longer. */
const STAGED_FLOATS = 2 ** 16;

/** Floats of staging memory for packing a matrix of n outputs and k inputs: beside a panel, 16 KB, since codebooks lie before blocks. */
export function stagedFloats({ n, k }: LinearSize): number {
  return Math.max(Math.min(STAGED_FLOATS, n * k), PANEL * k + 4096, n);
}

/**
 * Allocates a block that `fill` packs matrices of these sizes into, by way of staging memory. If it throws, nothing
 * stays allocated.
 */
export function packBlock<T extends object>(
  where: string,
  { memory }: Kernels,
  bytes: number,
  sizes: readonly LinearSize[],
  fill: (at: number, staging: number) => T,
): T & { readonly at: number; readonly bytes: number } {
  const at = memory.allocate(where, bytes);
  let staging: number | undefined;
  try {
    staging = memory.allocate(where, 4 * Math.max(...sizes.map(stagedFloats)));
    return { ...fill(at, staging), at, bytes };
  } catch (error) {
    memory.free(at);
    throw error;
  } finally {
    if (staging !== undefined) memory.free(staging);
  }
}

/**
 * Packs a matrix [n, k], or [k, n] if its layout is "in-out", to the addresses of its panels, and of the sums and the minimums of
 * its weights, if the format has them. `staging` has room for stagedFloats.
 */
export function packMatrix(
  kernels: Kernels,
  matrix: StoredTensor,
  layout: MatrixLayout,
  { format: name, w, sums, mins }: PackedPlace & { readonly format: PackedFormat },
  staging: number,
): void {
  const [n, k] = sizeIn(matrix, layout);
  const most = stagedFloats({ n, k });
  const format = FORMATS[name];
  const bytes = format.panelBytes(k);
  if (layout === "in-out" && format.packInputs) {
    for (const [begin, end] of chunksOf(k, Math.floor(most / n)))
      format.packInputs(kernels, rowsOf(matrix, begin, end), n, k, w + begin * (bytes / k), staging);
    return;
  }
  for (const [begin, end] of chunksOf(n, PANEL * Math.floor(most / (PANEL * k)))) {
    const piece = layout === "out-in" ? rowsOf(matrix, begin, end) : transposedColumnsOf(matrix, begin, end);
    const panel = begin / PANEL;
    const to = {
      w: w + panel * bytes,
      sums: sums + panel * format.sumBytes(k),
      mins: mins + panel * format.minBytes(k),
    };
    format.pack(kernels, piece, to, staging);
  }
}

// Places and products.

/** A projection before it is packed: the offsets of its panels, of their sums and of its bias in their block. */
export interface LinearPlace extends LinearSize {
  readonly format: PackedFormat;
  readonly w: number;
  readonly sums: number;
  readonly mins: number;
  readonly bias: number;
}

/**
 * Places projections so that neighbours of one format can run as one: their panels are adjacent, and so are all sums,
 * all minimums and all biases.
 */
export function placeLinears(
  layout: Layout,
  sizes: readonly (LinearSize & { readonly format: PackedFormat })[],
): LinearPlace[] {
  let bytes = 0;
  let sums = 0;
  let mins = 0;
  let panels = 0;
  const places = sizes.map(({ n, k, format }, i) => {
    if (i > 0 && sizes[i - 1]?.format !== format) bytes = aligned(bytes);
    const place = { n, k, format, w: bytes, sums, mins, bias: 4 * PANEL * panels };
    const count = panelsOf(n);
    const { panelBytes, sumBytes, minBytes } = FORMATS[format];
    bytes += count * panelBytes(k);
    sums += count * sumBytes(k);
    mins += count * minBytes(k);
    panels += count;
    return place;
  });
  const w = layout.take(bytes);
  const sumsAt = layout.take(sums);
  const minsAt = layout.take(mins);
  const bias = layout.floats(PANEL * panels);
  return places.map((place) => ({
    ...{ ...place, w: w + place.w, sums: sumsAt + place.sums, mins: minsAt + place.mins },
    bias: bias + place.bias,
  }));
}

/**
 * Packs a matrix and its bias into their place in the block at `base`. `staging` has room for stagedFloats. Without `matrix`, the
 * caller has packed it.
 */
export function storeLinear(
  kernels: Kernels,
  base: number,
  { n, k, format, w: at, sums: sumsAt, mins: minsAt, bias: biasAt }: LinearPlace,
  matrix: StoredTensor | undefined,
  layout: MatrixLayout,
  bias: Float32Array | undefined,
  staging: number,
): PackedLinear {
  const panels = panelsOf(n);
  const to = { format, w: base + at, sums: base + sumsAt, mins: base + minsAt };
  if (matrix) packMatrix(kernels, matrix, layout, to, staging);
  const row = kernels.memory.f32(base + biasAt, panels * PANEL).fill(0);
  if (bias) row.set(bias);
  return { k, panels, ...to, bias: pointer.f32(base + biasAt) };
}

/** Panels begin..end of a projection. */
export function cutPanels(linear: PackedLinear, begin: number, end: number): PackedLinear {
  const { panels, k, format, w, sums, mins, bias } = linear;
  if (end - begin === panels) return linear;
  const { panelBytes, sumBytes, minBytes } = FORMATS[format];
  return {
    ...{ k, format },
    panels: end - begin,
    w: w + begin * panelBytes(k),
    sums: sums + begin * sumBytes(k),
    mins: mins + begin * minBytes(k),
    bias: pointer.f32(bias + 4 * PANEL * begin),
  };
}

/** Two adjacent projections of the same input and format, as one. */
export function joinLinears(first: PackedLinear, second: PackedLinear): PackedLinear {
  return { ...first, panels: first.panels + second.panels };
}

/** Rows of floats in linear memory, `stride` floats apart. */
export interface Rows {
  readonly at: F32Ptr;
  readonly stride: number;
}

/**
 * Returns the `mode` of linear_q8 for activations of 14 bits, or of 7 or 8 (`fast`). If one of the formats has integers, this
 * determines the fastest dot-product paths, which allocates memory temporarily. With `rounded`, activations are rounded to 8 bits
 * before, whatever the formats are.
 */
export function modeOf(kernels: Kernels, formats: readonly PackedFormat[], fast: boolean, rounded = false): number {
  const mode = formats.some((format) => FORMATS[format].integers) ? kernels.dotModes[fast ? "fast" : "exact"] : 0;
  return rounded ? mode | ROUNDED : mode;
}

/** Offsets in scratch: of quantised activations, and of the scratch of kernels. */
export interface LinearScratch {
  readonly integers: number;
  readonly work: number;
}

/** Places what projections of up to `rows` rows by any of these matrices need besides input and output. */
export function placeLinearScratch(
  layout: Layout,
  matrices: readonly { readonly k: number; readonly format: PackedFormat }[],
  rows: number,
): LinearScratch {
  // There may be more matrices than a call can have arguments.
  let [row, work] = [0, 0];
  for (const { k, format } of matrices) {
    if (FORMATS[format].integers) row = Math.max(row, integerRowBytes(k));
    work = Math.max(work, LINEAR_WORK_AT + FORMATS[format].work);
  }
  return { integers: layout.take(rows * row), work: layout.take(work) };
}

/**
 * `rows` rows as the input of `linears`: quantised, too, as those with integer weights need them, which is done again where one needs
 * them otherwise than that before it. In a mode with ROUNDED, they are rounded to 8 bits in place before.
 */
export function prepareInput(
  { table }: Kernels,
  linears: readonly PackedLinear[],
  { at: x, stride: xStride }: Rows,
  rows: number,
  given: number,
  { integers: integersAt, work }: LinearScratch,
  base: number,
): LinearInput {
  const integers = pointer.u8(base + integersAt);
  const [{ k }] = linears as [PackedLinear];
  const mode = given & ~ROUNDED;
  if (given & ROUNDED) table.round_rows_f32(x, k, xStride, 0, rows);
  let made: ReturnType<typeof quantizing> | undefined;
  const quantize = (name: PackedFormat) => {
    const format = FORMATS[name];
    if (!format.integers) return;
    const asked = quantizing(format, k, given);
    if (asked.mode === made?.mode && asked.block === made.block) return;
    table.quantize_rows(integers, x, k, xStride, asked.block, asked.mode, 0, rows);
    made = asked;
  };
  for (const { format } of linears) if (!made) quantize(format);
  const shape = pointer.linearShape(base + work);
  return { x, xStride, integers, quantize, mode, shape, work: base + work + LINEAR_WORK_AT };
}

/** The panels and rows of a step are multiples of these: of the kernel's weight blocks and strips. */
export const STEP_PANELS = 16;
const STEP_ROWS = 60;

/** out[r] = x[r] · wᵀ + bias for `rows` rows, in steps of about `stepFlops`. */
export function* project(
  kernels: Kernels,
  linear: PackedLinear,
  { at, stride }: Rows,
  input: LinearInput,
  rows: number,
  stepFlops: number,
): Steps {
  const { panels, k, format } = linear;
  input.quantize(format);
  const blockFlops = 2 * PANEL * STEP_PANELS * k;
  const stepPanels = STEP_PANELS * Math.max(1, Math.floor(stepFlops / (blockFlops * rows)));
  const stepRows = STEP_ROWS * Math.max(1, Math.floor(stepFlops / (blockFlops * STEP_ROWS)));
  for (let p = 0; p < panels; p += stepPanels) {
    const part = cutPanels(linear, p, Math.min(panels, p + stepPanels));
    const out = { at: pointer.f32(at + 4 * PANEL * p), stride };
    for (let r = 0; r < rows; r += stepRows) {
      const end = Math.min(rows, r + stepRows);
      multiply(kernels, part, out, input, r, end);
      yield linearFlops(part, end - r);
    }
  }
}

/** Rows begin..end of `project`, in one step. */
export function multiply(
  { table, memory }: Kernels,
  linear: PackedLinear,
  { at: out, stride: outStride }: Rows,
  input: LinearInput,
  begin: number,
  end: number,
): void {
  const { format, panels, k } = linear;
  const { xStride, mode } = input;
  LinearShape.store(memory.view(), input.shape, linearShape(FORMATS[format], { panels, k, outStride, xStride, mode }));
  FORMATS[format].multiply(table, out, linear, input, begin, end);
}

/** Floating-point operations of a projection. */
export function linearFlops({ panels, k }: Pick<PackedLinear, "panels" | "k">, rows: number): number {
  return 2 * PANEL * panels * k * rows;
}

/** Where the part of a projection's scratch begins that its kernels work in, behind its shape. */
const LINEAR_WORK_AT: number = /* @__PURE__ */ (() => aligned(LinearShape.bytes))();
