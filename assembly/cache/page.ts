// Where a key and a value lie in a cache page. Page p holds the keys at positions PAGE·p .. PAGE·p + PAGE - 1; in it,
// for one kv head after the other, keys and then values, each in the format that the page's table entry names:
//
// f32  K [PAGE/8][headDim][8]                 V [ceil(valueDim/8)][PAGE][8]
// f16  the same in halves
// q8   K [PAGE/8][headDim/2][8][2] bytes      V [ceil(valueDim/8)][PAGE/2][8][2] bytes     then [PAGE] f32 scales
// q4   K [PAGE/8][headDim/4][8][2] bytes      V [ceil(valueDim/8)][PAGE/4][8][2] bytes     then [PAGE] f32 scales
//
// Integers have headDim rounded up to a QUAD. A byte of q4 has the value of q8 in place [2i][..] in its low and that in
// [2i + 1][..] in its high nibble, each plus 8. A key, or a value, is its integers times its scale.

import { FORMAT_F16, FORMAT_F32, FORMAT_Q8, PAGE, PANEL, PANEL_BYTES, QUAD } from "../layout";
import { PagesPtr } from "../types";

/** Bytes of 8 columns of the values of a page: of floats, and of bytes. */
export const VALUE_PANEL_BYTES: usize = PAGE * PANEL_BYTES;
export const CODE_PANEL_BYTES: usize = PAGE * PANEL;
/** Bytes of the scales. */
const SCALE_BYTES: usize = PAGE << 2;

// What a kernel's pages may hold is a type P: f32 is floats alone, which needs no test at run time; u8 is any format.

/** The table entry of a position's page. */
// @ts-ignore: decorator
@inline
export function page_entry(pages: PagesPtr, position: i32): u32 {
  return load<u32>(pages + (<usize>(<u32>position / <u32>PAGE) << 2));
}

// @ts-ignore: decorator
@inline
export function key_format<P>(entry: u32): i32 {
  if (isFloat<P>()) return FORMAT_F32;
  return entry & 3;
}

// @ts-ignore: decorator
@inline
export function value_format<P>(entry: u32): i32 {
  if (isFloat<P>()) return FORMAT_F32;
  return (entry >> 2) & 3;
}

/** Bytes of the integers of a format, or of all of a float format, for so many components a key. */
// @ts-ignore: decorator
@inline
function data_bytes(format: i32, components: i32): usize {
  if (format == FORMAT_F32) return (<usize>PAGE * components) << 2;
  if (format == FORMAT_F16) return (<usize>PAGE * components) << 1;
  const bytes = <usize>PAGE * ((components + QUAD - 1) & -QUAD);
  return format == FORMAT_Q8 ? bytes : bytes >> 1;
}

/** How far behind the keys of a head, of an integer format, their scales lie; and behind its values theirs. */
// @ts-ignore: decorator
@inline
export function key_scales(format: i32, headDim: i32): usize {
  return data_bytes(format, headDim);
}

// @ts-ignore: decorator
@inline
export function value_scales(format: i32, valueDim: i32): usize {
  return data_bytes(format, (valueDim + PANEL - 1) & -PANEL);
}

/** Where the keys of a kv head begin in a page, and where its values do. */
// @ts-ignore: decorator
@inline
export function keys_of<P>(entry: u32, kvHead: i32, headDim: i32, valueDim: i32): usize {
  const keys = key_format<P>(entry);
  const values = value_format<P>(entry);
  assert(!isFloat<P>() || (entry & 15) == 0, "keys_of: the page must be of float32");
  const scales = (keys < FORMAT_Q8 ? <usize>0 : SCALE_BYTES) + (values < FORMAT_Q8 ? <usize>0 : SCALE_BYTES);
  const bytes = key_scales(keys, headDim) + value_scales(values, valueDim) + scales;
  return <usize>(entry & ~15) + <usize>kvHead * bytes;
}

// @ts-ignore: decorator
@inline
export function values_of<P>(entry: u32, kvHead: i32, headDim: i32, valueDim: i32): usize {
  const keys = key_format<P>(entry);
  const bytes = key_scales(keys, headDim) + (keys < FORMAT_Q8 ? <usize>0 : SCALE_BYTES);
  return keys_of<P>(entry, kvHead, headDim, valueDim) + bytes;
}

/** Address of K[position, 0] among floats; component d lies PANEL·d floats on, and the next key of the panel 1 on. */
// @ts-ignore: decorator
@inline
export function key_at<P>(pages: PagesPtr, kvHead: i32, headDim: i32, valueDim: i32, position: i32): usize {
  const entry = page_entry(pages, position);
  assert(key_format<P>(entry) == FORMAT_F32, "key_at: the page must have keys of float32");
  const slot = <u32>position % <u32>PAGE;
  const floats = (slot / <u32>PANEL) * (headDim * PANEL) + (slot % <u32>PANEL);
  return keys_of<P>(entry, kvHead, headDim, valueDim) + (<usize>floats << 2);
}

/** Address of V[position, 0..8] among floats; the next 8 columns lie PAGE·PANEL floats on, the next key PANEL on. */
// @ts-ignore: decorator
@inline
export function value_at<P>(pages: PagesPtr, kvHead: i32, headDim: i32, valueDim: i32, position: i32): usize {
  const entry = page_entry(pages, position);
  assert(value_format<P>(entry) == FORMAT_F32, "value_at: the page must have values of float32");
  const floats = (<u32>position % <u32>PAGE) * PANEL;
  return values_of<P>(entry, kvHead, headDim, valueDim) + (<usize>floats << 2);
}
