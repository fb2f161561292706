// Numbers as the kernels keep them: 16-bit floats, integers with a scale, and the matrices of integers that linear_q8 and
// linear_q4 read. All of it is exact: integers, and single float32 operations in the order of the contract.

import { BLOCK, LONGEST_BLOCK, PANEL, Q4_K_BYTES, SIGNED, SUPER_BLOCK } from "../../assembly/layout.ts";

/** The float16 with the bits `half`, exactly. A NaN is NaN. */
export function widenF16(half: number): number {
  const sign = half & 0x8000 ? -1 : 1;
  const exponent = (half >> 10) & 0x1f;
  const fraction = half & 0x3ff;
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN;
  if (exponent === 0) return (sign * fraction) / 2 ** 24;
  return (sign * (1024 + fraction) * 2 ** exponent) / 2 ** 25;
}

/** The bfloat16 with the bits `half`: the upper half of a float32. */
export function widenBf16(half: number): number {
  return new Float32Array(Uint32Array.of(half << 16).buffer)[0]!;
}

/** The bits of the float16 next to a float32: half to even, infinite from 65520 on. NaN is 0x7e00. */
export function narrowF16(x: number): number {
  const magnitude = Math.abs(x);
  const sign = Object.is(Math.sign(x), -0) || x < 0 ? 0x8000 : 0;
  if (Number.isNaN(x)) return 0x7e00;
  if (magnitude >= 65_520) return sign | 0x7c00;
  // Eleven bits from the leading one on, or what lies above 2^-24.
  let exponent = 1;
  let unit = 2 ** -24;
  for (; magnitude >= 2048 * unit; unit *= 2) exponent++;
  const units = roundEven(magnitude / unit);
  // A carry out of the fraction is a step of the exponent, as it is in the bits.
  return sign | (units + (exponent - 1) * 1024);
}

/** The bits of the bfloat16 next to a float32: half to even. NaN is 0x7fc0. */
export function narrowBf16(x: number): number {
  if (Number.isNaN(x)) return 0x7fc0;
  const bits = new Uint32Array(Float32Array.of(x).buffer)[0]!;
  return roundEven(bits / 65_536);
}

/** The length of a row of integers: k rounded up to whole blocks. */
export const padded = (k: number): number => Math.ceil(k / BLOCK) * BLOCK;

/** The nearest integer, ties to even. */
function roundEven(x: number): number {
  const low = Math.floor(x);
  const rest = x - low;
  return rest > 0.5 || (rest === 0.5 && low % 2 !== 0) ? low + 1 : low;
}

/** Below this the largest magnitude counts as 0, so that its inverse is finite. */
const LEAST = 2 ** -110;

/** A row as integers up to `most` times one scale: NaN and zeros for a row that is not finite. */
export function quantized(row: ArrayLike<number>, most: number): { integers: number[]; scale: number } {
  let largest = 0;
  for (let i = 0; i < row.length; i++) largest = Math.max(largest, Math.abs(row[i]!));
  if (!Number.isFinite(largest)) return { integers: Array.from(row, () => 0), scale: NaN };
  if (largest < LEAST) return { integers: Array.from(row, () => 0), scale: 0 };
  const factor = Math.fround(most / largest);
  return { integers: Array.from(row, (x) => roundEven(Math.fround(x * factor))), scale: Math.fround(largest / most) };
}

/**
 * A block of a fast row: integers of 8 bits with a sign as `quantized` has them, or of 7, of which the least is 0 when it is raised. 0
 * counts as one of the inputs.
 */
