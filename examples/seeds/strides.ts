// Shapes with strides, in elements, as PyTorch's tensors have them: what a view can be and when data must be copied.

export interface Strided {
  readonly shape: readonly number[];
  readonly strides: readonly number[];
}

/** The strides of a tensor whose elements lie in order. */
export function contiguousStrides(shape: readonly number[]): number[] {
  return shape.map((_, i) => shape.slice(i + 1).reduce((product, length) => product * length, 1));
}

export function isContiguous({ shape, strides }: Strided): boolean {
  return contiguousStrides(shape).every((stride, i) => stride === strides[i] || shape[i] === 1);
}

/** Two dimensions change places, and nothing is moved. */
export function transpose({ shape, strides }: Strided, a: number, b: number): Strided {
  const swapped = (values: readonly number[]) => values.with(a, values[b]!).with(b, values[a]!);
  return { shape: swapped(shape), strides: swapped(strides) };
}

/**
 * Another shape of the same elements. A dimension is divided where it stands; several become one only if the next outer one
 * steps over exactly all of the inner one.
 */
export function view({ shape: from, strides }: Strided, shape: readonly number[]): Strided {
  const runs: { length: number; stride: number }[] = [];
  for (const [i, length] of from.entries()) {
    const last = runs.at(-1);
    if (last && last.stride === length * strides[i]!)
      runs.splice(-1, 1, { length: last.length * length, stride: strides[i]! });
    else runs.push({ length, stride: strides[i]! });
  }
  const out: number[] = [];
  let run = runs.pop();
  for (const length of shape.toReversed()) {
    if (run?.length === 1) run = runs.pop();
    if (!run || run.length % length !== 0)
      throw new Error(
        "view size is not compatible with input tensor's size and stride (at least one dimension spans across two " +
          "contiguous subspaces). Use .reshape(...) instead.",
      );
    out.unshift(run.stride);
    run = { length: run.length / length, stride: run.stride * length };
  }
  return { shape, strides: out };
}
