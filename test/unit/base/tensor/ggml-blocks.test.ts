// Blocks of GGUF that are widened: each is written bit by bit from known integers, and read back through a file.

import { expect, test } from "vitest";
import { GGML_FORMATS } from "../../../../src/base/tensor/ggml-blocks.ts";
import { openGguf, toFloats } from "../../../../src/entries/weights.ts";
import { createRandom, type Random } from "../../../../src/tools/diagnostics/random.ts";
import { toF16, writeGguf } from "../../../support/gguf-writer.ts";

const BLOCKS = 3;
const SCALES = [0.5, -0.0625, 2 ** -24, 0, 1.5] as const;

/** A block that is written: the bits of integers at bytes and shifts, and float16 numbers. */
class Block {
  readonly bytes: Uint8Array;
  readonly #random: Random;
  constructor(random: Random, length: number) {
    this.#random = random;
    this.bytes = new Uint8Array(length);
  }
  /** Puts `bits` of `value` at a bit of a byte. They stay within it. */
  put(byte: number, shift: number, value: number, bits: number): void {
    this.bytes[byte] = this.bytes[byte]! | ((value & ((1 << bits) - 1)) << shift);
  }
  /** The same for bits of several bytes, the lowest first. */
  spread(byte: number, shift: number, value: number): void {
    for (let at = byte, left = value * 2 ** shift; left > 0; at++, left = Math.floor(left / 256))
      this.bytes[at] = this.bytes[at]! | (left % 256);
  }
  half(byte: number): number {
    const value = SCALES[this.#random.int(0, SCALES.length - 1)] as number;
    const bits = toF16(value);
    this.bytes.set([bits & 255, bits >> 8], byte);
    return value;
  }
  /** Integers of 0 to `most`, each put where `place` says. */
  integers(count: number, most: number, place: (i: number, value: number) => void): number[] {
    return Array.from({ length: count }, (_, i) => {
      const value = this.#random.int(0, most);
      place(i, value);
      return value;
    });
  }
  /** 4 bits each, the first half of `count` low and the second high, from `byte` on. */
  nibbles(byte: number, count: number): number[] {
    return this.integers(count, 15, (i, q) => this.put(byte + (i % (count / 2)), i < count / 2 ? 0 : 4, q, 4));
  }
  /** Scales and minima of Q4_K and Q5_K. */
  sixBits(byte: number): { scales: number[]; mins: number[] } {
    const place = (from: number, shift: number) => (j: number, value: number) => {
      if (j < 4) return this.put(byte + from + j, 0, value, 6);
      this.put(byte + 4 + j, shift, value, 4);
      this.put(byte + from + j - 4, 6, value >> 4, 2);
    };
    return { scales: this.integers(8, 63, place(0, 0)), mins: this.integers(8, 63, place(4, 4)) };
  }
}

const f32 = Math.fround;
const signed = (byte: number) => (byte << 24) >> 24;
const NONLINEAR = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
const E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6];

/** Entries of the codebooks that ggml publishes, as numbers of 16 bits by their indices, and what their digits stand for. */
const CODEBOOKS = {
  IQ1: { 0: 0, 1: 2, 4: 0xa, 5: 0x11, 2047: 0xaaaa },
  IQ2_XXS: { 0: 0, 2: 5, 4: 0xa, 255: 0xa904 },
  IQ2_XS: { 0: 0, 2: 5, 5: 0x11, 511: 0xaaaa },
  IQ2_S: { 0: 0, 1: 2, 9: 0x20, 1023: 0xaaaa },
  IQ3_XXS: { 0: 0, 1: 2, 3: 0x11, 255: 0x7630 },
  IQ3_S: { 0: 0, 1: 1, 3: 5, 511: 0x7700 },
} as const;
const DIGITS = {
  IQ1: [-1, 0, 1],
  IQ2: [8, 25, 43],
  IQ3_XXS: [4, 12, 20, 28, 36, 44, 52, 62],
  IQ3_S: [1, 3, 5, 7, 9, 11, 13, 15],
};

