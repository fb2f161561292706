// The formats of weights in linear memory, one descriptor each, and the checks of options for them.

import {
  BLOCK,
  F16_SCRATCH,
  LINEAR_SCRATCH,
  MINS_SCRATCH,
  PANEL,
  WEIGHT_BF16,
  WEIGHT_F16,
  WEIGHT_F32,
  WEIGHT_Q4,
  WEIGHT_Q8,
} from "../../../../assembly/layout.ts";
import {
  CODED_BLOCKS,
  type CodedDtype,
  type FloatDtype,
  isCoded,
  type StoredTensor,
} from "../../../base/tensor/dtypes.ts";
import { expectFields, expectFloats, expectOneOf } from "../../../base/util/arguments.ts";
import { HeadwiseError } from "../../../base/util/errors.ts";
import { LinearShape, NULL } from "../../../wasm/abi.ts";
import { aligned, pointer } from "../../../wasm/memory.ts";
import {
  type Format,
  type PackedFormat,
  panelsOf,
  scaleBytes,
  stage,
  stageFloats,
  type WeightFormat,
  wholeBlocks,
} from "./format.ts";

// Weights as floats: panels of [k][8].

/** Floats have no scales, sums and minimums. */
function floats(own: Omit<Format, "integers" | "mins" | "block" | "sumBytes" | "minBytes">): Format {
  return { integers: false, mins: false, block: () => BLOCK, sumBytes: () => 0, minBytes: () => 0, ...own };
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

/** Inputs of a longer block than of 32 whose weights have one sum. */
const SUM_INPUTS = 1024;

/** Bytes of a panel of int8 with a scale for each `block` inputs. */
export function int8PanelBytes(k: number, block: number): number {
  return scaleBytes(k, block) + PANEL * wholeBlocks(k);
}

/** Bytes of the sums of a panel of int8: 16 bits for each block of up to 32, or 32 bits for each 1024 inputs of a longer one. */
export function int8SumBytes(k: number, block: number): number {
  const group = Math.min(block, SUM_INPUTS);
  return PANEL * Math.ceil(k / group) * (group > BLOCK ? 4 : 2);
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
      if (!keeps.some((each) => each === dtype)) {
        const floats = stageFloats(kernels, piece, staging);
        if (nibbles) table.pack_q4(out, floats, n, k, 0, panels);
        else table.pack_q8(out, sumsAt, floats, n, k, blockOf(k), 0, panels);
        return;
      }
      const blocks = pointer.u8(stage(kernels, piece, staging));
      if (isCoded(dtype)) {
        const { bytes } = CODED_BLOCKS[dtype];
        table.pack_blocks(out, nibbles ? NULL : sumsAt, blocks, n, k, bytes, 0, panels);
        if (mins) table.pack_mins(pointer.f32(minsAt), blocks, n, k, bytes, 0, panels);
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
export const LINEAR_WORK_AT: number = /* @__PURE__ */ (() => aligned(LinearShape.bytes))();

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
