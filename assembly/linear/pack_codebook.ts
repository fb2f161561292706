import { BLOCK, GGML_IQ4_NL, GGML_IQ4_XS, GGML_MXFP4, GGML_NVFP4, PANEL } from "../layout";
import { U8Ptr } from "../types";
import { codebook_bytes_of, group_of, scales_bytes, unit_bytes } from "./codebook_layout";
import { bytes_of, length_of } from "./ggml_blocks";
import { signed_six } from "./ggml_scales";
import { turn_units, units_of } from "./pack_blocks";

/** Panels begin..end as linear_codebook reads them of a matrix [n, k] in blocks of a `type`, k whole blocks. Rows beyond n are zeros. */
export function pack_codebook(out: U8Ptr, blocks: U8Ptr, n: i32, k: i32, type: i32, begin: i32, end: i32): void {
  const length = length_of(type);
  assert(length > 0 && k % length == 0, "pack_codebook: k must be whole blocks of a type");
  assert(begin >= 0 && end <= (n + PANEL - 1) / PANEL, "pack_codebook: begin..end must lie within the panels");
  const bytes = <usize>bytes_of(type);
  const rowBytes = bytes * <usize>(k / length);
  const head = scales_bytes(type, k);
  for (let p = begin; p < end; p++) {
    const panel = out + codebook_bytes_of(type, k) * p;
    const rows = min(PANEL, n - p * PANEL);
    const first = blocks + rowBytes * PANEL * p;
    if (rows < PANEL) memory.fill(panel, 0, head);
    for (let row = 0; row < rows; row++) store_scales(panel, type, first + rowBytes * row, k, <usize>row);
    let to = panel + head;
    for (let from = first; from < first + rowBytes; from += bytes) {
      // The nibbles of a block lie behind its scales, 16 bytes for 32 inputs.
      let at = from + bytes - (length >> 1);
      for (const last = from + bytes; at < last; at += BLOCK / 2) {
        store_nibbles(to, type, at, rowBytes, rows);
        to += BLOCK << 2;
      }
    }
  }
}

/** The scales of a row. */
function store_scales(panel: U8Ptr, type: i32, block: U8Ptr, k: i32, row: usize): void {
  const length = length_of(type);
  const bytes = <usize>bytes_of(type);
  const group = group_of(type);
  let to = panel + unit_bytes(type, k) + row;
  for (let i = 0; i < k; i += length) {
    if (type == GGML_IQ4_NL) store<u16>(panel + (<usize>i >> 1) + (row << 1), load<u16>(block));
    else if (type == GGML_IQ4_XS) store<u16>(panel + (<usize>i >> 4) + (row << 1), load<u16>(block));
    if (type != GGML_IQ4_NL)
      for (let j = 0; j < length; j += group) {
        store<u8>(to, scale_of(type, block, j >> 4));
        to += PANEL;
      }
    block += bytes;
  }
}

/** The byte of a scale of part s of 16 elements; of NVFP4 the pattern of ones is 0, and there is no sign. */
// @ts-ignore: decorator
@inline
function scale_of(type: i32, block: U8Ptr, s: i32): u8 {
  if (type == GGML_MXFP4) return load<u8>(block);
  if (type == GGML_IQ4_XS) return <u8>signed_six(block, s >> 1);
  const bits = load<u8>(block + s);
  return bits == 127 ? 0 : bits & 127;
}

/** Nibbles of 32 inputs of eight rows. */
function store_nibbles(to: U8Ptr, type: i32, from: U8Ptr, rowBytes: usize, rows: i32): void {
  const a = row_of(type, from, rowBytes, 0, rows);
  const b = row_of(type, from, rowBytes, 1, rows);
  const c = row_of(type, from, rowBytes, 2, rows);
  const d = row_of(type, from, rowBytes, 3, rows);
  const e = row_of(type, from, rowBytes, 4, rows);
  const f = row_of(type, from, rowBytes, 5, rows);
  const g = row_of(type, from, rowBytes, 6, rows);
  const h = row_of(type, from, rowBytes, 7, rows);
  turn_units(to, a, b, c, d);
  turn_units(to + 16, e, f, g, h);
}

/** Those of a row, in units: bytes hold elements 16 apart, of NVFP4 8. Zeros beyond the rows. */
// @ts-ignore: decorator
@inline
function row_of(type: i32, from: U8Ptr, rowBytes: usize, row: i32, rows: i32): v128 {
  if (row >= rows) return i32x4.splat(0);
  const bytes = v128.load(from + rowBytes * row);
  const low = v128.and(bytes, i8x16.splat(15));
  const high = v128.and(i16x8.shr_u(bytes, 4), i8x16.splat(15));
  if (type != GGML_NVFP4) return units_of(low, high);
  return units_of(v128.shuffle<i64>(low, high, 0, 2), v128.shuffle<i64>(low, high, 1, 3));
}
