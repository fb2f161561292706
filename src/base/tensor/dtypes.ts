// Stored tensors: what their elements are, how they are decoded to floats, and how floats are encoded.

import { expectFloats, expectOneOf, expectRecord, expectUint8Array, wrongValue } from "../util/arguments.ts";
import { describe, HeadwiseError } from "../util/errors.ts";
import { elementsIn, LARGEST_LENGTH, readShape, type Tensor } from "./tensor.ts";

/** Bits of one element, in the words of safetensors. */
export const BITS = {
  BOOL: 8,
  F4: 4,
  F6_E2M3: 6,
  F6_E3M2: 6,
  U8: 8,
  I8: 8,
  F8_E5M2: 8,
  F8_E4M3: 8,
  F8_E8M0: 8,
  F8_E4M3FNUZ: 8,
  F8_E5M2FNUZ: 8,
  I16: 16,
  U16: 16,
  F16: 16,
  BF16: 16,
  I32: 32,
  U32: 32,
  F32: 32,
  C64: 64,
  F64: 64,
  I64: 64,
  U64: 64,
} as const;

/** Elements and bytes of a block of GGUF's quantised formats. A block lies along the last dimension. */
export const BLOCKS = {
  /** A float16 scale d and 32 int8 q: elements d·q. */
  Q8_0: { length: 32, bytes: 34 },
  /** A float16 scale d and 16 bytes: byte j holds elements j (low) and j + 16 (high) as d·(nibble - 8). */
  Q4_0: { length: 32, bytes: 18 },
} as const;

/**
 * The same of blocks that GGUF's other formats become on their way to linear memory, without loss: a float32 scale, in "_MIN" a
 * float32 minimum, and int8 q, in I4 from 0 to 15: elements scale·q - minimum. I1 and I2 are GGUF's Q1_0 and Q2_0: a float16 scale and
 * codes of 1 or 2 bits, the first in the lowest bits: a bit is -scale or scale, two bits are (code - 1)·scale. I2_ROW has a float32
 * scale, which is the same in all blocks of a row. I4_K is GGUF's Q4_K as it is, I4_NL, I4_XS, I4_MX and I4_NV are IQ4_NL, IQ4_XS, MXFP4
 * and NVFP4.
 */
export const CODED_BLOCKS = {
  I1_128: { length: 128, bytes: 18 },
  I2_64: { length: 64, bytes: 18 },
  I2_ROW: { length: 64, bytes: 20 },
  I8_32: { length: 32, bytes: 36 },
  I8_16: { length: 16, bytes: 20 },
  I8_32_MIN: { length: 32, bytes: 40 },
  I8_16_MIN: { length: 16, bytes: 24 },
  I4_32_MIN: { length: 32, bytes: 40 },
  I4_K: { length: 256, bytes: 144 },
  I4_NL: { length: 32, bytes: 18 },
  I4_XS: { length: 256, bytes: 136 },
  I4_MX: { length: 32, bytes: 17 },
  I4_NV: { length: 64, bytes: 36 },
} as const;

export type PlainDtype = keyof typeof BITS;
type BlockDtype = keyof typeof BLOCKS;
export type CodedDtype = keyof typeof CODED_BLOCKS;

/**
 * How elements are stored: a dtype of safetensors, one of GGUF's blocks of 32 elements with a scale, Q8_0 and Q4_0, or one of
 * CodedDtype, which no file has.
 */
export type Dtype = PlainDtype | BlockDtype | CodedDtype;

/** A tensor in the encoding of a file: little-endian, row-major. `toFloats` decodes it. */
export interface StoredTensor {
  /** Name in the file. */
  readonly name: string;
  /** Encoding of the elements. */
  readonly dtype: Dtype;
  /** Dimensions, the outermost first. Blocks lie along the last one. */
  readonly shape: readonly number[];
  /** The encoded elements, a view of the bytes that were read. */
  readonly bytes: Uint8Array;
}

/** How the bytes of a tensor of a coded dtype still are blocks of one of GGUF's types, which kernels decode as they pack. */
interface FileBlocks {
  /** The number of the type in GGUF. */
  readonly type: number;
  /** Bytes of an element. */
  readonly width: number;
  /** What kernels find in front of the blocks: a codebook, or the scale of all. */
  readonly before: Uint8Array;
  /** A tensor of such blocks as one of blocks whose scales are numbers. */
  code(tensor: StoredTensor): StoredTensor;
}

/** Where a tensor has its FileBlocks. No caller can name it, so that nothing that is given is taken for one. */
export const FILE_BLOCKS: unique symbol = /* @__PURE__ */ Symbol();

