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

/** 2^112: what the exponents of float and half are apart. */
const REBIAS: f32 = 5.192296858534827628530496329220096e33;

/** The half at `at`, exactly: a subnormal one becomes a normal float by the product. */
// @ts-ignore: decorator
@inline
export function half_at(at: usize): f32 {
  const half = <u32>load<u16>(at);
  const bits = (half & 0x7fff) << 13;
  const sign = (half & 0x8000) << 16;
  // An exponent of ones stays one of ones.
  if ((half & 0x7c00) == 0x7c00) return reinterpret<f32>(sign | bits | 0x7f800000);
  return reinterpret<f32>(sign | reinterpret<u32>(reinterpret<f32>(bits) * REBIAS));
}