export function quantizedBlock(x: ArrayLike<number>, signed: boolean): FastBlock & { integers: number[] } {
  if (signed) return { ...quantized(x, 127), raise: 0 };
  let [least, largest] = [0, 0];
  for (let i = 0; i < x.length; i++) [least, largest] = [Math.min(least, x[i]!), Math.max(largest, x[i]!)];
  const zeros = Array.from(x, () => 0);
  if (!Number.isFinite(largest - least)) return { integers: zeros, scale: NaN, raise: 0 };
  const size = Math.fround(Math.fround(largest / 2) - Math.fround(least / 2));
  if (size < LEAST) return { integers: zeros, scale: 0, raise: 0 };
  const factor = Math.fround(63 / size);
  const rounded = (value: number) => roundEven(Math.fround(value * factor));
  return { integers: Array.from(x, rounded), scale: Math.fround(size / 63), raise: -rounded(least) };
}

/** The scale of inputs of a fast row, and what its bytes are raised by. */
interface FastBlock {
  readonly scale: number;
  readonly raise: number;
}

/** A packed matrix of integers: one weight and its scale. */
export interface Packed {
  /** Inputs that share a scale. */
  readonly block: number;
  /** Inputs whose products are summed as integers: with exact rows, and with fast ones, that share a scale. */
  readonly group: number;
  readonly fastGroup: number;
  scale(n: number, i: number): number;
  setScale(n: number, i: number, scale: number): void;
  weight(n: number, i: number): number;
  setWeight(n: number, i: number, weight: number): void;
}

/** The most of them, where a row has one scale. */
const GROUP = 1024;
const FAST_GROUP = 64;

const groupsOf = (block: number) => ({
  block,
  group: Math.min(block, GROUP),
  fastGroup: block > LONGEST_BLOCK ? FAST_GROUP : block,
});

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
    ...groupsOf(block),
    scale: (n, i) => view.getFloat32(scaleAt(n, i), true),
    setScale: (n, i, scale) => view.setFloat32(scaleAt(n, i), scale, true),
    weight: (n, i) => view.getInt8(weightAt(n, i)),
    setWeight: (n, i, weight) => view.setInt8(weightAt(n, i), weight),
  };
}

/** The nibbles of panels whose blocks of 32 inputs begin at `start`. */
export function nibblesOf(view: DataView, start: (n: number, i: number) => number) {
  const unitAt = (n: number, i: number) =>
    start(n, i) + Math.floor((i % BLOCK) / 8) * 32 + 4 * (n % PANEL) + 2 * (i % 2);
  const shift = (i: number) => 4 * Math.floor((i % 8) / 2);
  return {
    nibble: (n: number, i: number): number => (view.getUint16(unitAt(n, i), true) >> shift(i)) & 15,
    setNibble(n: number, i: number, nibble: number): void {
      const others = view.getUint16(unitAt(n, i), true) & ~(15 << shift(i));
      view.setUint16(unitAt(n, i), others | (nibble << shift(i)), true);
    },
  };
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
  const { nibble, setNibble } = nibblesOf(view, (n, i) => start(n, i) + 4 * PANEL);
  return {
    ...groupsOf(BLOCK),
    scale: (n, i) => view.getFloat32(scaleAt(n, i), true),
    setScale: (n, i, scale) => view.setFloat32(scaleAt(n, i), scale, true),
    weight: (n, i) => nibble(n, i) - zero,
    setWeight: (n, i, weight) => setNibble(n, i, weight + zero),
  };
}

/** A packed matrix of super-blocks: a weight is d · scale · nibble - least · minimum. */
interface PackedSupers {
  d(n: number, i: number): number;
  least(n: number, i: number): number;
  scale(n: number, i: number): number;
  minimum(n: number, i: number): number;
  nibble(n: number, i: number): number;
  setSuper(n: number, i: number, d: number, least: number): void;
  setPart(n: number, i: number, scale: number, minimum: number): void;
  setNibble(n: number, i: number, nibble: number): void;
}

/**
 * [panels][K / 256] of [8] floats d, [8] floats least, minimums [4][8][2] and scales [8][8] of a byte, and eight blocks of nibbles
 * as packedQ4 has them.
 */
