import {
  BLOCK,
  GGML_I2_S,
  GGML_IQ1_M,
  GGML_IQ1_S,
  GGML_IQ2_S,
  GGML_IQ2_XS,
  GGML_IQ2_XXS,
  GGML_IQ3_S,
  GGML_IQ3_XXS,
  GGML_IQ4_NL,
  GGML_IQ4_XS,
  GGML_MXFP4,
  GGML_NVFP4,
  GGML_Q2_K,
  GGML_Q3_K,
  GGML_Q4_1,
  GGML_Q4_K,
  GGML_Q5_0,
  GGML_Q5_1,
  GGML_Q5_K,
  GGML_Q6_K,
  GGML_TQ1_0,
  GGML_TQ2_0,
} from "../layout";
import { swizzle } from "../math/simd";
import { U8Ptr } from "../types";
import { entries_of } from "./codebook_layout";

// Blocks in parts of 16 elements, of GGUF's types by their numbers, and decoded ones: of these a type is minus their bytes, which are a
// float32 scale, a float32 min if there is one, and 16 or 32 integers. Of a part, there are integers, and the scale and the min with which element i of part s is
// unit_of · factor_of(s) · integers_of(s)[i] - min_unit_of · min_factor_of(s). The readable form, which says where everything lies, is src/base/tensor/ggml-blocks.ts.

/** From type 3 on: elements of a block / 32, its bytes, elements that share a scale / 16, bytes of the codebook / 1024. */
const TYPES = memory.data<u8>([
  1, 20, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 22, 2, 0, 1, 24, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 84, 1, 0,
  8, 110, 1, 0, 8, 144, 2, 0, 8, 176, 2, 0, 8, 210, 1, 0, 0, 0, 0, 0, 8, 66, 2, 2, 8, 74, 1, 4, 8, 98, 2, 1,
  8, 50, 2, 16, 1, 18, 2, 0, 8, 110, 2, 2, 8, 82, 1, 8, 8, 136, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
  0, 0, 0, 0, 0, 0, 0, 0, 8, 56, 1, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 54, 4, 0,
  8, 66, 4, 0, 4, 32, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 17, 2, 0, 2, 36, 1, 0,
]);

// @ts-ignore: decorator
@inline
function fact_of(type: i32, i: usize): i32 {
  return load<u8>(TYPES + (<usize>(type - GGML_Q4_1) << 2) + i);
}

/** Elements of a block. */
export function length_of(type: i32): i32 {
  return type < 0 ? part_of(type) : fact_of(type, 0) << 5;
}

/** Bytes of a block. */
// @ts-ignore: decorator
@inline
export function bytes_of(type: i32): i32 {
  return type < 0 ? -type : fact_of(type, 1);
}

/** Elements that share a scale. */
export function part_of(type: i32): i32 {
  return type < 0 ? (-type < BLOCK ? BLOCK / 2 : BLOCK) : fact_of(type, 2) << 4;
}

/** Bytes of the codebook. */
// @ts-ignore: decorator
@inline
export function codebook_bytes(type: i32): usize {
  return type < 0 ? 0 : <usize>fact_of(type, 3) << 10;
}

// Sixteen integers.

/** Powers of 3: TQ1_0. */
const POWERS = memory.data<u16>([1, 3, 9, 27, 81]);
const LAST_POWERS = memory.data<u16>([1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27]);
/** Which byte of two has the bit of a lane, and that bit. */
const BYTES = memory.data<u8>([0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]);
const BITS = memory.data<u8>([1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128]);

/** The bits under `mask` of 16 bytes, from bit `shift` on. None of them lies beyond its byte. */
// @ts-ignore: decorator
@inline
function fields(at: U8Ptr, shift: i32, mask: i8): v128 {
  return v128.and(i16x8.shr_u(v128.load(at), shift), i8x16.splat(mask));
}

/** -1 where one of 16 bits is set, else 0. */
// @ts-ignore: decorator
@inline
function lanes_of(bits: u32): v128 {
  const all = v128.load(BITS);
  return i8x16.eq(v128.and(swizzle(i16x8.splat(<i16>bits), v128.load(BYTES)), all), all);
}

