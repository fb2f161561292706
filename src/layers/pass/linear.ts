// y = x·wᵀ + b on rows of JavaScript arrays: chunks of rows are copied into scratch, multiplied, and copied out.

import { PANEL } from "../../../assembly/layout.ts";
import { createFloats } from "../../base/tensor/tensor.ts";
import { expectFloats } from "../../base/util/arguments.ts";
import { CHUNK_ROWS, chunksOf, copyRows } from "../../base/util/rows.ts";
import type { Steps } from "../../base/util/steps.ts";
import { Layout, pointer } from "../../wasm/memory.ts";
import { expectLinear, type Linear } from "../linear/create-linear.ts";
import { type PackedFormat, panelsOf, wholePanels } from "../linear/formats/format.ts";
import {
  cutPanels,
  type LinearScratch,
  placeLinearScratch,
  prepareInput,
  project,
  STEP_PANELS,
} from "../linear/products.ts";
import { countRows, expectOut } from "./call.ts";

/** Options of `linear`. */
export interface LinearOptions {
  /**
   * Array to write y to, [rows, outputs]. It may be x itself if the layer has as many outputs as inputs, and must not
   * overlap x otherwise. Default a new array.
   */
  readonly out?: Float32Array;
}

/** The fields of LinearOptions. */
export const LINEAR_OPTIONS = ["out"] as const;

/** A checked call of a layer on `rows` rows. */
interface LinearCall {
  /** The public function, for messages. */
  readonly where: string;
  readonly layer: Pick<Linear, "kernels" | "packed" | "mode" | "outputs" | "inputs" | "format">;
  readonly rows: number;
  readonly x: Float32Array;
  readonly out: Float32Array | undefined;
  /** The array that was given as `out`, of which that of the call is a view. */
  readonly given: Float32Array | undefined;
}

/** Checks a call whose options were read before, because that may have run code of the caller's that released the layer. */
export function checkLinear(
  where: string,
  layer: Linear,
  rowsGiven: Float32Array,
  { out: given }: LinearOptions,
): LinearCall {
  expectLinear(where, layer);
  const x = expectFloats(where, "x", rowsGiven);
  const out = given === undefined ? undefined : expectFloats(where, "out", given);
  const rows = countRows(where, "x", x, 1, "inputs", layer.inputs);
  const { outputs, inputs } = layer;
  if (out) expectOut(where, out, rows * outputs, { x }, inputs === outputs);
  return { where, layer, rows, x, out, given };
}

/**
 * The most floats of outputs in scratch, enough for a block of panels of a whole chunk. If a chunk has more outputs, they
 * are computed in pieces, some panels each.
 */
const OUTPUT_FLOATS = 2 ** 20;

interface LinearPlaces {
  /** [rows, inputs]. */
  readonly x: number;
  /** [rows, 8·panels]: a piece of the outputs. */
  readonly y: number;
  /** Panels of a piece. */
  readonly panels: number;
  readonly linear: LinearScratch;
}

/** The scratch of calls of up to `rows` rows, 1 or more. */
export function placeLinearCall(
  { outputs, inputs, format }: { readonly outputs: number; readonly inputs: number; readonly format: PackedFormat },
  rows: number,
): { places: LinearPlaces; bytes: number } {
  const chunk = Math.min(rows, CHUNK_ROWS);
  const panels = Math.min(panelsOf(outputs), STEP_PANELS * Math.floor(OUTPUT_FLOATS / (chunk * PANEL * STEP_PANELS)));
  const layout = new Layout();
  const x = layout.floats(chunk * inputs);
  // Not chunk * PANEL * panels, which a call of fewer rows can exceed.
  const y = layout.floats(Math.min(chunk * wholePanels(outputs), OUTPUT_FLOATS));
  const linear = placeLinearScratch(layout, [{ k: inputs, format }], chunk);
  return { places: { x, y, panels, linear }, bytes: layout.bytes };
}

/**
 * Computes y [rows, outputs] in steps of about `stepFlops`. With `ownScratch` it allocates a block instead of using the
 * scratch that all calls share, because others may run between steps.
 */
export function* runLinear(
  { where, layer, rows, x, out }: Omit<LinearCall, "given">,
  stepFlops: number = Infinity,
  ownScratch = false,
): Steps<Float32Array> {
  const { kernels, packed, mode, outputs, inputs } = layer;
  const { memory } = kernels;
  // Scratch is taken last: once grown it stays so, and nothing may fail after it.
  const y = out ?? createFloats(where, "y", rows * outputs);
  if (rows === 0) return y;
  const { places, bytes } = placeLinearCall(layer, rows);
  const base = ownScratch ? memory.allocate(where, bytes) : memory.scratch(where, bytes);
  const stride = PANEL * places.panels;
  const [xAt, yAt] = [pointer.f32(base + places.x), pointer.f32(base + places.y)];
  try {
    for (const [begin, end] of chunksOf(rows, CHUNK_ROWS)) {
      const count = end - begin;
      memory.f32(xAt, count * inputs).set(x.subarray(begin * inputs, end * inputs));
      const at = { at: xAt, stride: inputs };
      const input = prepareInput(kernels, [packed], at, count, mode, places.linear, base);
      for (const [first, last] of chunksOf(packed.panels, places.panels)) {
        yield* project(kernels, cutPanels(packed, first, last), { at: yAt, stride }, input, count, stepFlops);
        const column = PANEL * first;
        const width = Math.min(outputs - column, stride);
        const piece = memory.f32(yAt, count * stride);
        copyRows(y, begin * outputs + column, outputs, piece, stride, width);
      }
    }
  } finally {
    if (ownScratch && !kernels.released) memory.free(base);
  }
  return y;
}
