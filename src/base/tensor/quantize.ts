import { expectFloats, expectOneOf } from "../util/arguments.ts";
import { describe } from "../util/errors.ts";
import { BLOCKS, type StoredTensor, shapeText, toFloats } from "./dtypes.ts";
import { elementsIn, LARGEST_LENGTH, readShape, type Tensor } from "./tensor.ts";

/** The encodings that `quantizeTensor` writes. */
export type StoredFormat = "Q8_0" | "Q4_0" | "F16" | "BF16";

export const STORED_FORMATS: readonly StoredFormat[] = ["Q8_0", "Q4_0", "F16", "BF16"];

const WHERE = "quantizeTensor";

/** Bytes of a block, its scale for its value of largest magnitude, and the function that stores its integers. */
const Q8 = { width: BLOCKS.Q8_0.bytes, scaleOf: (largest: number) => Math.abs(largest) / 127, store: storeQ8 } as const;
const Q4 = { width: BLOCKS.Q4_0.bytes, scaleOf: (largest: number) => largest / -8, store: storeQ4 } as const;

/**
 * Encodes a tensor in fewer bits, as GGUF files do. F16 and BF16 round to nearest, ties to even. Q8_0 and Q4_0 encode each
 * 32 elements of a row as a block of integers q with a scale d, by the rules of ggml's reference, in float32:
 * - Q8_0: d = max|x| / 127, and q = x·(1/d), rounded to nearest, ties away from 0. The element is d·q.
 * - Q4_0: d = m / -8, where m is the first element with the largest |x|, and q = min(15, ⌊x·(1/d) + 8.5⌋). The element is
 *   d·(q - 8).
 *
 * d is stored as float16.
 * @returns A stored tensor of the same shape, with the name of a stored input.
 * @throws TypeError or RangeError naming the argument. For Q8_0 and Q4_0 also RangeError for rows that are not a multiple of
 * 32, and for blocks with NaN, an infinity, or a scale beyond float16.
 * @example
 * import { quantizeTensor, toFloats } from "headwise/weights";
 * const row = { data: Float32Array.from({ length: 32 }, (_, i) => i - 8), shape: [1, 32] };
 * const stored = quantizeTensor(row, "Q4_0");
 * console.log(stored.bytes.length, toFloats(stored)[31]); // 18 23
 */
export function quantizeTensor(tensor: Tensor | StoredTensor, format: StoredFormat): StoredTensor {
  if (tensor === null || typeof tensor !== "object")
    throw new TypeError(
      `${WHERE}: tensor expected { data, shape } or { dtype, shape, bytes }, got ${describe(tensor)}`,
    );
  expectOneOf(WHERE, "format", format, STORED_FORMATS);
  const { name = "", dtype, bytes: encoded, data: floats, shape: given } = tensor as Partial<StoredTensor & Tensor>;
  const shape = readShape(WHERE, "tensor", given, LARGEST_LENGTH);
  const size = elementsIn(shape);
  const data =
    "dtype" in tensor
      ? toFloats({ name, dtype, shape, bytes: encoded } as StoredTensor, WHERE)
      : expectFloats(WHERE, "tensor.data", floats);
  if (data.length !== size)
    throw new RangeError(`${WHERE}: tensor.data expected ${size} floats for ${shapeText(shape)}, got ${data.length}`);
  if (format === "F16" || format === "BF16") {
    const [bits, halves] = [bitsOf(data), new Uint16Array(size)];
    const narrow = format === "F16" ? narrowF16 : narrowBf16;
    for (let i = 0; i < size; i++) halves[i] = narrow(bits[i] as number);
    return { name, dtype: format, shape, bytes: new Uint8Array(halves.buffer) };
  }
  if ((shape.at(-1) ?? 1) % 32 !== 0)
    throw new RangeError(`${WHERE}: tensor expected rows of whole blocks of 32, got shape ${shapeText(shape)}`);
  const { width, scaleOf, store } = format === "Q8_0" ? Q8 : Q4;
  const bytes = new Uint8Array((size / 32) * width);
  const scales = new Float32Array(size / 32);
  for (let block = 0; block < scales.length; block++) scales[block] = scaleOf(largestOf(data, 32 * block));
  const bits = bitsOf(scales);
  for (let block = 0, at = 0; block < scales.length; block++, at += width) {
    const d = scales[block] as number;
    const half = expectScale(d, bits[block] as number);
    bytes[at] = half;
    bytes[at + 1] = half >>> 8;
    store(data, 32 * block, d === 0 ? 0 : Math.fround(1 / d), bytes, at + 2);
  }
  return { name, dtype: format, shape, bytes };
}

