// GGUF's formats of blocks beside Q8_0 and Q4_0: integers with a scale, and some with a minimum, for each 16 or 32 elements. Layouts
// and values are those of ggml (ggml-common.h and the reference dequantisation of gguf-py); a block lies along the last dimension.

import type { CodedDtype } from "./dtypes.ts";

/** A block as numbers: element i is scales[s]·integers[i] - mins[s], where s is its part. */
export interface Parts {
  readonly scales: Float64Array;
  readonly mins: Float64Array;
  readonly integers: Int8Array;
}

/** A format: elements and bytes of a block, the form that holds it without loss, and how a block at `at` is read. */
export interface GgmlFormat {
  readonly length: number;
  readonly bytes: number;
  readonly coded: CodedDtype;
  read(parts: Parts, block: Uint8Array, at: number): void;
}

/** Values of 4-bit indices: those of IQ4_NL and IQ4_XS, and twice the 4-bit floats (E2M1) of MXFP4 and NVFP4. */
const NONLINEAR = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113] as const;
const TWICE_E2M1 = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12] as const;

/** A float16. */
function half(bytes: Uint8Array, at: number): number {
  const bits = bytes[at]! | (bytes[at + 1]! << 8);
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction === 0 ? sign * Infinity : Number.NaN;
  return sign * (1024 + fraction) * 2 ** (exponent - 25);
}

/** 16-bit and 32-bit integers, the lowest byte first. */
const uint16 = (bytes: Uint8Array, at: number) => bytes[at]! | (bytes[at + 1]! << 8);
const uint32 = (bytes: Uint8Array, at: number) => uint16(bytes, at) | (uint16(bytes, at + 2) << 16);
const int8 = (byte: number) => (byte << 24) >> 24;

/** Bytes of nibbles: byte j holds element j (low) and j + count (high), of which `value` makes the integers from `to` on. */
function nibbles(
  integers: Int8Array,
  to: number,
  block: Uint8Array,
  at: number,
  count: number,
  value: (nibble: number, element: number) => number,
): void {
  for (let j = 0; j < count; j++) {
    const pair = block[at + j]!;
    integers[to + j] = value(pair & 15, j);
    integers[to + j + count] = value(pair >> 4, j + count);
  }
}

/** Two bits of element i of 256: those of 128 elements lie in 32 bytes, 32 elements side by side. */
const twoBits = (block: Uint8Array, at: number, i: number) =>
  (block[at + ((i >> 7) << 5) + (i & 31)]! >> (((i >> 5) & 3) << 1)) & 3;

/** The 6-bit scale and minimum of sub-block j of Q4_K and Q5_K, whose twelve bytes begin at `at`. */
function scaleAndMin(block: Uint8Array, at: number, j: number): readonly [scale: number, min: number] {
  if (j < 4) return [block[at + j]! & 63, block[at + j + 4]! & 63];
  const low = block[at + j + 4]!;
  return [(low & 15) | ((block[at + j - 4]! >> 6) << 4), (low >> 4) | ((block[at + j]! >> 6) << 4)];
}

/** Scales and minimums of Q4_K and Q5_K, which begin with d and dmin. */
function readScales({ scales, mins }: Parts, block: Uint8Array, at: number): void {
  const [d, min] = [half(block, at), half(block, at + 2)];
  for (let j = 0; j < 8; j++) {
    const [scale, m] = scaleAndMin(block, at + 4, j);
    scales[j] = d * scale;
    mins[j] = min * m;
  }
}

/** Ternary digits of bytes of base 3, of which byte · 3^n holds digit n at the top: `count` bytes, `digits` of each in turn. */
function ternary(integers: Int8Array, to: number, block: Uint8Array, at: number, count: number, digits: number): void {
  for (let n = 0, power = 1; n < digits; n++, power *= 3)
    for (let j = 0; j < count; j++) integers[to++] = (((block[at + j]! * power) & 255) * 3) >> 8;
}

