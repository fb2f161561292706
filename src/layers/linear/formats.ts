// The formats of weights in linear memory, one descriptor each, and the checks of options for them.

import {
  BLOCK,
  F16_SCRATCH,
  GGML_IQ4_NL,
  GGML_IQ4_XS,
  GGML_MXFP4,
  GGML_NVFP4,
  LINEAR_SCRATCH,
  LONGEST_BLOCK,
  MINS_SCRATCH,
  PANEL,
  Q4_K_BYTES,
  SIGNED,
  SUPER_BLOCK,
  WEIGHT_BF16,
  WEIGHT_F16,
  WEIGHT_F32,
  WEIGHT_LOOKUP,
  WEIGHT_Q4,
  WEIGHT_Q4_K,
  WEIGHT_Q8,
} from "../../../assembly/layout.ts";
import {
  blocksOf,
  CODED_BLOCKS,
  type CodedDtype,
  codeBits,
  decodedOf,
  decodeFloats,
  type FloatDtype,
  isCoded,
  type StoredTensor,
} from "../../base/tensor/dtypes.ts";
import { expectFields, expectFloats, expectOneOf } from "../../base/util/arguments.ts";
import { HeadwiseError } from "../../base/util/errors.ts";
import { type F32Ptr, type KernelTable, type LinearShape, NULL, type Pointer, type U8Ptr } from "../../wasm/abi.ts";
import { isFast } from "../../wasm/int-dot.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { pointer } from "../../wasm/memory.ts";

// What a format of weights is: the type of its descriptor, and the sizes that all formats share.

/**
 * Format of a packed weight matrix. "f32", "f16" and "bf16" are floats. "q8" is int8 with one scale for each 32 inputs of an
 * output, "q8-row" is int8 with one scale for each output, and "q4" is 4-bit integers with one scale for each 32 inputs.
 */
export type WeightFormat = "f32" | "f16" | "bf16" | "q8" | "q8-row" | "q4";

/**
 * Format of a matrix in memory: one of those that can be asked for, or the integers of a GGUF file as they are. "q8-16" is int8
 * with one scale for each 16 inputs; "-min" formats have a minimum beside each scale: a weight is scale · integer - minimum. "q4-k" is
 * Q4_K: scales and minimums of 32 inputs are integers of 6 bits, which two floats of 256 inputs multiply. "q2" has
 * 2 bits and a 16-bit scale for each 64 inputs, "q2-row" one scale for each output, "q1" 1 bit and a 16-bit scale for each 128 inputs. "iq4-nl", "iq4-xs",
 * "mxfp4" and "nvfp4" have indices of 4 bits into 16 integers, and the scales of GGUF's types of these names.
 */
export type PackedFormat =
  | WeightFormat
  | ("q8-16" | "q8-16-min" | "q8-min" | "q4-min" | "q4-k" | "q2" | "q2-row" | "q1")
  | ("iq4-nl" | "iq4-xs" | "mxfp4" | "nvfp4");