export function packedQ4K(bytes: Uint8Array, k: number): PackedSupers {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const start = (n: number, i: number) =>
    (Math.floor(n / PANEL) * (k / SUPER_BLOCK) + Math.floor(i / SUPER_BLOCK)) * Q4_K_BYTES;
  const part = (i: number) => Math.floor((i % SUPER_BLOCK) / BLOCK);
  const floatAt = (n: number, i: number) => start(n, i) + 4 * (n % PANEL);
  const minimumAt = (n: number, i: number) =>
    start(n, i) + 64 + 16 * Math.floor(part(i) / 2) + 2 * (n % PANEL) + (part(i) % 2);
  const scaleAt = (n: number, i: number) => start(n, i) + 128 + PANEL * part(i) + (n % PANEL);
  return {
    d: (n, i) => view.getFloat32(floatAt(n, i), true),
    least: (n, i) => view.getFloat32(floatAt(n, i) + 32, true),
    scale: (n, i) => view.getUint8(scaleAt(n, i)),
    minimum: (n, i) => view.getUint8(minimumAt(n, i)),
    setSuper(n, i, d, least) {
      view.setFloat32(floatAt(n, i), d, true);
      view.setFloat32(floatAt(n, i) + 32, least, true);
    },
    setPart(n, i, scale, minimum) {
      view.setUint8(scaleAt(n, i), scale);
      view.setUint8(minimumAt(n, i), minimum);
    },
    ...nibblesOf(view, (n, i) => start(n, i) + 192 + 128 * part(i)),
  };
}

/**
 * [panels] of blocks of 8 rows of 16 bytes: bytes 2r and 2r + 1 of the codes of an output, the first input in the lowest bits; outputs
 * 0 to 3 are the even bytes of a half of a row, 4 to 7 the odd ones. Before each block stand 8 scales of 16 bits; where a row has one
 * scale, before all of them 8 of 32. Of a block of 128 inputs a code has a bit, which is -1 or 1, else two, less 1.
 */
export function packedLookup(bytes: Uint8Array, k: number, block: number): Packed {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const whole = block > LONGEST_BLOCK;
  const bits = block === LONGEST_BLOCK ? 1 : 2;
  const [step, mask] = [bits === 1 ? 2 : 1, 2 ** bits - 1];
  const inputs = LONGEST_BLOCK / bits;
  const rows = 16 * PANEL;
  const [head, stride] = whole ? [4 * PANEL, rows] : [0, 2 * PANEL + rows];
  const panel = (n: number) => Math.floor(n / PANEL) * (head + (k / inputs) * stride);
  const start = (n: number, i: number) => panel(n) + head + Math.floor(i / inputs) * stride;
  const halfAt = (n: number, i: number) => start(n, i) + 2 * (n % PANEL);
  const floatAt = (n: number) => panel(n) + 4 * (n % PANEL);
  const lane = (n: number) => 2 * (n % 4) + Math.floor((n % PANEL) / 4);
  const byteAt = (n: number, i: number) =>
    start(n, i) + stride - rows + PANEL * Math.floor(((i % inputs) * bits) / 8) + lane(n);
  const shift = (i: number) => (i * bits) % 8;
  return {
    ...groupsOf(block),
    scale: (n, i) => (whole ? view.getFloat32(floatAt(n), true) : widenF16(view.getUint16(halfAt(n, i), true))),
    setScale: (n, i, scale) =>
      whole ? view.setFloat32(floatAt(n), scale, true) : view.setUint16(halfAt(n, i), narrowF16(scale), true),
    weight: (n, i) => step * ((view.getUint8(byteAt(n, i)) >> shift(i)) & mask) - 1,
    setWeight(n, i, weight) {
      const others = view.getUint8(byteAt(n, i)) & ~(mask << shift(i));
      view.setUint8(byteAt(n, i), others | (((weight + 1) / step) << shift(i)));
    },
  };
}