/** A tensor whose bytes may be blocks of a file. */
export interface BlockTensor extends StoredTensor {
  readonly [FILE_BLOCKS]?: FileBlocks | undefined;
}

/** What the bytes of a tensor are, if they are blocks of a file. */
export const blocksOf = (tensor: BlockTensor): FileBlocks | undefined =>
  isCoded(tensor.dtype) ? tensor[FILE_BLOCKS] : undefined;

/** A tensor whose bytes are no blocks of a file any more, but such as have numbers for scales. */
export function codedOf(tensor: StoredTensor): StoredTensor {
  return blocksOf(tensor)?.code(tensor) ?? tensor;
}

/** Whether a word names a dtype of safetensors. */
export function isDtype(word: string): word is PlainDtype {
  return Object.hasOwn(BITS, word);
}

/** Whether a word names a dtype of blocks. */
export function isBlockDtype(word: unknown): word is BlockDtype {
  return typeof word === "string" && Object.hasOwn(BLOCKS, word);
}

/** Whether a dtype is one of CODED_BLOCKS. */
export function isCoded(dtype: unknown): dtype is CodedDtype {
  return typeof dtype === "string" && Object.hasOwn(CODED_BLOCKS, dtype);
}

/** A shape as text, for error messages. */
export function shapeText(shape: readonly number[]): string {
  return `[${shape.slice(0, 8).join(", ")}${shape.length > 8 ? ", …" : ""}]`;
}

/**
 * Whether a tensor has this shape, of which it may lack dimensions of 1 at the beginning: programs that write GGUF files leave these
 * out. It has none besides.
 */
export function hasShape(own: readonly number[] | undefined, shape: readonly number[]): boolean {
  return (
    own !== undefined && `${[...Array<number>(Math.max(0, shape.length - own.length)).fill(1), ...own]}` === `${shape}`
  );
}

/** Throws unless a shape is the expected one. */
export function expectShape(where: string, name: string, own: readonly number[], shape: readonly number[]): void {
  if (`${own}` !== `${shape}`)
    throw new RangeError(`${where}: ${name} expected shape ${shapeText(shape)}, got ${shapeText(own)}`);
}

/** The dtypes that weight matrices may have, which `toFloats` converts to float32. */
export const FLOAT_DTYPES = ["F32", "F64", "F16", "BF16", "Q8_0", "Q4_0"] as const;
export type FloatDtype = (typeof FLOAT_DTYPES)[number];

/** FLOAT_DTYPES as text, for error messages. */
export const FLOAT_DTYPE_RULE: string = `dtype ${FLOAT_DTYPES.slice(0, -1).join(", ")} or ${FLOAT_DTYPES.at(-1)}`;

/**
 * `toFloats`. F16 and BF16 are written to `out`, of as many floats, if it is given: fresh memory is slower to write
 * than they are to widen.
 */
export function decodeFloats(tensor: StoredTensor, where: string, out?: Float32Array): Float32Array {
  expectRecord(where, "tensor", tensor);
  const { name, dtype: own, shape: given, bytes: stored, [FILE_BLOCKS]: blocks } = tensor as BlockTensor;
  const read: BlockTensor = { name, dtype: own, shape: given, bytes: stored, [FILE_BLOCKS]: blocks };
  const { dtype, bytes: data } = codedOf(read);
  const shape = readShape(where, "tensor", given, LARGEST_LENGTH);
  const size = elementsIn(shape);
  const known = isCoded(dtype) ? dtype : FLOAT_DTYPES.find((each) => each === dtype);
  // Blocks of a file were decoded above: those that lie as in it have no other form.
  if (known === undefined || (isCoded(known) && decodedOf(known) !== known))
    throw new HeadwiseError(
      "BAD_FILE",
      `${where}: tensor ${describe(name)} expected ${FLOAT_DTYPE_RULE}, ` +
        `got ${typeof dtype === "string" ? dtype : describe(dtype)}`,
    );
  const bytes = expectUint8Array(where, "tensor.bytes", data);
  const width = floatBits(known) / 8;
  const { length = 1 } = storedBlock(known) ?? {};
  if ((shape.at(-1) ?? 1) % length !== 0)
    throw new RangeError(
      `${where}: tensor ${describe(name)} expected rows of whole blocks (${length}) for ${known}, ` +
        `got ${shapeText(shape)}`,
    );
  const fit = size * width;
  if (bytes.length !== fit)
    throw wrongValue(where, `tensor ${describe(name)}`, `${fit} bytes for ${dtype} ${shapeText(shape)}`, bytes.length);
  if (isBlockDtype(known)) return widenBlocks(known, bytes, size);
  if (isCoded(known)) return widenCoded(known, bytes, size);
  // Typed arrays need aligned elements, but a header may have any length: unaligned data is copied.
  const { buffer, byteOffset } = bytes.byteOffset % width === 0 ? bytes : new Uint8Array(bytes);
  if (dtype === "F32") return new Float32Array(buffer, byteOffset, size);
  if (dtype === "F64") return new Float32Array(new Float64Array(buffer, byteOffset, size));
  const halves = new Uint16Array(buffer, byteOffset, size);
  return widenHalves(halves, dtype === "BF16", out);
}

