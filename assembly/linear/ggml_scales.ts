import {
  PLAIN_CODES,
  GGML_IQ1_M,
  GGML_IQ1_S,
  GGML_IQ2_S,
  GGML_IQ2_XS,
  GGML_IQ2_XXS,
  GGML_IQ3_S,
  GGML_IQ3_XXS,
  GGML_IQ4_XS,
  GGML_MXFP4,
  GGML_NVFP4,
  GGML_Q2_K,
  GGML_Q3_K,
  GGML_Q4_K,
  GGML_Q5_K,
  GGML_Q6_K,
  GGML_TQ1_0,
} from "../layout";
import { U8Ptr } from "../types";

// Scales and mins of blocks: see ggml_blocks.ts. All products are exact, of at most 19 significant bits.

/** A float16 by its bits. */
function half(bits: u32): f32 {
  const size = bits & 0x7fff;
  if (size > 0x7c00) return f32.NaN;
  // 2^112 is the difference of the biases: exact for subnormals too.
  const value = size < 0x7c00 ? reinterpret<f32>(size << 13) * reinterpret<f32>(0x77800000) : reinterpret<f32>(0x7f800000);
  return bits & 0x8000 ? -value : value;
}

// @ts-ignore: decorator
@inline
function byte(at: U8Ptr): i32 {
  return load<u8>(at);
}

/** 2i + 1. */
// @ts-ignore: decorator
@inline
function odd(i: i32): f32 {
  return <f32>((i << 1) | 1);
}

/** The scale of 6 bits of sub-block j of Q4_K and Q5_K, or its min where `shift` is 4, by the twelve bytes at `at`. */
export function six(at: U8Ptr, j: i32, shift: i32): i32 {
  const own = at + j;
  if (j < 4) return byte(own + shift) & 63;
  return ((byte(own + 4) >> shift) & 15) | ((byte(own + shift - 4) >> 6) << 4);
}

/** The scale of 6 bits of sub-block j of IQ4_XS, less 32. */
export function signed_six(block: U8Ptr, j: i32): i32 {
  const low = (byte(block + 4 + (j >> 1)) >> ((j & 1) << 2)) & 15;
  const upper = (<i32>load<u16>(block, 2) >> (j << 1)) & 3;
  return (low | (upper << 4)) - 32;
}

/** What the scales of a block are multiples of. */
export function unit_of(type: i32, block: U8Ptr): f32 {
  if (type < 0) return 1;
  switch (type) {
    case GGML_Q2_K:
      return half(load<u16>(block, 80));
    case GGML_Q3_K:
      return half(load<u16>(block, 108));
    case GGML_Q6_K:
      return half(load<u16>(block, 208));
    case GGML_IQ1_M:
      return half(
        (load<u16>(block, 48) >> 12) |
          ((load<u16>(block, 50) >> 8) & 0xf0) |
          ((load<u16>(block, 52) >> 4) & 0xf00) |
          (load<u16>(block, 54) & 0xf000),
      );
    case GGML_MXFP4: {
      const exponent = <u32>byte(block);
      return reinterpret<f32>(exponent < 2 ? 0x200000 << exponent : (exponent - 1) << 23);
    }
    case GGML_NVFP4:
      return 128;
    default:
      return half(load<u16>(block));
  }
}

/** The scale of part s of a block, whose integers are `integers_of`, over the unit of the block. */
export function factor_of(type: i32, block: U8Ptr, s: i32): f32 {
  if (type < 0) return load<f32>(block);
  const nibble = (s & 1) << 2;
  switch (type) {
    case GGML_Q2_K:
      return <f32>(byte(block + s) & 15);
    case GGML_Q3_K: {
      const low = (byte(block + 96 + (s & 7)) >> ((s >> 1) & 4)) & 15;
      const upper = (byte(block + 104 + (s & 3)) >> ((s >> 2) << 1)) & 3;
      return <f32>((low | (upper << 4)) - 32);
    }
    case GGML_Q4_K:
    case GGML_Q5_K:
      return <f32>six(block + 4, s >> 1, 0);
    case GGML_Q6_K:
      return <f32>load<i8>(block + 192 + s);
    case GGML_IQ4_XS:
      return <f32>signed_six(block, s >> 1);
    case GGML_NVFP4: {
      const bits = byte(block + s);
      // Three bits of a fraction below four of an exponent, as a float16 of 2^-9 times its size.
      return bits == 127 ? 0 : half((bits & 127) << 7);
    }
    case GGML_IQ1_S:
      return odd((load<u16>(block + 34 + s) >> 12) & 7) * 0.125;
    case GGML_IQ1_M:
      return odd((<i32>load<u16>(block + 48 + ((s >> 2) << 1)) >> (3 * (s & 3))) & 7) * 0.125;
    case GGML_IQ2_XXS:
      return odd(byte(block + 9 + (s << 2)) >> 4) * 0.125;
    case GGML_IQ3_XXS:
      return odd(byte(block + 69 + (s << 1)) >> 4) * 0.25;
    case GGML_IQ2_XS:
      return odd((byte(block + 66 + (s >> 1)) >> nibble) & 15) * 0.125;
    case GGML_IQ2_S:
      return odd((byte(block + 74 + (s >> 1)) >> nibble) & 15) * 0.125;
    case GGML_IQ3_S:
      return odd((byte(block + 106 + (s >> 2)) >> ((s & 2) << 1)) & 15);
    default:
      return 1;
  }
}

/** The float16 of a block of codes as it is; a NaN of TQ is the one without a payload. */
export function half_of(type: i32, block: U8Ptr): u16 {
  if (type == PLAIN_CODES) return load<u16>(block);
  const bits = load<u16>(block + (type == GGML_TQ1_0 ? 52 : 64));
  return (bits & 0x7fff) > 0x7c00 ? 0x7e00 : bits;
}

/** What the mins of a block are multiples of. */
// @ts-ignore: decorator
@inline
export function min_unit_of(type: i32, block: U8Ptr): f32 {
  return type < 0 ? 1 : half(type == GGML_Q2_K ? load<u16>(block, 82) : load<u16>(block, 2));
}

/** The min of part s over the unit, where there is one. */
export function min_factor_of(type: i32, block: U8Ptr, s: i32): f32 {
  if (type == GGML_Q2_K) return <f32>(byte(block + s) >> 4);
  if (type < 0) return load<f32>(block, 4);
  return type == GGML_Q4_K || type == GGML_Q5_K ? <f32>six(block + 4, s >> 1, 4) : -1;
}
