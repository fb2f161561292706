import { PLAIN_CODES, GGML_I2_S, LONGEST_BLOCK, PANEL } from "../layout";
import { zip_high, zip_low } from "../math/half";
import { U8Ptr } from "../types";
import { inputs_of, LOOKUP_HEAD, LOOKUP_ROWS, place_of, SCALES } from "./block_layout";
import { bytes_of, integers_of, length_of } from "./ggml_blocks";
import { half_of } from "./ggml_scales";

/** Bytes that lie in front of the blocks of I2_S. */
const I2_S_HEAD: usize = 32;

/** Bytes of the codes of a block, the first one in the lowest bits. */
const CODE_BYTES: usize = 16;

/**
 * Panels begin..end as linear_lookup reads them of a matrix [n, k] in blocks. Of `type` PLAIN_CODES, blocks are a scale and 16 bytes of
 * codes. Scales have 16 bits, as in GGUF's Q1_0 and Q2_0; those of a row with one scale, with a block of 1024, have 32, of which the
 * first counts. Other types are GGUF's of codes of 2 bits: I2_S has the scale of all rows in front of the blocks. Rows beyond n are zeros.
 */
export function pack_lookup(
  out: U8Ptr,
  from: U8Ptr,
  n: i32,
  k: i32,
  block: i32,
  type: i32,
  begin: i32,
  end: i32,
): void {
  assert(k % inputs_of(block) == 0, "pack_lookup: k must be whole blocks");
  assert(begin >= 0 && end <= (n + PANEL - 1) / PANEL, "pack_lookup: begin..end must lie within the panels");
  const whole = block > LONGEST_BLOCK;
  const head: usize = whole ? 0 : LOOKUP_HEAD;
  const length = type == PLAIN_CODES ? inputs_of(block) : length_of(type);
  const scaleBytes: usize = whole ? 4 : 2;
  const bytes = type == PLAIN_CODES ? scaleBytes + CODE_BYTES : <usize>bytes_of(type);
  const rowBytes = bytes * <usize>(k / length);
  const panelBytes = place_of(k, block);
  const first = type == GGML_I2_S ? from + I2_S_HEAD : from;
  for (let p = begin; p < end; p++) {
    const rows = min(PANEL, n - p * PANEL);
    let at = first + rowBytes * PANEL * p;
    let to = out + panelBytes * p;
    if (whole) {
      for (let row = 0; row < PANEL; row++) {
        const scale = type == GGML_I2_S ? load<f32>(from) : row < rows ? load<f32>(at + rowBytes * row) : 0;
        store<f32>(to + (<usize>row << 2), row < rows ? scale : 0);
      }
      to += SCALES;
    }
    for (const last = at + rowBytes; at < last; at += bytes)
      for (let s = 0; s < length; s += inputs_of(block)) {
        if (!whole)
          for (let row = 0; row < PANEL; row++)
            store<u16>(to + (<usize>row << 1), row < rows ? half_of(type, at + rowBytes * row) : 0);
        to += head;
        store_codes(to, type, at, rowBytes, rows, s >> 4, scaleBytes);
        to += LOOKUP_ROWS;
      }
  }
}

/** 16 bytes of codes of eight rows, byte after byte: outputs 0 to 3 are the even bytes, 4 to 7 the odd ones. */
function store_codes(
  to: U8Ptr,
  type: i32,
  at: U8Ptr,
  rowBytes: usize,
  rows: i32,
  s: i32,
  scaleBytes: usize,
): void {
  const a = codes_of(type, at, rowBytes, 0, rows, s, scaleBytes);
  const b = codes_of(type, at, rowBytes, 1, rows, s, scaleBytes);
  const c = codes_of(type, at, rowBytes, 2, rows, s, scaleBytes);
  const d = codes_of(type, at, rowBytes, 3, rows, s, scaleBytes);
  const e = codes_of(type, at, rowBytes, 4, rows, s, scaleBytes);
  const f = codes_of(type, at, rowBytes, 5, rows, s, scaleBytes);
  const g = codes_of(type, at, rowBytes, 6, rows, s, scaleBytes);
  const h = codes_of(type, at, rowBytes, 7, rows, s, scaleBytes);
  turn_eight(to, bytes_low(a, e), bytes_low(b, f), bytes_low(c, g), bytes_low(d, h));
  turn_eight(to + 64, bytes_high(a, e), bytes_high(b, f), bytes_high(c, g), bytes_high(d, h));
}

/** Eight pairs of bytes of four rows, a row beside the other. */
// @ts-ignore: decorator
@inline
function turn_eight(to: U8Ptr, a: v128, b: v128, c: v128, d: v128): void {
  const ab = zip_low(a, b);
  const cd = zip_low(c, d);
  v128.store(to, v128.shuffle<i32>(ab, cd, 0, 4, 1, 5));
  v128.store(to, v128.shuffle<i32>(ab, cd, 2, 6, 3, 7), 16);
  const ab_high = zip_high(a, b);
  const cd_high = zip_high(c, d);
  v128.store(to, v128.shuffle<i32>(ab_high, cd_high, 0, 4, 1, 5), 32);
  v128.store(to, v128.shuffle<i32>(ab_high, cd_high, 2, 6, 3, 7), 48);
}

/** Bytes 0-7 of a and b in turn. */
// @ts-ignore: decorator
@inline
function bytes_low(a: v128, b: v128): v128 {
  return v128.shuffle<i8>(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

/** Bytes 8-15. */
// @ts-ignore: decorator
@inline
function bytes_high(a: v128, b: v128): v128 {
  return v128.shuffle<i8>(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

/** 16 bytes of codes of a row, from part s on; zeros beyond the rows. */
function codes_of(
  type: i32,
  at: U8Ptr,
  rowBytes: usize,
  row: i32,
  rows: i32,
  s: i32,
  scaleBytes: usize,
): v128 {
  if (row >= rows) return i32x4.splat(0);
  const block = at + rowBytes * row;
  if (type == PLAIN_CODES) return v128.load(block + scaleBytes);
  const a = fours(integers_of(type, block, s, 0));
  const b = fours(integers_of(type, block, s + 1, 0));
  const c = fours(integers_of(type, block, s + 2, 0));
  const d = fours(integers_of(type, block, s + 3, 0));
  return i8x16.narrow_i16x8_u(i16x8.narrow_i32x4_u(a, b), i16x8.narrow_i32x4_u(c, d));
}

/** Four codes of 2 bits, a byte each, in one byte. */
// @ts-ignore: decorator
@inline
function fours(v: v128): v128 {
  const pairs = v128.or(v, i32x4.shr_u(v, 6));
  return v128.and(v128.or(pairs, i32x4.shr_u(pairs, 12)), i32x4.splat(255));
}
