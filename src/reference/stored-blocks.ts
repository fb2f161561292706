// Blocks of GGUF, element by element. Layouts are those of ggml (ggml-common.h).

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
  PANEL,
  SUPER_BLOCK,
} from "../../assembly/layout.ts";
import { nibblesOf, type Packed, widenF16 } from "./numbers.ts";

/** The bytes of a block. */
type Bytes = Uint8Array;

/** A type: element i of a block is scale(i)·integer(i) - min(i). Of codes, an integer is one more. */
interface Type {
  readonly length: number;
  readonly bytes: number;
  /** Elements that share a scale. */
  readonly part: number;
  /** Bytes in front of all blocks: a codebook, or the scale of all. */
  readonly before?: number;
  readonly integer: (block: Bytes, i: number, codebook: Int8Array) => number;
  readonly scale?: (block: Bytes, i: number) => number;
  /** Of indices into 16 integers: these, an index, and what a panel has of a scale, of which IQ4_XS has a part in 256 inputs. */
  readonly entries?: readonly number[];
  readonly index?: (block: Bytes, i: number) => number;
  readonly bits?: (block: Bytes, i: number) => number;
  readonly min?: (block: Bytes, i: number) => number;
}

const u16 = (b: Bytes, at: number): number => b[at]! | (b[at + 1]! << 8);
const u32 = (b: Bytes, at: number): number => u16(b, at) + 2 ** 16 * u16(b, at + 2);
const half = (b: Bytes, at: number): number => widenF16(u16(b, at));

/** Bit i of the bytes from `at` on. */
const bit = (b: Bytes, at: number, i: number): number => (b[at + (i >> 3)]! >> (i & 7)) & 1;
/** Nibble i of 2·count: the lower ones of `count` bytes, then the upper ones. */
const nibble = (b: Bytes, at: number, i: number, count: number): number =>
  (b[at + (i % count)]! >> (i < count ? 0 : 4)) & 15;
/** Two bits of element i: 32 bytes hold 128, 32 side by side. */
const two = (b: Bytes, at: number, i: number): number =>
  (b[at + 32 * (i >> 7) + (i & 31)]! >> (2 * ((i >> 5) & 3))) & 3;
/** Four bits of the j-th half of a byte. */
const four = (b: Bytes, at: number, j: number): number => (b[at + (j >> 1)]! >> (4 * (j & 1))) & 15;

/** The scale (shift 0) or min (shift 4) of 6 bits of 32 elements of Q4_K and Q5_K. */
const six = (b: Bytes, j: number, shift: 0 | 4): number =>
  j < 4 ? b[4 + j + shift]! & 63 : ((b[8 + j]! >> shift) & 15) | ((b[j + shift]! >> 6) << 4);

const NONLINEAR = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
const TWICE_E2M1 = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/** Sign i & 7 of seven bits and an eighth that makes the number of ones even. */
function signOf(seven: number, i: number): 1 | -1 {
  let ones = 0;
  for (let j = 0; j < 7; j++) ones += (seven >> j) & 1;
  return ((i & 7) < 7 ? (seven >> (i & 7)) & 1 : ones & 1) ? -1 : 1;
}

/** The digit of TQ1_0: `byte` holds base-3 digits as a fraction of 256. */
const digit = (byte: number, n: number): number => (((byte * 3 ** n) & 255) * 3) >> 8;

const K = { length: 256, part: 32 };
const K_16 = { length: 256, part: 16 };
const PLAIN = { length: 32, part: 32, scale: (b: Bytes) => half(b, 0) };
const of32 = (i: number) => i >> 5;
const of16 = (i: number) => i >> 4;
const of8 = (i: number) => i >> 3;

/** A block that was decoded, of so many bytes: a float32 scale, a float32 min if it has one, and 16 or 32 integers. */
function decoded(bytes: number): Type {
  const part = bytes < BLOCK ? BLOCK / 2 : BLOCK;
  const f32 = (b: Bytes, at: number): number => new DataView(b.buffer, b.byteOffset).getFloat32(at, true);
  return {
    ...{ length: part, part, bytes, scale: (b) => f32(b, 0), min: (b) => f32(b, 4) },
    integer: (b, i) => (b[bytes - part + i]! << 24) >> 24,
  };
}

/** Indices into `entries`. */
const indexed = (entries: readonly number[], index: (b: Bytes, i: number) => number) => ({
  ...{ entries, index, integer: (b: Bytes, i: number) => entries[index(b, i)]! },
});

