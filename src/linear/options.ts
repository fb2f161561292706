// Checks of the options for the weights of a matrix: formats, activations, and a bias.

import type { StoredTensor } from "../tensor/dtypes.ts";
import { expectFloats, expectOneOf } from "../util/arguments.ts";
import { HeadwiseError } from "../util/errors.ts";
import { WEIGHT_FORMATS, type WeightFormat } from "./formats.ts";

/** A matrix and its bias. */
export interface CheckedLinear {
  readonly w: StoredTensor;
  readonly bias: Float32Array | undefined;
}

/** Throws unless `format` is a weight format. Returns it. */
export function expectFormat(where: string, name: string, format: unknown): WeightFormat {
  return expectOneOf(where, name, format, WEIGHT_FORMATS);
}

/** Whether activations have 7 bits instead of 14. Throws unless `activations` is undefined, "exact" or "fast". */
export function expectActivations(where: string, name: string, activations: unknown = "exact"): boolean {
  return expectOneOf(where, name, activations, ["exact", "fast"]) === "fast";
}

/** Throws unless `value` is undefined or `length` floats. Returns it. */
export function expectVector(where: string, name: string, value: unknown, length: number): Float32Array | undefined {
  if (value === undefined) return undefined;
  const data = expectFloats(where, name, value);
  if (data.length !== length) throw new RangeError(`${where}: ${name} expected ${length} floats, got ${data.length}`);
  return data;
}

/**
 * Throws NO_QUANTIZED if the loaded kernels do not support a format: without `quantized`, only float32 is supported.
 * @param loader The call that loads them, up to its options.
 */
export function expectFormatLoaded(
  where: string,
  quantized: boolean,
  name: string,
  format: string,
  loader = "loadKernels(",
): void {
  if (quantized || format === "f32") return;
  const text = `${where}: format of ${name} expected "f32", the only format of these kernels, got "${format}"; ${loader}{ quantized }), from headwise/quantized, loads the others`;
  throw new HeadwiseError("NO_QUANTIZED", text);
}