/** The value of largest magnitude in a block, the first of several; NaN if the block holds one. */
function largestOf(data: Float32Array, from: number): number {
  let largest = 0;
  for (let i = from; i < from + 32; i++) {
    const x = data[i] as number;
    if (Math.abs(x) > Math.abs(largest) || Number.isNaN(x)) largest = x;
  }
  return largest;
}

function storeQ8(data: Float32Array, from: number, inverse: number, bytes: Uint8Array, at: number): void {
  for (let i = 0; i < 32; i++) {
    const q = Math.fround((data[from + i] as number) * inverse);
    bytes[at + i] = q < 0 ? -Math.floor(0.5 - q) : Math.floor(q + 0.5);
  }
}

function storeQ4(data: Float32Array, from: number, inverse: number, bytes: Uint8Array, at: number): void {
  for (let i = from; i < from + 16; i++)
    bytes[at++] = nibbleOf(data[i] as number, inverse) | (nibbleOf(data[i + 16] as number, inverse) << 4);
}

function nibbleOf(x: number, inverse: number): number {
  return Math.min(15, Math.floor(Math.fround(Math.fround(x * inverse) + 8.5)));
}

function bitsOf(data: Float32Array): Int32Array {
  return new Int32Array(data.buffer, data.byteOffset, data.length);
}

/**
 * A block's scale d as float16 bits; `bits` are its float32 bits. Throws if d is not finite or too large for float16.
 */
function expectScale(d: number, bits: number): number {
  if (!Number.isFinite(d)) throw new RangeError(`${WHERE}: tensor expected finite numbers, got ${d}`);
  const half = narrowF16(bits);
  if ((half & 0x7fff) === 0x7c00)
    throw new RangeError(`${WHERE}: tensor expected blocks whose scale is a float16, got a scale of ${d}`);
  return half;
}

/** Float32 bits to the bits of the nearest bfloat16; halves to even. */
function narrowBf16(bits: number): number {
  // A NaN keeps the upper half of its payload; one bit is set so that it stays a NaN.
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >>> 16) | 0x40;
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}

/** Float32 bits to the bits of the nearest float16; halves to even. */
export function narrowF16(bits: number): number {
  const sign = (bits >>> 16) & 0x8000;
  const size = bits & 0x7fffffff;
  if (size > 0x7f800000) return sign | 0x7e00 | ((size >>> 13) & 0x1ff);
  // 65520 is half way between the largest float16 and the next power of two.
  if (size >= 0x477ff000) return sign | 0x7c00;
  if (size >= 0x38800000) return sign | ((size - 0x38000000 + 0xfff + ((size >>> 13) & 1)) >>> 13);
  // Subnormal, a multiple of 2^-24: the 24 bits of the fraction are shifted right by 126 - exponent.
  const shift = 126 - (size >>> 23);
  if (shift > 24) return sign;
  const fraction = (size & 0x7fffff) | 0x800000;
  const whole = fraction >>> shift;
  const rest = fraction - whole * 2 ** shift;
  const half = 2 ** (shift - 1);
  return sign | (whole + (rest > half || (rest === half && whole % 2 === 1) ? 1 : 0));
}