/** Names of the formats. */
export type GgmlDtype =
  | "IQ4_NL"
  | "IQ4_XS"
  | "MXFP4"
  | "NVFP4"
  | "Q2_K"
  | "Q3_K"
  | "Q4_1"
  | "Q4_K"
  | "Q5_0"
  | "Q5_1"
  | "Q5_K"
  | "Q6_K"
  | "TQ1_0"
  | "TQ2_0";

export const GGML_FORMATS: Readonly<Record<GgmlDtype, GgmlFormat>> = {
  /** Scale d, minimum m, 16 bytes of nibbles: d·q + m. */
  Q4_1: {
    length: 32,
    bytes: 20,
    coded: "I4_32_MIN",
    read({ scales, mins, integers }, block, at) {
      scales[0] = half(block, at);
      mins[0] = -half(block, at + 2);
      nibbles(integers, 0, block, at + 4, 16, (q) => q);
    },
  },
  /** Scale d, the fifth bits of all elements, nibbles: d·(q - 16). */
  Q5_0: {
    length: 32,
    bytes: 22,
    coded: "I8_32",
    read({ scales, integers }, block, at) {
      scales[0] = half(block, at);
      const fifth = uint32(block, at + 2);
      nibbles(integers, 0, block, at + 6, 16, (q, i) => (q | (((fifth >>> i) & 1) << 4)) - 16);
    },
  },
  /** Scale d, minimum m, fifth bits, nibbles: d·q + m. */
  Q5_1: {
    length: 32,
    bytes: 24,
    coded: "I8_32_MIN",
    read({ scales, mins, integers }, block, at) {
      scales[0] = half(block, at);
      mins[0] = -half(block, at + 2);
      const fifth = uint32(block, at + 4);
      nibbles(integers, 0, block, at + 8, 16, (q, i) => q | (((fifth >>> i) & 1) << 4));
    },
  },
  /** 16 parts: bytes of scale (low) and minimum (high), 2-bit q, then d and dmin: d·scale·q - dmin·min. */
  Q2_K: {
    length: 256,
    bytes: 84,
    coded: "I8_16_MIN",
    read({ scales, mins, integers }, block, at) {
      const [d, min] = [half(block, at + 80), half(block, at + 82)];
      for (let s = 0; s < 16; s++) {
        scales[s] = d * (block[at + s]! & 15);
        mins[s] = min * (block[at + s]! >> 4);
      }
      for (let i = 0; i < 256; i++) integers[i] = twoBits(block, at + 16, i);
    },
  },
  /** Third bits, 2-bit q, 16 scales of 6 bits, d: d·(scale - 32)·(q - 4, or q where the third bit is set). */
  Q3_K: {
    length: 256,
    bytes: 110,
    coded: "I8_16",
    read({ scales, integers }, block, at) {
      const d = half(block, at + 108);
      for (let s = 0; s < 16; s++) {
        const low = s < 8 ? block[at + 96 + s]! & 15 : block[at + 88 + s]! >> 4;
        scales[s] = d * ((low | (((block[at + 104 + (s & 3)]! >> ((s >> 2) << 1)) & 3) << 4)) - 32);
      }
      for (let i = 0; i < 256; i++)
        integers[i] = twoBits(block, at + 32, i) - ((block[at + (i & 31)]! >> (i >> 5)) & 1 ? 0 : 4);
    },
  },
  /** d, dmin, 8 scales and minimums of 6 bits, nibbles: d·scale·q - dmin·min. */
  Q4_K: {
    length: 256,
    bytes: 144,
    coded: "I4_32_MIN",
    read(parts, block, at) {
      readScales(parts, block, at);
      for (let j = 0; j < 4; j++) nibbles(parts.integers, 64 * j, block, at + 16 + 32 * j, 32, (q) => q);
    },
  },
  /** The same with a fifth bit: bit j of byte i for element i of part j. */
  Q5_K: {
    length: 256,
    bytes: 176,
    coded: "I8_32_MIN",
    read(parts, block, at) {
      readScales(parts, block, at);
      const fifth = (element: number, part: number) =>
        ((block[at + 16 + (element & 31)]! >> (part + (element >> 5))) & 1) << 4;
      for (let j = 0; j < 4; j++)
        nibbles(parts.integers, 64 * j, block, at + 48 + 32 * j, 32, (q, i) => q | fifth(i, 2 * j));
    },
  },
  /** Low nibbles, upper 2 bits, 16 scales of 8 bits, d: d·scale·(q - 32). */
  Q6_K: {
    length: 256,
    bytes: 210,
    coded: "I8_16",
    read({ scales, integers }, block, at) {
      const d = half(block, at + 208);
      for (let s = 0; s < 16; s++) scales[s] = d * int8(block[at + 192 + s]!);
      for (let i = 0; i < 256; i++) {
        const [side, part] = [i >> 7, (i >> 5) & 3];
        const low = (block[at + (side << 6) + ((part & 1) << 5) + (i & 31)]! >> ((part >> 1) << 2)) & 15;
        integers[i] = (low | (twoBits(block, at + 128, i) << 4)) - 32;
      }
    },
  },
  /** Scale d, 16 bytes of indices into NONLINEAR: d·value. */
  IQ4_NL: {
    length: 32,
    bytes: 18,
    coded: "I8_32",
    read({ scales, integers }, block, at) {
      scales[0] = half(block, at);
      nibbles(integers, 0, block, at + 2, 16, (q) => NONLINEAR[q]!);
    },
  },
  /** d, 8 scales of 6 bits, indices as in IQ4_NL: d·(scale - 32)·value. */
  IQ4_XS: {
    length: 256,
    bytes: 136,
    coded: "I8_32",
    read({ scales, integers }, block, at) {
      const [d, upper] = [half(block, at), uint16(block, at + 2)];
      for (let j = 0; j < 8; j++) {
        const low = (block[at + 4 + (j >> 1)]! >> ((j & 1) << 2)) & 15;
        scales[j] = d * ((low | (((upper >> (2 * j)) & 3) << 4)) - 32);
        nibbles(integers, 32 * j, block, at + 8 + 16 * j, 16, (q) => NONLINEAR[q]!);
      }
    },
  },
  /** Ternary digits, five a byte, the last 16 elements four a byte, then d: d·(digit - 1). */
  TQ1_0: {
    length: 256,
    bytes: 54,
    coded: "I4_32_MIN",
    read({ scales, mins, integers }, block, at) {
      mins.fill(scales.fill(half(block, at + 52))[0]!);
      ternary(integers, 0, block, at, 32, 5);
      ternary(integers, 160, block, at + 32, 16, 5);
      ternary(integers, 240, block, at + 48, 4, 4);
    },
  },
  /** Ternary digits of 2 bits, then d: d·(digit - 1). */
  TQ2_0: {
    length: 256,
    bytes: 66,
    coded: "I4_32_MIN",
    read({ scales, mins, integers }, block, at) {
      mins.fill(scales.fill(half(block, at + 64))[0]!);
      for (let i = 0; i < 256; i++) integers[i] = twoBits(block, at, i);
    },
  },
  /** An exponent e, nibbles of E2M1: 2^(e - 127)·value. */
  MXFP4: {
    length: 32,
    bytes: 17,
    coded: "I8_32",
    read({ scales, integers }, block, at) {
      scales[0] = 2 ** (block[at]! - 128);
      nibbles(integers, 0, block, at + 1, 16, (q) => TWICE_E2M1[q]!);
    },
  },
  /** Four scales as floats of 4 exponent and 3 fraction bits, whose pattern of ones is 0, nibbles of E2M1 for 16 elements each. */
  NVFP4: {
    length: 64,
    bytes: 36,
    coded: "I8_16",
    read({ scales, integers }, block, at) {
      for (let j = 0; j < 4; j++) {
        const bits = block[at + j]!;
        const [exponent, fraction] = [(bits >> 3) & 15, bits & 7];
        const size = exponent === 0 ? fraction * 2 ** -9 : (8 + fraction) * 2 ** (exponent - 10);
        scales[j] = bits === 127 ? 0 : size / 2;
        nibbles(integers, 16 * j, block, at + 4 + 8 * j, 8, (q) => TWICE_E2M1[q]!);
      }
    },
  },
};
