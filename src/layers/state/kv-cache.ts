// Keys and values of sequences in pages, whoever projects them.

import { PAGE } from "../../../assembly/layout.ts";
import { createFloats, type Tensor } from "../../base/tensor/tensor.ts";
import { expectInt, MOST_HEADS, MOST_SEQUENCES, readFields, wrongValue } from "../../base/util/arguments.ts";
import { HeadwiseError } from "../../base/util/errors.ts";
import { expectAlive, type Handle, makeHandle, type Releasable } from "../../base/util/lifetime.ts";
import { chunksOf } from "../../base/util/rows.ts";
import { expectKernels, type Kernels } from "../../wasm/kernels.ts";
import { Layout, pointer } from "../../wasm/memory.ts";
import {
  type CacheFormat,
  type CacheFormats,
  type CacheStage,
  checkCacheFormat,
  createPageLayout,
  describeStages,
  expectStagesLoaded,
  type PageShape,
  type Stage,
} from "./pages.ts";
import {
  allocatePages,
  beginPages,
  commitPages,
  cutPages,
  freePages,
  gatherRows,
  leastLength,
  leastPosition,
  type Pages,
  placeRows,
  type Retention,
  storeRows,
} from "./table.ts";

/**
 * Keys and values of `batch` sequences, which always have the same length, for `scaledDotProductAttention`. All of its memory
 * is allocated when it is made, in pages of 128 tokens, and freed by `release()`.
 * @example
 * import { createKvCache, loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * using cache = createKvCache(kernels, { numKvHeads: 8, headDim: 64, maxSeqLen: 1e6, window: { left: 511 } });
 * console.log(cache.length, cache.bytes < 5_000_000); // 0 true: only the window is kept
 */
export interface KvCache extends Releasable, Handle {
  /** Sequences. */
  readonly batch: number;
  /** Tokens per sequence that fit. */
  readonly maxSeqLen: number;
  /** Tokens per sequence that were appended. */
  readonly length: number;
  /** The first token that is stored: 0, unless earlier ones were dropped behind the window. */
  readonly start: number;
  /** Bytes of linear memory. */
  readonly bytes: number;
  /** Formats of keys and values: one stage, or the stages that tokens go through as they age, the newest first. */
  readonly format: readonly CacheStage[];
  /** Whether `release()` was called. */
  readonly released: boolean;
  /**
   * Drops the tokens from `length` on. Appending them again gives the same bits.
   * @throws TypeError or RangeError for a `length` above the current one; for one above 0 at which tokens that have aged since
   * were in an earlier stage; and, once tokens were dropped behind the window (`start` above 0), for one above 0 that is
   * more than `truncatable` tokens shorter than the sequence has been. HeadwiseError `RELEASED`, or `IN_USE` while an
   * `attendAsync` or `importPages` uses the cache.
   */
  truncate(length: number): void;
  /**
   * Copies the stored keys (of a layer: after norm and RoPE) and values as float32, whatever the format.
   * @throws HeadwiseError `OUT_OF_MEMORY`, `RELEASED`, or `IN_USE` where tokens age or are dropped and an `attendAsync` or
   * `importPages` appends.
   */
  read(): {
    /** [batch, numKvHeads, length - start, headDim]. */
    key: Tensor;
    /** [batch, numKvHeads, length - start, valueDim]. */
    value: Tensor;
  };
  /** @internal */
  readonly kernels: Kernels;
  /** @internal */
  readonly pages: Pages;
  /** @internal Undoes what an uncommitted call left: every call begins with it. */
  begin(): void;
  /**
   * @internal Makes what a call appended part of what is held. The first `start` tokens are not stored, besides those that are
   * never stored at this length.
   */
  commit(tokens: number, start?: number): void;
  /** @internal The number of unfinished operations (`attendAsync`, an import) that append to it, and that read it. */
  readonly holds: { appending: number; reading: number };
}

/** Options of `createCache`. */
export interface CacheOptions {
  /** Tokens per sequence that fit. Memory is allocated in pages of 128 tokens. */
  readonly maxSeqLen: number;
  /** Sequences, 1 to 2^20. Default 1. */
  readonly batch?: number | undefined;
  /**
   * Formats of keys and values. Default "f32". An array lists the stages that tokens go through as they age: each stage but
   * the last gives the number of tokens it covers, counted back from the page of 128 tokens that the query is in, and the
   * last covers all older ones. The formats of a stage have no more bits than those of the stage before.
   *
   * Where tokens age, a call that appends excludes calls that read: while an `attendAsync` appends, other calls that attend
   * to the cache or read it throw `IN_USE`, and while one only reads, those that append do.
   */
  readonly format?: CacheFormat | CacheFormats | readonly CacheStage[] | undefined;
  /**
   * How many tokens `truncate` can drop from a cache with a window, counted from the longest that the sequences have been:
   * an integer >= 0, or Infinity to keep every token. Default 128. Without a window to the left every token is kept.
   *
   * A cache with a window whose `maxSeqLen` needs more pages than window.left + truncatable tokens and three further pages
   * drops pages that no query can attend any more. In such a cache, calls that append exclude calls that read, as where
   * tokens age, and queries that do not follow the appended tokens (cross-attention, `append: false`) can be at the last
   * `truncatable` positions only.
   */
  readonly truncatable?: number | undefined;
}

