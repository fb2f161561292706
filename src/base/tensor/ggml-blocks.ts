// The blocks of GGUF's formats beside Q8_0 and Q4_0 as floats, and as blocks that kernels pack: integers with a scale, some with a
// minimum, for each 16 or 32 elements, and indices into codebooks. Layouts and values are those of ggml (ggml-common.h and the
// reference dequantisation of gguf-py); a block lies along the last dimension.

import {
  type BlockTensor,
  CODED_BLOCKS,
  type CodedDtype,
  codeBits,
  decodedOf,
  type FILE_BLOCKS,
  narrowF16,
} from "./dtypes.ts";
import { ELEMENTS } from "./ggml-codebooks.ts";

/** Names of the formats. */
export type GgmlDtype =
  | "IQ1_M"
  | "IQ1_S"
  | "IQ2_S"
  | "IQ2_XS"
  | "IQ2_XXS"
  | "IQ3_S"
  | "IQ3_XXS"
  | "IQ4_NL"
  | "IQ4_XS"
  | "I2_S"
  | "MXFP4"
  | "NVFP4"
  | "Q1_0"
  | "Q2_0"
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

/** A block as numbers: element i is scales[s]·integers[i] - mins[s], where s is its part. */
interface Parts {
  readonly scales: Float64Array;
  readonly mins: Float64Array;
  readonly integers: Int8Array;
}

/** A format: its number, elements and bytes of a block, the form that holds it without loss, and how a block at `at` is read. */
interface GgmlFormat {
  readonly type: number;
  /** What the indices of a block are into. */
  readonly codebook?: keyof typeof ELEMENTS;
  readonly length: number;
  readonly bytes: number;
  readonly coded: CodedDtype;
  /** Bytes behind all blocks of a tensor, which begin with a float32 that is their scale. */
  readonly tail?: number;
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
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN;
  return sign * (1024 + fraction) * 2 ** (exponent - 25);
}

/** 16-bit and 32-bit integers, the lowest byte first. */
const uint16 = (bytes: Uint8Array, at: number): number => bytes[at]! | (bytes[at + 1]! << 8);
const uint32 = (bytes: Uint8Array, at: number): number => uint16(bytes, at) | (uint16(bytes, at + 2) << 16);
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

/** Ternary digits less 1 of bytes of base 3, of which byte · 3^n holds digit n at the top: `count` bytes, `digits` of each in turn. */
function ternary(integers: Int8Array, to: number, block: Uint8Array, at: number, count: number, digits: number): void {
  for (let n = 0, power = 1; n < digits; n++, power *= 3)
    for (let j = 0; j < count; j++) integers[to++] = ((((block[at + j]! * power) & 255) * 3) >> 8) - 1;
}

/** Seven signs and an eighth that makes the number of minuses even. */
function evenSigns(seven: number): number {
  let parity = seven ^ (seven >> 4);
  parity ^= parity >> 2;
  return seven | (((parity ^ (parity >> 1)) & 1) << 7);
}

/** integers[to..] = entry `index` of a codebook, negative where a bit of `signs` is set. */
function place(
  { integers }: Parts,
  to: number,
  elements: Int8Array,
  digits: 4 | 8,
  index: number,
  signs: number,
): void {
  for (let j = 0; j < digits; j++) {
    const element = elements[digits * index + j] as number;
    integers[to + j] = (signs >> j) & 1 ? -element : element;
  }
}

/** integers[to..to + 7] = 8 times entry `index` of the codebook of IQ1, plus 1, or minus 1: the scale is an eighth. */
function placeShifted({ integers }: Parts, to: number, index: number, minus: boolean): void {
  const elements = ELEMENTS.IQ1();
  for (let j = 0; j < 8; j++) integers[to + j] = 8 * (elements[8 * index + j] as number) + (minus ? -1 : 1);
}

/** 16 scales of 4 bits: d·(scale + 1/2) / 4. */
function quarterScales({ scales }: Parts, d: number, block: Uint8Array, at: number): void {
  for (let s = 0; s < 16; s++)
    scales[s] = (d * (0.5 + (((block[at + (s >> 1)] as number) >> ((s & 1) << 2)) & 15))) / 4;
}

