import { describe, expectFloats, expectInt, HeadwiseError } from "../util/errors.ts";

/** A dense, row-major float32 array with its shape. */
export interface Tensor {
  /** The elements; as many as the product of `shape`. */
  readonly data: Float32Array;
  /** Dimensions, the outermost first. */
  readonly shape: readonly number[];
}

/** The number of elements of a shape; 1 for rank 0. Throws unless every dimension is an integer >= 0. */
export function sizeOf(where: string, name: string, shape: unknown): number {
  if (!Array.isArray(shape)) throw new TypeError(`${where}: ${name}.shape expected an array, got ${describe(shape)}`);
  let size = 1;
  for (const [axis, length] of shape.entries()) {
    expectInt(where, `${name}.shape[${axis}]`, length, 0);
    size *= length;
  }
  return size;
}

/** A zeroed array for a result. Throws OUT_OF_MEMORY if the engine cannot allocate it. */
export function createFloats(where: string, name: string, length: number): Float32Array {
  return orRefuse(where, `${name} of ${length} floats`, () => new Float32Array(length));
}

/** `createFloats` for bytes. */
export function createBytes(where: string, name: string, length: number): Uint8Array {
  return orRefuse(where, `${name} of ${length} bytes`, () => new Uint8Array(length));
}

function orRefuse<T>(where: string, what: string, create: () => T): T {
  try {
    return create();
  } catch (cause) {
    throw new HeadwiseError("OUT_OF_MEMORY", `${where}: ${what} does not fit, the engine refused`, { cause });
  }
}

/** Throws unless `value` is a tensor of one of the given ranks whose data fits its shape. Returns it. */
export function expectTensor(where: string, name: string, value: unknown, ranks: readonly number[]): Tensor {
  if (value === null || typeof value !== "object" || Array.isArray(value) || ArrayBuffer.isView(value))
    throw new TypeError(`${where}: ${name} expected { data, shape }, got ${describe(value)}`);
  const { data, shape } = value as Tensor;
  const floats = expectFloats(where, `${name}.data`, data);
  const size = sizeOf(where, name, shape);
  if (!ranks.includes(shape.length))
    throw new RangeError(`${where}: ${name} expected rank ${ranks.join(" or ")}, got shape [${shape.join(", ")}]`);
  if (floats.length !== size)
    throw new RangeError(
      `${where}: ${name}.data expected ${size} floats for shape [${shape.join(", ")}], got ${floats.length}`,
    );
  return value as Tensor;
}
