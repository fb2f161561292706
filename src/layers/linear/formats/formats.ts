// The formats of weights in linear memory, one descriptor each, and the checks of options for them.

import type { CodedDtype, FloatDtype, StoredTensor } from "../../../base/tensor/dtypes.ts";
import { expectFloats, expectOneOf } from "../../../base/util/arguments.ts";
import { HeadwiseError } from "../../../base/util/errors.ts";
import { LINEAR_SHAPE_BYTES } from "../../../wasm/abi.ts";
import { aligned } from "../../../wasm/memory.ts";
import { BF16, F16, F32 } from "./floats.ts";
import type { Format, PackedFormat, WeightFormat } from "./format.ts";
import { Q4, Q4_MIN, Q8, Q8_16, Q8_16_MIN, Q8_MIN, Q8_ROW } from "./integers.ts";

/** Every weight format, from most to least exact. */
export const WEIGHT_FORMATS: readonly WeightFormat[] = ["f32", "f16", "bf16", "q8", "q8-row", "q4"];

/** Every format. */
export const FORMATS: Readonly<Record<PackedFormat, Format>> = {
  f32: F32,
  f16: F16,
  bf16: BF16,
  q8: Q8,
  "q8-row": Q8_ROW,
  "q8-16": Q8_16,
  "q8-min": Q8_MIN,
  "q8-16-min": Q8_16_MIN,
  q4: Q4,
  "q4-min": Q4_MIN,
};

/** The format that keeps a matrix of this dtype without loss: that of F64 is float32. */
function keeping(dtype: FloatDtype | CodedDtype): PackedFormat {
  const names = Object.keys(FORMATS) as PackedFormat[];
  return names.find((name) => FORMATS[name].keeps.includes(dtype)) as PackedFormat;
}

/**
 * The format of a matrix if none is requested: the one it is stored in. Without `quantized` kernels, 16-bit floats are
 * widened, which changes no product; blocks of integers are not, because they would take four to seven times their
 * bytes.
 */
export function formatOf({ dtype }: Pick<StoredTensor, "dtype">, quantized: boolean): PackedFormat {
  const format = keeping(dtype as FloatDtype | CodedDtype);
  return quantized || FORMATS[format].integers ? format : "f32";
}

/** Where the part of a projection's scratch begins that its kernels work in, behind its shape. */
export const LINEAR_WORK_AT: number = aligned(LINEAR_SHAPE_BYTES);

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
