import { BLOCK, PANEL } from "../layout";
import { f16_at } from "../math/half";
import { factor_of, magnitude, scale_of } from "../math/rounding";
import { load_first } from "../math/simd";
import { F32Ptr, U8Ptr } from "../types";
import { gap_of, panel_bytes, panel_sum_bytes, SCALES, summed_of } from "./block_layout";
import { padded, rounded_eight } from "./quantize_rows";
import { store_sums } from "./weight_sums";

/** The largest integer of a weight, and the bytes of a block as GGUF has it: a half for the scale, then 32 integers. */
const MOST: f32 = 127;
const Q8_0_BYTES: usize = 34;

/**
 * Panels begin..end of w [n, k] as linear_q8 reads them, blocks of `block` inputs: scale = max |w| / 127 over a block of a
 * row, integers rounded to nearest, ties to even; and their sums. Rows beyond n and inputs beyond k are zeros. A block with a
 * NaN or an infinity has the scale NaN and integers 0, and one below 2^-110 both 0. out must not overlap w.
 */
export function pack_q8(
  out: U8Ptr,
  sums: U8Ptr,
  w: F32Ptr,
  n: i32,
  k: i32,
  block: i32,
  begin: i32,
  end: i32,
): void {
  const length = padded(k);
  const blockBytes = SCALES + (<usize>block << 3);
  const panelBytes = panel_bytes(length, block);
  assert(begin >= 0 && end <= (n + PANEL - 1) / PANEL, "pack_q8: begin..end must lie within the panels");
  for (let p = begin; p < end; p++) {
    const panel = out + panelBytes * p;
    memory.fill(panel, 0, panelBytes);
    for (let column = 0; column < min(PANEL, n - p * PANEL); column++) {
      const row = w + ((<usize>(p * PANEL + column) * k) << 2);
      let to = panel;
      for (let i = 0; i < k; i += block) {
        const from = row + (<usize>i << 2);
        const count = min(block, k - i);
        const largest = magnitude(from, count);
        store<f32>(to + (<usize>column << 2), scale_of(largest, MOST));
        store_column(to + SCALES + (<usize>column << 1), from, count, factor_of(largest, MOST));
        to += blockBytes;
      }
    }
    store_panel_sums(sums, panel, p, length, block);
  }
}

/** The sums of panel p. */
export function store_panel_sums(sums: U8Ptr, panel: U8Ptr, p: i32, length: i32, block: i32): void {
  store_sums(sums + panel_sum_bytes(length, block) * p, panel + SCALES, length, summed_of(block), gap_of(block));
}

/** The integers of x[:n] · factor, two together every 16 bytes; none where the factor is 0. */
function store_column(to: U8Ptr, x: F32Ptr, n: i32, factor: f32): void {
  if (factor == 0) return;
  const factor_f32x4 = f32x4.splat(factor);
  for (; n >= 16; n -= 16) {
    const a = rounded_eight(v128.load(x), v128.load(x, 16), factor_f32x4);
    const b = rounded_eight(v128.load(x, 32), v128.load(x, 48), factor_f32x4);
    const bytes = i8x16.narrow_i16x8_s(a, b);
    v128.store_lane<u16>(to, bytes, 0);
    v128.store_lane<u16>(to, bytes, 1, 16);
    v128.store_lane<u16>(to, bytes, 2, 32);
    v128.store_lane<u16>(to, bytes, 3, 48);
    v128.store_lane<u16>(to, bytes, 4, 64);
    v128.store_lane<u16>(to, bytes, 5, 80);
    v128.store_lane<u16>(to, bytes, 6, 96);
    v128.store_lane<u16>(to, bytes, 7, 112);
    x += 64;
    to += 128;
  }
  for (; n > 0; n -= 8) {
    const a = load_first(x, n, 0);
    const b = n > 4 ? load_first(x + 16, n - 4, 0) : f32x4.splat(0);
    const integers = rounded_eight(a, b, factor_f32x4);
    const bytes = i8x16.narrow_i16x8_s(integers, integers);
    v128.store_lane<u16>(to, bytes, 0);
    if (n > 2) v128.store_lane<u16>(to, bytes, 1, 16);
    if (n > 4) v128.store_lane<u16>(to, bytes, 2, 32);
    if (n > 6) v128.store_lane<u16>(to, bytes, 3, 48);
    x += 32;
    to += 64;
  }
}

/**
 * The same from blocks as GGUF's Q8_0 has them, [n][k / 32] of 34 bytes, k a multiple of 32: the scales widened, the
 * integers as they are.
 */
export function repack_q8(out: U8Ptr, sums: U8Ptr, blocks: U8Ptr, n: i32, k: i32, begin: i32, end: i32): void {
  assert(k % BLOCK == 0, "repack_q8: k must be whole blocks");
  assert(begin >= 0 && end <= (n + PANEL - 1) / PANEL, "repack_q8: begin..end must lie within the panels");
  const rowBytes = <usize>(k / BLOCK) * Q8_0_BYTES;
  const panelBytes = panel_bytes(k, BLOCK);
  for (let p = begin; p < end; p++) {
    const panel = out + panelBytes * p;
    memory.fill(panel, 0, panelBytes);
    for (let column = 0; column < min(PANEL, n - p * PANEL); column++) {
      let from = blocks + rowBytes * (p * PANEL + column);
      const next = from + rowBytes;
      for (let to = panel; from < next; to += SCALES + (BLOCK << 3)) {
        store<f32>(to + (<usize>column << 2), f16_at(from));
        const integers = to + SCALES + (<usize>column << 1);
        for (let i: usize = 0; i < <usize>BLOCK; i += 2) store<u16>(integers + (i << 3), load<u16>(from + 2 + i));
        from += Q8_0_BYTES;
      }
    }
    store_panel_sums(sums, panel, p, k, BLOCK);
  }
}
