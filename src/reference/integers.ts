// Integers as linear_q8 and linear_q4 read them: where they lie, and how a scale makes them. The twins of the integer
// kernels are exact: integers, and single float32 operations in the order of the contract.

import { BLOCK, PANEL } from "../../assembly/layout.ts";
import type { LinearShape, Plain, Reference } from "../wasm/abi.ts";

/** The length of a row of integers: k rounded up to whole blocks. */
export const padded = (k: number): number => Math.ceil(k / BLOCK) * BLOCK;

/** Bytes of a row of activations: its scale in the first 16, then two for each input of whole blocks. */
export const rowBytes = (k: number): number => 16 + 2 * padded(k);

/** The nearest integer, ties to even. */
export function roundEven(x: number): number {
  const low = Math.floor(x);
  const rest = x - low;
  return rest > 0.5 || (rest === 0.5 && low % 2 !== 0) ? low + 1 : low;
}

/** Below this the largest magnitude counts as 0, so that its inverse is finite. */
const LEAST = 2 ** -110;

/** max |x|; NaN if any is. */
export function magnitude(x: ArrayLike<number>): number {
  let most = 0;
  for (let i = 0; i < x.length; i++) most = Math.max(most, Math.abs(x[i]!));
  return most;
}

/** What integers up to `most` stand for, and what x is multiplied by to get them, when `largest` is the largest |x|. */
export function scaleOf(largest: number, most: number): { scale: number; factor: number } {
  if (!Number.isFinite(largest)) return { scale: Number.NaN, factor: 0 };
  if (largest < LEAST) return { scale: 0, factor: 0 };
  return { scale: Math.fround(largest / most), factor: Math.fround(most / largest) };
}

/** The integer of x; 0 for a factor of 0, whatever x is. */
export function integerOf(x: number, factor: number): number {
  return factor === 0 ? 0 : roundEven(Math.fround(x * factor));
}

const FAST = 1;
/** The modes from here on are those of bytes: two planes of 7 bits, or one of 7 where a row has no more. */
const BYTES = 2;

/** Writes a row of integers in the form that `mode` asks for. */
export function writeRow(out: Uint8Array, r: number, mode: number, scale: number, integers: readonly number[]): void {
  const view = new DataView(out.buffer, out.byteOffset + r * rowBytes(integers.length), rowBytes(integers.length));
  view.setFloat32(0, scale, true);
  for (const [i, q] of integers.entries())
    if (mode < BYTES) view.setInt16(16 + 2 * i, q, true);
    else if (mode & FAST) view.setUint8(16 + i, q + 64);
    else {
      view.setUint8(16 + i, (q >> 7) + 64);
      view.setUint8(16 + integers.length + i, q & 127);
    }
}

/** Reads it. */
export function readRow(x: Uint8Array, r: number, mode: number, k: number): { scale: number; integers: number[] } {
  const view = new DataView(x.buffer, x.byteOffset + r * rowBytes(k), rowBytes(k));
  const length = padded(k);
  const integers = Array.from({ length }, (_, i) => {
    if (mode < BYTES) return view.getInt16(16 + 2 * i, true);
    const upper = view.getUint8(16 + i) - 64;
    return mode & FAST ? upper : upper * 128 + view.getUint8(16 + length + i);
  });
  return { scale: view.getFloat32(0, true), integers };
}

/** A packed matrix of integers: one weight and its scale. */
interface Packed {
  /** Inputs that share a scale. */
  readonly block: number;
  scale(n: number, i: number): number;
  setScale(n: number, i: number, scale: number): void;
  weight(n: number, i: number): number;
  setWeight(n: number, i: number, weight: number): void;
}

/** Inputs whose products are summed as integers where a scale belongs to more. */
const GROUP = 1024;

/** [panels] of [K / block] of 8 scales and [block / 2][8][2] int8. */
export function packedQ8(bytes: Uint8Array, k: number, block: number): Packed {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const blockBytes = 4 * PANEL + PANEL * block;
  const start = (n: number, i: number) =>
    (Math.floor(n / PANEL) * (padded(k) / block) + Math.floor(i / block)) * blockBytes;
  const scaleAt = (n: number, i: number) => start(n, i) + 4 * (n % PANEL);
  const weightAt = (n: number, i: number) =>
    start(n, i) + 4 * PANEL + Math.floor((i % block) / 2) * 2 * PANEL + 2 * (n % PANEL) + (i % 2);
  return {
    block,
    scale: (n, i) => view.getFloat32(scaleAt(n, i), true),
    setScale: (n, i, scale) => view.setFloat32(scaleAt(n, i), scale, true),
    weight: (n, i) => view.getInt8(weightAt(n, i)),
    setWeight: (n, i, weight) => view.setInt8(weightAt(n, i), weight),
  };
}

