import { widen_f16_high, widen_f16_low } from "../math/half";
import { PAGE, PANEL, QUAD } from "../layout";
import { CODE_PANEL_BYTES, VALUE_PANEL_BYTES } from "../cache/page";
import { F32Ptr, U8Ptr } from "../types";

// Pages of f16 and q4 for attention_f32: one kv head's keys or values at a time become what the tiles read, floats or
// bytes in the same places. Slots beyond `keys` are left out.

/** All of a half but its sign, and the largest that is finite; where its bits lie in a float32; 2^112. */
const HALF_TERMS = memory.data<u32>([0x7fff7fff, 0x7bff7bff, 0x8fffe000, 0x77800000]);
const NIBBLE_TERMS = memory.data<u32>([0x0f0f0f0f, 0x08080808]);

/**
 * `bytes` bytes of halves, a multiple of 16, as floats: their bits in a float32 stand for 2^-112 of them, subnormals
 * included. Infinities and NaN are rare enough for half.ts.
 */
// @ts-ignore: decorator
@inline
function widen_halves(to: F32Ptr, from: U8Ptr, bytes: usize): void {
  const magnitude = v128.load32_splat(HALF_TERMS);
  const most = v128.load32_splat(HALF_TERMS, 4);
  const mask = v128.load32_splat(HALF_TERMS, 8);
  const unit = v128.load32_splat(HALF_TERMS, 12);
  for (const end = from + bytes; from < end; from += 16) {
    const v = v128.load(from);
    const low = i32x4.shl(v128.load16x4_s(from), 13);
    const high = i32x4.shl(v128.load16x4_s(from, 8), 13);
    v128.store(to, f32x4.mul(v128.and(low, mask), unit));
    v128.store(to, f32x4.mul(v128.and(high, mask), unit), 16);
    if (v128.any_true(i16x8.gt_s(v128.and(v, magnitude), most))) {
      v128.store(to, widen_f16_low(v));
      v128.store(to, widen_f16_high(v), 16);
    }
    to += 32;
  }
}

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
  widen_halves(to, from, (<usize>panels * headDim) << 4);
}

/** The first `keys` keys of all panels of values, from halves. */
export function widen_half_values(to: F32Ptr, from: U8Ptr, panels: i32, keys: i32): void {
  const bytes = <usize>min(keys, PAGE) << 4;
  for (let c = 0; c < panels; c++) {
    widen_halves(to, from, bytes);
    to += VALUE_PANEL_BYTES;
    from += VALUE_PANEL_BYTES >> 1;
  }
}

/** Whole panels of the first `keys` keys of a page, from nibbles. */
export function widen_nibble_keys(to: U8Ptr, from: U8Ptr, headDim: i32, keys: i32): void {
  const panels = (min(keys, PAGE) + PANEL - 1) / PANEL;
  widen_nibbles(to, from, <usize>(panels * ((headDim + QUAD - 1) / QUAD)) << 4);
}

/** The first `keys` keys, in whole QUADs, of all panels of values, from nibbles. */
export function widen_nibble_values(to: U8Ptr, from: U8Ptr, panels: i32, keys: i32): void {
  const bytes = <usize>((min(keys, PAGE) + QUAD - 1) / QUAD) << 4;
  for (let c = 0; c < panels; c++) {
    widen_nibbles(to, from, bytes);
    to += CODE_PANEL_BYTES;
    from += CODE_PANEL_BYTES >> 1;
  }
}
