import { PANEL } from "../layout";
import { CacheShape, CacheShapePtr, F32Ptr, PagesPtr } from "../types";
import { latent_at, latent_page, PAIR_PANEL_BYTES, PAIR_STEP_BYTES, whole_panels } from "./page";

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
    store_part(to + PAIR_PANEL_BYTES * (whole_panels(rank) / PANEL), v + ((<usize>t * s.vStride) << 2), ropeDim);
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
    load_part(v + ((<usize>t * s.vStride) << 2), from + PAIR_PANEL_BYTES * (whole_panels(rank) / PANEL), ropeDim);
  }
}

/** Components, two tokens apart, with zeros behind. */
// @ts-ignore: decorator
@inline
function store_part(to: usize, from: usize, components: i32): void {
  const whole = whole_panels(components);
  for (let d = 0; d < whole; d += 4) {
    if (d + 4 <= components) v128.store(to, v128.load(from));
    else {
      v128.store(to, i32x4.splat(0));
      for (let i = 0; i < components - d; i++) copy_word(to + (<usize>i << 2), from + (<usize>i << 2));
    }
    from += 16;
    to += PAIR_STEP_BYTES;
  }
}

// @ts-ignore: decorator
@inline
function load_part(to: usize, from: usize, components: i32): void {
  for (let d = 0; d < components; d += 4) {
    if (d + 4 <= components) v128.store(to, v128.load(from));
    else for (let i = 0; i < components - d; i++) copy_word(to + (<usize>i << 2), from + (<usize>i << 2));
    to += 16;
    from += PAIR_STEP_BYTES;
  }
}

/** As an integer, so that no engine can quiet a NaN. */
// @ts-ignore: decorator
@inline
function copy_word(to: usize, from: usize): void {
  store<u32>(to, load<u32>(from));
}
