import { expectKeptArrays } from "../forward/given-call.ts";
import { checkLinear, LINEAR_OPTIONS, type LinearOptions, runLinear } from "../forward/linear.ts";
import { checkSlices, runSlices, SLICE_OPTIONS, type SliceOptions, stepFlopsOf } from "../forward/slices.ts";
import { expectLinear, type Linear } from "../linear/create-linear.ts";
import { linearFlops } from "../linear/linear.ts";
import { readFields } from "../util/arguments.ts";

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
