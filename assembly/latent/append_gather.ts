import { PAGE } from "../layout";
import { CacheShape, CacheShapePtr, F32Ptr, PagesPtr } from "../types";
import { load_part, store_part } from "./codecs";
import { latent_format, latent_page, latent_scales, rotated_scales, whole_panels } from "./page";

/**
 * pages[past + t] = the latent k[t] and the rotated key v[t] for tokens begin..end; k [token][headDim] and v [token][valueDim]
 * by the strides of the shape, pages as in page.ts: bit for bit in float32, the nearest halves in f16; q8 gets for each of
 * the two a scale, its largest magnitude / 127, and the nearest integers, halves to even, or the scale NaN if it has NaN or
 * an infinity. What rounds either up to whole panels becomes 0; other tokens keep what they hold. Ranges that are appended at
 * the same time must not share a pair of tokens. No alignment is needed; k and v must not overlap the pages.
 */
export function append_latents(
  pages: PagesPtr,
  k: F32Ptr,
  v: F32Ptr,
  shape: CacheShapePtr,
  past: i32,
  begin: i32,
  end: i32,
): void {
  const s = changetype<CacheShape>(shape);
  const rank = s.headDim;
  const ropeDim = s.valueDim;
  assert(s.numKvHeads == 1, "append_latents: numKvHeads must be 1");
  assert(rank > 0 && ropeDim >= 0, "append_latents: headDim must be positive and valueDim not negative");
  assert(past + begin >= 0, "append_latents: positions must not be negative");
  const dim = whole_panels(rank) + whole_panels(ropeDim);
  for (let t = begin; t < end; t++) {
    const position = past + t;
    const page = latent_page(pages, position);
    const format = latent_format(pages, position);
    const slot = <usize>(position % PAGE) << 2;
    const scale = latent_scales(page, dim) + slot;
    store_part(format, page, dim, position, 0, scale, k + ((<usize>t * s.kStride) << 2), rank);
    const from = v + ((<usize>t * s.vStride) << 2);
    store_part(format, page, dim, position, whole_panels(rank), rotated_scales(page, dim) + slot, from, ropeDim);
  }
}

/** k[t], v[t] = pages[past + t] for tokens begin..end: what append_latents has made of them, as floats. */
export function gather_latents(
  k: F32Ptr,
  v: F32Ptr,
  pages: PagesPtr,
  shape: CacheShapePtr,
  past: i32,
  begin: i32,
  end: i32,
): void {
  const s = changetype<CacheShape>(shape);
  const rank = s.headDim;
  const ropeDim = s.valueDim;
  assert(s.numKvHeads == 1, "gather_latents: numKvHeads must be 1");
  assert(rank > 0 && ropeDim >= 0, "gather_latents: headDim must be positive and valueDim not negative");
  assert(past + begin >= 0, "gather_latents: positions must not be negative");
  const dim = whole_panels(rank) + whole_panels(ropeDim);
  for (let t = begin; t < end; t++) {
    const position = past + t;
    const page = latent_page(pages, position);
    const format = latent_format(pages, position);
    const slot = <usize>(position % PAGE) << 2;
    load_part(k + ((<usize>t * s.kStride) << 2), format, page, dim, position, 0, latent_scales(page, dim) + slot, rank);
    const to = v + ((<usize>t * s.vStride) << 2);
    load_part(to, format, page, dim, position, whole_panels(rank), rotated_scales(page, dim) + slot, ropeDim);
  }
}
