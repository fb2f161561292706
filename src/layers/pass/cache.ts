import { readFields } from "../../base/util/arguments.ts";
import { expectMade } from "../../base/util/lifetime.ts";
import { expectKernels } from "../../wasm/kernels.ts";
import type { Attention } from "../attention/attention.ts";
import { retentionOf } from "../attention/kv-state.ts";
import { CACHE_OPTIONS, type CacheOptions, checkCacheOptions, type KvCache, makeCache } from "../state/kv-cache.ts";

/**
 * The KV cache of one attention layer: keys and values of `batch` sequences, which always have the same length. All of its
 * memory is allocated when it is made, in pages of 128 tokens, and freed by `release()`.
 * @example
 * import { createAttention, createCache, loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * const eye = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
 * const attention = createAttention(kernels, { dModel: 4, numHeads: 2 }, { wq: eye, wk: eye, wv: eye, wo: eye });
 * const cache = createCache(attention, { maxSeqLen: 100 });
 * console.log(cache.length, cache.bytes); // 0 10304: no token yet, and one page of 128 tokens
 * kernels.release();
 */
export interface Cache extends KvCache {
  /** @internal */
  readonly attention: Attention;
}

/**
 * Allocates a KV cache for an attention layer. If the layer has a window to the left, and no query attends later keys
 * (`causal`, or `window.right` 0), the cache keeps only the pages that the window needs, however large `maxSeqLen` is; see
 * `CacheOptions.truncatable`.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `OUT_OF_MEMORY`, `RELEASED`, or `NO_QUANTIZED` for
 * formats other than "f32" with kernels that were loaded without `quantized`. Nothing is allocated then.
 * @example
 * import { attend, createAttention, createCache, loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * const eye = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
 * const attention = createAttention(kernels, { dModel: 4, numHeads: 2 }, { wq: eye, wk: eye, wv: eye, wo: eye });
 * const cache = createCache(attention, { maxSeqLen: 100, batch: 2 });
 * attend(attention, new Float32Array(2 * 3 * 4), { cache }); // three tokens of each sequence
 * console.log(cache.length, cache.read().key.shape); // 3 [ 2, 2, 3, 2 ]
 * kernels.release();
 */
export function createCache(attention: Attention, options: CacheOptions): Cache {
  const where = "createCache";
  expectMade(where, "attention", attention, ...LAYERS);
  const { kernels, config, pageShape } = attention;
  const given = readFields(where, "options", options, CACHE_OPTIONS);
  const checked = checkCacheOptions(where, pageShape, given);
  // After all arguments were read, which may run code of the caller's.
  expectMade(where, "attention", attention, ...LAYERS);
  expectKernels(where, kernels, "attention.kernels");
  const retention = retentionOf(where, config, given.truncatable);
  return makeCache<Cache>("Cache", where, kernels, pageShape, checked, retention, { attention });
}

/** What makes the layers that have caches. */
const LAYERS = ["createAttention", "createLatentAttention"];
