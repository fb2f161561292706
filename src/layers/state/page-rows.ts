// Copies keys and values between rows in linear memory and the pages of a cache.

import { PAGE } from "../../../assembly/layout.ts";
import { createFloats, type Tensor } from "../../base/tensor/tensor.ts";
import { chunksOf } from "../../base/util/rows.ts";
import { CACHE_SHAPE_BYTES, type CacheShapePtr, type F32Ptr, storeCacheShape } from "../../wasm/abi.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { Layout, pointer } from "../../wasm/memory.ts";
import { type PageShape, type Pages, pageTable } from "./pages.ts";

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

/** The keys [batch, numKvHeads, length - start, headDim] and the values of the tokens start..length as float32, for `read`. */
export function readPages(
  kernels: Kernels,
  pages: Pages,
  start: number,
  length: number,
): { key: Tensor; value: Tensor } {
  const { memory } = kernels;
  const { numKvHeads, headDim, valueDim } = pages.layout;
  const { batch } = pages;
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
