import type { Tensor } from "../../src/entries/core.ts";
import { product } from "./case.ts";

/** [..., heads·size] as [..., heads, size]; no data moves. */
export function splitLast({ data, shape }: Tensor, heads: number): Tensor {
  return { data, shape: [...shape.slice(0, -1), heads, shape.at(-1)! / heads] };
}

/** [..., heads, size] as [..., heads·size]. */
export function joinLast({ data, shape }: Tensor): Tensor {
  return { data, shape: [...shape.slice(0, -2), shape.at(-2)! * shape.at(-1)!] };
}

/** A copy with `axis` and the one behind it swapped. */
export function swapAxes({ data, shape }: Tensor, axis: number): Tensor {
  const [rows, columns] = [shape[axis]!, shape[axis + 1]!];
  const inner = product(shape.slice(axis + 2));
  const swapped = new Float32Array(data.length);
  for (let block = 0; block < data.length; block += rows * columns * inner)
    for (let r = 0; r < rows; r++)
      for (let c = 0; c < columns; c++) {
        const from = block + (r * columns + c) * inner;
        swapped.set(data.subarray(from, from + inner), block + (c * rows + r) * inner);
      }
  return { data: swapped, shape: [...shape.slice(0, axis), columns, rows, ...shape.slice(axis + 2)] };
}

/** [size, size] with ones on the diagonal. */
export function identity(size: number): Tensor {
  const data = Float32Array.from({ length: size * size }, (_, i) => (i % (size + 1) === 0 ? 1 : 0));
  return { data, shape: [size, size] };
}

/** The sum of two tensors of the same rank, a dimension of 1 broadcast. */
export function addBroadcast(a: Tensor, b: Tensor): Tensor {
  const shape = a.shape.map((length, axis) => Math.max(length, b.shape[axis]!));
  const data = Float32Array.from({ length: product(shape) }, (_, i) => {
    const index = shape.map((length, axis) => Math.floor(i / product(shape.slice(axis + 1))) % length);
    return elementAt(a, index)! + elementAt(b, index)!;
  });
  return { data, shape };
}

/** The element at an index, a dimension of 1 broadcast. */
export function elementAt<T>(
  { data, shape }: { readonly data: ArrayLike<T>; readonly shape: readonly number[] },
  index: readonly number[],
): T {
  return data[shape.reduce((at, length, axis) => at * length + (length === 1 ? 0 : index[axis]!), 0)]!;
}
