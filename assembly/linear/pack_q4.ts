import { BLOCK, PANEL } from "../layout";
import { f16_at } from "../math/half";
import { factor_of, magnitude, magnitudes } from "../math/rounding";
import { load_first } from "../math/simd";
import { F32Ptr, U8Ptr } from "../types";
import { Q4_BLOCK_BYTES, SCALES } from "./block_layout";
import { padded, rounded_eight } from "./quantize_rows";

/** Bytes of a block as GGUF's Q4_0 has it: a half for the scale, then byte j with the nibbles j and j + 16. */
const Q4_0_BYTES: usize = 18;

/**
 * Panels begin..end of w [n, k] as linear_q4 reads them: scale = -m / 8, where m is the element of a block of 32 that is
 * largest in size, the first of several; nibbles 8 + w / scale rounded to nearest, ties to even, 15 at most. Rows beyond n
 * and inputs beyond k are zeros. A block with a NaN or an infinity has the scale NaN, and one below 2^-110 the scale 0.
 * out must not overlap w.
 */
export function pack_q4(out: U8Ptr, w: F32Ptr, n: i32, k: i32, begin: i32, end: i32): void {
  assert(begin >= 0 && end <= (n + PANEL - 1) / PANEL, "pack_q4: begin..end must lie within the panels");
  const panelBytes = <usize>(padded(k) / BLOCK) * Q4_BLOCK_BYTES;
  for (let p = begin; p < end; p++) {
    const panel = out + panelBytes * p;
    clear(panel, panel + panelBytes);
    for (let column = 0; column < min(PANEL, n - p * PANEL); column++) {
      const row = w + ((<usize>(p * PANEL + column) * k) << 2);
      let to = panel;
      for (let i = 0; i < k; i += BLOCK) {
        const from = row + (<usize>i << 2);
        const count = min(BLOCK, k - i);
        const largest = extreme(from, count);
        const size = abs<f32>(largest);
        const factor = copysign<f32>(factor_of(reinterpret<u32>(size), 8), -largest);
        store<f32>(
          to + (<usize>column << 2),
          size <= f32.MAX_VALUE ? (factor == 0 ? <f32>0 : largest / -8) : f32.NaN,
        );
        if (factor != 0) store_nibbles(units_of(to, column), from, count, factor);
        to += Q4_BLOCK_BYTES;
      }
    }
  }
}

/** Two nibbles that stand for 0. */
const ZERO: i8 = <i8>0x88;

/** Scales of 0 and nibbles of 8 all over a panel. */
function clear(panel: U8Ptr, end: U8Ptr): void {
  for (; panel < end; panel += Q4_BLOCK_BYTES) {
    for (let at: usize = 0; at < SCALES; at += 16) v128.store(panel + at, i32x4.splat(0));
    for (let at = SCALES; at < Q4_BLOCK_BYTES; at += 16) v128.store(panel + at, i8x16.splat(ZERO));
  }
}

/** Where a column of a block has the first of its units of 16 bits: two for every 8 inputs, 32 bytes on. */
// @ts-ignore: decorator
@inline
export function units_of(block: U8Ptr, column: i32): U8Ptr {
  return block + SCALES + ((<usize>column & 4) << 2) + ((<usize>column & 3) << 2);
}

/** The element that is largest in size, the first of several; NaN if there is one. */
function extreme(x: F32Ptr, n: i32): f32 {
  const size = i32x4.splat(magnitude(x, n));
  for (; n > 0; n -= 4) {
    const found = i32x4.bitmask(i32x4.eq(magnitudes(load_first(x, n, 0)), size));
    if (found) return load<f32>(x + (ctz(found) << 2));
    x += 16;
  }
  return 0;
}

function store_nibbles(to: U8Ptr, x: F32Ptr, n: i32, factor: f32): void {
  const factor_f32x4 = f32x4.splat(factor);
  for (let i = 0; i < n; i += 8) {
    const left = n - i;
    const a = load_first(x, left, 0);
    const b = left > 4 ? load_first(x + 16, left - 4, 0) : f32x4.splat(0);
    const integers = i16x8.min_s(i16x8.add(rounded_eight(a, b, factor_f32x4), i16x8.splat(8)), i16x8.splat(15));
    // 16 bits each of the nibbles 0 and 4, 1 and 5, 2 and 6, 3 and 7; then the last two pairs beside the first two.
    const pairs = i64x2.extract_lane(integers, 0) | (i64x2.extract_lane(integers, 1) << 8);
    store<u32>(to, <u32>(pairs | (pairs >> 28)));
    x += 32;
    to += 32;
  }
}

/** The same from blocks as GGUF's Q4_0 has them, [n][k / 32] of 18 bytes, k a multiple of 32. */
export function repack_q4(out: U8Ptr, blocks: U8Ptr, n: i32, k: i32, begin: i32, end: i32): void {
  assert(k % BLOCK == 0, "repack_q4: k must be whole blocks");
  assert(begin >= 0 && end <= (n + PANEL - 1) / PANEL, "repack_q4: begin..end must lie within the panels");
  const rowBytes = <usize>(k / BLOCK) * Q4_0_BYTES;
  const panelBytes = <usize>(k / BLOCK) * Q4_BLOCK_BYTES;
  for (let p = begin; p < end; p++) {
    const panel = out + panelBytes * p;
    clear(panel, panel + panelBytes);
    for (let column = 0; column < min(PANEL, n - p * PANEL); column++) {
      let from = blocks + rowBytes * (p * PANEL + column);
      const next = from + rowBytes;
      for (let to = panel; from < next; to += Q4_BLOCK_BYTES) {
        store<f32>(to + (<usize>column << 2), f16_at(from));
        const units = units_of(to, column);
        for (let i: usize = 0; i < <usize>BLOCK >> 1; i += 8) {
          // Eight bytes: the nibbles i..i+7 below those 16 on.
          const bytes = load<u64>(from + 2 + i);
          store_units(units + (i << 2), bytes & 0x0f0f0f0f0f0f0f0f);
          store_units(units + (i << 2) + 64, (bytes >> 4) & 0x0f0f0f0f0f0f0f0f);
        }
        from += Q4_0_BYTES;
      }
    }
  }
}

/** Eight nibbles, a byte each, as the two units of a column: the even ones, then the odd ones. */
// @ts-ignore: decorator
@inline
export function store_units(to: U8Ptr, nibbles: u64): void {
  store<u16>(to, gathered(nibbles));
  store<u16>(to, gathered(nibbles >> 8), 2);
}

/** The nibbles of bytes 0, 2, 4 and 6. */
// @ts-ignore: decorator
@inline
function gathered(nibbles: u64): u16 {
  return <u16>((nibbles & 0xf) | ((nibbles >> 12) & 0xf0) | ((nibbles >> 24) & 0xf00) | ((nibbles >> 36) & 0xf000));
}
