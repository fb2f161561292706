// What the tutorials make and print: layers of PyTorch's random numbers, shapes, and figures.

import {
  type AttentionConfig,
  type AttentionWeights,
  createAttention,
  type Kernels,
  type SeparateWeights,
  type Tensor,
} from "headwise";
import type { TorchLinear, TorchRandom } from "./torch-random.ts";

/** A tutorial: prints its lines. */
export type Tutorial = (kernels: Kernels, print: (line?: string) => void) => void;

/** A shape as Python prints it. */
export const tuple = (shape: readonly number[]): string => `(${shape.join(", ")}${shape.length === 1 ? "," : ""})`;
/** A whole number with commas. */
export const commas = (count: number): string => count.toLocaleString("en-US");
/** True and False. */
export const python = (value: boolean): string => (value ? "True" : "False");

export const sum = (values: ArrayLike<number>): number => Array.from(values).reduce((total, value) => total + value, 0);
export const meanAbs = (values: ArrayLike<number>): number => sum(Array.from(values, Math.abs)) / values.length;
export const maxAbs = (values: ArrayLike<number>): number => Math.max(...Array.from(values, Math.abs));
export const minus = (a: Float32Array, b: Float32Array): Float32Array => a.map((value, i) => value - b[i]!);

export const zeros = (...shape: number[]): Tensor => ({
  data: new Float32Array(shape.reduce((size, length) => size * length)),
  shape,
});

/** Four `nn.Linear(width, width)` with biases, in the order in which the tutorials make them. */
export function fourLinears(random: TorchRandom, width: number): SeparateWeights<Tensor> {
  const made = () => random.linear(width, width);
  const [q, k, v, o]: TorchLinear[] = [made(), made(), made(), made()];
  return {
    wq: q!.weight,
    wk: k!.weight,
    wv: v!.weight,
    wo: o!.weight,
    bq: q!.bias,
    bk: k!.bias,
    bv: v!.bias,
    bo: o!.bias,
  };
}

/** Floats of the weights of a layer, which are checked by making it. */
export function parameters(kernels: Kernels, config: AttentionConfig, weights: AttentionWeights): number {
  createAttention(kernels, config, weights).release();
  const tensors = Object.values(weights) as (Tensor | Float32Array | undefined)[];
  return sum(tensors.map((each) => (each === undefined ? 0 : "data" in each ? each.data.length : each.length)));
}

/** The message of what a call throws. */
export function messageOf(call: () => unknown): string {
  try {
    call();
  } catch (error) {
    return (error as Error).message;
  }
  throw new Error("an error expected, got none");
}

/** Matrix product of [rows, inner] and [inner, columns], as a loop. */
export function product(a: Tensor, b: Tensor): Tensor {
  const [rows, inner] = a.shape as [number, number];
  const columns = b.shape[1]!;
  const data = new Float32Array(rows * columns);
  for (let i = 0; i < rows; i++)
    for (let j = 0; j < columns; j++) {
      let total = 0;
      for (let k = 0; k < inner; k++) total += a.data[i * inner + k]! * b.data[k * columns + j]!;
      data[i * columns + j] = total;
    }
  return { data, shape: [rows, columns] };
}
