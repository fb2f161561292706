// Floats as blocks of ggml's formats, rounded to the nearest without a search for better scales.

import { toF16 } from "../../../test/support/gguf-writer.ts";
import { BLOCK, toBytes, toNibbles } from "./rows.ts";

export type BlockFormat = "f32" | "q8_0" | "q5_0" | "q4_0" | "q4_k" | "q5_k" | "q6_k" | "q1_0";

interface Packing {
  /** ggml's number of the type. */
  readonly type: number;
  /** Weights of a block, and its bytes. */
  readonly weights: number;
  readonly bytes: number;
  pack(weights: Float32Array): Uint8Array | Float32Array;
}

/** Weights of a block of the formats with two levels of scales. */
const SUPER_BLOCK = 256;

export const BLOCKS: Readonly<Record<BlockFormat, Packing>> = {
  f32: { type: 0, weights: 1, bytes: 4, pack: (weights) => weights },
  q4_0: { type: 2, weights: BLOCK, bytes: 18, pack: (weights) => packed(weights, BLOCK, 18, packQ4) },
  q5_0: { type: 6, weights: BLOCK, bytes: 22, pack: (weights) => packed(weights, BLOCK, 22, packQ5) },
  q8_0: { type: 8, weights: BLOCK, bytes: 34, pack: (weights) => packed(weights, BLOCK, 34, packQ8) },
  q4_k: { type: 12, weights: SUPER_BLOCK, bytes: 144, pack: (weights) => packed(weights, SUPER_BLOCK, 144, packQ4K) },
  q5_k: { type: 13, weights: SUPER_BLOCK, bytes: 176, pack: (weights) => packed(weights, SUPER_BLOCK, 176, packQ5K) },
  q1_0: { type: 41, weights: 128, bytes: 18, pack: (weights) => packed(weights, 128, 18, packQ1) },
  q6_k: { type: 14, weights: SUPER_BLOCK, bytes: 210, pack: (weights) => packed(weights, SUPER_BLOCK, 210, packQ6K) },
};

type PackBlock = (weights: Float32Array, out: DataView) => void;

function packed(weights: Float32Array, length: number, bytes: number, packBlock: PackBlock): Uint8Array {
  const out = new Uint8Array((weights.length / length) * bytes);
  for (let b = 0; b < weights.length / length; b++)
    packBlock(weights.subarray(b * length, (b + 1) * length), new DataView(out.buffer, b * bytes, bytes));
  return out;
}

/** A float16 scale, the mean size, and signs as bits. */
function packQ1(weights: Float32Array, out: DataView): void {
  out.setUint16(0, toF16(weights.reduce((sum, weight) => sum + Math.abs(weight), 0) / weights.length), true);
  for (const [i, weight] of weights.entries())
    if (weight >= 0) out.setUint8(2 + (i >> 3), out.getUint8(2 + (i >> 3)) | (1 << (i & 7)));
}

/** A float16 scale and 32 bytes. */
function packQ8(weights: Float32Array, out: DataView): void {
  const { values, scales } = toBytes(weights, BLOCK);
  out.setUint16(0, toF16(scales[0]!), true);
  for (let i = 0; i < BLOCK; i++) out.setInt8(2 + i, values[i]!);
}

/** A float16 scale and 16 bytes, byte j with the weights j and j + 16, both plus 8. */
function packQ4(weights: Float32Array, out: DataView): void {
  const { values, scales } = toNibbles(weights);
  out.setUint16(0, toF16(scales[0]!), true);
  for (let j = 0; j < BLOCK / 2; j++) out.setUint8(2 + j, (values[j]! + 8) | ((values[j + BLOCK / 2]! + 8) << 4));
}

/** A float16 scale, the fifth bits of all weights, and 16 bytes with the other bits; weights are plus 16. */
function packQ5(weights: Float32Array, out: DataView): void {
  const scale = weights.reduce((most, weight) => Math.max(most, Math.abs(weight)), 0) / 15;
  const values = Array.from(weights, (weight) => 16 + rounded(weight, scale));
  out.setUint16(0, toF16(scale), true);
  const high = values.reduce((bits, value, i) => bits | ((value >> 4) << i), 0);
  out.setUint32(2, high >>> 0, true);
  for (let j = 0; j < BLOCK / 2; j++) out.setUint8(6 + j, (values[j]! & 15) | ((values[j + BLOCK / 2]! & 15) << 4));
}

