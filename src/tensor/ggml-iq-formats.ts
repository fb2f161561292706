// GGUF's formats of one to three bits, whose indices stand for 4 or 8 elements of a codebook each.

import { type CodebookName, entriesOf } from "./ggml-codebooks.ts";
import { type GgmlFormat, half, type Parts, uint16, uint32 } from "./ggml-formats.ts";

/** Names of the formats. */
export type IqDtype = "IQ1_M" | "IQ1_S" | "IQ2_S" | "IQ2_XS" | "IQ2_XXS" | "IQ3_S" | "IQ3_XXS";

/** What the digits of an entry stand for. */
const TERNARY = [-1, 0, 1] as const;
const THREE = [8, 25, 43] as const;
const EIGHT = [4, 12, 20, 28, 36, 44, 52, 62] as const;
const ODD = [1, 3, 5, 7, 9, 11, 13, 15] as const;

/**
 * The elements of a codebook's entries one after the other, made when they are first needed. Calls are marked as pure, so that bundles
 * that read no GGUF leave codebooks out.
 */
function elementsOf(name: CodebookName, digits: 4 | 8, values: readonly number[]): () => Int8Array {
  let elements: Int8Array | undefined;
  return () => {
    if (elements) return elements;
    const bits = 16 / digits;
    const entries = entriesOf(name);
    elements = new Int8Array(digits * entries.length);
    for (const [i, entry] of entries.entries())
      for (let j = 0; j < digits; j++)
        elements[digits * i + j] = values[(entry >> (bits * j)) & ((1 << bits) - 1)] as number;
    return elements;
  };
}

const IQ1 = /* @__PURE__ */ elementsOf("IQ1", 8, TERNARY);
const IQ2_XXS = /* @__PURE__ */ elementsOf("IQ2_XXS", 8, THREE);
const IQ2_XS = /* @__PURE__ */ elementsOf("IQ2_XS", 8, THREE);
const IQ2_S = /* @__PURE__ */ elementsOf("IQ2_S", 8, THREE);
const IQ3_XXS = /* @__PURE__ */ elementsOf("IQ3_XXS", 4, EIGHT);
const IQ3_S = /* @__PURE__ */ elementsOf("IQ3_S", 4, ODD);

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
  const elements = IQ1();
  for (let j = 0; j < 8; j++) integers[to + j] = 8 * (elements[8 * index + j] as number) + (minus ? -1 : 1);
}

/** 16 scales of 4 bits: d·(scale + 1/2) / 4. */
function quarterScales({ scales }: Parts, d: number, block: Uint8Array, at: number): void {
  for (let s = 0; s < 16; s++)
    scales[s] = (d * (0.5 + (((block[at + (s >> 1)] as number) >> ((s & 1) << 2)) & 15))) / 4;
}

export const IQ_FORMATS: Readonly<Record<IqDtype, GgmlFormat>> = {
  /** d, 32 low bytes of indices, and for each 32 elements their upper bits, a sign of the shift, and a scale. */
  IQ1_S: {
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
          place(parts, 32 * s + 8 * l, IQ2_XXS(), 8, block[from + l] as number, evenSigns((rest >> (7 * l)) & 127));
      }
    },
  },
  /** d, 32 indices of 9 bits with seven signs each, 16 scales. */
  IQ2_XS: {
    length: 256,
    bytes: 74,
    coded: "I8_16",
    read(parts, block, at) {
      quarterScales(parts, half(block, at), block, at + 66);
      for (let j = 0; j < 32; j++) {
        const word = uint16(block, at + 2 + 2 * j);
        place(parts, 8 * j, IQ2_XS(), 8, word & 511, evenSigns(word >> 9));
      }
    },
  },
  /** d, 32 low bytes of indices, eight signs each, their upper bits, 16 scales. */
  IQ2_S: {
    length: 256,
    bytes: 82,
    coded: "I8_16",
    read(parts, block, at) {
      quarterScales(parts, half(block, at), block, at + 74);
      for (let j = 0; j < 32; j++) {
        const upper = ((block[at + 66 + (j >> 2)] as number) >> ((j & 3) << 1)) & 3;
        place(parts, 8 * j, IQ2_S(), 8, (block[at + 2 + j] as number) | (upper << 8), block[at + 34 + j] as number);
      }
    },
  },
  /** d, 64 indices of 4 elements, and for each 32 four times seven signs and a scale. */
  IQ3_XXS: {
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
          place(parts, 32 * s + 4 * l, IQ3_XXS(), 4, block[at + 2 + 8 * s + l] as number, signs);
        }
      }
    },
  },
  /** d, 64 low bytes of indices of 4 elements, their ninth bits, signs, 8 scales: d·(2·scale + 1). */
  IQ3_S: {
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
        place(parts, 4 * j, IQ3_S(), 4, (block[at + 2 + j] as number) | (ninth << 8), signs);
      }
    },
  },
};
