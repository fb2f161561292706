// Tokens into pages of keys and values, and back.

import type { Reference } from "../wasm/abi.ts";
import { keyAt, store, valueAt } from "./pages.ts";

/** Appends tokens begin..end to cache pages, in their format: pages[past + t] = k[t], v[t]. */
export const append_pages: Reference["append_pages"] = (pages, k, v, shape, past, begin, end) => {
  const { headDim, valueDim } = shape;
  for (let t = begin; t < end; t++)
    for (let h = 0; h < shape.numKvHeads; h++) {
      const [kAt, vAt] = [t * shape.kStride + h * shape.kHeadStride, t * shape.vStride + h * shape.vHeadStride];
      store(pages, shape, h, true, past + t, k.subarray(kAt, kAt + headDim));
      store(pages, shape, h, false, past + t, v.subarray(vAt, vAt + valueDim));
    }
};

/** Reads tokens begin..end from cache pages of any format: k[t], v[t] = pages[past + t]. */
export const gather_pages: Reference["gather_pages"] = (k, v, pages, shape, past, begin, end) => {
  for (let t = begin; t < end; t++)
    for (let h = 0; h < shape.numKvHeads; h++) {
      for (let d = 0; d < shape.headDim; d++)
        k[t * shape.kStride + h * shape.kHeadStride + d] = keyAt(pages, shape, h, past + t, d);
      for (let c = 0; c < shape.valueDim; c++)
        v[t * shape.vStride + h * shape.vHeadStride + c] = valueAt(pages, shape, h, past + t, c);
    }
};

/** Appends tokens to cache pages of float32: `append_pages` for this one format. */
export const append_f32: Reference["append_f32"] = append_pages;

/** Reads tokens from cache pages of float32: `gather_pages` for this one format. */
export const gather_f32: Reference["gather_f32"] = gather_pages;
