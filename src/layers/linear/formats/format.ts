// What a format of weights is: the type of its descriptor, and the sizes that all formats share.

import { BLOCK, PANEL } from "../../../../assembly/layout.ts";
import type { CodedDtype, FloatDtype, StoredTensor } from "../../../base/tensor/dtypes.ts";
import { decodeFloats } from "../../../base/tensor/dtypes.ts";
import type { F32Ptr, KernelTable, LinearShape, Pointer, U8Ptr } from "../../../wasm/abi.ts";
import type { Kernels } from "../../../wasm/kernels.ts";
import { pointer } from "../../../wasm/memory.ts";

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

/** How a matrix lies in panels of 8 outputs, how it is packed, and which kernel multiplies it. */
export interface Format {
  /** Bits of a weight, without scales. */
  readonly bits: number;
  /** Whether weights are integers, so that activations are quantised too. */
  readonly integers: boolean;
  /** Whether minimums stand beside scales: a weight is scale · integer - minimum. */
  readonly mins: boolean;
  /** The dtypes of files that it keeps without loss. */
  readonly keeps: readonly (FloatDtype | CodedDtype)[];
  /** Which rows `embed_rows` reads: a WEIGHT constant of assembly/layout.ts. */
  readonly rows: number;
  /** What its kernel reads of a shape, besides sizes. */
  readonly shape: Partial<Pick<LinearShape, "bf16" | "zero">>;
  /** Bytes that its kernels work in. */
  readonly work: number;
  /** Inputs that share a scale. */
  block(k: number): number;
  /** Bytes of a panel of a matrix with k inputs, of the sums of its weights, and of its minimums. */
  panelBytes(k: number): number;
  sumBytes(k: number): number;
  minBytes(k: number): number;
  /** Packs rows of a matrix, n outputs of k inputs, as whole panels. */
  pack(kernels: Kernels, piece: StoredTensor, to: PackedPlace, staging: number): void;
  /** Packs inputs of all n outputs: rows of a matrix [k, n], to the address of the first of them. Integers lack it: they are transposed. */
  packInputs?(kernels: Kernels, piece: StoredTensor, n: number, k: number, to: number, staging: number): void;
  /** out[r] = x[r] · wᵀ + bias for rows begin..end. `input.shape` is that of the product. */
  multiply(table: KernelTable, out: F32Ptr, linear: PackedLinear, input: LinearInput, begin: number, end: number): void;
}

/** Where a matrix is packed: the addresses of its panels, and of sums and minimums if its format has them. */
export interface PackedPlace {
  readonly w: number;
  readonly sums: number;
  readonly mins: number;
}

/** A projection in linear memory. It computes whole panels: 8·panels outputs a row. */
export interface PackedLinear extends PackedPlace {
  readonly k: number;
  readonly panels: number;
  readonly format: PackedFormat;
  /** [8·panels], zeros without a bias. */
  readonly bias: F32Ptr;
}

/** Input rows of projections, in each of the forms that the formats need. */
export interface LinearInput {
  /** Rows xStride floats apart. */
  readonly x: F32Ptr;
  readonly xStride: number;
  /** The same rows quantised, if one of the projections has integer weights. */
  readonly integers: U8Ptr;
  /** `mode` of linear_q8: how integers are quantised and multiplied. */
  readonly mode: number;
  /** The shape of a product, and what its kernels work in. */
  readonly shape: Pointer<LinearShape>;
  readonly work: number;
}

/** Outputs n and inputs k of a matrix. */
export interface LinearSize {
  readonly n: number;
  readonly k: number;
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

/** Inputs of an integer matrix: k rounded up to whole blocks, padded with zeros. */
export function wholeBlocks(k: number): number {
  return Math.ceil(k / BLOCK) * BLOCK;
}

/** Bytes of a row of k quantised activations: 16 that hold the scale, then 2 for each input of whole blocks. */
export function integerRowBytes(k: number): number {
  return 16 + 2 * wholeBlocks(k);
}

/** Bytes of the float32 scales, or minimums, of a panel: one for each block of an output. */
export function scaleBytes(k: number, block: number): number {
  return 4 * PANEL * (wholeBlocks(k) / block);
}

/** What the kernel of a format reads: x in rows of floats xStride apart, or of integers in a mode. */
export function linearShape(
  { block, shape }: Pick<Format, "block" | "shape">,
  sizes: Pick<LinearShape, "panels" | "k" | "outStride"> & Partial<Pick<LinearShape, "xStride" | "mode">>,
): LinearShape {
  return { xStride: 0, bf16: 0, block: block(sizes.k), mode: 0, zero: 0, ...shape, ...sizes };
}

/** Copies a piece to `staging` in its own dtype. */
export function stage({ memory }: Kernels, { bytes }: StoredTensor, staging: number): number {
  memory.u8(staging, bytes.length).set(bytes);
  return staging;
}

/** Copies a piece to `staging` as float32. */
export function stageFloats(kernels: Kernels, piece: StoredTensor, staging: number): F32Ptr {
  const [n, k] = piece.shape as [number, number];
  const staged = kernels.memory.f32(staging, n * k);
  const floats = decodeFloats(piece, "", staged);
  if (floats !== staged) staged.set(floats);
  return pointer.f32(staging);
}