/** The scale of IQ4_XS beside its float16. */
const signedSix = (b: Bytes, i: number) => four(b, 4, of32(i)) + 16 * ((u16(b, 2) >> (2 * of32(i))) & 3) - 32;

/** 2^(exponent - 128), and half of a float of four bits of an exponent and three of a fraction. */
const halfPower = (exponent: number): number => 2 ** (exponent - 128);
function halfE4M3(bits: number): number {
  const exponent = (bits >> 3) & 15;
  return exponent === 0 ? (bits & 7) * 2 ** -10 : (8 + (bits & 7)) * 2 ** (exponent - 11);
}

/** By their numbers in GGUF. */
const GGML_TYPES: Readonly<Record<number, Type>> = {
  [GGML_Q4_1]: { ...PLAIN, bytes: 20, integer: (b, i) => nibble(b, 4, i, 16), min: (b) => -half(b, 2) },
  [GGML_Q5_0]: { ...PLAIN, bytes: 22, integer: (b, i) => nibble(b, 6, i, 16) + 16 * bit(b, 2, i) - 16 },
  [GGML_Q5_1]: {
    ...{ ...PLAIN, bytes: 24, min: (b) => -half(b, 2) },
    integer: (b, i) => nibble(b, 8, i, 16) + 16 * bit(b, 4, i),
  },
  [GGML_Q2_K]: {
    ...{ ...K_16, bytes: 84, integer: (b, i) => two(b, 16, i) },
    scale: (b, i) => half(b, 80) * (b[of16(i)]! & 15),
    min: (b, i) => half(b, 82) * (b[of16(i)]! >> 4),
  },
  [GGML_Q3_K]: {
    ...{ ...K_16, bytes: 110, integer: (b, i) => two(b, 32, i) - ((b[i & 31]! >> of32(i)) & 1 ? 0 : 4) },
    scale(b, i) {
      const s = of16(i);
      const low = (b[96 + (s & 7)]! >> (s < 8 ? 0 : 4)) & 15;
      return half(b, 108) * (low + 16 * ((b[104 + (s & 3)]! >> (2 * (s >> 2))) & 3) - 32);
    },
  },
  [GGML_Q4_K]: {
    ...{ ...K, bytes: 144, integer: (b, i) => nibble(b, 16 + 32 * (i >> 6), i & 63, 32) },
    scale: (b, i) => half(b, 0) * six(b, of32(i), 0),
    min: (b, i) => half(b, 2) * six(b, of32(i), 4),
  },
  [GGML_Q5_K]: {
    ...{ ...K, bytes: 176 },
    integer: (b, i) => nibble(b, 48 + 32 * (i >> 6), i & 63, 32) + 16 * ((b[16 + (i & 31)]! >> of32(i)) & 1),
    scale: (b, i) => half(b, 0) * six(b, of32(i), 0),
    min: (b, i) => half(b, 2) * six(b, of32(i), 4),
  },
  [GGML_Q6_K]: {
    ...{ ...K_16, bytes: 210, integer: (b, i) => nibble(b, 64 * (i >> 7), i & 127, 64) + 16 * two(b, 128, i) - 32 },
    scale: (b, i) => half(b, 208) * ((b[192 + of16(i)]! << 24) >> 24),
  },
  [GGML_IQ4_NL]: {
    ...{ ...PLAIN, bytes: 18, bits: (b) => u16(b, 0) },
    ...indexed(NONLINEAR, (b, i) => nibble(b, 2, i, 16)),
  },
  [GGML_IQ4_XS]: {
    ...{ ...K, bytes: 136, scale: (b, i) => half(b, 0) * signedSix(b, i), bits: signedSix },
    ...indexed(NONLINEAR, (b, i) => nibble(b, 8 + 16 * of32(i), i & 31, 16)),
  },
  [GGML_MXFP4]: {
    ...{ length: 32, part: 32, bytes: 17, scale: (b) => halfPower(b[0]!), bits: (b) => b[0]! },
    ...indexed(TWICE_E2M1, (b, i) => nibble(b, 1, i, 16)),
  },
  [GGML_NVFP4]: {
    ...{ length: 64, part: 16, bytes: 36, bits: (b, i) => (b[of16(i)] === 127 ? 0 : b[of16(i)]! & 127) },
    scale: (b, i) => (b[of16(i)] === 127 ? 0 : halfE4M3(b[of16(i)]!)),
    ...indexed(TWICE_E2M1, (b, i) => nibble(b, 4 + 8 * of16(i), i & 15, 8)),
  },
  [GGML_TQ1_0]: {
    ...{ ...K, bytes: 54, scale: (b) => half(b, 52) },
    integer: (b, i) =>
      i < 160
        ? digit(b[i & 31]!, of32(i))
        : i < 240
          ? digit(b[32 + (i & 15)]!, of16(i) - 10)
          : digit(b[48 + (i & 3)]!, (i - 240) >> 2),
  },
  [GGML_TQ2_0]: { ...K, bytes: 66, integer: (b, i) => two(b, 0, i), scale: (b) => half(b, 64) },
  [GGML_I2_S]: {
    length: 128,
    part: 128,
    bytes: 32,
    before: 32,
    integer: (b, i) => (b[i & 31]! >> (6 - 2 * of32(i))) & 3,
  },
  [GGML_IQ1_S]: {
    ...{ ...K, bytes: 50, before: 2 ** 14 },
    integer(b, i, codebook) {
      const upper = u16(b, 34 + 2 * of32(i));
      const index = b[2 + of8(i)]! + 256 * ((upper >> (3 * (of8(i) & 3))) & 7);
      return 8 * codebook[8 * index + (i & 7)]! + (upper & 0x8000 ? -1 : 1);
    },
    scale: (b, i) => (half(b, 0) * (2 * ((u16(b, 34 + 2 * of32(i)) >> 12) & 7) + 1)) / 8,
  },
  [GGML_IQ1_M]: {
    ...{ ...K_16, bytes: 56, before: 2 ** 14 },
    integer(b, i, codebook) {
      const upper = four(b, 32, of8(i));
      return 8 * codebook[8 * (b[of8(i)]! + 256 * (upper & 7)) + (i & 7)]! + (upper & 8 ? -1 : 1);
    },
    scale(b, i) {
      const [w0, w1, w2, w3] = [u16(b, 48), u16(b, 50), u16(b, 52), u16(b, 54)];
      const d = widenF16((w0 >> 12) | ((w1 >> 8) & 0xf0) | ((w2 >> 4) & 0xf00) | (w3 & 0xf000));
      return (d * (2 * ((u16(b, 48 + 2 * (i >> 6)) >> (3 * (of16(i) & 3))) & 7) + 1)) / 8;
    },
  },
  [GGML_IQ2_XXS]: {
    ...{ ...K, bytes: 66, before: 2 ** 11 },
    integer(b, i, codebook) {
      const seven = Math.floor(u32(b, 6 + 8 * of32(i)) / 2 ** (7 * (of8(i) & 3))) & 127;
      return signOf(seven, i) * codebook[8 * b[2 + 8 * of32(i) + (of8(i) & 3)]! + (i & 7)]!;
    },
    scale: (b, i) => (half(b, 0) * (2 * (b[9 + 8 * of32(i)]! >> 4) + 1)) / 8,
  },
  [GGML_IQ2_XS]: {
    ...{ ...K_16, bytes: 74, before: 2 ** 12 },
    integer(b, i, codebook) {
      const word = u16(b, 2 + 2 * of8(i));
      return signOf(word >> 9, i) * codebook[8 * (word & 511) + (i & 7)]!;
    },
    scale: (b, i) => (half(b, 0) * (2 * four(b, 66, of16(i)) + 1)) / 8,
  },
  [GGML_IQ2_S]: {
    ...{ ...K_16, bytes: 82, before: 2 ** 13 },
    integer(b, i, codebook) {
      const index = b[2 + of8(i)]! + 256 * ((b[66 + of32(i)]! >> (2 * (of8(i) & 3))) & 3);
      return (1 - 2 * bit(b, 34, i)) * codebook[8 * index + (i & 7)]!;
    },
    scale: (b, i) => (half(b, 0) * (2 * four(b, 74, of16(i)) + 1)) / 8,
  },
  [GGML_IQ3_XXS]: {
    ...{ ...K, bytes: 98, before: 2 ** 10 },
    integer(b, i, codebook) {
      const seven = Math.floor(u32(b, 66 + 4 * of32(i)) / 2 ** (7 * (of8(i) & 3))) & 127;
      return signOf(seven, i) * codebook[4 * b[2 + (i >> 2)]! + (i & 3)]!;
    },
    scale: (b, i) => (half(b, 0) * (2 * (b[69 + 4 * of32(i)]! >> 4) + 1)) / 4,
  },
  [GGML_IQ3_S]: {
    ...{ ...K, bytes: 110, before: 2 ** 11 },
    integer: (b, i, codebook) =>
      (1 - 2 * bit(b, 74, i)) * codebook[4 * (b[2 + (i >> 2)]! + 256 * bit(b, 66, i >> 2)) + (i & 3)]!,
    scale: (b, i) => half(b, 0) * (2 * four(b, 106, of32(i)) + 1),
  },
};