/**
 * Eight sub-blocks of 32: a weight is d * scale * value - least * minimum with 6 bits of scale and minimum, 4 of value. A
 * byte of values holds the weights j and j + 32 of 64.
 */
const packQ4K: PackBlock = (weights, out) => packWithMinima(weights, out, 15);

/** The same with 5 bits of value: bit s of byte i of the 32 before the others is the fifth of weight i of sub-block s. */
const packQ5K: PackBlock = (weights, out) => packWithMinima(weights, out, 31);

function packWithMinima(weights: Float32Array, out: DataView, most: 15 | 31): void {
  const subBlocks = Array.from({ length: 8 }, (_, s) => weights.subarray(s * BLOCK, (s + 1) * BLOCK));
  const minima = subBlocks.map((own) => Math.max(0, -Math.min(...own)));
  const steps = subBlocks.map((own, s) => Math.max(0, Math.max(...own) + minima[s]!) / most);
  const d = Math.max(...steps) / 63;
  const least = Math.max(...minima) / 63;
  const scales = steps.map((step) => rounded(step, d));
  const lows = minima.map((minimum) => rounded(minimum, least));
  out.setUint16(0, toF16(d), true);
  out.setUint16(2, toF16(least), true);
  for (let s = 0; s < 4; s++) {
    out.setUint8(4 + s, scales[s]! | ((scales[s + 4]! >> 4) << 6));
    out.setUint8(8 + s, lows[s]! | ((lows[s + 4]! >> 4) << 6));
    out.setUint8(12 + s, (scales[s + 4]! & 15) | ((lows[s + 4]! & 15) << 4));
  }
  const quantised = (s: number, i: number) => {
    const value = rounded(subBlocks[s]![i]! + least * lows[s]!, d * scales[s]!);
    return Math.min(most, Math.max(0, value));
  };
  const low = most === 31 ? 48 : 16;
  for (let pair = 0; pair < 4; pair++)
    for (let i = 0; i < BLOCK; i++) {
      const [first, second] = [quantised(2 * pair, i), quantised(2 * pair + 1, i)];
      out.setUint8(low + pair * BLOCK + i, (first & 15) | ((second & 15) << 4));
      if (most === 31)
        out.setUint8(16 + i, out.getUint8(16 + i) | ((first >> 4) << (2 * pair)) | ((second >> 4) << (2 * pair + 1)));
    }
}

/**
 * Sixteen sub-blocks of 16: a weight is d * scale * value with 8 bits of scale and 6 of value. Of 128 weights, byte i of 64
 * holds the low bits of the weights i and i + 64, and byte i of 32 the high bits of i, i + 32, i + 64 and i + 96.
 */
function packQ6K(weights: Float32Array, out: DataView): void {
  const subBlocks = Array.from({ length: 16 }, (_, s) => weights.subarray(s * 16, (s + 1) * 16));
  const steps = subBlocks.map((own) => Math.max(...own.map(Math.abs)) / 31);
  const d = Math.max(...steps) / 127;
  const scales = steps.map((step) => rounded(step, d));
  const values = Array.from(weights, (weight, i) => {
    const value = rounded(weight, d * scales[Math.floor(i / 16)]!);
    return 32 + Math.min(31, Math.max(-32, value));
  });
  for (let half = 0; half < 2; half++) {
    const first = half * 128;
    for (let i = 0; i < 64; i++)
      out.setUint8(half * 64 + i, (values[first + i]! & 15) | ((values[first + i + 64]! & 15) << 4));
    for (let i = 0; i < 32; i++) {
      const high = [0, 1, 2, 3].reduce((bits, part) => bits | ((values[first + 32 * part + i]! >> 4) << (2 * part)), 0);
      out.setUint8(128 + half * 32 + i, high);
    }
  }
  for (const [s, scale] of scales.entries()) out.setInt8(192 + s, scale);
  out.setUint16(208, toF16(d), true);
}

const rounded = (value: number, step: number) => (step === 0 ? 0 : Math.round(value / step));
