// Rows of projections in float64, whatever their layout and dtype, for conversions.

import type { MatrixLayout } from "../../base/tensor/matrix.ts";
import type { Tensor } from "../../base/tensor/tensor.ts";

/** Throws unless all numbers are finite. */
export function expectFiniteFloats(where: string, name: string, numbers: Float32Array | Float64Array): void {
  for (const number of numbers)
    if (!Number.isFinite(number)) throw new RangeError(`${where}: ${name} expected finite numbers, got ${number}`);
}

/** A matrix in float64. */
interface MatrixRows {
  readonly outputs: number;
  readonly inputs: number;
  /** A copy of the weights of one output, [inputs]. */
  readonly row: (output: number) => Float64Array;
}

/** Reads a matrix in any layout. */
export function readRows({ data, shape }: Tensor, layout: MatrixLayout): MatrixRows {
  const [first, second] = shape as [number, number];
  const [outputs, inputs] = layout === "out-in" ? [first, second] : [second, first];
  const [step, stride] = layout === "out-in" ? [1, inputs] : [outputs, 1];
  return {
    outputs,
    inputs,
    row(output) {
      const row = new Float64Array(inputs);
      for (let i = 0; i < inputs; i++) row[i] = data[output * stride + i * step] as number;
      return row;
    },
  };
}

/** Rows, one for each output, as a float32 matrix in a layout. */
export function writeRows(rows: readonly Float64Array[], inputs: number, layout: MatrixLayout): Tensor {
  const data = new Float32Array(rows.length * inputs);
  const outIn = layout === "out-in";
  for (const [output, row] of rows.entries())
    if (outIn) data.set(row, output * inputs);
    else for (let i = 0; i < inputs; i++) data[i * rows.length + output] = row[i] as number;
  return { data, shape: outIn ? [rows.length, inputs] : [inputs, rows.length] };
}

/** Σ x[i]². */
export function squaredNorm(numbers: Float64Array): number {
  let sum = 0;
  for (const number of numbers) sum += number * number;
  return sum;
}
