import { PAGE, PANEL } from "../../assembly/layout.ts";
import type { AttentionShape, CacheShape, Page, Plain, Reference } from "../wasm/abi.ts";
import { attention_f32 } from "./attention.ts";
import { append_f32 } from "./cache.ts";

// The kernels of latent attention. A page holds pairs of tokens: by turns 4 components of the one and of the other.

const wholePanels = (components: number): number => PANEL * Math.ceil(components / PANEL);
const dimOf = ({ headDim, valueDim }: Plain<CacheShape>): number => wholePanels(headDim) + wholePanels(valueDim);

/** Where component d of a token lies in its page. */
const placeOf = (dim: number, slot: number, d: number): number =>
  2 * dim * Math.floor(slot / 2) + 8 * Math.floor(d / 4) + 4 * (slot % 2) + (d % 4);

const floatsOf = (pages: readonly Page[], position: number): Float32Array =>
  pages[Math.floor(position / PAGE)] as Float32Array;

/** pages[past + t] = the latent k[t] [headDim] and the rotated key v[t] [valueDim], each with zeros up to whole panels. */
export const append_latents: Reference["append_latents"] = (pages, k, v, shape, past, begin, end) => {
  const { headDim, valueDim, kStride, vStride } = shape;
  const dim = dimOf(shape);
  const rank = wholePanels(headDim);
  for (let t = begin; t < end; t++) {
    const page = floatsOf(pages, past + t);
    const slot = (past + t) % PAGE;
    for (let d = 0; d < rank; d++) page[placeOf(dim, slot, d)] = d < headDim ? k[t * kStride + d]! : 0;
    for (let d = 0; d < dim - rank; d++) page[placeOf(dim, slot, rank + d)] = d < valueDim ? v[t * vStride + d]! : 0;
  }
};

/** k[t], v[t] = pages[past + t]. */
export const gather_latents: Reference["gather_latents"] = (k, v, pages, shape, past, begin, end) => {
  const { headDim, valueDim, kStride, vStride } = shape;
  const dim = dimOf(shape);
  for (let t = begin; t < end; t++) {
    const page = floatsOf(pages, past + t);
    const slot = (past + t) % PAGE;
    for (let d = 0; d < headDim; d++) k[t * kStride + d] = page[placeOf(dim, slot, d)]!;
    for (let d = 0; d < valueDim; d++) v[t * vStride + d] = page[placeOf(dim, slot, wholePanels(headDim) + d)]!;
  }
};

/** attention_f32 of one kv head, whose keys are latents [headDim] and whose values are their first valueDim components. */
export const attention_latents: Reference["attention_latents"] = (out, q, pages, scratch, shape, begin, end) => {
  const { headDim, valueDim, kvLen } = shape;
  const plain = pages.map(() => new Float32Array(PAGE * (headDim + wholePanels(valueDim))));
  const key = new Float32Array(headDim);
  const token = { numKvHeads: 1, headDim, valueDim, kStride: 0, kHeadStride: 0, vStride: 0, vHeadStride: 0 };
  for (let j = 0; j < kvLen; j++) {
    for (let d = 0; d < headDim; d++) key[d] = floatsOf(pages, j)[placeOf(headDim, j % PAGE, d)]!;
    append_f32(plain, key, key, token, j, 0, 1);
  }
  attention_f32(out, q, plain, scratch, { ...shape, formats: 0 } as Plain<AttentionShape>, begin, end);
};