/** An entry that is known: its index and its elements. */
function known(random: Random, name: keyof typeof CODEBOOKS): readonly [index: number, elements: number[]] {
  const entries = Object.entries(CODEBOOKS[name]);
  const [index, entry] = entries[random.int(0, entries.length - 1)] as [string, number];
  const values = name.startsWith("IQ2") ? DIGITS.IQ2 : DIGITS[name as "IQ1" | "IQ3_XXS" | "IQ3_S"];
  const bits = name.startsWith("IQ3") ? 4 : 2;
  const elements = Array.from({ length: 16 / bits }, (_, j) => values[(entry >> (bits * j)) % 2 ** bits] as number);
  return [Number(index), elements];
}

/** Seven signs, and the eighth with which minuses are even in number. */
function signsOf(random: Random): readonly [seven: number, signs: number[]] {
  const seven = Array.from({ length: 7 }, () => random.int(0, 1));
  const odd = seven.reduce((sum, minus) => sum + minus, 0) % 2;
  return [seven.reduce((all, minus, j) => all + minus * 2 ** j, 0), [...seven, odd].map((minus) => 1 - 2 * minus)];
}

/** The scale of a tensor of I2_S, which stands behind all of its blocks. */
const TAIL_SCALE = f32(-0.7);
const TAIL = new Uint8Array(32);
new DataView(TAIL.buffer).setFloat32(0, TAIL_SCALE, true);