/** How a matrix lies in panels of 8 outputs, how it is packed, and which kernel multiplies it. */
interface Format {
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
  readonly shape: Partial<Pick<LinearShape, "bf16" | "zero" | "type">>;
  /** Bytes that its kernels work in. */
  readonly work: number;
  /** SIGNED where fast activations have 8 bits with a sign, because weights have four: else 0, and they have 7. */
  readonly signed: number;
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
  /** The same rows quantised, if one of the projections has integer weights: as the format needs them for which `quantize` was called. */
  readonly integers: U8Ptr;
  quantize(format: PackedFormat): void;
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
function wholeBlocks(k: number): number {
  return Math.ceil(k / BLOCK) * BLOCK;
}

/** Bytes of a row of k quantised activations: 16 that hold the scale, 2 for each input of whole blocks, and 8 for each block. */
export function integerRowBytes(k: number): number {
  return 16 + 2 * wholeBlocks(k) + 16 * Math.ceil(k / (2 * BLOCK));
}

/** How quantize_rows makes rows for a format: those of two formats are the same if this is. */
export function quantizing(
  format: Format,
  k: number,
  given: number,
): { readonly block: number; readonly mode: number } {
  if (!isFast(given)) return { block: 0, mode: given };
  const block = format.block(k);
  // Two blocks of 16 share a scale. Beside nibbles, only a super-block is longer than 32.
  const most = format.signed ? SUPER_BLOCK : LONGEST_BLOCK;
  return { block: block > most ? FAST_INPUTS : Math.max(BLOCK, block), mode: given | format.signed };
}

/** Bytes of the float32 scales, or minimums, of a panel: one for each block of an output. */
export function scaleBytes(k: number, block: number): number {
  return 4 * PANEL * (wholeBlocks(k) / block);
}

/** What the kernel of a format reads: x in rows of floats xStride apart, or of integers in a mode. */
export function linearShape(
  { block, shape: { bf16 = 0, zero = 0, type = 0 }, signed }: Pick<Format, "block" | "shape" | "signed">,
  sizes: Pick<LinearShape, "panels" | "k" | "outStride"> & Partial<Pick<LinearShape, "xStride" | "mode">>,
): LinearShape {
  const { panels, k, outStride, xStride = 0, mode = 0 } = sizes;
  return {
    panels,
    k,
    outStride,
    xStride,
    bf16,
    block: block(k),
    mode: isFast(mode) ? mode | signed : mode,
    zero,
    type,
  };
}

/** Copies a piece to `staging` in its own dtype; of blocks of a file, what kernels find in front of them before. */
function stage({ memory }: Kernels, piece: StoredTensor, staging: number): number {
  const before = blocksOf(piece)?.before ?? [];
  memory.u8(staging, before.length).set(before);
  memory.u8(staging + before.length, piece.bytes.length).set(piece.bytes);
  return staging;
}

/** Copies a piece to `staging` as float32. */
function stageFloats(kernels: Kernels, piece: StoredTensor, staging: number): F32Ptr {
  const [n, k] = piece.shape as [number, number];
  const staged = kernels.memory.f32(staging, n * k);
  const floats = decodeFloats(piece, "", staged);
  if (floats !== staged) staged.set(floats);
  return pointer.f32(staging);
}

// Weights as floats: panels of [k][8].

/** Floats have no scales, sums and minimums. */
function floats(own: Omit<Format, "integers" | "mins" | "signed" | "block" | "sumBytes" | "minBytes">): Format {
  return { integers: false, mins: false, signed: 0, block: () => BLOCK, sumBytes: () => 0, minBytes: () => 0, ...own };
}

const F32: Format = /* @__PURE__ */ floats({
  bits: 32,
  keeps: ["F32", "F64"],
  rows: WEIGHT_F32,
  shape: {},
  work: 0,
  panelBytes: (k) => 4 * PANEL * k,
  pack(kernels, piece, { w }, staging) {
    const [n, k] = piece.shape as [number, number];
    const from = stageFloats(kernels, piece, staging);
    kernels.table.pack_rows_f32(pointer.f32(w), from, n, k, 0, panelsOf(n));
  },
  packInputs(kernels, piece, n, k, to, staging) {
    const [rows] = piece.shape as [number];
    kernels.table.pack_columns_f32(pointer.f32(to), stageFloats(kernels, piece, staging), n, k, 0, rows);
  },
  multiply(table, out, { w, bias }, { x, shape }, begin, end) {
    table.linear_f32(out, x, pointer.f32(w), bias, shape, begin, end);
  },
});

/** 16-bit floats, which the kernel widens. A matrix that has them in its file is moved bit for bit. */
function halves(dtype: "F16" | "BF16", rows: number, bf16: 0 | 1): Format {
  return floats({
    bits: 16,
    keeps: [dtype],
    rows,
    shape: { bf16 },
    work: 4 * F16_SCRATCH,
    panelBytes: (k) => 2 * PANEL * k,
    pack(kernels, piece, { w }, staging) {
      const { table } = kernels;
      const [n, k] = piece.shape as [number, number];
      const [out, panels] = [pointer.u16(w), panelsOf(n)];
      if (piece.dtype === dtype)
        table.repack_rows_f16(out, pointer.u16(stage(kernels, piece, staging)), n, k, 0, panels);
      else table.pack_rows_f16(out, stageFloats(kernels, piece, staging), n, k, bf16, 0, panels);
    },
    packInputs(kernels, piece, n, k, to, staging) {
      const { table } = kernels;
      const [count] = piece.shape as [number];
      const out = pointer.u16(to);
      if (piece.dtype === dtype)
        table.repack_columns_f16(out, pointer.u16(stage(kernels, piece, staging)), n, k, 0, count);
      else table.pack_columns_f16(out, stageFloats(kernels, piece, staging), n, k, bf16, 0, count);
    },
    multiply(table, out, { w, bias }, { x, shape, work }, begin, end) {
      table.linear_f16(out, x, pointer.u16(w), pointer.f32(work), bias, shape, begin, end);
    },
  });
}

const F16: Format = /* @__PURE__ */ halves("F16", WEIGHT_F16, 0);
const BF16: Format = /* @__PURE__ */ halves("BF16", WEIGHT_BF16, 1);

// Weights as integers with a float32 scale for each block of inputs, or one for each output: panels hold for each block [8]
// scales and [block / 2][8][2] integers. Formats with minimums have these in a place of their own.

/** Inputs of a row with one scale whose products are one integer: of exact activations, and of fast ones, which have one scale, too. */
const SUM_INPUTS = 1024;
const FAST_INPUTS = 64;

/** Bytes of a panel of int8 with a scale for each `block` inputs. */
export function int8PanelBytes(k: number, block: number): number {
  return scaleBytes(k, block) + PANEL * wholeBlocks(k);
}

/** Bytes of the sums of a panel of int8: 16 bits for each block of up to 128 inputs, or 64 inputs of a longer one. */
export function int8SumBytes(k: number, block: number): number {
  return 2 * PANEL * Math.ceil(k / (block > LONGEST_BLOCK ? FAST_INPUTS : block));
}

/** Integers of 4 or 8 bits with a scale for each `blockOf(k)` inputs, and the dtypes of files that have such blocks. */
function integers(
  bits: 4 | 8,
  blockOf: (k: number) => number,
  keeps: readonly ("Q8_0" | "Q4_0" | CodedDtype)[],
  mins = false,
): Format {
  const nibbles = bits === 4;
  return {
    ...{ bits, integers: true, mins, keeps, rows: nibbles ? WEIGHT_Q4 : WEIGHT_Q8 },
    signed: nibbles ? SIGNED : 0,
    // Nibbles are from 0 to 15, and without minimums 8 more than what they stand for.
    shape: { zero: nibbles && !mins ? 8 : 0 },
    work: nibbles ? LINEAR_SCRATCH : mins ? MINS_SCRATCH : 0,
    block: blockOf,
    panelBytes: (k) => scaleBytes(k, blockOf(k)) + (PANEL * wholeBlocks(k) * bits) / 8,
    sumBytes: (k) => (nibbles ? 0 : int8SumBytes(k, blockOf(k))),
    minBytes: (k) => (mins ? scaleBytes(k, blockOf(k)) : 0),
    pack(kernels, piece, { w, sums, mins: minsAt }, staging) {
      const { table } = kernels;
      const { dtype } = piece;
      const [n, k] = piece.shape as [number, number];
      const [out, sumsAt, panels] = [pointer.u8(w), pointer.u8(sums), panelsOf(n)];
      if (!keeps.includes(decodedOf(dtype as CodedDtype))) {
        const floats = stageFloats(kernels, piece, staging);
        if (nibbles) table.pack_q4(out, floats, n, k, 0, panels);
        else table.pack_q8(out, sumsAt, floats, n, k, blockOf(k), 0, panels);
        return;
      }
      const blocks = pointer.u8(stage(kernels, piece, staging));
      if (isCoded(dtype)) {
        const type = blocksOf(piece)?.type ?? -CODED_BLOCKS[dtype].bytes;
        table.pack_blocks(out, nibbles ? NULL : sumsAt, blocks, n, k, type, 0, panels);
        // No type with minimums has anything in front of its blocks.
        if (mins) table.pack_mins(pointer.f32(minsAt), blocks, n, k, type, 0, panels);
      } else if (nibbles) table.repack_q4(out, blocks, n, k, 0, panels);
      else table.repack_q8(out, sumsAt, blocks, n, k, 0, panels);
    },
    multiply(table, out, { w, sums, mins: minsAt, bias }, { integers: x, shape, work }, begin, end) {
      const panels = pointer.u8(w);
      if (nibbles) table.linear_q4(out, x, panels, pointer.u8(work), bias, shape, begin, end);
      else table.linear_q8(out, x, panels, pointer.u8(sums), bias, shape, begin, end);
      if (mins) table.subtract_mins(out, x, pointer.f32(minsAt), pointer.f32(work), shape, begin, end);
    },
  };
}

const OF_32 = () => BLOCK;
const OF_16 = () => BLOCK / 2;

const Q8: Format = /* @__PURE__ */ integers(8, OF_32, ["Q8_0", "I8_32"]);
const Q8_MIN: Format = /* @__PURE__ */ integers(8, OF_32, ["I8_32_MIN"], true);
const Q8_16: Format = /* @__PURE__ */ integers(8, OF_16, ["I8_16"]);
const Q8_16_MIN: Format = /* @__PURE__ */ integers(8, OF_16, ["I8_16_MIN"], true);
/** One scale for each output. */
const Q8_ROW: Format = /* @__PURE__ */ integers(8, wholeBlocks, []);
const Q4: Format = /* @__PURE__ */ integers(4, OF_32, ["Q4_0"]);
const Q4_MIN: Format = /* @__PURE__ */ integers(4, OF_32, ["I4_32_MIN"], true);

/** Blocks that a kernel packs as a file has them, and one multiplies. Their scales and minimums lie in panels. */
function kept(
  dtype: CodedDtype,
  linear: "linear_codebook" | "linear_lookup" | "linear_q4_k",
  own: Pick<Format, "rows" | "signed" | "block" | "panelBytes"> & Partial<Pick<Format, "shape">>,
  pack: (table: KernelTable, w: U8Ptr, blocks: U8Ptr, n: number, k: number, type?: number) => void,
): Format {
  return {
    ...{ bits: codeBits(dtype), integers: true, mins: false, keeps: [dtype], shape: {}, work: LINEAR_SCRATCH },
    ...own,
    sumBytes: () => 0,
    minBytes: () => 0,
    pack(kernels, piece, { w }, staging) {
      const [n, k] = piece.shape as [number, number];
      pack(kernels.table, pointer.u8(w), pointer.u8(stage(kernels, piece, staging)), n, k, blocksOf(piece)?.type);
    },
    multiply(table, out, { w, bias }, { integers: x, shape, work }, begin, end) {
      table[linear](out, x, pointer.u8(w), pointer.u8(work), bias, shape, begin, end);
    },
  };
}

/** GGUF's Q4_K: panels hold for each 256 inputs [8] floats for scales and for minimums, these as bytes, and [8] blocks of nibbles. */
const Q4_K: Format = /* @__PURE__ */ kept(
  "I4_K",
  "linear_q4_k",
  { rows: WEIGHT_Q4_K, signed: SIGNED, block: () => SUPER_BLOCK, panelBytes: (k) => (k / SUPER_BLOCK) * Q4_K_BYTES },
  (table, w, blocks, n, k) => table.pack_q4_k(w, blocks, n, k, 0, panelsOf(n)),
);

/** Indices of 4 bits into 16 integers, of which those of IQ4 have 8 bits: panels hold [8] scales for each block, those of IQ4_XS as bytes, and then nibbles. */
function indices(dtype: CodedDtype, type: number, signed: number, block = BLOCK): Format {
  const { length, bytes } = CODED_BLOCKS[dtype];
  const each = bytes + (type === GGML_IQ4_XS ? 2 : 0);
  return kept(
    dtype,
    "linear_codebook",
    { rows: type, signed, shape: { type }, block: () => block, panelBytes: (k) => PANEL * (k / length) * each },
    (table, w, blocks, n, k) => table.pack_codebook(w, blocks, n, k, type, 0, panelsOf(n)),
  );
}

const IQ4_NL: Format = /* @__PURE__ */ indices("I4_NL", GGML_IQ4_NL, 0);
const IQ4_XS: Format = /* @__PURE__ */ indices("I4_XS", GGML_IQ4_XS, 0);
const MXFP4: Format = /* @__PURE__ */ indices("I4_MX", GGML_MXFP4, SIGNED);
const NVFP4: Format = /* @__PURE__ */ indices("I4_NV", GGML_NVFP4, SIGNED, BLOCK / 2);

// Weights as codes of 1 or 2 bits, whose sums are looked up in tables: panels hold for each block 128 bytes of codes, and before each
// [8] scales of 16 bits, or before all of them [8] of 32.

/** Codes of 1 or 2 bits as a dtype has them. Of a row with one scale, a block are the inputs whose sum is an integer. */
function codes(dtype: "I1_128" | "I2_64" | "I2_ROW"): Format {
  const { length, bytes } = CODED_BLOCKS[dtype];
  const isRow = dtype === "I2_ROW";
  const block = isRow ? SUM_INPUTS : length;
  return kept(
    dtype,
    "linear_lookup",
    {
      rows: WEIGHT_LOOKUP,
      signed: 0,
      block: () => block,
      panelBytes: (k) => PANEL * (isRow ? 4 + k / 4 : (k / length) * bytes),
    },
    // Type 0 is PLAIN_CODES.
    (table, w, blocks, n, k, type = 0) => table.pack_lookup(w, blocks, n, k, block, type, 0, panelsOf(n)),
  );
}

const Q2: Format = /* @__PURE__ */ codes("I2_64");
const Q2_ROW: Format = /* @__PURE__ */ codes("I2_ROW");
const Q1: Format = /* @__PURE__ */ codes("I1_128");

// All formats.

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
  "q4-k": Q4_K,
  q2: Q2,
  "q2-row": Q2_ROW,
  q1: Q1,
  "iq4-nl": IQ4_NL,
  "iq4-xs": IQ4_XS,
  mxfp4: MXFP4,
  nvfp4: NVFP4,
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

/** A matrix and its bias. */
export interface CheckedLinear {
  readonly w: StoredTensor;
  readonly bias: Float32Array | undefined;
}

/** Throws unless `format` is a weight format. Returns it. */
export function expectFormat(where: string, name: string, format: unknown): WeightFormat {
  return expectOneOf(where, name, format, WEIGHT_FORMATS);
}

/** A record with a value for each name. */
export function eachOf<Name extends string, T>(names: readonly Name[], create: (name: Name) => T): Record<Name, T> {
  return Object.fromEntries(names.map((name) => [name, create(name)])) as Record<Name, T>;
}

/** Formats of matrices by name, and one format for all as those of each. Throws unless they are weight formats. */
export function expectFormats<Name extends string>(
  where: string,
  path: string,
  given: WeightFormat | Readonly<Partial<Record<Name, WeightFormat | undefined>>> | undefined,
  names: readonly Name[],
): Partial<Record<Name, WeightFormat>> {
  if (given === undefined) return {};
  if (given === null || typeof given !== "object") {
    const format = expectFormat(where, path, given);
    return eachOf(names, () => format);
  }
  expectFields(where, path, given, names);
  const formats: Partial<Record<Name, WeightFormat>> = {};
  for (const name of names) {
    const format = given[name];
    if (format !== undefined) formats[name] = expectFormat(where, `${path}.${name}`, format);
  }
  return formats;
}

/** Whether activations have 7 or 8 bits instead of 14. Throws unless `activations` is undefined, "exact" or "fast". */
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