/** The min of output n and input i in [panels][K / block][8]. */
export function minOf(mins: Float32Array, k: number, block: number, n: number, i: number): number {
  return mins[(Math.floor(n / PANEL) * (padded(k) / block) + Math.floor(i / block)) * PANEL + (n % PANEL)]!;
}

/** Where a row of activations has its blocks: behind its scale in 16 bytes, and two bytes for each input of whole blocks. */
const blocksAt = (k: number): number => 16 + 2 * padded(k);

/** Bytes of a row: blocks take 8 each. */
const rowBytes = (k: number): number => blocksAt(k) + 16 * Math.ceil(padded(k) / (2 * BLOCK));

const FAST = 1;
/** The dot-product path of a mode: the paths from 1 on are those of bytes, two planes of 7 bits, or one of a fast row. */
const pathOf = (mode: number): number => (mode >> 1) & 3;

/** Writes a row of integers of whole blocks in the form that `mode` asks for; `blocks` are those of a fast row, one for each 32 inputs. */
export function writeRow(
  out: Uint8Array,
  r: number,
  mode: number,
  scale: number,
  integers: readonly number[],
  blocks: readonly FastBlock[] = [],
): void {
  const { length } = integers;
  const view = new DataView(out.buffer, out.byteOffset + r * rowBytes(length), rowBytes(length));
  view.setFloat32(0, scale, true);
  for (const [i, q] of integers.entries())
    if (pathOf(mode) === 0) view.setInt16(16 + 2 * i, q, true);
    else if (mode & FAST) view.setUint8(16 + i, q + blocks[Math.floor(i / BLOCK)]!.raise);
    else {
      view.setUint8(16 + i, (q >> 7) + 64);
      view.setUint8(16 + length + i, q & 127);
    }
  for (const [i, block] of blocks.entries()) {
    view.setFloat32(blocksAt(length) + 8 * i, block.scale, true);
    view.setInt32(blocksAt(length) + 8 * i + 4, block.raise, true);
  }
}

/** Reads it: its scale, its integers, and the scale of the block of input i, which is 1 in an exact row. */
export function readRow(
  x: Uint8Array,
  r: number,
  mode: number,
  k: number,
): { scale: number; integers: number[]; scaleOf(i: number): number } {
  const view = new DataView(x.buffer, x.byteOffset + r * rowBytes(k), rowBytes(k));
  const length = padded(k);
  const blockAt = (i: number) => blocksAt(k) + 8 * Math.floor(i / BLOCK);
  const integers = Array.from({ length }, (_, i) => {
    if (pathOf(mode) === 0) return view.getInt16(16 + 2 * i, true);
    if (mode & SIGNED) return view.getInt8(16 + i);
    if (mode & FAST) return view.getUint8(16 + i) - view.getInt32(blockAt(i) + 4, true);
    return (view.getUint8(16 + i) - 64) * 128 + view.getUint8(16 + length + i);
  });
  const scaleOf = (i: number) => (mode & FAST ? view.getFloat32(blockAt(i), true) : 1);
  return { scale: view.getFloat32(0, true), integers, scaleOf };
}

/** (1 + erf(x / √2)) / 2 to some 13 digits, those of small values included. */
export function normalCdf(x: number): number {
  const tail = upperTail(Math.abs(x));
  return x < 0 ? tail : 1 - tail;
}

/** (1 - erf(x / √2)) / 2 for x >= 0. */
function upperTail(x: number): number {
  const density = Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI);
  if (x === Infinity) return 0;
  if (x > 3) {
    // Laplace's continued fraction.
    let fraction = x;
    for (let i = 120; i > 0; i--) fraction = x + i / fraction;
    return density / fraction;
  }
  // The integral's series, of positive terms.
  let term = x;
  let sum = x;
  for (let i = 3; i < 120; i += 2) {
    term *= (x * x) / i;
    sum += term;
  }
  return 0.5 - density * sum;
}