/** By name: the number of the type, elements and bytes of a block, and what writes a block and gives its values. */
const FORMATS: Readonly<Record<string, readonly [number, number, number, (block: Block, random: Random) => number[]]>> =
  {
    Q4_1: [
      3,
      32,
      20,
      (b) => {
        const [d, m] = [b.half(0), b.half(2)];
        return b.nibbles(4, 32).map((q) => f32(d * q + m));
      },
    ],
    Q5_0: [
      6,
      32,
      22,
      (b) => {
        const d = b.half(0);
        const fifth = b.integers(32, 1, (i, q) => b.put(2 + (i >> 3), i & 7, q, 1));
        return b.nibbles(6, 32).map((q, i) => d * (q + 16 * fifth[i]! - 16));
      },
    ],
    Q5_1: [
      7,
      32,
      24,
      (b) => {
        const [d, m] = [b.half(0), b.half(2)];
        const fifth = b.integers(32, 1, (i, q) => b.put(4 + (i >> 3), i & 7, q, 1));
        return b.nibbles(8, 32).map((q, i) => f32(d * (q + 16 * fifth[i]!) + m));
      },
    ],
    Q2_K: [
      10,
      256,
      84,
      (b) => {
        const [d, min] = [b.half(80), b.half(82)];
        const scales = b.integers(16, 15, (j, s) => b.put(j, 0, s, 4));
        const mins = b.integers(16, 15, (j, s) => b.put(j, 4, s, 4));
        const q = b.integers(256, 3, (i, v) => b.put(16 + 32 * (i >> 7) + (i % 32), 2 * ((i >> 5) % 4), v, 2));
        return q.map((v, i) => f32(f32(d * scales[i >> 4]!) * v - f32(min * mins[i >> 4]!)));
      },
    ],
    Q3_K: [
      11,
      256,
      110,
      (b) => {
        const d = b.half(108);
        const third = b.integers(256, 1, (i, v) => b.put(i % 32, i >> 5, v, 1));
        const q = b.integers(256, 3, (i, v) => b.put(32 + 32 * (i >> 7) + (i % 32), 2 * ((i >> 5) % 4), v, 2));
        const scales = b.integers(16, 63, (j, s) => {
          b.put(96 + (j % 8), j < 8 ? 0 : 4, s, 4);
          b.put(104 + (j % 4), 2 * (j >> 2), s >> 4, 2);
        });
        return q.map((v, i) => f32(d * (scales[i >> 4]! - 32) * (v + 4 * third[i]! - 4)));
      },
    ],
    Q4_K: [
      12,
      256,
      144,
      (b) => {
        const [d, min, { scales, mins }] = [b.half(0), b.half(2), b.sixBits(4)];
        const q = b.integers(256, 15, (i, v) => b.put(16 + 32 * (i >> 6) + (i % 32), 4 * ((i >> 5) % 2), v, 4));
        return q.map((v, i) => f32(f32(d * scales[i >> 5]!) * v - f32(min * mins[i >> 5]!)));
      },
    ],
    Q5_K: [
      13,
      256,
      176,
      (b) => {
        const [d, min, { scales, mins }] = [b.half(0), b.half(2), b.sixBits(4)];
        const fifth = b.integers(256, 1, (i, v) => b.put(16 + (i % 32), i >> 5, v, 1));
        const q = b.integers(256, 15, (i, v) => b.put(48 + 32 * (i >> 6) + (i % 32), 4 * ((i >> 5) % 2), v, 4));
        return q.map((v, i) => f32(f32(d * scales[i >> 5]!) * (v + 16 * fifth[i]!) - f32(min * mins[i >> 5]!)));
      },
    ],
    Q6_K: [
      14,
      256,
      210,
      (b) => {
        const d = b.half(208);
        const q = b.integers(256, 63, (i, v) => {
          const part = (i >> 5) % 4;
          b.put(64 * (i >> 7) + 32 * (part % 2) + (i % 32), part < 2 ? 0 : 4, v, 4);
          b.put(128 + 32 * (i >> 7) + (i % 32), 2 * part, v >> 4, 2);
        });
        const scales = b.integers(16, 255, (j, s) => b.put(192 + j, 0, s, 8));
        return q.map((v, i) => f32(d * signed(scales[i >> 4]!) * (v - 32)));
      },
    ],
    IQ4_NL: [
      20,
      32,
      18,
      (b) => {
        const d = b.half(0);
        return b.nibbles(2, 32).map((q) => d * NONLINEAR[q]!);
      },
    ],
    IQ4_XS: [
      23,
      256,
      136,
      (b) => {
        const d = b.half(0);
        const scales = b.integers(8, 63, (j, s) => {
          b.put(4 + (j >> 1), 4 * (j % 2), s, 4);
          b.put(2 + (j >> 2), 2 * (j % 4), s >> 4, 2);
        });
        return scales.flatMap((s, j) => b.nibbles(8 + 16 * j, 32).map((q) => f32(d * (s - 32) * NONLINEAR[q]!)));
      },
    ],
    TQ1_0: [
      34,
      256,
      54,
      (b, random) => {
        const d = b.half(52);
        const out = new Array<number>(256);
        // Where a byte lies, its elements in turn, and how far apart these are.
        const bytes = [
          ...Array.from({ length: 32 }, (_, j) => [j, j, 32, 5] as const),
          ...Array.from({ length: 16 }, (_, j) => [32 + j, 160 + j, 16, 5] as const),
          ...Array.from({ length: 4 }, (_, j) => [48 + j, 240 + j, 4, 4] as const),
        ];
        for (const [byte, first, apart, count] of bytes) {
          const digits = Array.from({ length: count }, () => random.int(0, 2));
          digits.forEach((digit, n) => {
            out[first + n * apart] = d * (digit - 1);
          });
          // The digits as a fraction of 3^5, rounded up to 256ths.
          const number = [...digits, 0].slice(0, 5).reduce((sum, digit) => 3 * sum + digit, 0);
          b.bytes[byte] = Math.ceil((number * 256) / 243);
        }
        return out;
      },
    ],
    TQ2_0: [
      35,
      256,
      66,
      (b) => {
        const d = b.half(64);
        const q = b.integers(256, 2, (i, v) => b.put(32 * (i >> 7) + (i % 32), 2 * ((i >> 5) % 4), v, 2));
        return q.map((v) => d * (v - 1));
      },
    ],
    Q1_0: [
      41,
      128,
      18,
      (b) => {
        const d = b.half(0);
        return b.integers(128, 1, (i, v) => b.put(2 + (i >> 3), i & 7, v, 1)).map((v) => d * (2 * v - 1));
      },
    ],
    Q2_0: [
      42,
      64,
      18,
      (b) => {
        const d = b.half(0);
        return b.integers(64, 3, (i, v) => b.put(2 + (i >> 2), 2 * (i & 3), v, 2)).map((v) => d * (v - 1));
      },
    ],
    I2_S: [
      36,
      128,
      32,
      (b) => b.integers(128, 3, (i, v) => b.put(i % 32, 6 - 2 * (i >> 5), v, 2)).map((v) => f32(TAIL_SCALE * (v - 1))),
    ],
    IQ1_S: [
      19,
      256,
      50,
      (b, random) => {
        const d = b.half(0);
        return Array.from({ length: 8 }, (_, s) => {
          const [scale, minus] = [random.int(0, 7), random.int(0, 1)];
          b.spread(34 + 2 * s, 12, scale + 8 * minus);
          return Array.from({ length: 4 }, (_, l) => {
            const [index, elements] = known(random, "IQ1");
            b.spread(2 + 4 * s + l, 0, index % 256);
            b.spread(34 + 2 * s, 3 * l, index >> 8);
            return elements.map((q) => f32(d * (2 * scale + 1) * (q + (minus ? -0.125 : 0.125))));
          });
        }).flat(2);
      },
    ],
    IQ1_M: [
      29,
      256,
      56,
      (b, random) => {
        const d = SCALES[random.int(0, SCALES.length - 1)] as number;
        for (const [i, four] of [0, 4, 8, 12].map((shift) => (toF16(d) >> shift) & 15).entries())
          b.spread(49 + 2 * i, 4, four);
        const scales = b.integers(16, 7, (s, v) => b.spread(48 + 2 * (s >> 2), 3 * (s % 4), v));
        return Array.from({ length: 32 }, (_, j) => {
          const [index, elements] = known(random, "IQ1");
          const minus = random.int(0, 1);
          b.spread(j, 0, index % 256);
          b.put(32 + (j >> 1), 4 * (j % 2), (index >> 8) + 8 * minus, 4);
          return elements.map((q) => f32(d * (2 * scales[j >> 1]! + 1) * (q + (minus ? -0.125 : 0.125))));
        }).flat();
      },
    ],
    IQ2_XXS: [
      16,
      256,
      66,
      (b, random) => {
        const d = b.half(0);
        return Array.from({ length: 8 }, (_, s) => {
          const [scale = 0] = b.integers(1, 15, (_, v) => b.spread(6 + 8 * s, 28, v));
          return Array.from({ length: 4 }, (_, l) => {
            const [[index, elements], [seven, signs]] = [known(random, "IQ2_XXS"), signsOf(random)];
            b.spread(2 + 8 * s + l, 0, index);
            b.spread(6 + 8 * s, 7 * l, seven);
            return elements.map((q, j) => f32(d * (scale + 0.5) * 0.25 * q * signs[j]!));
          });
        }).flat(2);
      },
    ],
    IQ2_XS: [
      17,
      256,
      74,
      (b, random) => {
        const d = b.half(0);
        const scales = b.integers(16, 15, (s, v) => b.put(66 + (s >> 1), 4 * (s % 2), v, 4));
        return Array.from({ length: 32 }, (_, j) => {
          const [[index, elements], [seven, signs]] = [known(random, "IQ2_XS"), signsOf(random)];
          b.spread(2 + 2 * j, 0, index + 512 * seven);
          return elements.map((q, i) => f32(d * (scales[j >> 1]! + 0.5) * 0.25 * q * signs[i]!));
        }).flat();
      },
    ],
    IQ2_S: [
      22,
      256,
      82,
      (b, random) => {
        const d = b.half(0);
        const scales = b.integers(16, 15, (s, v) => b.put(74 + (s >> 1), 4 * (s % 2), v, 4));
        return Array.from({ length: 32 }, (_, j) => {
          const [index, elements] = known(random, "IQ2_S");
          b.spread(2 + j, 0, index % 256);
          b.put(66 + (j >> 2), 2 * (j % 4), index >> 8, 2);
          const minus = b.integers(8, 1, (i, v) => b.put(34 + j, i, v, 1));
          return elements.map((q, i) => f32(d * (scales[j >> 1]! + 0.5) * 0.25 * q * (1 - 2 * minus[i]!)));
        }).flat();
      },
    ],
    IQ3_XXS: [
      18,
      256,
      98,
      (b, random) => {
        const d = b.half(0);
        return Array.from({ length: 8 }, (_, s) => {
          const [scale = 0] = b.integers(1, 15, (_, v) => b.spread(66 + 4 * s, 28, v));
          return Array.from({ length: 4 }, (_, l) => {
            const [seven, signs] = signsOf(random);
            b.spread(66 + 4 * s, 7 * l, seven);
            return [0, 1].flatMap((half) => {
              const [index, elements] = known(random, "IQ3_XXS");
              b.spread(2 + 8 * s + 2 * l + half, 0, index);
              return elements.map((q, j) => f32(d * (scale + 0.5) * 0.5 * q * signs[4 * half + j]!));
            });
          });
        }).flat(2);
      },
    ],
    IQ3_S: [
      21,
      256,
      110,
      (b, random) => {
        const d = b.half(0);
        const scales = b.integers(8, 15, (s, v) => b.put(106 + (s >> 1), 4 * (s % 2), v, 4));
        return Array.from({ length: 64 }, (_, j) => {
          const [index, elements] = known(random, "IQ3_S");
          b.spread(2 + j, 0, index % 256);
          b.put(66 + (j >> 3), j % 8, index >> 8, 1);
          const minus = b.integers(4, 1, (i, v) => b.put(74 + (j >> 1), 4 * (j % 2) + i, v, 1));
          return elements.map((q, i) => f32(d * (1 + 2 * scales[j >> 3]!) * q * (1 - 2 * minus[i]!)));
        }).flat();
      },
    ],
    MXFP4: [
      39,
      32,
      17,
      (b) => {
        const [e = 0] = b.integers(1, 250, (_, v) => b.put(0, 0, v, 8));
        return b.nibbles(1, 32).map((q) => f32(2 ** (e - 127) * E2M1[q]!));
      },
    ],
    NVFP4: [
      40,
      64,
      36,
      (b) => {
        const scales = b.integers(4, 255, (j, v) => b.put(j, 0, v === 1 ? 127 : v, 8)).map((v) => (v === 1 ? 127 : v));
        const sizes = scales.map((v) => {
          const [e, f] = [(v >> 3) % 16, v % 8];
          return v === 127 ? 0 : e === 0 ? f * 2 ** -9 : (1 + f / 8) * 2 ** (e - 7);
        });
        return sizes.flatMap((d, j) => b.nibbles(4 + 8 * j, 16).map((q) => d * E2M1[q]!));
      },
    ],
  };

