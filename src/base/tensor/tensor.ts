// Dense tensors, and those whose dimensions are sequences, heads and tokens.

import { expectFloats, expectInt, wrongType, wrongValue } from "../util/arguments.ts";
import { HeadwiseError } from "../util/errors.ts";

/** A dense, row-major float32 array with its shape. */
export interface Tensor {
  /** The elements; as many as the product of `shape`. */
  readonly data: Float32Array;
  /** Dimensions, the outermost first. */
  readonly shape: readonly number[];
}

/** The largest dimension of a stored tensor. Kernels take at most 2^31 - 1. */
export const LARGEST_LENGTH: number = Number.MAX_SAFE_INTEGER;

/** A copy of a shape whose length and dimensions are each read once, because reading may run code of the caller's. */
export function readShape(where: string, name: string, shape: unknown, most?: number): number[] {
  if (!Array.isArray(shape)) throw wrongType(where, `${name}.shape`, "an array", shape);
  const { length } = shape;
  const copy: number[] = [];
  for (let axis = 0; axis < length; axis++) copy.push(expectInt(where, `${name}.shape[${axis}]`, shape[axis], 0, most));
  return copy;
}

/** The number of elements of a shape; 1 for rank 0, and 0 if any dimension is 0, however large the others are. */
export function elementsIn(shape: readonly number[]): number {
  return shape.includes(0) ? 0 : shape.reduce((size, length) => size * length, 1);
}

/** Throws unless `length` is the number of elements of a shape; `unit` names them. */
export function expectElements(
  where: string,
  name: string,
  unit: string,
  shape: readonly number[],
  length: number,
): void {
  const size = elementsIn(shape);
  if (length !== size)
    throw wrongValue(where, `${name}.data`, `${size} ${unit} for shape [${shape.join(", ")}]`, length);
}

/** A zeroed array for a result. Throws OUT_OF_MEMORY if the engine cannot allocate it. */
export function createFloats(where: string, name: string, length: number): Float32Array {
  return orRefuse(where, `${name} of ${length} floats`, () => new Float32Array(length));
}

/** `createFloats` for bytes. */
export function createBytes(where: string, name: string, length: number): Uint8Array {
  return orRefuse(where, `${name} of ${length} bytes`, () => new Uint8Array(length));
}

/** The result of `create`, which allocates arrays. Throws OUT_OF_MEMORY, naming them as `what`, if the engine refuses. */
export function orRefuse<T>(where: string, what: string, create: () => T): T {
  try {
    return create();
  } catch (cause) {
    throw new HeadwiseError("OUT_OF_MEMORY", `${where}: ${what} does not fit, the engine refused`, { cause });
  }
}

/**
 * A copy of a tensor's shape, and a view of its data. Each of its fields is read once, and nothing after the data, because
 * reading may run code of the caller's.
 */
export function readTensor(where: string, name: string, value: unknown): Tensor {
  if (value === null || typeof value !== "object" || Array.isArray(value) || ArrayBuffer.isView(value))
    throw wrongType(where, name, "{ data, shape }", value);
  const { data, shape: given } = value as Tensor;
  const shape = readShape(where, name, given);
  return { data: expectFloats(where, `${name}.data`, data), shape };
}

/** Throws unless a tensor that `readTensor` gave has one of the given ranks, and data that fits its shape. Returns it. */
export function checkTensor(where: string, name: string, tensor: Tensor, ranks: readonly number[]): Tensor {
  const { data, shape } = tensor;
  if (!ranks.includes(shape.length))
    throw new RangeError(`${where}: ${name} expected rank ${ranks.join(" or ")}, got shape [${shape.join(", ")}]`);
  expectElements(where, name, "floats", shape, data.length);
  return tensor;
}

/** `readTensor` and `checkTensor`. */
export function expectTensor(where: string, name: string, value: unknown, ranks: readonly number[]): Tensor {
  return checkTensor(where, name, readTensor(where, name, value), ranks);
}

// Tensors of heads.

/**
 * Order of the dimensions of a tensor: "bhsd" [batch, heads, len, dim] or "bshd" [batch, len, heads, dim]. A tensor of rank 3
 * has no batch.
 */
export type HeadLayout = "bhsd" | "bshd";

/** The dimensions of a tensor of heads, in either layout; those of rank 3 are one sequence. */
export interface HeadSizes {
  readonly rank: number;
  readonly batch: number;
  readonly heads: number;
  readonly len: number;
  readonly dim: number;
}

export function headSizes({ shape }: Tensor, layout: HeadLayout): HeadSizes {
  const { length: rank } = shape;
  const [batch, second, third, dim] = (rank === 3 ? [1, ...shape] : shape) as [number, number, number, number];
  const [heads, len] = layout === "bhsd" ? [second, third] : [third, second];
  return { rank, batch, heads, len, dim };
}

export function headShape({ rank, batch, heads, len, dim }: HeadSizes, layout: HeadLayout): number[] {
  const shape = layout === "bhsd" ? [batch, heads, len, dim] : [batch, len, heads, dim];
  return shape.slice(-rank);
}

/** Floats between tokens and between heads in a block of `tokens` tokens that was copied with `eachRun`. */
export function blockStrides(
  { heads, dim }: HeadSizes,
  layout: HeadLayout,
  tokens: number,
): { stride: number; headStride: number } {
  return layout === "bhsd" ? { stride: dim, headStride: tokens * dim } : { stride: heads * dim, headStride: dim };
}

/** Calls copy(tensor offset, block offset, floats) for the runs of tokens begin..end of one batch row. */
export function eachRun(
  { heads, len, dim }: HeadSizes,
  layout: HeadLayout,
  batchRow: number,
  begin: number,
  end: number,
  copy: (tensorAt: number, blockAt: number, floats: number) => void,
): void {
  const tokens = end - begin;
  if (layout === "bshd") copy((batchRow * len + begin) * heads * dim, 0, tokens * heads * dim);
  else
    for (let h = 0; h < heads; h++) copy(((batchRow * heads + h) * len + begin) * dim, h * tokens * dim, tokens * dim);
}
