import { expectRecord, expectUint8Array } from "../util/arguments.ts";
import { describe, HeadwiseError } from "../util/errors.ts";
import { elementsIn, LARGEST_LENGTH, readShape } from "./tensor.ts";

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
 * scale, which is the same in all blocks of a row.
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
  /** A tensor of such blocks as one whose bytes are those of its dtype. */
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

/** A tensor whose bytes are those of its dtype. */
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
  const { name, dtype, shape: given, bytes: data } = blocksOf(tensor)?.code(tensor) ?? tensor;
  const shape = readShape(where, "tensor", given, LARGEST_LENGTH);
  const size = elementsIn(shape);
  const known = isCoded(dtype) ? dtype : FLOAT_DTYPES.find((each) => each === dtype);
  if (known === undefined)
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
  if (bytes.length !== size * width)
    throw new RangeError(
      `${where}: tensor ${describe(name)} expected ${size * width} bytes for ${dtype} ${shapeText(shape)}, ` +
        `got ${bytes.length}`,
    );
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
