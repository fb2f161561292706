import { BLOCK, PANEL } from "../layout";

// How packed integer weights lie: see linear_q8 and linear_q4.

/** Bytes before the weights of a block: the scales of its 8 rows. */
export const SCALES: usize = PANEL << 2;

/** Bytes of a block of 8 rows by 32 inputs of 4 bits. */
export const Q4_BLOCK_BYTES: usize = SCALES + BLOCK * 4;

/** Bytes of a packed panel of `length` inputs. */
// @ts-ignore: decorator
@inline
export function panel_bytes(length: i32, block: i32): usize {
  return <usize>(length / block) * (SCALES + (<usize>block << 3));
}
