import { BLOCK, F16_SCRATCH, LINEAR_SCRATCH, PANEL } from "../../assembly/layout.ts";
import type { FloatDtype, StoredTensor } from "../tensor/dtypes.ts";
import { LINEAR_SHAPE_BYTES, type LinearShape } from "../wasm/abi.ts";
import { aligned } from "../wasm/memory.ts";

/**
 * Format of a packed weight matrix. "f32", "f16" and "bf16" are floats. "q8" is int8 with one scale for each 32 inputs of an
 * output, "q8-row" is int8 with one scale for each output, and "q4" is 4-bit integers with one scale for each 32 inputs.
 */
export type WeightFormat = "f32" | "f16" | "bf16" | "q8" | "q8-row" | "q4";

/** Every weight format, from most to least exact. */
export const WEIGHT_FORMATS: readonly WeightFormat[] = ["f32", "f16", "bf16", "q8", "q8-row", "q4"];

/** The format that keeps a matrix of each dtype without loss, except F64. */
const STORED_FORMATS: Readonly<Record<FloatDtype, WeightFormat>> = {
  ...{ F32: "f32", F64: "f32", F16: "f16", BF16: "bf16", Q8_0: "q8", Q4_0: "q4" },
};

/**
 * The format of a matrix if none is requested: the one it is stored in. Without `quantized` kernels, 16-bit floats are
 * widened, which changes no product; blocks of integers are not, because they would take four to seven times their
 * bytes.
 */
export function formatOf({ dtype }: Pick<StoredTensor, "dtype">, quantized: boolean): WeightFormat {
  const format = STORED_FORMATS[dtype as FloatDtype];
  return quantized || isInteger(format) ? format : "f32";
}

/** Outputs n and inputs k of a matrix. */
export interface LinearSize {
  readonly n: number;
  readonly k: number;
}

/** Whether the weights are integers, so that activations are quantised too. */
export function isInteger(format: WeightFormat): boolean {
  return format.startsWith("q");
}

/** Inputs of an integer matrix: k rounded up to whole blocks, padded with zeros. */
export function wholeBlocks(k: number): number {
  return Math.ceil(k / BLOCK) * BLOCK;
}

/** Inputs that share a scale. */
export function blockOf(format: WeightFormat, k: number): number {
  return format === "q8-row" ? wholeBlocks(k) : BLOCK;
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
export function panelBytes(format: WeightFormat, k: number): number {
  if (!isInteger(format)) return k * PANEL * (format === "f32" ? 4 : 2);
  const inputs = wholeBlocks(k);
  const scales = (inputs / blockOf(format, k)) * PANEL * 4;
  return scales + (inputs * PANEL) / (format === "q4" ? 2 : 1);
}

/** Inputs of a longer block than of 32 whose weights have one sum. */
const SUM_INPUTS = 1024;

/**
 * Bytes of the sums of a panel's weights, which integers of 8 bits have: 16 bits for each block of 32, or 32 bits for each
 * 1024 inputs of a longer one.
 */
export function sumBytes(format: WeightFormat, k: number): number {
  const group = Math.min(blockOf(format, k), SUM_INPUTS);
  return format.startsWith("q8") ? PANEL * Math.ceil(k / group) * (group > BLOCK ? 4 : 2) : 0;
}

/** Bytes of scratch that a projection needs: its shape, and what the kernel of its format works in. */
export function scratchBytes(format: WeightFormat): number {
  return LINEAR_WORK_AT + kernelScratchBytes(format);
}

/** Where the kernel's part of that begins. */
export const LINEAR_WORK_AT: number = aligned(LINEAR_SHAPE_BYTES);

/** Bytes that the kernel of a format works in. */
export function kernelScratchBytes(format: WeightFormat): number {
  if (format === "q4") return LINEAR_SCRATCH;
  return format.endsWith("16") ? 4 * F16_SCRATCH : 0;
}

/** What the kernel of a format reads: x in rows of floats xStride apart, or of integers in a mode. */
export function linearShape(
  format: WeightFormat,
  {
    panels,
    k,
    outStride,
    xStride = 0,
    mode = 0,
  }: Pick<LinearShape, "panels" | "k" | "outStride"> & Partial<Pick<LinearShape, "xStride" | "mode">>,
): LinearShape {
  return { panels, k, outStride, xStride, bf16: format === "bf16" ? 1 : 0, block: blockOf(format, k), mode };
}

/** Bytes of a row of k quantised activations: 16 that hold the scale, then 2 for each input of whole blocks. */
export function integerRowBytes(k: number): number {
  return 16 + 2 * wholeBlocks(k);
}
