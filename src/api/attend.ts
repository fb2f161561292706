import type { Attention } from "../attention/attention.ts";
import { type AttendOptions, checkGiven, commit, readAttend } from "../forward/call.ts";
import { prepareSteps, runStep } from "../forward/decode-step.ts";
import { forward } from "../forward/forward.ts";
import type { Tensor } from "../tensor/tensor.ts";
import { finish } from "../util/steps.ts";

/**
 * Runs one attention layer: projects x to queries, keys and values, attends, and applies the output projection. With a
 * cache, the new keys and values are appended first, and x attends to all that the cache then holds.
 *
 * A token's output has the same bits in one prefill, in chunks, token by token and in any batch. A masked key cannot change
 * the output, even if it is NaN. A query with no key to attend gives zeros before the output projection.
 * @param x Input rows [batch, qLen, dModel].
 * @returns Output rows y [batch, qLen, dModel]: `options.out` where it is given, else a new array.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `CACHE_FULL`, `OUT_OF_MEMORY`, `RELEASED`, `IN_USE` where
 * an unfinished `attendAsync` or `importPages` excludes this use of the cache, and with threads `WORKER_LOST` or
 * `KERNEL_FAILED`. The cache is then unchanged.
 * @example
 * import { attend, createAttention, createCache, loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * const eye = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
 * const attention = createAttention(kernels, { dModel: 4, numHeads: 2, causal: true }, { wq: eye, wk: eye, wv: eye, wo: eye });
 * const cache = createCache(attention, { maxSeqLen: 16 });
 * attend(attention, Float32Array.of(1, 0, 0, 0, 0, 1, 0, 0), { cache }); // prefill: two tokens
 * attend(attention, Float32Array.of(0, 0, 1, 0), { cache }); // decode: one more
 * console.log(cache.length); // 3
 * kernels.release();
 */
export function attend(attention: Attention, x: Float32Array, options: AttendOptions = {}): Float32Array {
  const given = readAttend("attend", x, options);
  const step = runStep("attend", attention, given);
  if (step) return step;
  const call = checkGiven("attend", attention, given);
  const { ys } = finish(forward(attention, [call], { where: call.where }));
  commit([call]);
  prepareSteps(attention, call);
  return call.given ?? (ys[0] as Float32Array);
}

/**
 * `attend`, which also returns the attention maps: the softmax weights that each query gives each key. y has the bits of
 * `attend`.
 * @param x Input rows [batch, qLen, dModel].
 * @throws The same errors as `attend`; the cache is then unchanged.
 * @example
 * import { attendWithMaps, createAttention, loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * const eye = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
 * const attention = createAttention(kernels, { dModel: 4, numHeads: 2, causal: true }, { wq: eye, wk: eye, wv: eye, wo: eye });
 * const { maps } = attendWithMaps(attention, new Float32Array(12).fill(1));
 * console.log(maps.shape, maps.data[0]); // [ 2, 3, 3 ] 1: the first token sees only itself
 * kernels.release();
 */
export function attendWithMaps(
  attention: Attention,
  x: Float32Array,
  options: AttendOptions = {},
): {
  /** Output rows [batch, qLen, dModel]. */
  y: Float32Array;
  /**
   * Weights [numHeads, qLen, columns]; [batch, numHeads, qLen, columns] where `options.batch` is given or the cache has more
   * than one sequence. The columns are the kvLen keys, with weight 0 for those that a cache with a window has dropped, then
   * one for `biasK` and one for `addZeroAttn`, where the layer has them.
   */
  maps: Tensor;
} {
  const given = readAttend("attendWithMaps", x, options);
  const call = checkGiven("attendWithMaps", attention, given);
  const { ys, maps } = finish(forward(attention, [call], { where: call.where, maps: true }));
  commit([call]);
  const { numHeads } = attention.config;
  const columns = maps.length / (call.batch * numHeads * call.qLen || 1);
  const shape = [numHeads, call.qLen, columns];
  const single = given.options.batch === undefined && call.batch === 1;
  return {
    y: call.given ?? (ys[0] as Float32Array),
    maps: { data: maps, shape: single ? shape : [call.batch, ...shape] },
  };
}
