import { BLOCK, PANEL, PANEL_BYTES } from "../layout";
import { F32Ptr, U8Ptr, U8PtrOrNull } from "../types";
import { Q4_BLOCK_BYTES, q8_block_bytes, SCALES } from "./block_layout";
import { store_units, units_of } from "./pack_q4";
import { store_panel_sums } from "./pack_q8";

// Blocks of integers that have a scale and may have a min, both floats: a weight is scale · integer - min. `bytes` is the length
// of a block: a scale, a min if there is one, and 16 or 32 integers, a byte each.

/** Integers of a block of so many bytes. */
// @ts-ignore: decorator
@inline
function inputs_of(bytes: i32): i32 {
  return bytes < BLOCK ? BLOCK / 2 : BLOCK;
}

/**
 * Panels begin..end of a matrix [n][k / block] of blocks, k a multiple of 32, without their mins. Where `sums` is not null, out is
 * what linear_q8 reads; else the integers are nibbles, 32 a block, and out is what linear_q4 reads, whose zero is 0.
 * Rows beyond n are zeros.
 */
export function pack_blocks(
  out: U8Ptr,
  sums: U8PtrOrNull,
  blocks: U8Ptr,
  n: i32,
  k: i32,
  bytes: i32,
  begin: i32,
  end: i32,
): void {
  assert(k % BLOCK == 0, "pack_blocks: k must be a multiple of 32");
  assert(begin >= 0 && end <= (n + PANEL - 1) / PANEL, "pack_blocks: begin..end must lie within the panels");
  const block = inputs_of(bytes);
  const count = k / block;
  const rowBytes = <usize>(bytes * count);
  const step = sums ? q8_block_bytes(block) : Q4_BLOCK_BYTES;
  const panelBytes = step * count;
  for (let p = begin; p < end; p++) {
    const panel = out + panelBytes * p;
    memory.fill(panel, 0, panelBytes);
    for (let column = 0; column < min(PANEL, n - p * PANEL); column++) {
      let from = blocks + rowBytes * (p * PANEL + column);
      let to = panel;
      for (const next = from + rowBytes; from < next; from += bytes) {
        store<f32>(to + (<usize>column << 2), load<f32>(from));
        const integers = from + bytes - block;
        if (sums) store_pairs(to + SCALES + (<usize>column << 1), integers, block);
        else store_nibbles(units_of(to, column), integers);
        to += step;
      }
    }
    if (sums) store_panel_sums(sums, panel, p, k, block);
  }
}

/** out[panels][k / block][8] = the mins of the blocks, for panels begin..end, zeros for rows beyond n. */
export function pack_mins(out: F32Ptr, blocks: U8Ptr, n: i32, k: i32, bytes: i32, begin: i32, end: i32): void {
  const count = k / inputs_of(bytes);
  const rowBytes = <usize>(bytes * count);
  const panelBytes = <usize>count * PANEL_BYTES;
  for (let p = begin; p < end; p++) {
    memory.fill(out + panelBytes * p, 0, panelBytes);
    for (let column = 0; column < min(PANEL, n - p * PANEL); column++) {
      let from = blocks + rowBytes * (p * PANEL + column);
      let to = out + panelBytes * p + (<usize>column << 2);
      for (const next = from + rowBytes; from < next; from += bytes) {
        store<f32>(to, load<f32>(from, 4));
        to += PANEL_BYTES;
      }
    }
  }
}

/** Integers two together every 16 bytes. */
function store_pairs(to: U8Ptr, from: U8Ptr, count: i32): void {
  for (let i: usize = 0; i < <usize>count; i += 2) store<u16>(to + (i << 3), load<u16>(from + i));
}

/** 32 nibbles, a byte each, in units of 16 bits. */
function store_nibbles(to: U8Ptr, from: U8Ptr): void {
  for (let i: usize = 0; i < <usize>BLOCK; i += 8) store_units(to + (i << 2), load<u64>(from + i));
}
