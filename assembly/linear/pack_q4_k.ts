import { BLOCK, GGML_Q4_K, PANEL, Q4_K_BYTES, SUPER_BLOCK } from "../layout";
import { f16_at } from "../math/half";
import { U8Ptr } from "../types";
import { Q4_K_MINS, Q4_K_NIBBLES, Q4_K_SCALES, SCALES } from "./block_layout";
import { bytes_of } from "./ggml_blocks";
import { six } from "./ggml_scales";
import { store_part } from "./pack_blocks";

/** Panels begin..end as linear_q4_k reads them of a matrix [n][k / 256] of GGUF's Q4_K. Rows beyond n are zeros. */
export function pack_q4_k(out: U8Ptr, blocks: U8Ptr, n: i32, k: i32, begin: i32, end: i32): void {
  assert(k % SUPER_BLOCK == 0, "pack_q4_k: k must be whole super-blocks");
  assert(begin >= 0 && end <= (n + PANEL - 1) / PANEL, "pack_q4_k: begin..end must lie within the panels");
  const bytes = <usize>bytes_of(GGML_Q4_K);
  const rowBytes = bytes * <usize>(k / SUPER_BLOCK);
  let to = out + <usize>(k / SUPER_BLOCK) * Q4_K_BYTES * begin;
  for (let p = begin; p < end; p++) {
    const rows = min(PANEL, n - p * PANEL);
    let from = blocks + rowBytes * PANEL * p;
    for (const last = from + rowBytes; from < last; from += bytes) {
      memory.fill(to, 0, Q4_K_NIBBLES);
      for (let row: usize = 0; row < <usize>rows; row++) store_scales(to, from + rowBytes * row, row);
      for (let i: usize = 0; i < <usize>(SUPER_BLOCK / BLOCK); i++)
        store_part(to + Q4_K_NIBBLES + (i << 7), GGML_Q4_K, from, rowBytes, rows, <i32>(i << 1), 0, false);
      to += Q4_K_BYTES;
    }
  }
}

/** What multiplies the nibbles of a row, and its minimums. */
function store_scales(to: U8Ptr, block: U8Ptr, row: usize): void {
  store<f32>(to + (row << 2), f16_at(block));
  store<f32>(to + (row << 2), f16_at(block + 2), SCALES);
  for (let i: usize = 0; i < <usize>(SUPER_BLOCK / BLOCK); i++) {
    store<u8>(to + Q4_K_SCALES + (i << 3) + row, six(block + 4, <i32>i, 0));
    store<u8>(to + Q4_K_MINS + ((i >> 1) << 4) + (row << 1) + (i & 1), six(block + 4, <i32>i, 4));
  }
}
