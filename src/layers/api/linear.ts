// Linear layers on rows of JavaScript arrays: in one step, in slices, and their plan.

import { expectInt, readFields } from "../../base/util/arguments.ts";
import { finish } from "../../base/util/steps.ts";
import { aligned, type MemoryPlan } from "../../wasm/memory.ts";
import { expectLinear, type Linear, linearLayout } from "../linear/create-linear.ts";
import type { WeightFormat } from "../linear/formats/format.ts";
import { expectFormat } from "../linear/formats/formats.ts";
import { linearFlops } from "../linear/products.ts";
import { expectKeptArrays } from "../pass/call.ts";
import { checkLinear, LINEAR_OPTIONS, type LinearOptions, placeLinearCall, runLinear } from "../pass/linear.ts";
import { checkSlices, runSlices, SLICE_OPTIONS, type SliceOptions, stepFlopsOf } from "../pass/slices.ts";

/**
 * y = x·wᵀ + b for any number of rows. A row's y has the same bits in any number of rows, and on any number of threads.
 * @param x Input rows [rows, inputs], none or more.
 * @returns Output rows y [rows, outputs]: `options.out` where it is given, else a new array.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `OUT_OF_MEMORY`, `RELEASED`, and with threads
 * `WORKER_LOST` or `KERNEL_FAILED`.
 * @example
 * import { createLinear, linear, loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * const layer = createLinear(kernels, { weight: { data: Float32Array.of(1, 2, 3, 4), shape: [2, 2] } });
 * console.log(linear(layer, Float32Array.of(1, 0, 0, 1)).join(" ")); // 1 3 2 4: two rows
 * const x = Float32Array.of(1, 1);
 * linear(layer, x, { out: x });
 * console.log(x.join(" ")); // 3 7
 * kernels.release();
 */
export function linear(layer: Linear, x: Float32Array, options: LinearOptions = {}): Float32Array {
  const given = readFields("linear", "options", options, LINEAR_OPTIONS);
  const call = checkLinear("linear", layer, x, given);
  const y = finish(runLinear(call));
  return call.given ?? y;
}

/** Options of `linearAsync`: those of `linear`, and how the call is sliced. */
export type LinearAsyncOptions = LinearOptions & SliceOptions;

/**
 * `linear` in time slices. It yields to the event loop between slices, so that pages stay responsive and servers answer
 * other requests. The result has the bits of `linear`. x must not change before the promise settles; other calls on the same
 * layer may run meanwhile.
 * @param x Input rows [rows, inputs], none or more.
 * @returns Output rows y [rows, outputs]: `options.out` where it is given, written at the end, else a new array.
 * @throws The same errors as `linear`, the signal's reason, whatever `onProgress` throws, RangeError if x or `out` is detached or
 * resized before the end, and HeadwiseError `RELEASED` if the layer or its kernels are released before. `out` is then
 * unchanged.
 * @example
 * import { createLinear, linearAsync, loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * const layer = createLinear(kernels, { weight: { data: new Float32Array(64 * 32), shape: [64, 32] } });
 * const y = await linearAsync(layer, new Float32Array(1000 * 32), { sliceMs: 4 });
 * console.log(y.length); // 64000
 * kernels.release();
 */
export async function linearAsync(
  layer: Linear,
  x: Float32Array,
  options: LinearAsyncOptions = {},
): Promise<Float32Array> {
  const where = "linearAsync";
  const read = readFields(where, "options", options, [...SLICE_OPTIONS, ...LINEAR_OPTIONS]);
  const slices = checkSlices(where, read);
  const call = checkLinear(where, layer, x, read);
  const { x: rows, out, given } = call;
  const expectKept = expectKeptArrays(where, { x: rows, out });
  const expectActive = () => {
    slices.signal?.throwIfAborted();
    expectLinear(where, layer);
    expectKept();
  };
  // `out` is written last, when nothing can end the call any more.
  const steps = runLinear({ ...call, out: undefined }, stepFlopsOf(layer.kernels), true);
  try {
    const y = await runSlices(steps, linearFlops(layer.packed, call.rows), slices, expectActive);
    expectActive();
    out?.set(y);
    return given ?? y;
  } finally {
    steps.return(undefined as never);
  }
}

/** The sizes of a layer to plan memory for. */
export interface LinearSizes {
  /** Floats of a row of y. */
  readonly outputs: number;
  /** Floats of a row of x. */
  readonly inputs: number;
}

/** The largest call to plan memory for, and the format of the weights. */
export interface LinearPlanOptions {
  /** Rows of the longest call. Default 1. */
  readonly rows?: number;
  /** Format of the weights, as `createLinear` takes it. Default "f32". */
  readonly weights?: WeightFormat;
}

/** What `planLinear` gives. */
export type LinearPlan = MemoryPlan;

/**
 * The memory that a linear layer and a call will take, computed before anything is allocated.
 * @throws TypeError or RangeError naming the argument.
 * @example
 * import { planLinear } from "headwise";
 * const { weights } = planLinear({ outputs: 32_000, inputs: 2048 }, { weights: "q8" });
 * console.log(weights); // 77952000: 32 000 x 2048 bytes, six more for each 32 of them, and the biases
 */
export function planLinear(sizes: LinearSizes, options: LinearPlanOptions = {}): LinearPlan {
  const where = "planLinear";
  const { outputs, inputs } = readFields(where, "sizes", sizes, ["outputs", "inputs"]);
  const { rows = 1, weights: given = "f32" } = readFields(where, "options", options, ["rows", "weights"]);
  const size = { n: expectInt(where, "outputs", outputs), k: expectInt(where, "inputs", inputs) };
  expectInt(where, "rows", rows);
  const format = expectFormat(where, "weights", given);
  const weights = aligned(linearLayout(size, format).bytes);
  const { bytes: scratch } = placeLinearCall({ outputs, inputs, format }, rows);
  return { weights, scratch, total: weights + scratch };
}