/** BITS of the plain FLOAT_DTYPES: all that imports need that read no files. */
const FLOAT_BITS = { F32: 32, F64: 64, F16: 16, BF16: 16 } as const satisfies Partial<typeof BITS>;

/** Bits of one element; for a block dtype including its share of the block's scale. */
export function floatBits(dtype: FloatDtype | CodedDtype): number {
  return blockBits(dtype) ?? FLOAT_BITS[dtype as keyof typeof FLOAT_BITS];
}

/** The same of any dtype. */
export function bitsEach(dtype: Dtype): number {
  return blockBits(dtype) ?? BITS[dtype as PlainDtype];
}

/** Elements and bytes of a block of this dtype; undefined if it has none. */
export function storedBlock(dtype: Dtype): { readonly length: number; readonly bytes: number } | undefined {
  return isCoded(dtype) ? CODED_BLOCKS[dtype] : isBlockDtype(dtype) ? BLOCKS[dtype] : undefined;
}

function blockBits(dtype: Dtype): number | undefined {
  const block = storedBlock(dtype);
  return block && (block.bytes * 8) / block.length;
}

/** Blocks to float32. d has 11 significant bits and q at most 8, so that d·q is exact. */
function widenBlocks(dtype: BlockDtype, bytes: Uint8Array, size: number): Float32Array {
  const { length, bytes: stride } = BLOCKS[dtype];
  const floats = new Float32Array(size);
  const scales = new Uint16Array(size / length);
  for (let b = 0; b < scales.length; b++) scales[b] = bytes[b * stride]! | (bytes[b * stride + 1]! << 8);
  const widened = widenHalves(scales, false);
  for (let b = 0; b < scales.length; b++) {
    const d = widened[b]!;
    const [from, to] = [b * stride + 2, b * length];
    if (dtype === "Q8_0") for (let j = 0; j < 32; j++) floats[to + j] = d * ((bytes[from + j]! << 24) >> 24);
    else
      for (let j = 0; j < 16; j++) {
        const pair = bytes[from + j]!;
        floats[to + j] = d * ((pair & 15) - 8);
        floats[to + j + 16] = d * ((pair >> 4) - 8);
      }
  }
  return floats;
}

/** The dtype of blocks whose scales are numbers, for those that lie as in a file. */
export function decodedOf(dtype: CodedDtype): CodedDtype {
  if (dtype === "I4_K") return "I4_32_MIN";
  return /^I4_(NL|XS|MX)$/.test(dtype) ? "I8_32" : dtype === "I4_NV" ? "I8_16" : dtype;
}

/** Bits of an element of a coded block, without its scale: less than 8 are those of codes. */
export function codeBits(dtype: CodedDtype): number {
  const { length, bytes } = CODED_BLOCKS[dtype];
  return Math.min(8, Math.floor((8 * bytes) / length));
}

/** Coded blocks to float32: products and differences are rounded once. */
function widenCoded(dtype: CodedDtype, bytes: Uint8Array, size: number): Float32Array {
  const floats = new Float32Array(size);
  if (codeBits(dtype) < 8) {
    eachCode(dtype, bytes, (i, scale, weight) => {
      floats[i] = scale * weight;
    });
    return floats;
  }
  const { length, bytes: stride } = CODED_BLOCKS[dtype];
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  for (let at = 0, to = 0; to < size; at += stride) {
    const scale = view.getFloat32(at, true);
    const min = stride - length > 4 ? view.getFloat32(at + 4, true) : 0;
    for (let i = at + stride - length; i < at + stride; i++) floats[to++] = scale * view.getInt8(i) - min;
  }
  return floats;
}