/** What the element at input i of a row is made of; `part` elements share a scale. */
interface StoredMatrix {
  readonly part: number;
  integer(row: number, i: number): number;
  scale(row: number, i: number): number;
  index(row: number, i: number): number;
  bits(row: number, i: number): number;
  /** The 16 bits at the beginning of its block. */
  unit(row: number, i: number): number;
  min(row: number, i: number): number;
}

/** A matrix [n, k] in blocks of a type. */
export function matrixOf(from: Uint8Array, k: number, type: number): StoredMatrix {
  const { length, bytes, part, before = 0, integer, scale, index, bits, min } = GGML_TYPES[type] ?? decoded(-type);
  const codebook = new Int8Array(from.buffer, from.byteOffset, before);
  const blockOf = (row: number, i: number) => from.subarray(before + ((row * k + i - (i % length)) / length) * bytes);
  return {
    part,
    integer: (row, i) => integer(blockOf(row, i), i % length, codebook),
    scale: (row, i) =>
      scale ? scale(blockOf(row, i), i % length) : new DataView(from.buffer, from.byteOffset).getFloat32(0, true),
    index: (row, i) => index?.(blockOf(row, i), i % length) ?? 0,
    bits: (row, i) => bits?.(blockOf(row, i), i % length) ?? 0,
    unit: (row, i) => u16(blockOf(row, i), 0),
    min: (row, i) => min?.(blockOf(row, i), i % length) ?? 0,
  };
}

