// GGUF's formats of blocks beside Q8_0 and Q4_0, as float32. Layouts and values are those of ggml (ggml-common.h and the
// reference dequantisation of gguf-py); a block lies along the last dimension.

/** A format: elements and bytes of a block, and how a block at `at` becomes floats from `to` on. */
interface Format {
  readonly length: number;
  readonly bytes: number;
  widen(out: Float32Array, to: number, block: Uint8Array, at: number): void;
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

/** Bytes of nibbles: byte j holds element j (low) and j + count (high), of which `value` makes the floats. */
function nibbles(
  out: Float32Array,
  to: number,
  block: Uint8Array,
  at: number,
  count: number,
  value: (nibble: number, element: number) => number,
): void {
  for (let j = 0; j < count; j++) {
    const pair = block[at + j]!;
    out[to + j] = value(pair & 15, j);
    out[to + j + count] = value(pair >> 4, j + count);
  }
}

/** The 6-bit scale and minimum of sub-block j of Q4_K and Q5_K, whose twelve bytes begin at `at`. */
function scaleAndMin(block: Uint8Array, at: number, j: number): readonly [scale: number, min: number] {
  if (j < 4) return [block[at + j]! & 63, block[at + j + 4]! & 63];
  const low = block[at + j + 4]!;
  return [(low & 15) | ((block[at + j - 4]! >> 6) << 4), (low >> 4) | ((block[at + j]! >> 6) << 4)];
}

/** Ternary digits of bytes of base 3, of which byte · 3^n holds digit n at the top: `count` bytes, `digits` of each in turn. */
function ternary(
  out: Float32Array,
  to: number,
  block: Uint8Array,
  at: number,
  count: number,
  digits: number,
  d: number,
): void {
  for (let n = 0, power = 1; n < digits; n++, power *= 3)
    for (let j = 0; j < count; j++) out[to++] = d * (((((block[at + j]! * power) & 255) * 3) >> 8) - 1);
}

/** Formats by the names of GGUF. */
const FORMATS = {
  /** Scale d, minimum m, 16 bytes of nibbles: d·q + m. */
  Q4_1: {
    length: 32,
    bytes: 20,
    widen(out, to, block, at) {
      const [d, m] = [half(block, at), half(block, at + 2)];
      nibbles(out, to, block, at + 4, 16, (q) => d * q + m);
    },
  },
  /** Scale d, the fifth bits of all elements, nibbles: d·(q - 16). */
  Q5_0: {
    length: 32,
    bytes: 22,
    widen(out, to, block, at) {
      const [d, fifth] = [half(block, at), uint32(block, at + 2)];
      nibbles(out, to, block, at + 6, 16, (q, i) => d * ((q | (((fifth >>> i) & 1) << 4)) - 16));
    },
  },
  /** Scale d, minimum m, fifth bits, nibbles: d·q + m. */
  Q5_1: {
    length: 32,
    bytes: 24,
    widen(out, to, block, at) {
      const [d, m, fifth] = [half(block, at), half(block, at + 2), uint32(block, at + 4)];
      nibbles(out, to, block, at + 8, 16, (q, i) => d * (q | (((fifth >>> i) & 1) << 4)) + m);
    },
  },
  /** 16 sub-blocks of 16: bytes of scale (low) and minimum (high), 2-bit q, then d and dmin: d·scale·q - dmin·min. */
  Q2_K: {
    length: 256,
    bytes: 84,
    widen(out, to, block, at) {
      const [d, min] = [half(block, at + 80), half(block, at + 82)];
      for (let s = 0; s < 16; s++) {
        const [ds, ms] = [d * (block[at + s]! & 15), min * (block[at + s]! >> 4)];
        for (let i = 16 * s; i < 16 * s + 16; i++) {
          const q = (block[at + 16 + ((i >> 7) << 5) + (i & 31)]! >> (((i >> 5) & 3) << 1)) & 3;
          out[to + i] = ds * q - ms;
        }
      }
    },
  },
  /** Third bits, 2-bit q, 16 scales of 6 bits, d: d·(scale - 32)·(q - 4, or q where the third bit is set). */
  Q3_K: {
    length: 256,
    bytes: 110,
    widen(out, to, block, at) {
      const d = half(block, at + 108);
      for (let i = 0; i < 256; i++) {
        const s = i >> 4;
        const low = s < 8 ? block[at + 96 + s]! & 15 : block[at + 88 + s]! >> 4;
        const scale = (low | (((block[at + 104 + (s & 3)]! >> ((s >> 2) << 1)) & 3) << 4)) - 32;
        const q = (block[at + 32 + ((i >> 7) << 5) + (i & 31)]! >> (((i >> 5) & 3) << 1)) & 3;
        const third = (block[at + (i & 31)]! >> (i >> 5)) & 1;
        out[to + i] = d * scale * (q - (third ? 0 : 4));
      }
    },
  },
  /** d, dmin, 8 scales and minima of 6 bits, nibbles: d·scale·q - dmin·min. */
  Q4_K: {
    length: 256,
    bytes: 144,
    widen(out, to, block, at) {
      const [d, min] = [half(block, at), half(block, at + 2)];
      for (let j = 0; j < 8; j++) {
        const [scale, m] = scaleAndMin(block, at + 4, j);
        const [ds, ms] = [d * scale, min * m];
        const from = at + 16 + ((j >> 1) << 5);
        for (let i = 0; i < 32; i++) out[to + 32 * j + i] = ds * ((block[from + i]! >> ((j & 1) << 2)) & 15) - ms;
      }
    },
  },
  /** The same with a fifth bit: bit j of byte i for element i of sub-block j. */
  Q5_K: {
    length: 256,
    bytes: 176,
    widen(out, to, block, at) {
      const [d, min] = [half(block, at), half(block, at + 2)];
      for (let j = 0; j < 8; j++) {
        const [scale, m] = scaleAndMin(block, at + 4, j);
        const [ds, ms] = [d * scale, min * m];
        const from = at + 48 + ((j >> 1) << 5);
        for (let i = 0; i < 32; i++) {
          const fifth = (block[at + 16 + i]! >> j) & 1;
          out[to + 32 * j + i] = ds * (((block[from + i]! >> ((j & 1) << 2)) & 15) | (fifth << 4)) - ms;
        }
      }
    },
  },
  /** Low nibbles, upper 2 bits, 16 scales of 8 bits, d: d·scale·(q - 32). */
  Q6_K: {
    length: 256,
    bytes: 210,
    widen(out, to, block, at) {
      const d = half(block, at + 208);
      for (let i = 0; i < 256; i++) {
        const [side, part, l] = [i >> 7, (i >> 5) & 3, i & 31];
        const low = (block[at + (side << 6) + ((part & 1) << 5) + l]! >> ((part >> 1) << 2)) & 15;
        const upper = (block[at + 128 + (side << 5) + l]! >> (part << 1)) & 3;
        out[to + i] = d * int8(block[at + 192 + (i >> 4)]!) * ((low | (upper << 4)) - 32);
      }
    },
  },
  /** Scale d, 16 bytes of indices into NONLINEAR: d·value. */
  IQ4_NL: {
    length: 32,
    bytes: 18,
    widen(out, to, block, at) {
      const d = half(block, at);
      nibbles(out, to, block, at + 2, 16, (q) => d * NONLINEAR[q]!);
    },
  },
  /** d, 8 scales of 6 bits, indices as in IQ4_NL: d·(scale - 32)·value. */
  IQ4_XS: {
    length: 256,
    bytes: 136,
    widen(out, to, block, at) {
      const [d, upper] = [half(block, at), uint16(block, at + 2)];
      for (let j = 0; j < 8; j++) {
        const low = (block[at + 4 + (j >> 1)]! >> ((j & 1) << 2)) & 15;
        const scale = d * ((low | (((upper >> (2 * j)) & 3) << 4)) - 32);
        nibbles(out, to + 32 * j, block, at + 8 + 16 * j, 16, (q) => scale * NONLINEAR[q]!);
      }
    },
  },
  /** Ternary digits, five a byte, the last 16 elements four a byte, then d: d·(digit - 1). */
  TQ1_0: {
    length: 256,
    bytes: 54,
    widen(out, to, block, at) {
      const d = half(block, at + 52);
      ternary(out, to, block, at, 32, 5, d);
      ternary(out, to + 160, block, at + 32, 16, 5, d);
      ternary(out, to + 240, block, at + 48, 4, 4, d);
    },
  },
  /** Ternary digits of 2 bits, then d: d·(digit - 1). */
  TQ2_0: {
    length: 256,
    bytes: 66,
    widen(out, to, block, at) {
      const d = half(block, at + 64);
      for (let i = 0; i < 256; i++)
        out[to + i] = d * (((block[at + ((i >> 7) << 5) + (i & 31)]! >> (((i >> 5) & 3) << 1)) & 3) - 1);
    },
  },
  /** An exponent e, nibbles of E2M1: 2^(e - 127)·value. */
  MXFP4: {
    length: 32,
    bytes: 17,
    widen(out, to, block, at) {
      const scale = 2 ** (block[at]! - 128);
      nibbles(out, to, block, at + 1, 16, (q) => scale * TWICE_E2M1[q]!);
    },
  },
  /** Four scales as floats of 4 exponent and 3 fraction bits, whose pattern of ones is 0, nibbles of E2M1 for 16 elements each. */
  NVFP4: {
    length: 64,
    bytes: 36,
    widen(out, to, block, at) {
      for (let j = 0; j < 4; j++) {
        const bits = block[at + j]!;
        const [exponent, fraction] = [(bits >> 3) & 15, bits & 7];
        const size = exponent === 0 ? fraction * 2 ** -9 : (8 + fraction) * 2 ** (exponent - 10);
        const scale = bits === 127 ? 0 : size / 2;
        nibbles(out, to + 16 * j, block, at + 4 + 8 * j, 8, (q) => scale * TWICE_E2M1[q]!);
      }
    },
  },
} as const satisfies Record<string, Format>;

/** The names of these formats. */
export const GGML_DTYPES: readonly string[] = Object.keys(FORMATS);

/** Elements that `bytes` of blocks hold. */
export function ggmlElements(dtype: string, bytes: number): number {
  const { length, bytes: block } = formatOf(dtype);
  return (bytes / block) * length;
}

/** Whole blocks as floats, in `out`. Products and sums are rounded once, where they are not exact. */
export function widenGgml(dtype: string, blocks: Uint8Array, out: Float32Array): void {
  const { length, bytes, widen } = formatOf(dtype);
  for (let at = 0, to = 0; at < blocks.length; at += bytes, to += length) widen(out, to, blocks, at);
}

const formatOf = (dtype: string): Format => FORMATS[dtype as keyof typeof FORMATS];
