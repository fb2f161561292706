import { FORMAT_F16, FORMAT_Q8, PAIR_BYTES, PANEL, PANEL_BYTES_16, QUAD } from "../layout";
import { narrow_f16, widen_f16_high, widen_f16_low } from "../math/half";
import { factor_of, keys_high, keys_low, largest_lane, magnitudes, rounded, scale_of, some_of } from "../math/rounding";
import { load_first, store_first } from "../math/simd";
import { F32Ptr, U8Ptr } from "../types";
import { CODE_PANEL_BYTES, VALUE_PANEL_BYTES } from "./page";

// One key or one value of one kv head, to and from the pages of append_f32 and gather_f32 that are not float32. `slot` is
// its place in the page, k and v where the kv head's keys and values begin.

// @ts-ignore: decorator
@inline
function most_of(format: i32): f32 {
  return format == FORMAT_Q8 ? <f32>127 : <f32>7;
}

/** The bits of a row's largest magnitude. */
export function largest_of(x: F32Ptr, n: i32): u32 {
  let top = i32x4.splat(0);
  for (let d = 0; d < n; d += 4) top = i32x4.max_u(top, magnitudes(load_first(x + (<usize>d << 2), n - d, 0)));
  return largest_lane(top);
}

/** The eight floats x[c], .. as integers of 8 bits in the low half, zeros beyond n. */
// @ts-ignore: decorator
@inline
export function codes_at(x: F32Ptr, c: i32, n: i32, factor: v128): v128 {
  const at = x + (<usize>c << 2);
  const some = some_of(factor);
  const low = rounded(load_first(at, n - c, 0), factor, some);
  const high = n - c > 4 ? rounded(load_first(at + 16, n - c - 4, 0), factor, some) : i32x4.splat(0);
  const codes = i16x8.narrow_i32x4_s(low, high);
  return i8x16.narrow_i16x8_s(codes, codes);
}

/** The eight floats x[c], .. as halves, zeros beyond n. */
// @ts-ignore: decorator
@inline
export function halves_at(x: F32Ptr, c: i32, n: i32): v128 {
  const at = x + (<usize>c << 2);
  return narrow_f16(load_first(at, n - c, 0), n - c > 4 ? load_first(at + 16, n - c - 4, 0) : f32x4.splat(0));
}

/** Writes a key. */
export function store_key(format: i32, k: U8Ptr, scales: F32Ptr, slot: i32, x: F32Ptr, headDim: i32): void {
  if (format == FORMAT_F16) {
    const to = k + ((<usize>((slot & -PANEL) * headDim) + (slot & (PANEL - 1))) << 1);
    for (let d = 0; d < headDim; d += 8) {
      const v = halves_at(x, d, headDim);
      store_lanes(to + <usize>d * PANEL_BYTES_16, v, headDim - d);
    }
    return;
  }
  const top = largest_of(x, headDim);
  const most = most_of(format);
  const factor = f32x4.splat(factor_of(top, most));
  store<f32>(scales + (<usize>slot << 2), scale_of(top, most));
  const quads = (headDim + QUAD - 1) / QUAD;
  const quadBytes: usize = format == FORMAT_Q8 ? PAIR_BYTES * 2 : PAIR_BYTES;
  let to = k + quadBytes * <usize>((slot / PANEL) * quads) + (<usize>(slot & (PANEL - 1)) << 1);
  for (let d = 0; d < headDim; d += QUAD) {
    const v = codes_at(x, d, headDim, factor);
    if (format == FORMAT_Q8) {
      v128.store_lane<u16>(to, v, 0);
      v128.store_lane<u16>(to + 16, v, 1);
    } else store<u16>(to, nibbles(i16x8.extract_lane_u(v, 0), i16x8.extract_lane_u(v, 1)));
    to += quadBytes;
  }
}

/** Two pairs of integers of 4 bits as one pair of bytes, each plus 8. */
// @ts-ignore: decorator
@inline
function nibbles(low: u32, high: u32): u16 {
  return <u16>(((low & 0x0f0f) ^ 0x0808) | (((high & 0x0f0f) ^ 0x0808) << 4));
}

/** The first n of eight halves, 16 bytes apart. */
// @ts-ignore: decorator
@inline
function store_lanes(to: usize, v: v128, n: i32): void {
  v128.store_lane<u16>(to, v, 0);
  if (n > 1) v128.store_lane<u16>(to + 16, v, 1);
  if (n > 2) v128.store_lane<u16>(to + 32, v, 2);
  if (n > 3) v128.store_lane<u16>(to + 48, v, 3);
  if (n > 4) v128.store_lane<u16>(to + 64, v, 4);
  if (n > 5) v128.store_lane<u16>(to + 80, v, 5);
  if (n > 6) v128.store_lane<u16>(to + 96, v, 6);
  if (n > 7) v128.store_lane<u16>(to + 112, v, 7);
}

