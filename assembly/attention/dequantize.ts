import { CODE_PANEL_BYTES, VALUE_PANEL_BYTES } from "../cache/page";
import { PAGE, PAIR_BYTES, PANEL, QUAD } from "../layout";
import { widen_rows } from "../math/half";
import { F32Ptr, U8Ptr } from "../types";

// Pages of f16 and q4 for attention_f32: one kv head's keys or values at a time become what the tiles read, floats or
// bytes in the same places. Slots beyond `keys` are left out.

const NIBBLE_TERMS = memory.data<u32>([0x0f0f0f0f, 0x08080808]);

/** `bytes` bytes of nibbles, a multiple of 16, as bytes: of each 16 the low ones before the high ones. */
// @ts-ignore: decorator
@inline
function widen_nibbles(to: U8Ptr, from: U8Ptr, bytes: usize): void {
  const low = v128.load32_splat(NIBBLE_TERMS);
  const eight = v128.load32_splat(NIBBLE_TERMS, 4);
  for (const end = from + bytes; from < end; from += 16) {
    const v = v128.load(from);
    v128.store(to, i8x16.sub(v128.and(v, low), eight));
    v128.store(to, i8x16.sub(v128.and(i16x8.shr_u(v, 4), low), eight), 16);
    to += 32;
  }
}

/** Whole panels of the first `keys` keys of a page, from halves. */
export function widen_half_keys(to: F32Ptr, from: U8Ptr, headDim: i32, keys: i32): void {
  const panels = (min(keys, PAGE) + PANEL - 1) / PANEL;
  widen_rows(to, from, panels * headDim, false);
}

/** The first `keys` keys of all panels of values, from halves. */
export function widen_half_values(to: F32Ptr, from: U8Ptr, panels: i32, keys: i32): void {
  const rows = min(keys, PAGE);
  for (let c = 0; c < panels; c++) {
    widen_rows(to, from, rows, false);
    to += VALUE_PANEL_BYTES;
    from += VALUE_PANEL_BYTES >> 1;
  }
}

/** Whole panels of the first `keys` keys of a page, from nibbles. */
export function widen_nibble_keys(to: U8Ptr, from: U8Ptr, headDim: i32, keys: i32): void {
  const panels = (min(keys, PAGE) + PANEL - 1) / PANEL;
  widen_nibbles(to, from, <usize>(panels * ((headDim + QUAD - 1) / QUAD)) * PAIR_BYTES);
}

/** The first `keys` keys, in whole QUADs, of all panels of values, from nibbles. */
export function widen_nibble_values(to: U8Ptr, from: U8Ptr, panels: i32, keys: i32): void {
  const bytes = <usize>((min(keys, PAGE) + QUAD - 1) / QUAD) * PAIR_BYTES;
  for (let c = 0; c < panels; c++) {
    widen_nibbles(to, from, bytes);
    to += CODE_PANEL_BYTES;
    from += CODE_PANEL_BYTES >> 1;
  }
}
