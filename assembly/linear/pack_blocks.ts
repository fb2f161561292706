import { BLOCK, PANEL, PANEL_BYTES } from "../layout";
import { F32Ptr, U8Ptr, U8PtrOrNull } from "../types";
import { Q4_BLOCK_BYTES, q8_block_bytes, SCALES } from "./block_layout";
import { bytes_of, codebook_bytes, integers_of, length_of, part_of } from "./ggml_blocks";
import { factor_of, min_factor_of, min_unit_of, unit_of } from "./ggml_scales";
import { store_turned } from "./pack_f16";
import { store_panel_sums } from "./pack_q8";

/**
 * Panels begin..end of a matrix [n, k] in blocks of a `type`, without their mins: where `sums` is not null, out is what linear_q8
 * reads, else the integers are nibbles, and out is what linear_q4 reads, whose zero is 0. k is whole blocks and a multiple of 32; rows
 * beyond n are zeros. In front of the blocks lies the codebook of the type, entry after entry, if it has one.
 */
export function pack_blocks(
  out: U8Ptr,
  sums: U8PtrOrNull,
  blocks: U8Ptr,
  n: i32,
  k: i32,
  type: i32,
  begin: i32,
  end: i32,
): void {
  const length = length_of(type);
  assert(length > 0 && k % length == 0, "pack_blocks: k must be whole blocks of a type");
  assert(begin >= 0 && end <= (n + PANEL - 1) / PANEL, "pack_blocks: begin..end must lie within the panels");
  const bytes = <usize>bytes_of(type);
  const part = part_of(type);
  const rowBytes = bytes * <usize>(k / length);
  const step = sums ? q8_block_bytes(part) : Q4_BLOCK_BYTES;
  const panelBytes = step * <usize>(k / part);
  const first = blocks + codebook_bytes(type);
  for (let p = begin; p < end; p++) {
    const panel = out + panelBytes * p;
    const rows = min(PANEL, n - p * PANEL);
    let from = first + rowBytes * PANEL * p;
    let to = panel;
    for (const last = from + rowBytes; from < last; from += bytes) {
      for (let row = 0; row < PANEL; row++) {
        let scale = to + (<usize>row << 2);
        const block = from + rowBytes * row;
        const unit = row < rows ? unit_of(type, block) : 0;
        for (let s = 0; s << 4 < length; s += part >> 4) {
          store<f32>(scale, row < rows ? unit * factor_of(type, block, s) : 0);
          scale += step;
        }
      }
      for (let s = 0; s << 4 < length; s += part >> 4) {
        store_part(to + SCALES, type, from, rowBytes, rows, s, blocks, sums != 0);
        if (sums && part == BLOCK) store_part(to + SCALES + (BLOCK << 2), type, from, rowBytes, rows, s + 1, blocks, true);
        to += step;
      }
    }
    if (sums) store_panel_sums(sums, panel, p, k, part);
  }
}

/** out[panels][k / part][8] = the mins of the blocks, for panels begin..end, zeros for rows beyond n. */
export function pack_mins(out: F32Ptr, blocks: U8Ptr, n: i32, k: i32, type: i32, begin: i32, end: i32): void {
  const length = length_of(type);
  const bytes = <usize>bytes_of(type);
  const part = part_of(type);
  const rowBytes = bytes * <usize>(k / length);
  for (let p = begin; p < end; p++) {
    const rows = min(PANEL, n - p * PANEL);
    let from = blocks + rowBytes * PANEL * p;
    let to = out + <usize>(k / part) * PANEL_BYTES * p;
    for (const last = from + rowBytes; from < last; from += bytes) {
      for (let row = 0; row < PANEL; row++) {
        let min = to + (<usize>row << 2);
        const block = from + rowBytes * row;
        const unit = row < rows ? min_unit_of(type, block) : 0;
        for (let s = 0; s << 4 < length; s += part >> 4) {
          store<f32>(min, row < rows ? unit * min_factor_of(type, block, s) : 0);
          min += PANEL_BYTES;
        }
      }
      to += <usize>(length / part) * PANEL_BYTES;
    }
  }
}

/** Part s of eight rows: 16 inputs in pairs, or with part s + 1 the nibbles of 32. */
export function store_part(
  to: U8Ptr,
  type: i32,
  from: U8Ptr,
  rowBytes: usize,
  rows: i32,
  s: i32,
  codebook: U8Ptr,
  pairs: bool,
): void {
  const a = row_of(type, from, rowBytes, 0, rows, s, codebook, pairs);
  const b = row_of(type, from, rowBytes, 1, rows, s, codebook, pairs);
  const c = row_of(type, from, rowBytes, 2, rows, s, codebook, pairs);
  const d = row_of(type, from, rowBytes, 3, rows, s, codebook, pairs);
  const e = row_of(type, from, rowBytes, 4, rows, s, codebook, pairs);
  const f = row_of(type, from, rowBytes, 5, rows, s, codebook, pairs);
  const g = row_of(type, from, rowBytes, 6, rows, s, codebook, pairs);
  const h = row_of(type, from, rowBytes, 7, rows, s, codebook, pairs);
  if (pairs) {
    store_turned(to, a, b, c, d, e, f, g, h);
    return;
  }
  turn_units(to, a, b, c, d);
  turn_units(to + 16, e, f, g, h);
}

/** The integers of a row; zeros beyond the rows. */
// @ts-ignore: decorator
@inline
function row_of(
  type: i32,
  from: U8Ptr,
  rowBytes: usize,
  row: i32,
  rows: i32,
  s: i32,
  codebook: U8Ptr,
  pairs: bool,
): v128 {
  if (row >= rows) return i32x4.splat(0);
  const block = from + rowBytes * row;
  const first = integers_of(type, block, s, codebook);
  return pairs ? first : units_of(first, integers_of(type, block, s + 1, codebook));
}

/** 32 nibbles, a byte each, in units of 16 bits: for each 8 inputs the even ones, then the odd ones. */
// @ts-ignore: decorator
@inline
export function units_of(a: v128, b: v128): v128 {
  // The lower bytes of 32 bits: inputs 0 and 2, 1 and 3.
  const first = v128.or(a, i32x4.shr_u(a, 12));
  const second = v128.or(b, i32x4.shr_u(b, 12));
  return v128.shuffle<i8>(first, second, 0, 4, 1, 5, 8, 12, 9, 13, 16, 20, 17, 21, 24, 28, 25, 29);
}

/** Four units of 32 bits of four rows, a row beside the other, 32 bytes on for each. */
// @ts-ignore: decorator
@inline
export function turn_units(to: U8Ptr, a: v128, b: v128, c: v128, d: v128): void {
  const ab = v128.shuffle<i32>(a, b, 0, 4, 1, 5);
  const cd = v128.shuffle<i32>(c, d, 0, 4, 1, 5);
  v128.store(to, v128.shuffle<i64>(ab, cd, 0, 2));
  v128.store(to, v128.shuffle<i64>(ab, cd, 1, 3), 32);
  const ab_high = v128.shuffle<i32>(a, b, 2, 6, 3, 7);
  const cd_high = v128.shuffle<i32>(c, d, 2, 6, 3, 7);
  v128.store(to, v128.shuffle<i64>(ab_high, cd_high, 0, 2), 64);
  v128.store(to, v128.shuffle<i64>(ab_high, cd_high, 1, 3), 96);
}