/** Writes a value; columns beyond valueDim become 0. */
export function store_value(format: i32, v: U8Ptr, scales: F32Ptr, slot: i32, x: F32Ptr, valueDim: i32): void {
  if (format == FORMAT_F16) {
    let to = v + <usize>slot * PANEL_BYTES_16;
    for (let c = 0; c < valueDim; c += PANEL) {
      v128.store(to, halves_at(x, c, valueDim));
      to += VALUE_PANEL_BYTES >> 1;
    }
    return;
  }
  const top = largest_of(x, valueDim);
  const most = most_of(format);
  const factor = f32x4.splat(factor_of(top, most));
  store<f32>(scales + (<usize>slot << 2), scale_of(top, most));
  // 16 bytes are eight columns of two keys, or of four: those of the others stay.
  let to = v + <usize>(format == FORMAT_Q8 ? slot >> 1 : slot >> 2) * PAIR_BYTES;
  for (let c = 0; c < valueDim; c += PANEL) {
    const codes = codes_at(x, c, valueDim, factor);
    const wide = i16x8.extend_low_i8x16_u(codes);
    const old = v128.load(to);
    v128.store(to, format == FORMAT_Q8 ? with_bytes(old, wide, slot) : with_nibbles(old, wide, slot));
    to += format == FORMAT_Q8 ? CODE_PANEL_BYTES : CODE_PANEL_BYTES >> 1;
  }
}

/** Eight bytes in the lower or the upper bytes of the lanes; the others stay. */
// @ts-ignore: decorator
@inline
export function with_bytes(old: v128, codes: v128, slot: i32): v128 {
  const bits = (slot & 1) << 3;
  return v128.bitselect(i16x8.shl(codes, bits), old, i16x8.shl(i16x8.splat(255), bits));
}

/** Eight nibbles, plus 8, in one of the four places of a lane; the others stay. */
// @ts-ignore: decorator
@inline
function with_nibbles(old: v128, codes: v128, slot: i32): v128 {
  const bits = ((slot & 1) << 3) | ((slot & 2) << 1);
  const fifteen = i16x8.splat(15);
  const nibble = v128.xor(v128.and(codes, fifteen), i16x8.splat(8));
  return v128.bitselect(i16x8.shl(nibble, bits), old, i16x8.shl(fifteen, bits));
}

/** Reads a key. */
export function load_key(to: F32Ptr, format: i32, k: U8Ptr, scales: F32Ptr, slot: i32, headDim: i32): void {
  const lane = slot & (PANEL - 1);
  const rows = format == FORMAT_F16 ? headDim : ((headDim + QUAD - 1) & -QUAD) >> (format - 1);
  const panel = k + <usize>((slot / PANEL) * rows) * PAIR_BYTES;
  const at = scales + (<usize>(slot & -PANEL) << 2);
  for (let d = 0; d < headDim; d++) {
    const v = lane < 4 ? keys_low(format, panel, at, d) : keys_high(format, panel, at, d);
    store<u32>(to + (<usize>d << 2), lane_of(v, lane & 3));
  }
}

// @ts-ignore: decorator
@inline
function lane_of(v: v128, lane: i32): u32 {
  if (lane == 0) return i32x4.extract_lane(v, 0);
  if (lane == 1) return i32x4.extract_lane(v, 1);
  return lane == 2 ? i32x4.extract_lane(v, 2) : i32x4.extract_lane(v, 3);
}

/** Reads a value. */
export function load_value(to: F32Ptr, format: i32, v: U8Ptr, scales: F32Ptr, slot: i32, valueDim: i32): void {
  const scale = format == FORMAT_F16 ? f32x4.splat(1) : v128.load32_splat(scales + (<usize>slot << 2));
  let low: v128;
  let high: v128;
  for (let c = 0; c < valueDim; c += PANEL) {
    const panel = <usize>(c / PANEL);
    if (format == FORMAT_F16) {
      const halves = v128.load(v + (VALUE_PANEL_BYTES >> 1) * panel + <usize>slot * PANEL_BYTES_16);
      low = widen_f16_low(halves);
      high = widen_f16_high(halves);
    } else {
      const codes = value_codes(format, v, panel, slot);
      low = f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_low_i16x8_s(codes)), scale);
      high = f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_high_i16x8_s(codes)), scale);
    }
    const at = to + (<usize>c << 2);
    store_first(at, valueDim - c, low);
    store_first(at + 16, valueDim - c - 4, high);
  }
}

/** The integers of a value's eight columns, as i16. */
// @ts-ignore: decorator
@inline
function value_codes(format: i32, v: U8Ptr, panel: usize, slot: i32): v128 {
  if (format == FORMAT_Q8) {
    const codes = v128.load(v + CODE_PANEL_BYTES * panel + <usize>(slot >> 1) * PAIR_BYTES);
    return i16x8.shr_s(slot & 1 ? codes : i16x8.shl(codes, 8), 8);
  }
  const bits = ((slot & 1) << 3) | ((slot & 2) << 1);
  const codes = v128.load(v + (CODE_PANEL_BYTES >> 1) * panel + <usize>(slot >> 2) * PAIR_BYTES);
  return i16x8.sub(v128.and(i16x8.shr_u(codes, bits), i16x8.splat(15)), i16x8.splat(8));
}
