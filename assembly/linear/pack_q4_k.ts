import { BLOCK, PANEL, Q4_K_BYTES, SUPER_BLOCK } from "../layout";
import { f16_at } from "../math/half";
import { U8Ptr } from "../types";
import { Q4_K_MINS, Q4_K_NIBBLES, Q4_K_SCALES, SCALES } from "./block_layout";
import { store_units } from "./pack_q4";

/** Bytes of a super-block of GGUF's Q4_K: halves d and least, 12 bytes of scales and minimums, 128 of nibbles. */
const FILE_BYTES: usize = 144;
const FILE_SCALES: usize = 4;
const FILE_NIBBLES: usize = 16;

/** Panels begin..end as linear_q4_k reads them of a matrix [n][k / 256] of GGUF's Q4_K. Rows beyond n are zeros. */
export function pack_q4_k(out: U8Ptr, blocks: U8Ptr, n: i32, k: i32, begin: i32, end: i32): void {
  assert(k % SUPER_BLOCK == 0, "pack_q4_k: k must be whole super-blocks");
  assert(begin >= 0 && end <= (n + PANEL - 1) / PANEL, "pack_q4_k: begin..end must lie within the panels");
  const supers = <usize>(k / SUPER_BLOCK);
  const panelBytes = supers * Q4_K_BYTES;
  for (let p = begin; p < end; p++) {
    const panel = out + panelBytes * p;
    memory.fill(panel, 0, panelBytes);
    for (let column = 0; column < min(PANEL, n - p * PANEL); column++) {
      let from = blocks + FILE_BYTES * supers * (p * PANEL + column);
      let to = panel;
      for (const next = from + FILE_BYTES * supers; from < next; from += FILE_BYTES) {
        pack_super(to, from, <usize>column);
        to += Q4_K_BYTES;
      }
    }
  }
}

/** A super-block of a row. */
function pack_super(to: U8Ptr, from: U8Ptr, column: usize): void {
  store<f32>(to + (column << 2), f16_at(from));
  store<f32>(to + (column << 2), f16_at(from + 2), SCALES);
  for (let i: usize = 0; i < <usize>(SUPER_BLOCK / BLOCK); i++) {
    // The lower six bits of bytes 0 to 7 are the first four scales and minimums; of the others the lower four bits are in bytes 8 to 11,
    // the upper two above the first ones.
    const at = from + FILE_SCALES + (i & 3);
    const late = i >= 4;
    const scale = late ? (load<u8>(at, 8) & 15) | ((load<u8>(at) >> 6) << 4) : load<u8>(at) & 63;
    const least = late ? (load<u8>(at, 8) >> 4) | ((load<u8>(at, 4) >> 6) << 4) : load<u8>(at, 4) & 63;
    store<u8>(to + Q4_K_SCALES + (i << 3) + column, scale);
    store<u8>(to + Q4_K_MINS + ((i >> 1) << 4) + (column << 1) + (i & 1), least);
    // 32 bytes have the nibbles of two blocks, those of the first one in their lower bits.
    const nibbles = from + FILE_NIBBLES + ((i >> 1) << 5);
    const units = to + Q4_K_NIBBLES + (i << 7) + ((column & 4) << 2) + ((column & 3) << 2);
    for (let j: usize = 0; j < <usize>BLOCK; j += 8)
      store_units(units + (j << 2), (load<u64>(nibbles + j) >> ((i & 1) << 2)) & 0x0f0f0f0f0f0f0f0f);
  }
}