/**
 * Minus the sums of output n's weights over each group, in [panels][groups][8]: int16 for blocks of up to 32 inputs, else int32.
 */
export function storeSums(sums: Uint8Array, w: Packed, k: number, n: number): void {
  const view = new DataView(sums.buffer, sums.byteOffset, sums.byteLength);
  const group = Math.min(w.block, GROUP);
  const groups = Math.ceil(padded(k) / group);
  for (let g = 0; g < groups; g++) {
    let sum = 0;
    for (let i = g * group; i < Math.min((g + 1) * group, padded(k)); i++) sum -= w.weight(n, i);
    const at = (Math.floor(n / PANEL) * groups + g) * PANEL + (n % PANEL);
    if (w.block <= BLOCK) view.setInt16(2 * at, sum, true);
    else view.setInt32(4 * at, sum, true);
  }
}

/**
 * [panels][K / 32] of 8 scales and, for each 8 inputs, 8 rows of two units of 16 bits: unit e of a row has the nibbles
 * weight + zero of its inputs e, 2 + e, 4 + e and 6 + e, the first in the lowest bits.
 */
export function packedQ4(bytes: Uint8Array, k: number, zero: number): Packed {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const blockBytes = 4 * PANEL + (PANEL * BLOCK) / 2;
  const start = (n: number, i: number) =>
    (Math.floor(n / PANEL) * (padded(k) / BLOCK) + Math.floor(i / BLOCK)) * blockBytes;
  const scaleAt = (n: number, i: number) => start(n, i) + 4 * (n % PANEL);
  const unitAt = (n: number, i: number) =>
    start(n, i) + 4 * PANEL + Math.floor((i % BLOCK) / 8) * 32 + 4 * (n % PANEL) + 2 * (i % 2);
  const shift = (i: number) => 4 * Math.floor((i % 8) / 2);
  return {
    block: BLOCK,
    scale: (n, i) => view.getFloat32(scaleAt(n, i), true),
    setScale: (n, i, scale) => view.setFloat32(scaleAt(n, i), scale, true),
    weight: (n, i) => ((view.getUint16(unitAt(n, i), true) >> shift(i)) & 15) - zero,
    setWeight(n, i, weight) {
      const others = view.getUint16(unitAt(n, i), true) & ~(15 << shift(i));
      view.setUint16(unitAt(n, i), others | ((weight + zero) << shift(i)), true);
    },
  };
}

/** The min of output n and input i in [panels][K / block][8]. */
export function minOf(mins: Float32Array, k: number, block: number, n: number, i: number): number {
  return mins[(Math.floor(n / PANEL) * (padded(k) / block) + Math.floor(i / block)) * PANEL + (n % PANEL)]!;
}

/**
 * out[m, n] = bias[n] + xScale[m] · Σg wScale[g, n] · (Σ of x[m, i] · w[n, i] over the i of group g): the sums in brackets
 * exact, all else one float32 operation after the other.
 */
export function linearIntegers(
  out: Float32Array,
  x: Uint8Array,
  w: Packed,
  bias: Float32Array | null,
  { panels, k, mode, outStride }: Plain<LinearShape>,
  begin: number,
  end: number,
): void {
  const group = Math.min(w.block, GROUP);
  for (let m = begin; m < end; m++) {
    const { scale, integers } = readRow(x, m, mode, k);
    for (let n = 0; n < PANEL * panels; n++) {
      let sum = 0;
      for (let g = 0; g < integers.length; g += group) {
        let exact = 0;
        for (let i = g; i < Math.min(g + group, integers.length); i++) exact += integers[i]! * w.weight(n, i);
        sum = Math.fround(sum + Math.fround(Math.fround(exact) * w.scale(n, g)));
      }
      out[m * outStride + n] = (bias ? bias[n]! : 0) + Math.fround(sum * scale);
    }
  }
}

/** Quantises rows begin..end as x[r] ≈ scale[r]·integers[r]: to 14 bits, or to 7 if mode is odd. */
export const quantize_rows: Reference["quantize_rows"] = (out, x, k, xStride, mode, begin, end) => {
  const most = mode & 1 ? 63 : 8191;
  for (let r = begin; r < end; r++) {
    const row = x.subarray(r * xStride, r * xStride + k);
    const { scale, factor } = scaleOf(magnitude(row), most);
    const integers = Array.from({ length: padded(k) }, (_, i) => (i < k ? integerOf(row[i]!, factor) : 0));
    writeRow(out, r, mode, scale, integers);
  }
};
