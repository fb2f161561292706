import { PAGE } from "../../assembly/layout.ts";
import { createFloats, type Tensor } from "../tensor/tensor.ts";
import { chunksOf } from "../util/rows.ts";
import type { Kernels } from "../wasm/kernels.ts";
import { Layout, pointer } from "../wasm/memory.ts";
import { gatherRows, placeRows, storeRows } from "./append-gather.ts";
import type { Pages } from "./pages.ts";

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
