// The formats of weights in linear memory, and the checks of options for them.

import { BLOCK, F16_SCRATCH, LINEAR_SCRATCH, MINS_SCRATCH, PANEL } from "../../../assembly/layout.ts";
import type { CodedDtype, FloatDtype, StoredTensor } from "../../base/tensor/dtypes.ts";
import { expectFloats, expectOneOf } from "../../base/util/arguments.ts";
import { HeadwiseError } from "../../base/util/errors.ts";
import { LINEAR_SHAPE_BYTES, type LinearShape } from "../../wasm/abi.ts";
import { aligned } from "../../wasm/memory.ts";

/**
 * Format of a packed weight matrix. "f32", "f16" and "bf16" are floats. "q8" is int8 with one scale for each 32 inputs of an
 * output, "q8-row" is int8 with one scale for each output, and "q4" is 4-bit integers with one scale for each 32 inputs.
 */
export type WeightFormat = "f32" | "f16" | "bf16" | "q8" | "q8-row" | "q4";

/**
 * Format of a matrix in memory: one of those that can be asked for, or the integers of a GGUF file as they are. "q8-16" is int8
 * with one scale for each 16 inputs; "-min" formats have a minimum beside each scale: a weight is scale · integer - minimum.
 */
export type PackedFormat = WeightFormat | "q8-16" | "q8-16-min" | "q8-min" | "q4-min";

/** Every weight format, from most to least exact. */
export const WEIGHT_FORMATS: readonly WeightFormat[] = ["f32", "f16", "bf16", "q8", "q8-row", "q4"];

/** The format that keeps a matrix of each dtype without loss, except F64. */
const STORED_FORMATS: Readonly<Record<FloatDtype | CodedDtype, PackedFormat>> = {
  ...{ F32: "f32", F64: "f32", F16: "f16", BF16: "bf16", Q8_0: "q8", Q4_0: "q4", I8_32: "q8", I8_16: "q8-16" },
  ...{ I8_32_MIN: "q8-min", I8_16_MIN: "q8-16-min", I4_32_MIN: "q4-min" },
};

/**
 * The format of a matrix if none is requested: the one it is stored in. Without `quantized` kernels, 16-bit floats are
 * widened, which changes no product; blocks of integers are not, because they would take four to seven times their
 * bytes.
 */
export function formatOf({ dtype }: Pick<StoredTensor, "dtype">, quantized: boolean): PackedFormat {
  const format = STORED_FORMATS[dtype as FloatDtype | CodedDtype];
  return quantized || isInteger(format) ? format : "f32";
}

/** Outputs n and inputs k of a matrix. */
export interface LinearSize {
  readonly n: number;
  readonly k: number;
}

/** Whether the weights are integers, so that activations are quantised too. */
export function isInteger(format: PackedFormat): boolean {
  return format.startsWith("q");
}

/** Inputs of an integer matrix: k rounded up to whole blocks, padded with zeros. */
export function wholeBlocks(k: number): number {
  return Math.ceil(k / BLOCK) * BLOCK;
}

/** Whether the weights are nibbles. */
export function isNibbles(format: PackedFormat): boolean {
  return format.startsWith("q4");
}

/** Whether scales have minimums beside them. */
export function hasMins(format: PackedFormat): boolean {
  return format.endsWith("-min");
}

/** Inputs that share a scale. */
export function blockOf(format: PackedFormat, k: number): number {
  if (format === "q8-row") return wholeBlocks(k);
  return format.startsWith("q8-16") ? BLOCK / 2 : BLOCK;
}

/** The format of int8 whose scales are for so many inputs. */
export function q8FormatOf(block: number): PackedFormat {
  return block === BLOCK ? "q8" : block < BLOCK ? "q8-16" : "q8-row";
}

/** Panels that hold n columns. */
export function panelsOf(n: number): number {
  return Math.ceil(n / PANEL);
}

/** n rounded up to whole panels. */
export function wholePanels(n: number): number {
  return panelsOf(n) * PANEL;
}

/** Floats of a packed [n, k] matrix: whole panels, [panels][k][8]. */
export function packedFloats(n: number, k: number): number {
  return wholePanels(n) * k;
}

/** Bytes of a panel of a matrix with k inputs: [k][8] floats, or for each block [8] scales and [block / 2][8][2] integers. */
export function panelBytes(format: PackedFormat, k: number): number {
  if (!isInteger(format)) return k * PANEL * (format === "f32" ? 4 : 2);
  const inputs = wholeBlocks(k);
  const scales = (inputs / blockOf(format, k)) * PANEL * 4;
  return scales + (inputs * PANEL) / (isNibbles(format) ? 2 : 1);
}

/** Inputs of a longer block than of 32 whose weights have one sum. */
const SUM_INPUTS = 1024;

/**
 * Bytes of the sums of a panel's weights, which integers of 8 bits have: 16 bits for each block of up to 32, or 32 bits for each
 * 1024 inputs of a longer one.
 */
export function sumBytes(format: PackedFormat, k: number): number {
  const group = Math.min(blockOf(format, k), SUM_INPUTS);
  return format.startsWith("q8") ? PANEL * Math.ceil(k / group) * (group > BLOCK ? 4 : 2) : 0;
}

/** Bytes of the minimums of a panel: a float for each block. */
export function minBytes(format: PackedFormat, k: number): number {
  return hasMins(format) ? minBytesOf(k, blockOf(format, k)) : 0;
}

/** The same for blocks of so many inputs. */
export function minBytesOf(k: number, block: number): number {
  return 4 * PANEL * (wholeBlocks(k) / block);
}

/** Bytes of scratch that a projection needs: its shape, and what the kernel of its format works in. */
export function scratchBytes(format: PackedFormat): number {
  return LINEAR_WORK_AT + kernelScratchBytes(format);
}

/** Where the kernel's part of that begins. */
export const LINEAR_WORK_AT: number = aligned(LINEAR_SHAPE_BYTES);

/** Bytes that the kernel of a format works in. */
export function kernelScratchBytes(format: PackedFormat): number {
  if (isNibbles(format)) return LINEAR_SCRATCH;
  if (hasMins(format)) return MINS_SCRATCH;
  return format === "f16" || format === "bf16" ? 4 * F16_SCRATCH : 0;
}

/** What the kernel of a format reads: x in rows of floats xStride apart, or of integers in a mode. */
export function linearShape(
  format: PackedFormat,
  {
    panels,
    k,
    outStride,
    xStride = 0,
    mode = 0,
  }: Pick<LinearShape, "panels" | "k" | "outStride"> & Partial<Pick<LinearShape, "xStride" | "mode">>,
): LinearShape {
  return {
    panels,
    k,
    outStride,
    xStride,
    bf16: format === "bf16" ? 1 : 0,
    block: blockOf(format, k),
    mode,
    zero: format === "q4" ? 8 : 0,
  };
}

/** Bytes of a row of k quantised activations: 16 that hold the scale, then 2 for each input of whole blocks. */
export function integerRowBytes(k: number): number {
  return 16 + 2 * wholeBlocks(k);
}

// Checks of the options for the weights of a matrix: formats, activations, and a bias.

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
