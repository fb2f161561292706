// Where a latent lies in a cache page of latent attention. Page p holds the tokens at positions PAGE·p .. PAGE·p + PAGE - 1:
// their latents [rank] and, behind each, its rotated key [ropeDim], both rounded up to whole panels with zeros. All heads
// attend the same, and a latent is a value as well as the greater part of a key, so it is stored once:
//
// f32  [PAGE/2][dim/8][2][8], where dim = 8 · ceil(rank/8) + 8 · ceil(ropeDim/8)
//
// Two tokens are neighbours, so that a pair is read from end to end by a product over components (scores), while 8
// components of both are a row and the next row of a panel in a product over tokens (outputs).

import { PAGE, PANEL, PANEL_BYTES } from "../layout";
import { PagesPtr } from "../types";

/** Bytes of 8 components of two tokens. */
export const LATENT_PAIR_BYTES: usize = PANEL_BYTES * 2;

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

/** Address of components 0..8 of the token at `position` in its page, at `page`; the next 8 lie LATENT_PAIR_BYTES on. */
// @ts-ignore: decorator
@inline
export function latent_at(page: usize, dim: i32, position: i32): usize {
  const slot = <u32>position % <u32>PAGE;
  return page + pair_bytes(dim) * (slot >> 1) + <usize>(slot & 1) * PANEL_BYTES;
}

/** The page of a position. */
// @ts-ignore: decorator
@inline
export function latent_page(pages: PagesPtr, position: i32): usize {
  return load<u32>(pages + (<usize>(<u32>position / <u32>PAGE) << 2)) & ~15;
}
