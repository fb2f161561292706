import type { Attention } from "../attention/attention.ts";
import { type AttendOptions, checkAttend, commit } from "../forward/call.ts";
import { forward } from "../forward/forward.ts";
import type { Tensor } from "../tensor/tensor.ts";
import { finish } from "../util/steps.ts";

/**
 * The layer's output y [batch, qLen, dModel] for x [batch, qLen, dModel]. The same bits for one prefill, any chunks of
 * it, token by token, and any batch. Masked positions cannot change it, whatever they hold; a row with no key to attend
 * has zeros before the output projection. A call that throws leaves the cache as it was.
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
  const call = checkAttend("attend", attention, x, options);
  const { ys } = finish(forward(attention, [call], { where: call.where }));
  commit([call]);
  return ys[0] as Float32Array;
}

/**
 * The same y as `attend`, bit for bit, and the weights that each query gave each key: maps [numHeads, qLen, kvLen], with
 * a leading batch dimension when `options.batch` is given or a cache has more than one sequence. Extra keys (biasK, addZeroAttn) are columns behind the others.
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
): { y: Float32Array; maps: Tensor } {
  const call = checkAttend("attendWithMaps", attention, x, options);
  const { ys, maps } = finish(forward(attention, [call], { where: call.where, maps: true }));
  commit([call]);
  const { numHeads } = attention.config;
  const columns = maps.length / (call.batch * numHeads * call.qLen || 1);
  const shape = [numHeads, call.qLen, columns];
  const single = options.batch === undefined && call.batch === 1;
  return { y: ys[0] as Float32Array, maps: { data: maps, shape: single ? shape : [call.batch, ...shape] } };
}
