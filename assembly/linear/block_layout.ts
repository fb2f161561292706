import { BLOCK, LONGEST_BLOCK, PANEL } from "../layout";

// How packed integer weights lie: see linear_q8 and linear_q4.

/** Bytes before the weights of a block: the scales of its 8 rows. */
export const SCALES: usize = PANEL << 2;

/** Bytes of a block of 8 rows by 32 inputs of 4 bits. */
export const Q4_BLOCK_BYTES: usize = SCALES + BLOCK * 4;

/**
 * Where a super-block of 8 rows by 256 inputs of 4 bits has its minimums, [4][8][2], and its scales, [8][8], a byte each, and its
 * nibbles, those of eight blocks as linear_q4 has them. 8 floats by which scales count lie before, then 8 of minimums.
 */
export const Q4_K_MINS: usize = SCALES * 2;
export const Q4_K_SCALES: usize = Q4_K_MINS + 64;
export const Q4_K_NIBBLES: usize = Q4_K_SCALES + 64;

/** Groups of four bits of an output in a block of 1 or 2 bits; bytes before a block, the scales of 8 outputs, and of its rows. */
export const LOOKUP_GROUPS: i32 = 32;
export const LOOKUP_HEAD: usize = PANEL << 1;
export const LOOKUP_ROWS: usize = LOOKUP_GROUPS * 4;

/** Inputs of 128 bytes of codes: of 1 bit where a scale belongs to 128 inputs, else of 2. */
// @ts-ignore: decorator
@inline
export function inputs_of(block: i32): i32 {
  return block == LONGEST_BLOCK ? LONGEST_BLOCK : LONGEST_BLOCK / 2;
}

/** The byte of input i, the first of its block, in a panel of codes; of i = k the bytes of the panel. */
// @ts-ignore: decorator
@inline
export function place_of(i: i32, block: i32): usize {
  const blocks = <usize>(i / inputs_of(block));
  return block > LONGEST_BLOCK ? SCALES + blocks * LOOKUP_ROWS : blocks * (LOOKUP_HEAD + LOOKUP_ROWS);
}

/** Inputs whose products are summed as integers where a row has one scale. */
export const GROUP: i32 = 1024;

/** Bytes between the weights of one group and the next: scales, or nothing where a row has one scale. */
// @ts-ignore: decorator
@inline
export function gap_of(block: i32): usize {
  return block <= LONGEST_BLOCK ? SCALES : 0;
}

/** Bytes of the sums of a group's weights: 16 bits each for a block of up to 128 inputs, else 32. */
// @ts-ignore: decorator
@inline
export function sum_bytes(gap: usize): usize {
  return gap ? PANEL << 1 : PANEL << 2;
}

/** Bytes of a block of 8 rows of 8 bits, and of its scales. */
// @ts-ignore: decorator
@inline
export function q8_block_bytes(block: i32): usize {
  return SCALES + (<usize>block << 3);
}

/** Bytes of a packed panel of `length` inputs. */
// @ts-ignore: decorator
@inline
export function panel_bytes(length: i32, block: i32): usize {
  return <usize>(length / block) * q8_block_bytes(block);
}

/** Bytes of the sums of a panel's weights, which lie apart from the panels. */
// @ts-ignore: decorator
@inline
export function panel_sum_bytes(length: i32, block: i32): usize {
  const group = min(block, GROUP);
  return <usize>((length + group - 1) / group) * sum_bytes(gap_of(block));
}