/** The fifth bits of 16 elements in their place. */
// @ts-ignore: decorator
@inline
function fifths(at: U8Ptr): v128 {
  return v128.and(lanes_of(load<u16>(at)), i8x16.splat(16));
}

// @ts-ignore: decorator
@inline
function negated(v: v128, signs: u32): v128 {
  const minus = lanes_of(signs);
  return i8x16.sub(v128.xor(v, minus), minus);
}

/** Seven signs and an eighth that makes the number of minuses even. */
// @ts-ignore: decorator
@inline
function even(seven: u32): u32 {
  return seven | ((popcnt(seven) & 1) << 7);
}

/** The 16 signs of part s where 32 elements have four times seven. */
// @ts-ignore: decorator
@inline
function signs_of(word: u32, s: i32): u32 {
  const own = word >> (14 * (s & 1));
  return even(own & 127) | (even((own >> 7) & 127) << 8);
}

/** Two entries of 8 elements. */
// @ts-ignore: decorator
@inline
function two(codebook: U8Ptr, first: u32, second: u32): v128 {
  return v128.load_lane<i64>(codebook + (second << 3), v128.load64_zero(codebook + (first << 3)), 1);
}

/** Four entries of 4 elements by the bytes at `at`, and a ninth bit of each. */
// @ts-ignore: decorator
@inline
function four(codebook: U8Ptr, at: U8Ptr, ninths: u32): v128 {
  const i0 = load<u8>(at) | ((ninths & 1) << 8);
  const i1 = load<u8>(at, 1) | ((ninths & 2) << 7);
  const i2 = load<u8>(at, 2) | ((ninths & 4) << 6);
  const i3 = load<u8>(at, 3) | ((ninths & 8) << 5);
  let v = v128.load32_zero(codebook + (i0 << 2));
  v = v128.load_lane<i32>(codebook + (i1 << 2), v, 1);
  v = v128.load_lane<i32>(codebook + (i2 << 2), v, 2);
  return v128.load_lane<i32>(codebook + (i3 << 2), v, 3);
}

/** 8 times entries of IQ1, and one more, or one less where `minus` says so: bits 0-7 and 8-15 are the same each. */
// @ts-ignore: decorator
@inline
function shifted(v: v128, minus: u32): v128 {
  return i8x16.add(i8x16.shl(v, 3), v128.or(lanes_of(minus), i8x16.splat(1)));
}

/** Digits of base 3 at the top of bytes times powers of 3. */
function ternary(v: v128, low: v128, high: v128): v128 {
  const ones = i16x8.splat(255);
  const three = i16x8.splat(3);
  const a = v128.and(i16x8.mul(i16x8.extend_low_i8x16_u(v), low), ones);
  const b = v128.and(i16x8.mul(i16x8.extend_high_i8x16_u(v), high), ones);
  return i8x16.narrow_i16x8_u(i16x8.shr_u(i16x8.mul(a, three), 8), i16x8.shr_u(i16x8.mul(b, three), 8));
}

