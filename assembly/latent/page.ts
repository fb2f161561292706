// Where a latent lies in a cache page of latent attention. Page p holds the tokens at positions PAGE·p .. PAGE·p + PAGE - 1:
// their latents [rank] and, behind each, its rotated key [ropeDim], both rounded up to whole panels with zeros. All heads
// attend the same, and a latent is a value as well as the greater part of a key, so it is stored once:
//
// f32  [PAGE/2][dim/4][2][4], where dim = 8 · ceil(rank/8) + 8 · ceil(ropeDim/8)
//
// Two tokens are neighbours, so that a product over components (scores) reads a pair from end to end, and a product over
// tokens (outputs) finds 8 components of both in one line.

import { PAGE, PANEL } from "../layout";
import { PagesPtr } from "../types";

/** Bytes of 4 components of one token, of two, and of 8 components of two. */
export const QUARTER_BYTES: usize = 16;
export const PAIR_STEP_BYTES: usize = QUARTER_BYTES * 2;
export const PAIR_PANEL_BYTES: usize = PAIR_STEP_BYTES * 2;

/** Components rounded up to whole panels. */
// @ts-ignore: decorator
@inline
export function whole_panels(components: i32): i32 {
  return (components + PANEL - 1) & -PANEL;
}

/** Bytes from a pair of tokens to the next. */
// @ts-ignore: decorator
@inline
export function pair_bytes(dim: i32): usize {
  return <usize>dim << 3;
}

/** Address of components 0..4 of the token at `position` in its page, at `page`; the next 4 lie PAIR_STEP_BYTES on. */
// @ts-ignore: decorator
@inline
export function latent_at(page: usize, dim: i32, position: i32): usize {
  const slot = <u32>position % <u32>PAGE;
  return page + pair_bytes(dim) * (slot >> 1) + <usize>(slot & 1) * QUARTER_BYTES;
}

/** The page of a position. */
// @ts-ignore: decorator
@inline
export function latent_page(pages: PagesPtr, position: i32): usize {
  return load<u32>(pages + (<usize>(<u32>position / <u32>PAGE) << 2)) & ~15;
}
