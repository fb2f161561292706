import { PAGE } from "../../assembly/layout.ts";
import type { Attention } from "../attention/attention.ts";
import { MOST_SEQUENCES } from "../attention/positions.ts";
import { createFloats, type Tensor } from "../tensor/tensor.ts";
import { expectFields, expectInt, HeadwiseError } from "../util/errors.ts";
import { DISPOSE, expectAlive, expectMade, type Releasable } from "../util/lifetime.ts";
import { chunksOf } from "../util/rows.ts";
import { expectKernels, type Kernels } from "../wasm/kernels.ts";
import { Layout, pointer } from "../wasm/memory.ts";
import { dropPages, leastLength, restorePages } from "./aging.ts";
import { gatherRows, placeRows, storeRows } from "./append-gather.ts";
import { type CacheStage, checkFormat, describeStages, expectKnownStages } from "./formats.ts";
import { type CacheFormat, type CacheFormats, createPageLayout } from "./page-layout.ts";
import { allocatePages, type Pages, pagesBytes } from "./pages.ts";

/**
 * Keys and values of the tokens that one attention layer has seen so far, `batch` sequences of one common length, in pages
 * taken once.
 * @example
 * import { createAttention, createCache, loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * const eye = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
 * const attention = createAttention(kernels, { dModel: 4, numHeads: 2 }, { wq: eye, wk: eye, wv: eye, wo: eye });
 * const cache = createCache(attention, { maxSeqLen: 100 });
 * console.log(cache.length, cache.bytes); // 0 10304: no token yet, and one page of 128 tokens
 * kernels.release();
 */
export interface Cache extends Releasable {
  readonly batch: number;
  readonly maxSeqLen: number;
  /** Tokens held. */
  readonly length: number;
  /** Bytes of linear memory held. */
  readonly bytes: number;
  /** What keys and values are kept in: one stage, or those that tokens go through as they age, from new to old. */
  readonly format: readonly CacheStage[];
  readonly released: boolean;
  /**
   * Forgets the tokens from `length` on; replaying them gives the same bits. Where tokens have aged, a length that they
   * were younger at throws RangeError, except 0.
   */
  truncate(length: number): void;
  /**
   * Copies of the present keys [batch, numKvHeads, length, headDim] (after norm and RoPE) and values [.., valueDim], as
   * floats whatever they are kept in.
   */
  read(): { key: Tensor; value: Tensor };
  /** @internal */
  readonly attention: Attention;
  /** @internal */
  readonly pages: Pages;
  /** @internal */
  advance(tokens: number): void;
  /** @internal The number of unfinished operations (`attendAsync`, an import) that append to it, and that read it. */
  readonly holds: { appending: number; reading: number };
}

/** What `createCache` takes. */
export interface CacheOptions {
  /** Tokens a sequence may hold; memory comes in pages of 128. */
  readonly maxSeqLen: number;
  /** Sequences, up to 2^20; default 1. */
  readonly batch?: number;
  /**
   * What keys and values are kept in; default "f32". Integers ("q8", "q4") have one scale a token and head. An array is
   * what tokens go through as they age: a stage says for how many tokens before the query's own 128 it holds, the last
   * one holds for all that are older. Where tokens age, calls that read and one that appends keep out of each
   * other's way: while an attendAsync appends, no other call may attend to the cache nor `read` it, and while one reads,
   * none may append (IN_USE).
   */
  readonly format?: CacheFormat | CacheFormats | readonly CacheStage[];
}

/**
 * Takes memory for the keys and values of an attention layer. Throws TypeError or RangeError naming the argument, and
 * HeadwiseError OUT_OF_MEMORY, or NO_QUANTIZED where the kernels know no format but float32; nothing is allocated then.
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
  expectMade("createCache", "attention", attention, "layer", "createAttention");
  const { kernels, config } = attention;
  expectKernels("createCache", kernels, "attention.kernels");
  expectFields("createCache", "options", options, ["maxSeqLen", "batch", "format"]);
  const maxSeqLen = expectInt("createCache", "maxSeqLen", options.maxSeqLen);
  const batch = expectInt("createCache", "batch", options.batch === undefined ? 1 : options.batch, 1, MOST_SEQUENCES);
  const stages = checkFormat("createCache", "format", options.format, config.headDim);
  expectKnownStages("createCache", kernels.quantized, stages);
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
  const cache: Cache = {
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
      expectAlive("truncate", "cache", cache);
      expectKernels("truncate", kernels, "cache.kernels");
      expectNoHold("truncate", cache.holds.appending + cache.holds.reading);
      expectInt("truncate", "length", to, 0, length);
      const least = leastLength(pages, length);
      if (to > 0 && to < least)
        throw new RangeError(`truncate: length expected 0 or at least ${least}, because older tokens aged, got ${to}`);
      restorePages(kernels, pages, length);
      dropPages(kernels, pages, to);
      length = to;
    },
    read() {
      expectAlive("read", "cache", cache);
      expectKernels("read", kernels, "cache.kernels");
      if (pages.aging) expectNoHold("read", cache.holds.appending);
      restorePages(kernels, pages, length);
      return readPages(kernels, pages, length);
    },
    advance(tokens) {
      length += tokens;
      if (pages.aging) pages.aging.old.length = 0;
    },
    holds: { appending: 0, reading: 0 },
    release,
    [DISPOSE]: release,
  };
  return cache;
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
