import { describe, expectInt, expectRecord, HeadwiseError } from "./errors.ts";

/** Bits of one element, in the words of the format. */
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

/** How the elements of a stored tensor are written. */
export type Dtype = keyof typeof BITS;

/** A tensor as it lies in a file: little-endian, row-major. `bytes` is a view of the file, not a copy. */
export interface StoredTensor {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  readonly bytes: Uint8Array;
}

/** Whether a word names a dtype of the format. */
export function isDtype(word: string): word is Dtype {
  return Object.hasOwn(BITS, word);
}

/** A shape as it reads in an error message. */
export function shapeText(shape: readonly number[]): string {
  return `[${shape.slice(0, 8).join(", ")}${shape.length > 8 ? ", …" : ""}]`;
}

/**
 * The elements of a stored tensor as float32. F16 and BF16 widen exactly, F64 rounds to nearest. F32 that lies on a
 * multiple of four bytes is borrowed: writing to it would write to the file.
 * @throws HeadwiseError `BAD_FILE` for any other dtype.
 * @example
 * import { toFloats } from "headwise";
 * const stored = { name: "w", dtype: "BF16", shape: [2], bytes: new Uint8Array([0x80, 0x3f, 0x00, 0xc0]) } as const;
 * console.log(toFloats(stored)); // Float32Array(2) [ 1, -2 ]
 */
export function toFloats(tensor: StoredTensor, where = "toFloats"): Float32Array {
  expectRecord(where, "tensor", tensor);
  const { name, dtype, shape, bytes } = tensor;
  if (!Array.isArray(shape)) throw new TypeError(`${where}: tensor.shape expected an array, got ${describe(shape)}`);
  for (const length of shape as readonly number[]) expectInt(where, "tensor.shape", length, 0);
  const size = shape.reduce((product, length) => product * length, 1);
  if (dtype !== "F32" && dtype !== "F16" && dtype !== "BF16" && dtype !== "F64")
    throw new HeadwiseError(
      "BAD_FILE",
      `${where}: tensor ${describe(name)} expected dtype F32, F16, BF16 or F64, got ${typeof dtype === "string" ? dtype : describe(dtype)}`,
    );
  if (!ArrayBuffer.isView(bytes) || Object.prototype.toString.call(bytes) !== "[object Uint8Array]")
    throw new TypeError(`${where}: tensor.bytes expected Uint8Array, got ${describe(bytes)}`);
  const width = BITS[dtype] / 8;
  if (bytes.length !== size * width)
    throw new RangeError(
      `${where}: tensor ${describe(name)} expected ${size * width} bytes for ${dtype} ${shapeText(shape)}, ` +
        `got ${bytes.length}`,
    );
  // Typed arrays need their elements aligned; a header of any length is valid, so the data need not be.
  const { buffer, byteOffset } = bytes.byteOffset % width === 0 ? bytes : new Uint8Array(bytes);
  if (dtype === "F32") return new Float32Array(buffer, byteOffset, size);
  if (dtype === "F64") return new Float32Array(new Float64Array(buffer, byteOffset, size));
  const halves = new Uint16Array(buffer, byteOffset, size);
  return dtype === "F16" ? widenF16(halves) : widenBf16(halves);
}

/** [..] float16 bits to float32, exactly: subnormals, infinities and NaN included. */
function widenF16(halves: Uint16Array): Float32Array {
  const floats = new Float32Array(halves.length);
  const bits = new Uint32Array(floats.buffer);
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
      // The bias grows from 15 to 127; an exponent of ones stays one of ones.
      bits[i] = sign | ((exponent === 31 ? 255 : exponent + 112) << 23) | (fraction << 13);
    }
  }
  return floats;
}

/** [..] bfloat16 bits to float32: the upper half of the same number. */
function widenBf16(halves: Uint16Array): Float32Array {
  const bits = new Uint32Array(halves.length);
  for (let i = 0; i < halves.length; i++) bits[i] = halves[i]! << 16;
  return new Float32Array(bits.buffer);
}