/** Options of `createKvCache`. */
export interface KvCacheOptions extends CacheOptions {
  /** Key-value heads, 1 to 65 536. */
  readonly numKvHeads: number;
  /** Floats in a key head. */
  readonly headDim: number;
  /** Floats in a value head. Default headDim. */
  readonly valueDim?: number;
  /**
   * Keep only what queries with this window need: every call must have the same `window.left` or a smaller one. Default
   * none: every token is kept.
   */
  readonly window?: {
    /** How many earlier keys a query may attend besides its own. */
    readonly left: number;
  };
}

/** The fields of CacheOptions. */
export const CACHE_OPTIONS = ["maxSeqLen", "batch", "format", "truncatable"] as const;

/**
 * Allocates a cache for keys and values of your own projections, as the option `cache` of `scaledDotProductAttention`.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `OUT_OF_MEMORY`, `RELEASED`, or `NO_QUANTIZED` for
 * formats other than "f32" with kernels that were loaded without `quantized`. Nothing is allocated then.
 * @example
 * import { createKvCache, loadKernels, scaledDotProductAttention } from "headwise";
 * const kernels = await loadKernels();
 * const cache = createKvCache(kernels, { numKvHeads: 1, headDim: 2, maxSeqLen: 100 });
 * const token = { data: Float32Array.of(1, 2), shape: [1, 1, 2] }; // [heads, len, dim]
 * scaledDotProductAttention(kernels, token, token, token, { cache, causal: true });
 * const { output } = scaledDotProductAttention(kernels, token, token, token, { cache, causal: true });
 * console.log(cache.length, output.data.join(" ")); // 2 1 2
 * kernels.release();
 */
export function createKvCache(kernels: Kernels, options: KvCacheOptions): KvCache {
  const where = "createKvCache";
  expectKernels(where, kernels);
  const fields = ["numKvHeads", "headDim", "valueDim", "window", ...CACHE_OPTIONS] as const;
  const given = readFields(where, "options", options, fields);
  const { valueDim = given.headDim } = given;
  const numKvHeads = expectInt(where, "numKvHeads", given.numKvHeads, 1, MOST_HEADS);
  const headDim = expectInt(where, "headDim", given.headDim);
  const shape = { numKvHeads, headDim, valueDim: expectInt(where, "valueDim", valueDim) };
  const window = given.window === undefined ? undefined : readFields(where, "window", given.window, ["left"]);
  const retention = {
    left: window ? expectInt(where, "window.left", window.left, 0) : Infinity,
    truncatable: checkTruncatable(where, given.truncatable),
  };
  const checked = checkCacheOptions(where, shape, given);
  // Again, because reading arguments may have run code of the caller's that released them.
  expectKernels(where, kernels);
  return makeCache<KvCache>("KvCache", where, kernels, shape, checked, retention, {});
}

/** The options of a cache besides what it keeps, checked. */
interface CheckedCacheOptions {
  readonly maxSeqLen: number;
  readonly batch: number;
  readonly stages: readonly Stage[];
}

/** Checks options that were read. */
export function checkCacheOptions(where: string, shape: PageShape, options: CacheOptions): CheckedCacheOptions {
  const maxSeqLen = expectInt(where, "maxSeqLen", options.maxSeqLen);
  const batch = expectInt(where, "batch", options.batch === undefined ? 1 : options.batch, 1, MOST_SEQUENCES);
  return { maxSeqLen, batch, stages: checkCacheFormat(where, "format", options.format, shape) };
}

/** The cache of a type `kind` that the public function `maker` gives; `owner` are its further, internal fields. */
export function makeCache<T extends KvCache>(
  kind: string,
  maker: string,
  kernels: Kernels,
  shape: PageShape,
  { maxSeqLen, batch, stages }: CheckedCacheOptions,
  retention: Retention,
  owner: Omit<T, keyof KvCache>,
): T {
  expectStagesLoaded(maker, shape.kind !== undefined || kernels.quantized, stages);
  const pages = allocatePages(maker, kernels, createPageLayout(shape, stages), batch, maxSeqLen, retention);
  return cacheOf(kind, maker, kernels, pages, owner);
}

