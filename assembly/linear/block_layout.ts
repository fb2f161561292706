import { BLOCK, LONGEST_BLOCK, PANEL } from "../layout";

// How packed integer weights lie: see linear_q8 and linear_q4. And how the blocks of fast rows do: see quantize_rows.

/** A block of a fast row: its scale, a float, and what its bytes are raised by, an i32, for each 32 inputs. log2 of inputs a byte. */
export const BLOCK_SHIFT: i32 = 2;

/** Where the inputs at `at` have these: two groups of 16 share them. */
// @ts-ignore: decorator
@inline
export function block_at(at: usize): usize {
  return at & ~7;
}

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

/** Inputs whose products with exact rows are summed as integers where a row of weights has one scale. */
export const GROUP: i32 = 1024;

/** Bytes between the weights of one group and the next: scales, or nothing where a row has one scale. */
// @ts-ignore: decorator
@inline
export function gap_of(block: i32): usize {
  return block <= LONGEST_BLOCK ? SCALES : 0;
}

/** Inputs whose products with fast rows are summed as integers where a row of weights has one scale: these have one, too. */
export const FAST_GROUP: i32 = 64;

/** Inputs whose weights have a sum: a block, or FAST_GROUP of a longer one. */
// @ts-ignore: decorator
@inline
export function summed_of(block: i32): i32 {
  return block <= LONGEST_BLOCK ? block : FAST_GROUP;
}

/** Bytes of the sums of a panel's weights over so many inputs. */
export const SUM_BYTES: usize = PANEL << 1;

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
  const summed = summed_of(block);
  return <usize>((length + summed - 1) / summed) * SUM_BYTES;
}
