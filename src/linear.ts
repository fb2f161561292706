import { PANEL } from "../assembly/layout.ts";
import type { F32Ptr } from "./abi.ts";
import type { Kernels } from "./kernels.ts";
import { type Layout, pointer } from "./memory.ts";
import { type MatrixLayout, packedFloats, panelsOf } from "./pack.ts";
import { chunksOf } from "./rows.ts";
import type { Steps } from "./steps.ts";

/** A projection of k inputs to n outputs: where its panels and its bias will lie, relative to their block. */
export interface LinearPlace {
  readonly n: number;
  readonly k: number;
  readonly w: number;
  readonly bias: number;
}

/** The same in memory. Outputs come in whole panels: 8·panels floats a row. */
export interface Linear {
  readonly k: number;
  readonly panels: number;
  readonly w: F32Ptr;
  /** [8·panels], zeros where there is no bias. */
  readonly bias: F32Ptr;
}

/** Takes places for projections that may run as one: their panels and their biases lie one behind the other. */
export function placeLinears(layout: Layout, sizes: readonly (readonly [n: number, k: number])[]): LinearPlace[] {
  const floats = sizes.map(([n, k]) => packedFloats(n, k));
  const panels = sizes.map(([n]) => panelsOf(n));
  const sum = (counts: readonly number[]) => counts.reduce((total, count) => total + count, 0);
  const w = layout.floats(sum(floats));
  const bias = layout.floats(sum(panels) * PANEL);
  return sizes.map(([n, k], i) => ({
    n,
    k,
    w: w + sum(floats.slice(0, i)) * 4,
    bias: bias + sum(panels.slice(0, i)) * PANEL * 4,
  }));
}

/** Floats of a matrix that are packed at a time, where a panel or a row is not longer. */
const STAGED_FLOATS = 2 ** 16;

/** Floats that a matrix needs beside its place while it is packed. */
export function stagedFloats({ n, k }: LinearPlace): number {
  return Math.max(Math.min(STAGED_FLOATS, n * k), PANEL * k, n);
}

/** Packs a matrix and its bias into their place in the block at `base`, by way of stagedFloats at `staging`. */
export function storeLinear(
  { memory, table }: Kernels,
  base: number,
  place: LinearPlace,
  w: Float32Array,
  layout: MatrixLayout,
  bias: Float32Array | undefined,
  staging: number,
): Linear {
  const { n, k } = place;
  const [panels, at] = [panelsOf(n), base + place.w];
  const stage = (begin: number, end: number) => {
    memory.f32(staging, end - begin).set(w.subarray(begin, end));
    return pointer.f32(staging);
  };
  if (layout === "out-in") {
    const rows = PANEL * Math.floor(stagedFloats(place) / (PANEL * k));
    for (const [begin, end] of chunksOf(n, rows)) {
      const to = pointer.f32(at + 4 * begin * k);
      table.pack_rows_f32(to, stage(begin * k, end * k), end - begin, k, 0, panelsOf(end - begin));
    }
  } else {
    const rows = Math.floor(stagedFloats(place) / n);
    for (const [begin, end] of chunksOf(k, rows)) {
      const to = pointer.f32(at + 4 * begin * PANEL);
      table.pack_columns_f32(to, stage(begin * n, end * n), n, k, 0, end - begin);
    }
  }
  const row = memory.f32(base + place.bias, panels * PANEL).fill(0);
  if (bias) row.set(bias);
  return { k, panels, w: pointer.f32(at), bias: pointer.f32(base + place.bias) };
}

/** Projections of the same input, placed together, as one. */
export function joinLinears(first: Linear, ...others: readonly Linear[]): Linear {
  return { ...first, panels: others.reduce((panels, other) => panels + other.panels, first.panels) };
}

/** Panels and rows of a step are multiples of these: whole weight blocks of the kernel, whole strips. */
const STEP_PANELS = 16;
const STEP_ROWS = 60;

/**
 * out[r] = x[r] · wᵀ + bias for `rows` rows, in steps of about `stepFlops`; out rows lie outStride floats apart, x rows
 * xStride.
 */
export function* project(
  { table }: Kernels,
  { w, bias, panels, k }: Linear,
  out: F32Ptr,
  outStride: number,
  x: F32Ptr,
  xStride: number,
  rows: number,
  stepFlops: number,
): Steps {
  const blockFlops = 2 * PANEL * STEP_PANELS * k;
  const stepPanels = STEP_PANELS * Math.max(1, Math.floor(stepFlops / (blockFlops * rows)));
  const stepRows = STEP_ROWS * Math.max(1, Math.floor(stepFlops / (blockFlops * STEP_ROWS)));
  for (let p = 0; p < panels; p += stepPanels) {
    const count = Math.min(stepPanels, panels - p);
    const to = pointer.f32(out + 4 * PANEL * p);
    const from = pointer.f32(w + 4 * PANEL * k * p);
    const start = pointer.f32(bias + 4 * PANEL * p);
    for (let r = 0; r < rows; r += stepRows) {
      const end = Math.min(rows, r + stepRows);
      table.linear_f32(to, x, from, start, count, k, outStride, xStride, r, end);
      yield linearFlops(count, k, end - r);
    }
  }
}

/** Floating-point operations of a projection. */
export function linearFlops(panels: number, k: number, rows: number): number {
  return 2 * PANEL * panels * k * rows;
}