/** The cache that consists of these pages. */
export function cacheOf<T extends KvCache>(
  kind: string,
  maker: string,
  kernels: Kernels,
  pages: Pages,
  owner: Omit<T, keyof KvCache>,
): T {
  const { batch, maxSeqLen, bytes } = pages;
  let released = false;
  const free = () => {
    released = true;
    freePages(kernels, pages);
  };
  const holds = { appending: 0, reading: 0 };
  const expectUsable = (where: string, unfinished: number) => {
    expectAlive(where, "cache", { released });
    expectKernels(where, kernels, "cache.kernels");
    expectNoHold(where, unfinished);
  };
  // No function may refer to the handle, which could not be collected then.
  const parts: Omit<KvCache, "released" | keyof Releasable> = {
    ...{ batch, maxSeqLen, bytes, format: describeStages(pages.layout.stages), kernels, pages, holds },
    get length() {
      return pages.length;
    },
    get start() {
      return pages.start;
    },
    truncate(to) {
      expectUsable("truncate", holds.appending + holds.reading);
      expectTruncatable(pages, to);
      cutPages("truncate", kernels, pages, to);
    },
    read() {
      expectUsable("read", pages.ages ? holds.appending : 0);
      beginPages(kernels, pages);
      return readPages(kernels, pages);
    },
    begin() {
      if (!released && !kernels.released) beginPages(kernels, pages);
    },
    commit: (tokens, start) => commitPages(pages, tokens, start),
  };
  const internal = ["kernels", "pages", "holds", ...Object.keys(owner)] as (keyof T)[];
  const all = Object.defineProperties(owner as T, Object.getOwnPropertyDescriptors(parts));
  return makeHandle<T>(kind, maker, all, internal, free);
}

/** The keys [batch, numKvHeads, length - start, headDim] and the values of the tokens start..length as float32, for `read`. */
function readPages(kernels: Kernels, pages: Pages): { key: Tensor; value: Tensor } {
  const { memory } = kernels;
  const { numKvHeads, headDim, valueDim } = pages.layout;
  const { batch, start, length } = pages;
  const kept = length - start;
  const tokens = Math.min(kept, PAGE);
  const layout = new Layout();
  const place = {
    rows: placeRows(layout),
    key: layout.floats(numKvHeads * tokens * headDim),
    value: layout.floats(numKvHeads * tokens * valueDim),
  };
  const tensor = (name: string, dim: number) => ({
    data: createFloats("read", name, batch * numKvHeads * kept * dim),
    shape: [batch, numKvHeads, kept, dim],
  });
  const [key, value] = [tensor("key", headDim), tensor("value", valueDim)];
  const base = memory.scratch("read", layout.bytes);
  const rows = storeRows(kernels, base + place.rows, pages.layout, {
    kStride: headDim,
    kHeadStride: tokens * headDim,
    vStride: valueDim,
    vHeadStride: tokens * valueDim,
  });
  const [k, v] = [pointer.f32(base + place.key), pointer.f32(base + place.value)];
  for (let b = 0; b < batch; b++)
    for (const [begin, end] of chunksOf(kept, PAGE)) {
      const count = end - begin;
      gatherRows(kernels, pages, b, rows, { k, v }, start + begin, count);
      for (let h = 0; h < numKvHeads; h++) {
        const row = (b * numKvHeads + h) * kept + begin;
        key.data.set(memory.f32(k + h * tokens * headDim * 4, count * headDim), row * headDim);
        value.data.set(memory.f32(v + h * tokens * valueDim * 4, count * valueDim), row * valueDim);
      }
    }
  return { key, value };
}

/** Throws unless pages can be cut to `to` tokens. */
export function expectTruncatable(pages: Pages, to: number): void {
  const { length } = pages;
  expectInt("truncate", "length", to, 0, length);
  const { least, reason } = leastLength(pages, length);
  if (to > 0 && to < least) throw wrongValue("truncate", "length", `0 or at least ${least}, because ${reason}`, to);
}

/** Checks the option `truncatable`. */
export function checkTruncatable(where: string, truncatable: number = PAGE): number {
  return truncatable === Infinity ? truncatable : expectInt(where, "truncatable", truncatable, 0);
}

/** Throws IN_USE unless `holds` is 0: an unfinished operation relies on the cache as it is. */
export function expectNoHold(where: string, holds: number): void {
  if (holds > 0) throw new HeadwiseError("IN_USE", `${where}: cache expected one that no unfinished call is using`);
}

/** Throws IN_USE if this call and an unfinished operation on the cache would affect each other. */
export function expectFreeFor(where: string, { holds, pages }: KvCache, append: boolean): void {
  if (append) expectNoHold(where, holds.appending + (pages.ages ? holds.reading : 0));
  else if (pages.ages) expectNoHold(where, holds.appending);
}

/** Throws CACHE_FULL unless `count` more tokens fit, which the caller knows as `name`. */
export function expectRoom(
  where: string,
  { length, maxSeqLen }: Pick<KvCache, "length" | "maxSeqLen">,
  name: string,
  count: number,
): void {
  if (length + count <= maxSeqLen) return;
  throw new HeadwiseError("CACHE_FULL", `${where}: past ${length} + ${name} ${count} exceeds maxSeqLen ${maxSeqLen}`);
}

/**
 * Throws unless queries from `position` on find the keys of their windows after all keys of a call were appended, which
 * makes `kvLen`.
 */
export function expectKept(where: string, name: string, { pages }: KvCache, position: number, kvLen: number): void {
  const least = leastPosition(pages, kvLen);
  if (least === 0 || position >= least) return;
  const rule = `positions of at least ${least}, because truncatable of the cache is ${pages.retention.truncatable}`;
  throw wrongValue(where, name, rule, position);
}
