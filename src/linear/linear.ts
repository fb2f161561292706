import { PANEL } from "../../assembly/layout.ts";
import type { StoredTensor } from "../tensor/dtypes.ts";
import type { MatrixLayout } from "../tensor/matrix.ts";
import type { Steps } from "../util/steps.ts";
import { type F32Ptr, storeLinearShape, type U8Ptr } from "../wasm/abi.ts";
import type { Kernels } from "../wasm/kernels.ts";
import { aligned, type Layout, pointer } from "../wasm/memory.ts";
import {
  isInteger,
  LINEAR_WORK_AT,
  linearShape,
  packedBytes,
  panelBytes,
  panelsOf,
  type WeightFormat,
} from "./formats.ts";
import { packMatrix } from "./pack.ts";

/** A projection of k inputs to n outputs: where its panels and its bias will lie, relative to their block. */
export interface LinearPlace {
  readonly n: number;
  readonly k: number;
  readonly format: WeightFormat;
  readonly w: number;
  readonly bias: number;
}

/** The same in memory. Outputs come in whole panels: 8·panels floats a row. */
export interface Linear {
  readonly k: number;
  readonly panels: number;
  readonly format: WeightFormat;
  readonly w: number;
  /** [8·panels], zeros where there is no bias. */
  readonly bias: F32Ptr;
}

/** Takes places for projections that may run as one: those of one format lie one behind the other, and so do all biases. */
export function placeLinears(
  layout: Layout,
  sizes: readonly (readonly [n: number, k: number, format: WeightFormat])[],
): LinearPlace[] {
  let bytes = 0;
  let floats = 0;
  const places = sizes.map(([n, k, format], i) => {
    if (i > 0 && sizes[i - 1]?.[2] !== format) bytes = aligned(bytes);
    const place = { n, k, format, w: bytes, bias: 4 * floats };
    bytes += packedBytes(format, n, k);
    floats += panelsOf(n) * PANEL;
    return place;
  });
  const w = layout.take(bytes);
  const bias = layout.floats(floats);
  return places.map((place) => ({ ...place, w: w + place.w, bias: bias + place.bias }));
}

/** Packs a matrix and its bias into their place in the block at `base`, by way of stagedFloats at `staging`. */
export function storeLinear(
  kernels: Kernels,
  base: number,
  { n, k, format, w: at, bias: biasAt }: LinearPlace,
  matrix: StoredTensor,
  layout: MatrixLayout,
  bias: Float32Array | undefined,
  staging: number,
): Linear {
  const panels = panelsOf(n);
  packMatrix(kernels, matrix, layout, format, base + at, staging);
  const row = kernels.memory.f32(base + biasAt, panels * PANEL).fill(0);
  if (bias) row.set(bias);
  return { k, panels, format, w: base + at, bias: pointer.f32(base + biasAt) };
}

/** Projections of the same input and format, placed together, as one. */
export function joinLinears(first: Linear, second: Linear): Linear {
  return { ...first, panels: first.panels + second.panels };
}

/** The rows that projections read, in each of the forms that formats need. */
export interface LinearInput {
  /** Rows xStride floats apart. */
  readonly x: F32Ptr;
  readonly xStride: number;
  /** The same rows as integers, once `quantizeInput` has been there. */
  readonly integers: U8Ptr;
  /** How integers are written and multiplied: `mode` of linear_q8. */
  readonly mode: number;
  /** scratchBytes of their formats. */
  readonly scratch: number;
}

/** Up to so many rows the road for 14 bits is the better one for 7, too: reading the weights takes longer than the products. */
const FEW_ROWS = 8;

/** Finds the fastest roads of the engine; gives the mode of so many rows of integers of 14 bits, or of 7. */
export function modesOf({ roads }: Kernels, fast: boolean): (rows: number) => number {
  const { exact, fast: split } = roads;
  return (rows) => 2 * (fast && rows > FEW_ROWS ? split : exact) + (fast ? 1 : 0);
}

/** Turns `rows` rows of k inputs into integers, for all projections of them. */
export function quantizeInput(
  { table }: Kernels,
  { x, xStride, integers, mode }: LinearInput,
  k: number,
  rows: number,
): void {
  table.quantize_rows(integers, x, k, xStride, mode, 0, rows);
}

/** Panels and rows of a step are multiples of these: whole weight blocks of the kernel, whole strips. */
const STEP_PANELS = 16;
const STEP_ROWS = 60;

/** out[r] = x[r] · wᵀ + bias for `rows` rows, in steps of about `stepFlops`; out rows lie outStride floats apart. */
export function* project(
  kernels: Kernels,
  linear: Linear,
  out: F32Ptr,
  outStride: number,
  input: LinearInput,
  rows: number,
  stepFlops: number,
): Steps {
  const { format, w, bias, panels, k } = linear;
  const blockFlops = 2 * PANEL * STEP_PANELS * k;
  const stepPanels = STEP_PANELS * Math.max(1, Math.floor(stepFlops / (blockFlops * rows)));
  const stepRows = STEP_ROWS * Math.max(1, Math.floor(stepFlops / (blockFlops * STEP_ROWS)));
  for (let p = 0; p < panels; p += stepPanels) {
    const part: Linear = {
      ...{ k, format },
      panels: Math.min(stepPanels, panels - p),
      w: w + p * panelBytes(format, k),
      bias: pointer.f32(bias + 4 * PANEL * p),
    };
    const to = pointer.f32(out + 4 * PANEL * p);
    const shape = linearShape(format, { panels: part.panels, k, outStride, xStride: input.xStride, mode: input.mode });
    storeLinearShape(kernels.memory.view(), input.scratch, shape);
    for (let r = 0; r < rows; r += stepRows) {
      const end = Math.min(rows, r + stepRows);
      multiply(kernels, part, to, input, r, end);
      yield linearFlops(part.panels, k, end - r);
    }
  }
}

/** Rows begin..end, by the shape at `scratch`. */
function multiply(
  { table }: Kernels,
  { format, w, bias }: Linear,
  out: F32Ptr,
  { x, integers, scratch }: LinearInput,
  begin: number,
  end: number,
): void {
  const shape = pointer.linearShape(scratch);
  const work = scratch + LINEAR_WORK_AT;
  if (format === "f32") table.linear_f32(out, x, pointer.f32(w), bias, shape, begin, end);
  else if (isInteger(format)) {
    const linear = format === "q4" ? table.linear_q4 : table.linear_q8;
    linear(out, integers, pointer.u8(w), pointer.u8(work), bias, shape, begin, end);
  } else table.linear_f16(out, x, pointer.u16(w), pointer.f32(work), bias, shape, begin, end);
}

/** Floating-point operations of a projection. */
export function linearFlops(panels: number, k: number, rows: number): number {
  return 2 * PANEL * panels * k * rows;
}