/** A packed matrix of indices into the 16 integers of a type: its scales by their bits. */
interface PackedIndices extends Pick<Packed, "block" | "group" | "fastGroup" | "scale" | "weight"> {
  setScale(n: number, i: number, bits: number): void;
  setUnit(n: number, i: number, half: number): void;
  setNibble(n: number, i: number, nibble: number): void;
}

/**
 * [panels] of scales [K / group][8], a float16 each in IQ4_NL, else a byte, in IQ4_XS behind [K / 256][8] float16 by which they count; and
 * [K / 32] blocks of nibbles as packedQ4 has them.
 */
export function packedCodebook(bytes: Uint8Array, k: number, type: number): PackedIndices {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const group = type === GGML_NVFP4 ? BLOCK / 2 : BLOCK;
  const units = type === GGML_IQ4_XS ? 2 * PANEL * (k / SUPER_BLOCK) : 0;
  const width = type === GGML_IQ4_NL ? 2 : 1;
  const head = units + width * PANEL * (k / group);
  const panel = (n: number) => Math.floor(n / PANEL) * (head + (PANEL * k) / 2);
  const unitAt = (n: number, i: number) => panel(n) + 2 * (PANEL * Math.floor(i / SUPER_BLOCK) + (n % PANEL));
  const scaleAt = (n: number, i: number) => panel(n) + units + width * (PANEL * Math.floor(i / group) + (n % PANEL));
  const half = (at: number) => widenF16(view.getUint16(at, true));
  const { nibble, setNibble } = nibblesOf(view, (n, i) => panel(n) + head + 128 * Math.floor(i / BLOCK));
  const entries = GGML_TYPES[type]?.entries ?? [];
  return {
    ...{ block: group, group, fastGroup: group, setNibble },
    scale(n, i) {
      if (type === GGML_IQ4_NL) return half(scaleAt(n, i));
      if (type === GGML_IQ4_XS) return half(unitAt(n, i)) * view.getInt8(scaleAt(n, i));
      return (type === GGML_MXFP4 ? halfPower : halfE4M3)(view.getUint8(scaleAt(n, i)));
    },
    setScale: (n, i, bits) =>
      width === 2 ? view.setUint16(scaleAt(n, i), bits, true) : view.setUint8(scaleAt(n, i), bits),
    setUnit: (n, i, half) => view.setUint16(unitAt(n, i), half, true),
    weight: (n, i) => entries[nibble(n, i)]!,
  };
}
