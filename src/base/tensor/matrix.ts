import { expectOneOf, expectUint8Array, wrongValue } from "../util/arguments.ts";
import { describe } from "../util/errors.ts";
import {
  type BlockTensor,
  blocksOf,
  type CodedDtype,
  decodeFloats,
  FILE_BLOCKS,
  FLOAT_DTYPE_RULE,
  FLOAT_DTYPES,
  type FloatDtype,
  floatBits,
  isCoded,
  type StoredTensor,
  shapeText,
  storedBlock,
} from "./dtypes.ts";
import { checkTensor, LARGEST_LENGTH, readShape, readTensor, type Tensor } from "./tensor.ts";

/** Inputs that kernels pack at a time where weights are blocks: one of 32, or two of 16. */
const BLOCK_INPUTS = 32;

/** A weight matrix: float32, or in the encoding of a file (F32, F64, F16, BF16, Q8_0 or Q4_0). */
export type WeightTensor = Tensor | StoredTensor;

/** Row-major layout of a weight matrix with n outputs and k inputs: "out-in" [n, k] or "in-out" [k, n]. */
export type MatrixLayout = "out-in" | "in-out";

/** The outputs and inputs of a matrix of rank 2. */
export function sizeIn({ shape }: StoredTensor, layout: MatrixLayout): readonly [outputs: number, inputs: number] {
  const [rows, columns] = shape as [number, number];
  return layout === "out-in" ? [rows, columns] : [columns, rows];
}

/** Throws unless `layout` is a layout. Returns it; undefined is "out-in". */
export function expectLayout(where: string, layout: unknown = "out-in"): MatrixLayout {
  return expectOneOf(where, "weights.layout", layout, ["out-in", "in-out"]);
}

/**
 * A copy of the fields of a weight matrix with views of its data: a tensor, or a stored one. Each of its fields is read once,
 * because reading may run code of the caller's.
 */
export function readMatrix(where: string, name: string, value: unknown): Tensor | BlockTensor {
  if (value === null || typeof value !== "object" || !("dtype" in value)) return readTensor(where, name, value);
  const { dtype, shape: given, bytes, [FILE_BLOCKS]: blocks } = value as BlockTensor;
  if (!isCoded(dtype) && !FLOAT_DTYPES.includes(dtype as FloatDtype))
    throw new RangeError(
      `${where}: ${name} expected ${FLOAT_DTYPE_RULE}, got ${typeof dtype === "string" ? dtype : describe(dtype)}`,
    );
  const shape = readShape(where, name, given, LARGEST_LENGTH);
  const matrix = { name, dtype, shape, bytes: expectUint8Array(where, `${name}.bytes`, bytes) };
  return blocks ? { ...matrix, [FILE_BLOCKS]: blocks } : matrix;
}

/**
 * Throws unless `value` is a weight matrix that can have this layout. Returns it as a stored tensor whose bytes are a view.
 */
export function expectMatrix(where: string, name: string, value: unknown, layout: MatrixLayout): StoredTensor {
  const matrix = readMatrix(where, name, value);
  if (!("dtype" in matrix)) {
    const { data, shape } = checkTensor(where, name, matrix, [2]);
    return { name, dtype: "F32", shape, bytes: new Uint8Array(data.buffer, data.byteOffset, data.byteLength) };
  }
  const { dtype, shape, bytes } = matrix;
  if (shape.length !== 2) throw new RangeError(`${where}: ${name} expected rank 2, got shape ${shapeText(shape)}`);
  const [rows, columns] = shape as [number, number];
  const block = storedBlock(dtype);
  if (block && layout === "in-out") throw wrongValue(where, name, `layout "out-in" for ${dtype}`, layout, "string");
  const inputs = Math.max(BLOCK_INPUTS, block?.length ?? 0);
  if (block && columns % inputs !== 0)
    throw new RangeError(`${where}: ${name} expected rows of whole blocks of ${inputs}, got shape ${shapeText(shape)}`);
  const size = rows * bytesOf(matrix, columns);
  if (bytes.length !== size)
    throw wrongValue(where, `${name}.bytes`, `${size} bytes for ${dtype} ${shapeText(shape)}`, bytes.length);
  return matrix;
}

/** Bytes of `elements` adjacent elements of a row of a weight matrix; of a block dtype, whole blocks. */
function bytesOf(matrix: StoredTensor, elements: number): number {
  return elements * (blocksOf(matrix)?.width ?? floatBits(matrix.dtype as FloatDtype | CodedDtype) / 8);
}

/** Rows begin..end, as a view. */
export function rowsOf(matrix: StoredTensor, begin: number, end: number): StoredTensor {
  const columns = matrix.shape[1] as number;
  const width = bytesOf(matrix, columns);
  return { ...matrix, shape: [end - begin, columns], bytes: matrix.bytes.subarray(begin * width, end * width) };
}

/** A copy of the first or the second half of the rows of each of `heads` heads. */
export function halvesOf(matrix: StoredTensor, heads: number, half: 0 | 1): StoredTensor {
  const rows = (matrix.shape[0] as number) / heads / 2;
  const width = bytesOf(matrix, matrix.shape[1] as number);
  const bytes = new Uint8Array(heads * rows * width);
  for (let head = 0; head < heads; head++) {
    const from = (2 * head + half) * rows;
    bytes.set(matrix.bytes.subarray(from * width, (from + rows) * width), head * rows * width);
  }
  return { ...matrix, shape: [heads * rows, matrix.shape[1] as number], bytes };
}

/** A copy of columns begin..end; not for block dtypes. */
function columnsOf(matrix: StoredTensor, begin: number, end: number): StoredTensor {
  const [rows, columns] = matrix.shape as [number, number];
  const element = bytesOf(matrix, 1);
  const part = (end - begin) * element;
  const bytes = new Uint8Array(rows * part);
  for (let r = 0; r < rows; r++) {
    const from = (r * columns + begin) * element;
    bytes.set(matrix.bytes.subarray(from, from + part), r * part);
  }
  return { ...matrix, shape: [rows, end - begin], bytes };
}

/** A transposed copy of columns begin..end; not for block dtypes. */
export function transposedColumnsOf(matrix: StoredTensor, begin: number, end: number): StoredTensor {
  const { bytes, shape } = columnsOf(matrix, begin, end);
  const [rows, columns] = shape as [number, number];
  const Elements = { 2: Uint16Array, 4: Uint32Array, 8: Float64Array }[bytesOf(matrix, 1) as 2 | 4 | 8];
  const [from, to] = [new Elements(bytes.buffer as ArrayBuffer), new Elements(rows * columns)];
  for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) to[c * rows + r] = from[r * columns + c] as number;
  return { ...matrix, shape: [columns, rows], bytes: new Uint8Array(to.buffer) };
}

/** The part of a matrix that computes outputs begin..end: a view where it is contiguous, else a copy. */
export function cutOutputs(matrix: StoredTensor, layout: MatrixLayout, begin: number, end: number): StoredTensor {
  return layout === "out-in" ? rowsOf(matrix, begin, end) : columnsOf(matrix, begin, end);
}

/** A matrix as float32: a view of F32 at a multiple of four bytes, else a copy. */
export function toTensor(matrix: StoredTensor): Tensor {
  return { data: decodeFloats(matrix, ""), shape: matrix.shape };
}