/** Calls `take` with each element of blocks of codes, which is scale · weight. */
export function eachCode(
  dtype: CodedDtype,
  bytes: Uint8Array,
  take: (i: number, scale: number, weight: number) => void,
): void {
  const { length, bytes: stride } = CODED_BLOCKS[dtype];
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  const bits = codeBits(dtype);
  const head = stride - (length * bits) / 8;
  // A bit is -1 or 1, two bits are less 1.
  const [mask, step] = [2 * bits - 1, 3 - bits];
  const halves = new Uint16Array(1);
  for (let at = 0, i = 0; at < bytes.length; at += stride) {
    halves[0] = view.getUint16(at, true);
    const scale = head === 4 ? view.getFloat32(at, true) : widenHalves(halves, false)[0]!;
    for (let from = at + head; from < at + stride; from++)
      for (let shift = 0; shift < 8; shift += bits) take(i++, scale, ((bytes[from]! >> shift) & mask) * step - 1);
  }
}

/**
 * [..] bits of float16 or bfloat16 to float32, exactly: subnormals, infinities and NaN included. One function for both, because
 * V8 inlines small ones into `toFloats`, whose loops its best compiler then does not see: four times as slow.
 */
function widenHalves(
  halves: Uint16Array,
  bf16: boolean,
  floats: Float32Array = new Float32Array(halves.length),
): Float32Array {
  const bits = new Uint32Array(floats.buffer, floats.byteOffset);
  if (bf16) for (let i = 0; i < halves.length; i++) bits[i] = halves[i]! << 16;
  else
    for (let i = 0; i < halves.length; i++) {
      const half = halves[i]!;
      const sign = (half & 0x8000) << 16;
      const exponent = (half >> 10) & 0x1f;
      const fraction = half & 0x3ff;
      if (exponent === 0) {
        // Zero or subnormal: fraction · 2^-24 is exact, and the sign is set by bits so that -0 stays -0.
        floats[i] = fraction / 16_777_216;
        bits[i]! |= sign;
      } else {
        // The exponent bias changes from 15 to 127; an exponent of all ones (infinity, NaN) stays all ones.
        bits[i] = sign | ((exponent === 31 ? 255 : exponent + 112) << 23) | (fraction << 13);
      }
    }
  return floats;
}

/**
 * Decodes a stored tensor to float32: F32, F16, BF16, Q8_0 and Q4_0 exactly, F64 to nearest. F32 at a multiple of four bytes
 * is not copied: the result is a view of `tensor.bytes`. A tensor with a dimension of 0 gives an empty array, however large
 * its other dimensions are.
 * @param where Name of the function in error messages.
 * @throws HeadwiseError `BAD_FILE` for any other dtype. TypeError or RangeError for bytes that do not fit dtype and shape.
 * @example
 * import { toFloats } from "headwise/weights";
 * const stored = { name: "w", dtype: "BF16", shape: [2], bytes: new Uint8Array([0x80, 0x3f, 0x00, 0xc0]) } as const;
 * console.log(toFloats(stored)); // Float32Array(2) [ 1, -2 ]
 */
export function toFloats(tensor: StoredTensor, where = "toFloats"): Float32Array {
  return decodeFloats(tensor, where);
}

// Tensors in fewer bits.

/** The encodings that `quantizeTensor` writes. */
export type StoredFormat = "Q8_0" | "Q4_0" | "F16" | "BF16";

export const STORED_FORMATS: readonly StoredFormat[] = ["Q8_0", "Q4_0", "F16", "BF16"];

const WHERE = "quantizeTensor";

/** Of blocks: the scale for the value of largest magnitude, and the function that stores the integers. */
const ROUNDING = {
  Q8_0: { scaleOf: (largest: number) => Math.abs(largest) / 127, store: storeQ8 },
  Q4_0: { scaleOf: (largest: number) => largest / -8, store: storeQ4 },
} as const;

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
    throw wrongValue(WHERE, "tensor.data", `${size} floats for ${shapeText(shape)}`, data.length);
  if (format === "F16" || format === "BF16") {
    const [bits, halves] = [bitsOf(data), new Uint16Array(size)];
    const narrow = format === "F16" ? narrowF16 : narrowBf16;
    for (let i = 0; i < size; i++) halves[i] = narrow(bits[i] as number);
    return { name, dtype: format, shape, bytes: new Uint8Array(halves.buffer) };
  }
  if ((shape.at(-1) ?? 1) % 32 !== 0)
    throw new RangeError(`${WHERE}: tensor expected rows of whole blocks of 32, got shape ${shapeText(shape)}`);
  const { bytes: width } = BLOCKS[format];
  const { scaleOf, store } = ROUNDING[format];
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
