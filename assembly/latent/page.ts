// Where a latent lies in a cache page of latent attention. Page p holds the tokens at positions PAGE·p .. PAGE·p + PAGE - 1:
// their latents [rank] and, behind each, its rotated key [ropeDim], both rounded up to whole panels with zeros. All heads
// attend the same, and a latent is a value as well as the greater part of a key, so it is stored once:
//
// f32  [PAGE/2][dim/4][2][4], where dim = 8 · ceil(rank/8) + 8 · ceil(ropeDim/8)
// f16  the same in halves
// q8   [PAGE/2][dim/8][8][2] bytes, then [PAGE] f32 scales of the latents, then as many of the rotated keys
//
// Two tokens are neighbours, so that a product over components (scores) reads a pair from end to end, and a product over
// tokens (outputs) finds 8 components of both in one line. In q8, latents and rotated keys are integers times their scales.

import { page_entry } from "../cache/page";
import { FORMAT_F16, FORMAT_F32, PAGE, PANEL } from "../layout";
import { PagesPtr } from "../types";

/** Bytes of 4 components of one token, of two, and of 8 components of two, as floats. */
export const QUARTER_BYTES: usize = 16;
export const PAIR_STEP_BYTES: usize = QUARTER_BYTES * 2;
export const PAIR_PANEL_BYTES: usize = PAIR_STEP_BYTES * 2;
/** Bytes of 8 components of two tokens, as integers. */
export const CODE_PAIR_BYTES: usize = 16;
/** Bytes of the scales of a page. */
const SCALE_BYTES: usize = PAGE << 2;

/** Components rounded up to whole panels. */
// @ts-ignore: decorator
@inline
export function whole_panels(components: i32): i32 {
  return (components + PANEL - 1) & -PANEL;
}

/** Bytes from a pair of tokens to the next, as floats. */
// @ts-ignore: decorator
@inline
export function pair_bytes(dim: i32): usize {
  return <usize>dim << 3;
}

/** Bytes from a pair of tokens to the next, as integers. */
// @ts-ignore: decorator
@inline
export function code_pair_bytes(dim: i32): usize {
  return <usize>dim << 1;
}

/** Address of components 0..4 of a token in its page of float32, at `page`; the next 4 lie PAIR_STEP_BYTES on. */
// @ts-ignore: decorator
@inline
export function latent_at(page: usize, dim: i32, position: i32): usize {
  const slot = <u32>position % <u32>PAGE;
  return page + pair_bytes(dim) * (slot >> 1) + <usize>(slot & 1) * QUARTER_BYTES;
}

/** Address of component `first`, a multiple of 8, of a token in its page of any format. */
// @ts-ignore: decorator
@inline
export function part_at(format: i32, page: usize, dim: i32, position: i32, first: i32): usize {
  const slot = <u32>position % <u32>PAGE;
  const components = <usize>(slot >> 1) * dim + first;
  if (format == FORMAT_F32) return page + (components << 3) + <usize>(slot & 1) * QUARTER_BYTES;
  if (format == FORMAT_F16) return page + (components << 2) + <usize>(slot & 1) * (QUARTER_BYTES >> 1);
  return page + (components << 1);
}

/** Where the scales of a page of integers begin: those of the latents, then those of the rotated keys. */
// @ts-ignore: decorator
@inline
export function latent_scales(page: usize, dim: i32): usize {
  return page + <usize>PAGE * dim;
}

// @ts-ignore: decorator
@inline
export function rotated_scales(page: usize, dim: i32): usize {
  return latent_scales(page, dim) + SCALE_BYTES;
}

/** The page of a position. */
// @ts-ignore: decorator
@inline
export function latent_page(pages: PagesPtr, position: i32): usize {
  return page_entry(pages, position) & ~15;
}

/** The format of a position's page, which is that of its latents and of its rotated keys. */
// @ts-ignore: decorator
@inline
export function latent_format(pages: PagesPtr, position: i32): i32 {
  return page_entry(pages, position) & 3;
}