/** The formats by name. */
export const GGML_FORMATS: Readonly<Record<GgmlDtype, GgmlFormat>> = {
  /** Scale d, minimum m, 16 bytes of nibbles: d·q + m. */
  Q4_1: {
    type: 3,
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
    type: 6,
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
    type: 7,
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
    type: 10,
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
    type: 11,
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
    type: 12,
    length: 256,
    bytes: 144,
    coded: "I4_K",
    read(parts, block, at) {
      readScales(parts, block, at);
      for (let j = 0; j < 4; j++) nibbles(parts.integers, 64 * j, block, at + 16 + 32 * j, 32, (q) => q);
    },
  },
  /** The same with a fifth bit: bit j of byte i for element i of part j. */
  Q5_K: {
    type: 13,
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
    type: 14,
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
    type: 20,
    length: 32,
    bytes: 18,
    coded: "I4_NL",
    read({ scales, integers }, block, at) {
      scales[0] = half(block, at);
      nibbles(integers, 0, block, at + 2, 16, (q) => NONLINEAR[q]!);
    },
  },
  /** d, 8 scales of 6 bits, indices as in IQ4_NL: d·(scale - 32)·value. */
  IQ4_XS: {
    type: 23,
    length: 256,
    bytes: 136,
    coded: "I4_XS",
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
    type: 34,
    length: 256,
    bytes: 54,
    coded: "I2_64",
    read({ scales, integers }, block, at) {
      scales.fill(half(block, at + 52));
      ternary(integers, 0, block, at, 32, 5);
      ternary(integers, 160, block, at + 32, 16, 5);
      ternary(integers, 240, block, at + 48, 4, 4);
    },
  },
  /** Ternary digits of 2 bits, then d: d·(digit - 1). */
  TQ2_0: {
    type: 35,
    length: 256,
    bytes: 66,
    coded: "I2_64",
    read({ scales, integers }, block, at) {
      scales.fill(half(block, at + 64));
      for (let i = 0; i < 256; i++) integers[i] = twoBits(block, at, i) - 1;
    },
  },
  /** Digits of 2 bits as bitnet.cpp has them on x86, the highest first: element 32·l + m of 128 is in byte m. */
  I2_S: {
    type: 36,
    length: 128,
    bytes: 32,
    coded: "I2_ROW",
    tail: 32,
    read({ integers }, block, at) {
      for (let i = 0; i < 128; i++) integers[i] = ((block[at + (i & 31)]! >> (6 - ((i >> 5) << 1))) & 3) - 1;
    },
  },
  /** Scale d, bits: -d or d. */
  Q1_0: {
    type: 41,
    length: 128,
    bytes: 18,
    coded: "I1_128",
    read({ scales, integers }, block, at) {
      scales[0] = half(block, at);
      for (let i = 0; i < 128; i++) integers[i] = 2 * ((block[at + 2 + (i >> 3)]! >> (i & 7)) & 1) - 1;
    },
  },
  /** Scale d, 2 bits: d·(q - 1). */
  Q2_0: {
    type: 42,
    length: 64,
    bytes: 18,
    coded: "I2_64",
    read({ scales, integers }, block, at) {
      scales[0] = half(block, at);
      for (let i = 0; i < 64; i++) integers[i] = ((block[at + 2 + (i >> 2)]! >> ((i & 3) << 1)) & 3) - 1;
    },
  },
  /** An exponent e, nibbles of E2M1: 2^(e - 127)·value. */
  MXFP4: {
    type: 39,
    length: 32,
    bytes: 17,
    coded: "I4_MX",
    read({ scales, integers }, block, at) {
      scales[0] = 2 ** (block[at]! - 128);
      nibbles(integers, 0, block, at + 1, 16, (q) => TWICE_E2M1[q]!);
    },
  },
  /** Four scales as floats of 4 exponent and 3 fraction bits, whose pattern of ones is 0, nibbles of E2M1 for 16 elements each. */
  NVFP4: {
    type: 40,
    length: 64,
    bytes: 36,
    coded: "I4_NV",
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
  /** d, 32 low bytes of indices, and for each 32 elements their upper bits, a sign of the shift, and a scale. */
  IQ1_S: {
    type: 19,
    codebook: "IQ1",
    length: 256,
    bytes: 50,
    coded: "I8_32",
    read(parts, block, at) {
      const d = half(block, at);
      for (let s = 0; s < 8; s++) {
        const upper = uint16(block, at + 34 + 2 * s);
        parts.scales[s] = (d * (2 * ((upper >> 12) & 7) + 1)) / 8;
        for (let l = 0; l < 4; l++) {
          const index = (block[at + 2 + 4 * s + l] as number) | (((upper >> (3 * l)) & 7) << 8);
          placeShifted(parts, 32 * s + 8 * l, index, (upper & 0x8000) !== 0);
        }
      }
    },
  },
  /** Low bytes of indices; their upper bits and signs of shifts, two a byte; 16 scales of 3 bits, and between them d. */
  IQ1_M: {
    type: 29,
    codebook: "IQ1",
    length: 256,
    bytes: 56,
    coded: "I8_16",
    read(parts, block, at) {
      const words = [48, 50, 52, 54].map((from) => uint16(block, at + from)) as [number, number, number, number];
      const bits = (words[0] >> 12) | ((words[1] >> 8) & 0xf0) | ((words[2] >> 4) & 0xf00) | (words[3] & 0xf000);
      const d = half(Uint8Array.of(bits & 255, bits >> 8), 0);
      for (let s = 0; s < 16; s++)
        parts.scales[s] = (d * (2 * (((words[s >> 2] as number) >> (3 * (s & 3))) & 7) + 1)) / 8;
      for (let j = 0; j < 32; j++) {
        const four = ((block[at + 32 + (j >> 1)] as number) >> ((j & 1) << 2)) & 15;
        placeShifted(parts, 8 * j, (block[at + j] as number) | ((four & 7) << 8), (four & 8) !== 0);
      }
    },
  },
  /** d, and for each 32 elements four indices, four times seven signs, and a scale. */
  IQ2_XXS: {
    type: 16,
    codebook: "IQ2_XXS",
    length: 256,
    bytes: 66,
    coded: "I8_32",
    read(parts, block, at) {
      const d = half(block, at);
      for (let s = 0; s < 8; s++) {
        const from = at + 2 + 8 * s;
        const rest = uint32(block, from + 4);
        parts.scales[s] = (d * (0.5 + (rest >>> 28))) / 4;
        for (let l = 0; l < 4; l++)
          place(
            parts,
            32 * s + 8 * l,
            ELEMENTS.IQ2_XXS(),
            8,
            block[from + l] as number,
            evenSigns((rest >> (7 * l)) & 127),
          );
      }
    },
  },
  /** d, 32 indices of 9 bits with seven signs each, 16 scales. */
  IQ2_XS: {
    type: 17,
    codebook: "IQ2_XS",
    length: 256,
    bytes: 74,
    coded: "I8_16",
    read(parts, block, at) {
      quarterScales(parts, half(block, at), block, at + 66);
      for (let j = 0; j < 32; j++) {
        const word = uint16(block, at + 2 + 2 * j);
        place(parts, 8 * j, ELEMENTS.IQ2_XS(), 8, word & 511, evenSigns(word >> 9));
      }
    },
  },
  /** d, 32 low bytes of indices, eight signs each, their upper bits, 16 scales. */
  IQ2_S: {
    type: 22,
    codebook: "IQ2_S",
    length: 256,
    bytes: 82,
    coded: "I8_16",
    read(parts, block, at) {
      quarterScales(parts, half(block, at), block, at + 74);
      for (let j = 0; j < 32; j++) {
        const upper = ((block[at + 66 + (j >> 2)] as number) >> ((j & 3) << 1)) & 3;
        place(
          parts,
          8 * j,
          ELEMENTS.IQ2_S(),
          8,
          (block[at + 2 + j] as number) | (upper << 8),
          block[at + 34 + j] as number,
        );
      }
    },
  },
  /** d, 64 indices of 4 elements, and for each 32 four times seven signs and a scale. */
  IQ3_XXS: {
    type: 18,
    codebook: "IQ3_XXS",
    length: 256,
    bytes: 98,
    coded: "I8_32",
    read(parts, block, at) {
      const d = half(block, at);
      for (let s = 0; s < 8; s++) {
        const rest = uint32(block, at + 66 + 4 * s);
        parts.scales[s] = (d * (0.5 + (rest >>> 28))) / 2;
        for (let l = 0; l < 8; l++) {
          const signs = evenSigns((rest >> (7 * (l >> 1))) & 127) >> ((l & 1) << 2);
          place(parts, 32 * s + 4 * l, ELEMENTS.IQ3_XXS(), 4, block[at + 2 + 8 * s + l] as number, signs);
        }
      }
    },
  },
  /** d, 64 low bytes of indices of 4 elements, their ninth bits, signs, 8 scales: d·(2·scale + 1). */
  IQ3_S: {
    type: 21,
    codebook: "IQ3_S",
    length: 256,
    bytes: 110,
    coded: "I8_32",
    read(parts, block, at) {
      const d = half(block, at);
      for (let s = 0; s < 8; s++)
        parts.scales[s] = d * (1 + 2 * (((block[at + 106 + (s >> 1)] as number) >> ((s & 1) << 2)) & 15));
      for (let j = 0; j < 64; j++) {
        const ninth = ((block[at + 66 + (j >> 3)] as number) >> (j & 7)) & 1;
        const signs = (block[at + 74 + (j >> 1)] as number) >> ((j & 1) << 2);
        place(parts, 4 * j, ELEMENTS.IQ3_S(), 4, (block[at + 2 + j] as number) | (ninth << 8), signs);
      }
    },
  },
};

/** Whether a word names one of them. */
export function isGgmlDtype(word: string): word is GgmlDtype {
  return Object.hasOwn(GGML_FORMATS, word);
}

/** Calls `take` with each block, as numbers that the next one overwrites, and with its first element. `tail` are the bytes behind all. */
function eachBlock(
  { length, bytes, read }: GgmlFormat,
  blocks: Uint8Array,
  tail: Uint8Array,
  take: (parts: Parts, to: number) => void,
): void {
  const parts = { scales: new Float64Array(16), mins: new Float64Array(16), integers: new Int8Array(length) };
  if (tail.length > 0) parts.scales.fill(new DataView(tail.buffer, tail.byteOffset).getFloat32(0, true));
  for (let at = 0, to = 0; at < blocks.length; at += bytes, to += length) {
    read(parts, blocks, at);
    take(parts, to);
  }
}

/** Whole blocks as floats, in `out`. Products and differences are rounded once, where they are not exact. */
export function widenGgml(dtype: GgmlDtype, blocks: Uint8Array, tail: Uint8Array, out: Float32Array): void {
  const { length, coded } = GGML_FORMATS[dtype];
  const part = CODED_BLOCKS[decodedOf(coded)].length;
  eachBlock(GGML_FORMATS[dtype], blocks, tail, ({ scales, mins, integers }, to) => {
    for (let s = 0, i = 0; i < length; s++) {
      const [scale, min] = [scales[s]!, mins[s]!];
      for (const end = i + part; i < end; i++) out[to + i] = scale * integers[i]! - min;
    }
  });
}

/** Whole blocks in a coded dtype. Scales and minimums are exact: they have at most 19 significant bits. */
function codeGgml(dtype: GgmlDtype, coded: CodedDtype, blocks: Uint8Array, tail: Uint8Array): Uint8Array {
  const { length } = GGML_FORMATS[dtype];
  const { length: part, bytes } = CODED_BLOCKS[coded];
  const out = new Uint8Array((blocks.length / GGML_FORMATS[dtype].bytes) * (length / part) * bytes);
  const view = new DataView(out.buffer);
  const withMin = bytes - part > 4;
  let at = 0;
  eachBlock(GGML_FORMATS[dtype], blocks, tail, ({ scales, mins, integers }) => {
    for (let s = 0; s * part < length; s++, at += bytes) {
      if (codeBits(coded) < 8) {
        const [scale] = new Uint32Array(Float32Array.of(scales[s]!).buffer);
        if (coded === "I2_ROW") view.setFloat32(at, scales[s]!, true);
        else view.setUint16(at, narrowF16(scale as number), true);
        // Two bits each: Q1_0 is never decoded.
        for (let i = 0; i < part; i++)
          out[at + bytes - 16 + (i >> 2)]! |= (integers[s * part + i]! + 1) << ((i & 3) << 1);
        continue;
      }
      view.setFloat32(at, scales[s]!, true);
      if (withMin) view.setFloat32(at + 4, mins[s]!, true);
      for (let i = 0; i < part; i++) out[at + bytes - part + i] = integers[s * part + i]!;
    }
  });
  return out;
}

/** Whole blocks as kernels take them; undefined for those of codes that lie in their coded dtype already. */
export function ggmlBlocks(dtype: GgmlDtype, tail: Uint8Array): BlockTensor[typeof FILE_BLOCKS] {
  if (dtype === "Q1_0" || dtype === "Q2_0") return undefined;
  const { type, length, bytes: stride, codebook } = GGML_FORMATS[dtype];
  return {
    ...{ type, width: stride / length },
    before: codebook ? new Uint8Array(ELEMENTS[codebook]().buffer) : tail,
    code({ name, shape, bytes }) {
      const coded = decodedOf(GGML_FORMATS[dtype].coded);
      return { name, dtype: coded, shape, bytes: codeGgml(dtype, coded, bytes, tail) };
    },
  };
}
