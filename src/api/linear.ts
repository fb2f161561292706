import { checkLinear, LINEAR_OPTIONS, type LinearOptions, runLinear } from "../forward/linear.ts";
import type { Linear } from "../linear/create-linear.ts";
import { readFields } from "../util/arguments.ts";
import { finish } from "../util/steps.ts";

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
