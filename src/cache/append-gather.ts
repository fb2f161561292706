// Copies keys and values between rows in linear memory and the pages of a cache.

import { CACHE_SHAPE_BYTES, type CacheShapePtr, type F32Ptr, storeCacheShape } from "../wasm/abi.ts";
import type { Kernels } from "../wasm/kernels.ts";
import { type Layout, pointer } from "../wasm/memory.ts";
import type { PageShape } from "./page-layout.ts";
import { type Pages, pageTable } from "./pages.ts";

/** Floats between neighbouring tokens, and between neighbouring heads, of rows of keys and of values. */
interface RowStrides {
  readonly kStride: number;
  readonly kHeadStride: number;
  readonly vStride: number;
  readonly vHeadStride: number;
}

/** Addresses of the first key and the first value. */
interface KeyValueRows {
  readonly k: F32Ptr;
  readonly v: F32Ptr;
}

/** Places what `storeRows` writes. */
export function placeRows(layout: Layout): number {
  return layout.take(CACHE_SHAPE_BYTES);
}

/** Writes the description of rows that the kernels below read, at an address from `placeRows`. */
export function storeRows(
  { memory }: Kernels,
  at: number,
  { numKvHeads, headDim, valueDim }: PageShape,
  { kStride, kHeadStride, vStride, vHeadStride }: RowStrides,
): CacheShapePtr {
  storeCacheShape(memory.view(), at, {
    ...{ numKvHeads, headDim, valueDim },
    ...{ kStride, kHeadStride, vStride, vHeadStride },
  });
  return pointer.cacheShape(at);
}

/** Writes `count` rows to the pages of a sequence, the first at `position`. */
export function appendRows(
  { table }: Kernels,
  pages: Pages,
  batchRow: number,
  shape: CacheShapePtr,
  { k, v }: KeyValueRows,
  position: number,
  count: number,
): void {
  table[pages.layout.kernels.append](pageTable(pages, batchRow), k, v, shape, position, 0, count);
}

/** Reads `count` rows from the pages of a sequence, the first at `position`, as float32 from any format. */
export function gatherRows(
  { table }: Kernels,
  pages: Pages,
  batchRow: number,
  shape: CacheShapePtr,
  { k, v }: KeyValueRows,
  position: number,
  count: number,
): void {
  table[pages.layout.kernels.gather](k, v, pageTable(pages, batchRow), shape, position, 0, count);
}