test("every format that is widened is tested here", () => {
  expect(Object.keys(FORMATS).sort()).toEqual(Object.keys(GGML_FORMATS).sort());
});

test.each(Object.keys(FORMATS))("blocks of %s have the values of their integers and scales", async (name) => {
  const [type, length, bytes, write] = FORMATS[name]!;
  for (let seed = 1; seed <= 40; seed++) {
    const random = createRandom(seed);
    const tail = name === "I2_S" ? TAIL : new Uint8Array(0);
    const stored = new Uint8Array(2 * BLOCKS * bytes + tail.length);
    stored.set(tail, 2 * BLOCKS * bytes);
    const want = new Float32Array(2 * BLOCKS * length);
    for (let i = 0; i < 2 * BLOCKS; i++) {
      const block = new Block(random, bytes);
      want.set(write(block, random), i * length);
      stored.set(block.bytes, i * bytes);
    }
    const shape = [2, BLOCKS * length];
    const file = await openGguf(writeGguf({ tensors: [{ name: "w", type, shape, bytes: stored }] }));
    expect(file.tensors.get("w")).toMatchObject({ dtype: name, bytes: stored.length });
    const read = await file.read("w");
    expect([read.dtype, read.shape]).toEqual(["F32", shape]);
    // +0 and -0 are one value.
    const values = (floats: Float32Array) => Array.from(floats, (value) => value + 0);
    expect(values(toFloats(read)), `seed ${seed}`).toEqual(values(want));
    const row = await file.readRows("w", 1, 2);
    expect(values(toFloats(row))).toEqual(values(want.subarray(want.length / 2)));
  }
});
