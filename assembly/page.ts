// Where a key and a value lie in a cache page. Page p holds the keys at positions PAGE·p .. PAGE·p + PAGE - 1; in it,
// for one kv head after the other, K [PAGE/8][headDim][8] and then V [ceil(valueDim/8)][PAGE][8].

import { PAGE, PANEL } from "./layout";
import { PagesPtr } from "./types";

/** Bytes of eight floats of a panel, and of 8 columns of the values of a page. */
export const PANEL_BYTES: usize = PANEL << 2;
export const VALUE_PANEL_BYTES: usize = (PAGE * PANEL) << 2;

/** Floats of one kv head in a page. */
// @ts-ignore: decorator
@inline
function page_head_floats(headDim: i32, valueDim: i32): usize {
  return <usize>PAGE * (headDim + ((valueDim + PANEL - 1) & -PANEL));
}

// @ts-ignore: decorator
@inline
function page_head(pages: PagesPtr, kvHead: i32, headDim: i32, valueDim: i32, position: i32): usize {
  const page = <usize>load<u32>(pages + (<usize>(<u32>position / <u32>PAGE) << 2));
  return page + ((<usize>kvHead * page_head_floats(headDim, valueDim)) << 2);
}

/** Address of K[position, 0]; component d lies PANEL·d floats on, and the next key of the panel 1 float on. */
// @ts-ignore: decorator
@inline
export function key_at(pages: PagesPtr, kvHead: i32, headDim: i32, valueDim: i32, position: i32): usize {
  const slot = <u32>position % <u32>PAGE;
  const floats = (slot / <u32>PANEL) * (headDim * PANEL) + (slot % <u32>PANEL);
  return page_head(pages, kvHead, headDim, valueDim, position) + (<usize>floats << 2);
}

/** Address of V[position, 0..8]; the next 8 columns lie PAGE·PANEL floats on, the next key PANEL floats on. */
// @ts-ignore: decorator
@inline
export function value_at(pages: PagesPtr, kvHead: i32, headDim: i32, valueDim: i32, position: i32): usize {
  const floats = PAGE * headDim + (<u32>position % <u32>PAGE) * PANEL;
  return page_head(pages, kvHead, headDim, valueDim, position) + (<usize>floats << 2);
}
