import { PAGE } from "../../assembly/layout.ts";
import type { Attention } from "../attention/attention.ts";
import { MOST_SEQUENCES } from "../attention/limits.ts";
import { createFloats, type Tensor } from "../tensor/tensor.ts";
import { expectInt, HeadwiseError, readFields } from "../util/errors.ts";
import { DISPOSE, expectAlive, expectMade, type Handle, makeHandle, type Releasable } from "../util/lifetime.ts";
import { chunksOf } from "../util/rows.ts";
import { expectKernels, type Kernels } from "../wasm/kernels.ts";
import { Layout, pointer } from "../wasm/memory.ts";
import { dropPages, leastLength, restorePages } from "./aging.ts";
import { gatherRows, placeRows, storeRows } from "./append-gather.ts";
import { type CacheStage, checkCacheFormat, describeStages, expectStagesLoaded } from "./formats.ts";
import { type CacheFormat, type CacheFormats, createPageLayout } from "./page-layout.ts";
import { allocatePages, type Pages, pagesBytes } from "./pages.ts";

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
export interface Cache extends Releasable, Handle {
  /** Sequences. */
  readonly batch: number;
  /** Tokens per sequence that fit. */
  readonly maxSeqLen: number;
  /** Tokens per sequence that are stored. */
  readonly length: number;
  /** Bytes of linear memory. */
  readonly bytes: number;
  /** Formats of keys and values: one stage, or the stages that tokens go through as they age, the newest first. */
  readonly format: readonly CacheStage[];
  /** Whether `release()` was called. */
  readonly released: boolean;
  /**
   * Drops the tokens from `length` on. Appending them again gives the same bits.
   * @throws TypeError or RangeError for a `length` above the current one, and for one above 0 at which tokens that have aged
   * since were in an earlier stage. HeadwiseError `RELEASED`, or `IN_USE` while an `attendAsync` uses the cache.
   */
  truncate(length: number): void;
  /**
   * Copies the stored keys (after norm and RoPE) and values as float32, whatever the format.
   * @throws HeadwiseError `OUT_OF_MEMORY`, `RELEASED`, or `IN_USE` where tokens age and an `attendAsync` appends.
   */
  read(): {
    /** [batch, numKvHeads, length, headDim]. */
    key: Tensor;
    /** [batch, numKvHeads, length, valueDim]. */
    value: Tensor;
  };
  /** @internal */
  readonly attention: Attention;
  /** @internal */
  readonly pages: Pages;
  /** @internal */
  advance(tokens: number): void;
  /** @internal The number of unfinished operations (`attendAsync`, an import) that append to it, and that read it. */
  readonly holds: { appending: number; reading: number };
}

/** Options of `createCache`. */
export interface CacheOptions {
  /** Tokens per sequence that fit. Memory is allocated in pages of 128 tokens. */
  readonly maxSeqLen: number;
  /** Sequences, 1 to 2^20. Default 1. */
  readonly batch?: number;
  /**
   * Formats of keys and values. Default "f32". An array lists the stages that tokens go through as they age: each stage but
   * the last gives the number of tokens it covers, counted back from the page of 128 tokens that the query is in, and the
   * last covers all older ones. The formats of a stage have no more bits than those of the stage before.
   *
   * Where tokens age, a call that appends excludes calls that read: while an `attendAsync` appends, other calls that attend
   * to the cache or read it throw `IN_USE`, and while one only reads, those that append do.
   */
  readonly format?: CacheFormat | CacheFormats | readonly CacheStage[];
}

