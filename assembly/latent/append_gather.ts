import { PANEL, PANEL_BYTES } from "../layout";
import { CacheShape, CacheShapePtr, F32Ptr, PagesPtr } from "../types";
import { LATENT_PAIR_BYTES, latent_at, latent_page, whole_panels } from "./page";

/**
 * pages[past + t] = the latent k[t] and the rotated key v[t], bit for bit, for tokens begin..end; k [token][headDim] and
 * v [token][valueDim] by the strides of the shape, pages as in page.ts. What rounds either up to whole panels becomes 0; other
 * tokens keep what they hold. No alignment is needed; k and v must not overlap the pages.
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
    const to = latent_at(latent_page(pages, position), dim, position);
    store_part(to, k + ((<usize>t * s.kStride) << 2), rank);
    store_part(to + LATENT_PAIR_BYTES * (whole_panels(rank) / PANEL), v + ((<usize>t * s.vStride) << 2), ropeDim);
  }
}

/** k[t], v[t] = pages[past + t] for tokens begin..end: the bits that append_latents took. */
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
    const from = latent_at(latent_page(pages, position), dim, position);
    load_part(k + ((<usize>t * s.kStride) << 2), from, rank);
    load_part(v + ((<usize>t * s.vStride) << 2), from + LATENT_PAIR_BYTES * (whole_panels(rank) / PANEL), ropeDim);
  }
}

/** Components in panels, two tokens apart, with zeros behind. */
// @ts-ignore: decorator
@inline
function store_part(to: usize, from: usize, components: i32): void {
  for (let d = 0; d < components; d += PANEL) {
    if (d + PANEL <= components) {
      v128.store(to, v128.load(from));
      v128.store(to, v128.load(from, 16), 16);
    } else {
      v128.store(to, i32x4.splat(0));
      v128.store(to, i32x4.splat(0), 16);
      for (let i = 0; i < components - d; i++) copy_word(to + (<usize>i << 2), from + (<usize>i << 2));
    }
    from += PANEL_BYTES;
    to += LATENT_PAIR_BYTES;
  }
}

// @ts-ignore: decorator
@inline
function load_part(to: usize, from: usize, components: i32): void {
  for (let d = 0; d < components; d += PANEL) {
    if (d + PANEL <= components) {
      v128.store(to, v128.load(from));
      v128.store(to, v128.load(from, 16), 16);
    } else for (let i = 0; i < components - d; i++) copy_word(to + (<usize>i << 2), from + (<usize>i << 2));
    to += PANEL_BYTES;
    from += LATENT_PAIR_BYTES;
  }
}

/** As an integer, so that no engine can quiet a NaN. */
// @ts-ignore: decorator
@inline
function copy_word(to: usize, from: usize): void {
  store<u32>(to, load<u32>(from));
}