/** Elements 16s to 16s + 15 of a block: integers, and of TQ and I2_S codes, which are one more. */
export function integers_of(type: i32, block: U8Ptr, s: i32, codebook: U8Ptr): v128 {
  if (type < 0) return v128.load(block + (bytes_of(type) - part_of(type)) + (s << 4));
  /** Bytes from the first half of 32 elements side by side to the one of this part, and from the first 64 or 128 to these. */
  const half = <usize>(s & 1) << 4;
  const of64 = <usize>(s >> 2) << 5;
  const of128 = <usize>(s >> 3) << 5;
  const pair = s & 6;
  switch (type) {
    case GGML_Q4_1:
      return fields(block + 4, s << 2, 15);
    case GGML_Q5_0:
      return i8x16.sub(v128.or(fields(block + 6, s << 2, 15), fifths(block + 2 + (s << 1))), i8x16.splat(16));
    case GGML_Q5_1:
      return v128.or(fields(block + 8, s << 2, 15), fifths(block + 4 + (s << 1)));
    case GGML_Q2_K:
      return fields(block + 16 + of128 + half, pair, 3);
    case GGML_Q3_K: {
      const third = i16x8.shl(fields(block + half, s >> 1, 1), 2);
      return i8x16.sub(v128.or(fields(block + 32 + of128 + half, pair, 3), third), i8x16.splat(4));
    }
    case GGML_Q4_K:
      return fields(block + 16 + of64 + half, (s & 2) << 1, 15);
    case GGML_Q5_K: {
      const fifth = i16x8.shl(fields(block + 16 + half, s >> 1, 1), 4);
      return v128.or(fields(block + 48 + of64 + half, (s & 2) << 1, 15), fifth);
    }
    case GGML_Q6_K: {
      const low = fields(block + (of128 << 1) + (<usize>(s & 2) << 4) + half, s & 4, 15);
      const upper = i16x8.shl(fields(block + 128 + of128 + half, pair, 3), 4);
      return i8x16.sub(v128.or(low, upper), i8x16.splat(32));
    }
    case GGML_IQ4_NL:
      return swizzle(entries_of(type), fields(block + 2, s << 2, 15));
    case GGML_IQ4_XS:
      return swizzle(entries_of(type), fields(block + 8 + (<usize>(s >> 1) << 4), (s & 1) << 2, 15));
    case GGML_MXFP4:
      return swizzle(entries_of(type), fields(block + 1, s << 2, 15));
    case GGML_NVFP4: {
      const v = v128.load64_splat(block + 4 + (s << 3));
      const indices = v128.and(v128.shuffle<i64>(v, i16x8.shr_u(v, 4), 0, 2), i8x16.splat(15));
      return swizzle(entries_of(type), indices);
    }
    case GGML_TQ1_0: {
      if (s == 15) return ternary(v128.load32_splat(block + 48), v128.load(LAST_POWERS), v128.load(LAST_POWERS, 16));
      const power = v128.load16_splat(POWERS + (<usize>(s < 10 ? s >> 1 : s - 10) << 1));
      return ternary(v128.load(s < 10 ? block + half : block + 32), power, power);
    }
    case GGML_TQ2_0:
      return fields(block + of128 + half, pair, 3);
    case GGML_I2_S:
      return fields(block + half, 6 - pair, 3);
    case GGML_IQ1_S: {
      const own = block + 2 + (s << 1);
      const upper = <u32>load<u16>(block + 34 + (s & ~1));
      const bits = upper >> (6 * (s & 1));
      const v = two(codebook, load<u8>(own) | ((bits & 7) << 8), load<u8>(own, 1) | ((bits & 56) << 5));
      return shifted(v, upper & 0x8000 ? 0xffff : 0);
    }
    case GGML_IQ1_M: {
      const own = block + (s << 1);
      const bits = <u32>load<u8>(block + 32 + s);
      const v = two(codebook, load<u8>(own) | ((bits & 7) << 8), load<u8>(own, 1) | ((bits & 0x70) << 4));
      return shifted(v, (bits & 8 ? 0xff : 0) | (bits & 0x80 ? 0xff00 : 0));
    }
    case GGML_IQ2_XXS: {
      const own = block + 2 + (<usize>(s >> 1) << 3);
      const at = own + ((s & 1) << 1);
      return negated(two(codebook, load<u8>(at), load<u8>(at, 1)), signs_of(load<u32>(own, 4), s));
    }
    case GGML_IQ2_XS: {
      const words = load<u32>(block + 2 + (s << 2));
      const signs = even((words >> 9) & 127) | (even(words >> 25) << 8);
      return negated(two(codebook, words & 511, (words >> 16) & 511), signs);
    }
    case GGML_IQ2_S: {
      const own = block + 2 + (s << 1);
      const upper = <u32>load<u8>(block + 66 + (s >> 1)) >> ((s & 1) << 2);
      const v = two(codebook, load<u8>(own) | ((upper & 3) << 8), load<u8>(own, 1) | ((upper & 12) << 6));
      return negated(v, load<u16>(own, 32));
    }
    case GGML_IQ3_XXS: {
      const signs = signs_of(load<u32>(block + 66 + (<usize>(s >> 1) << 2)), s);
      return negated(four(codebook, block + 2 + (s << 2), 0), signs);
    }
    default: {
      assert(type == GGML_IQ3_S, "integers_of: a type of blocks");
      const ninths = <u32>load<u8>(block + 66 + (s >> 1)) >> ((s & 1) << 2);
      return negated(four(codebook, block + 2 + (s << 2), ninths), load<u16>(block + 74 + (s << 1)));
    }
  }
}