/**
 * Allocates a KV cache for an attention layer.
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
  if (options === undefined) throw new TypeError("createCache: options expected { maxSeqLen }, got undefined");
  const given = readFields("createCache", "options", options, ["maxSeqLen", "batch", "format"]);
  const maxSeqLen = expectInt("createCache", "maxSeqLen", given.maxSeqLen);
  const batch = expectInt("createCache", "batch", given.batch === undefined ? 1 : given.batch, 1, MOST_SEQUENCES);
  expectMade("createCache", "attention", attention, "createAttention");
  const { kernels, config } = attention;
  const stages = checkCacheFormat("createCache", "format", given.format, config.headDim);
  // After all arguments were read, which may run code of the caller's.
  expectMade("createCache", "attention", attention, "createAttention");
  expectKernels("createCache", kernels, "attention.kernels");
  expectStagesLoaded("createCache", kernels.quantized, stages);
  const layout = createPageLayout(config, stages);
  const pages = allocatePages("createCache", kernels, layout, batch, maxSeqLen);
  let length = 0;
  let released = false;
  const release = () => {
    if (released) return;
    released = true;
    if (pages.aging) pages.aging.old.length = 0;
    if (!kernels.released) kernels.memory.free(pages.at);
  };
  const holds = { appending: 0, reading: 0 };
  // No function may refer to the handle, which could not be collected then.
  const state = {
    get released() {
      return released;
    },
  };
  const parts: Pick<Cache, keyof Cache> = {
    batch,
    maxSeqLen,
    bytes: pagesBytes(layout, batch, maxSeqLen),
    format: describeStages(stages),
    attention,
    pages,
    get length() {
      return length;
    },
    get released() {
      return released;
    },
    truncate(to) {
      expectAlive("truncate", "cache", state);
      expectKernels("truncate", kernels, "cache.kernels");
      expectNoHold("truncate", holds.appending + holds.reading);
      expectInt("truncate", "length", to, 0, length);
      const least = leastLength(pages, length);
      if (to > 0 && to < least)
        throw new RangeError(`truncate: length expected 0 or at least ${least}, because older tokens aged, got ${to}`);
      restorePages(kernels, pages, length);
      dropPages(kernels, pages, to);
      length = to;
    },
    read() {
      expectAlive("read", "cache", state);
      expectKernels("read", kernels, "cache.kernels");
      if (pages.aging) expectNoHold("read", holds.appending);
      restorePages(kernels, pages, length);
      return readPages(kernels, pages, length);
    },
    advance(tokens) {
      length += tokens;
      if (pages.aging) pages.aging.old.length = 0;
    },
    holds,
    release,
    [DISPOSE]: release,
  };
  return makeHandle<Cache>("Cache", "createCache", parts, ["attention", "pages", "holds"], release);
}

/** Throws IN_USE unless `holds` is 0: an unfinished operation relies on the cache as it is. */
export function expectNoHold(where: string, holds: number): void {
  if (holds > 0) throw new HeadwiseError("IN_USE", `${where}: cache expected one that no attendAsync is using`);
}

function readPages(kernels: Kernels, pages: Pages, length: number): { key: Tensor; value: Tensor } {
  const { memory } = kernels;
  const { numKvHeads, headDim, valueDim } = pages.layout;
  const { batch } = pages;
  const tokens = Math.min(length, PAGE);
  const layout = new Layout();
  const place = {
    rows: placeRows(layout),
    key: layout.floats(numKvHeads * tokens * headDim),
    value: layout.floats(numKvHeads * tokens * valueDim),
  };
  const key = {
    data: createFloats("read", "key", batch * numKvHeads * length * headDim),
    shape: [batch, numKvHeads, length, headDim],
  };
  const value = {
    data: createFloats("read", "value", batch * numKvHeads * length * valueDim),
    shape: [batch, numKvHeads, length, valueDim],
  };
  const base = memory.scratch("read", layout.bytes);
  const rows = storeRows(kernels, base + place.rows, pages.layout, {
    kStride: headDim,
    kHeadStride: tokens * headDim,
    vStride: valueDim,
    vHeadStride: tokens * valueDim,
  });
  const [k, v] = [pointer.f32(base + place.key), pointer.f32(base + place.value)];
  for (let b = 0; b < batch; b++)
    for (const [begin, end] of chunksOf(length, PAGE)) {
      const count = end - begin;
      gatherRows(kernels, pages, b, rows, { k, v }, begin, count);
      for (let h = 0; h < numKvHeads; h++) {
        const row = (b * numKvHeads + h) * length + begin;
        key.data.set(memory.f32(k + h * tokens * headDim * 4, count * headDim), row * headDim);
        value.data.set(memory.f32(v + h * tokens * valueDim * 4, count * valueDim), row * valueDim);
      }
    }
  return { key, value };
}
