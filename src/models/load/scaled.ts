// Matrices that a file stores with one scale for all of their numbers, such as BitNet's of -1, 0 and 1: they are read as blocks of
// integers from 0 to 2 with that scale and as much as a minimum, or as float32 where rows are no whole blocks. Only the scale is
// rounded, to float32.

import { BLOCK } from "../../../assembly/layout.ts";
import {
  CODED_BLOCKS,
  type CodedDtype,
  codeBits,
  codedOf,
  decodedOf,
  eachCode,
  isCoded,
  type StoredTensor,
  shapeText,
  toFloats,
} from "../../base/tensor/dtypes.ts";
import { elementsIn } from "../../base/tensor/tensor.ts";
import { describe, HeadwiseError } from "../../base/util/errors.ts";
import { chunksOf } from "../../base/util/rows.ts";
import type { ModelFiles } from "../../files/model-files.ts";
import { type Decoder, findRoot, sourcesOf } from "../spec/tensors.ts";

type Files = Pick<ModelFiles, "tensors" | "file" | "pieceBytes">;
type Tensors = Files["tensors"];

/** What holds -1, 0 and 1 with a scale in rows of k: codes of 2 bits, integers from 0 to 2, or undefined, where rows are no blocks. */
const ternaryFor = (k: number) =>
  k % CODED_BLOCKS.I2_ROW.length === 0 ? "I2_ROW" : k % BLOCK === 0 ? "I4_32_MIN" : undefined;

/** Rows of a matrix that lie in each byte of a packed one. */
const PACKED = 4;

/** What codes times a scale are, since their own have 16 bits. */
const MULTIPLIED = "I4_32_MIN";

/** What a matrix times a scale is; undefined for floats. */
function multipliedFor(dtype: string): CodedDtype | undefined {
  if (!isCoded(dtype)) return undefined;
  return codeBits(decodedOf(dtype)) < 8 ? MULTIPLIED : decodedOf(dtype);
}

/** A matrix with one scale: as what it is read, and the name of that scale if it is stored. */
interface Scaled {
  readonly facts: Tensors extends ReadonlyMap<string, infer Entry> ? Entry : never;
  readonly scale: string | undefined;
}

const SCALE = { product: ".scale", packed: ".weight_scale", divided: ".weight_scale", online: undefined } as const;

/** The matrices of a file that have one scale, by name. */
function scaledIn(decoder: Decoder, tensors: Tensors): ReadonlyMap<string, Scaled> {
  const { scales } = decoder.family;
  if (scales === undefined) return new Map();
  const found = new Map<string, Scaled>();
  for (const { name, weights } of sourcesOf(decoder, findRoot(decoder, tensors))) {
    const stored = tensors.get(name);
    const scale = SCALE[scales] && name.replace(/\.weight$/, SCALE[scales]);
    const isMatrix = weights[0]?.part === "attention" || weights[0]?.part === "mlp";
    if (!isMatrix || stored?.shape.length !== 2 || (scale && !tensors.has(scale))) continue;
    const isPacked = scale !== undefined && scales !== "product";
    if (isPacked && stored.dtype !== "U8") continue;
    const [rows, k] = stored.shape as [number, number];
    const shape = [isPacked ? PACKED * rows : rows, k];
    const dtype = scales === "product" ? multipliedFor(stored.dtype) : ternaryFor(k);
    const each = dtype ? CODED_BLOCKS[dtype].bytes / CODED_BLOCKS[dtype].length : 4;
    const bytes = (shape[0] as number) * k * each;
    found.set(name, { facts: { name, dtype: dtype ?? "F32", shape, bytes }, scale });
  }
  return found;
}

/** The tensors of a file as they are read: scales are parts of matrices. */
export function scaledTensors(decoder: Decoder, tensors: Tensors): Tensors {
  const own = scaledIn(decoder, tensors);
  const scales = new Set([...own.values()].map(({ scale }) => scale));
  return new Map(
    [...tensors].filter(([name]) => !scales.has(name)).map(([name, facts]) => [name, own.get(name)?.facts ?? facts]),
  );
}

/** Files whose matrices with one scale are read as the package can pack them. */
export function scaledFiles(where: string, decoder: Decoder, files: ModelFiles): ModelFiles {
  const { tensors, file, pieceBytes } = files;
  const { scales } = decoder.family;
  if (scales === undefined) return files;
  const own = scaledIn(decoder, tensors);
  const known = new Map<string, number>();
  /** The scale of a matrix, read first: each read overwrites what the last one gave. */
  const scaleOf = async (name: string): Promise<number> => {
    const { scale } = own.get(name) as Scaled;
    const value = known.get(name) ?? (scale ? await readScale(scale) : await meanOf(name));
    known.set(name, value);
    return value;
  };
  const readScale = async (name: string): Promise<number> => {
    const stored = (await file.readAll([name], where)).get(name) as StoredTensor;
    const [value = 0, ...more] = toFloats(stored, where);
    if (more.length > 0 || !(value > 0 && value < Infinity))
      throw new HeadwiseError(
        "BAD_FILE",
        `${where}: tensor ${describe(name)} expected one number > 0, got ${more.length > 0 ? shapeText(stored.shape) : value}`,
      );
    return scales === "divided" ? 1 / value : value;
  };
  /** The mean magnitude. */
  const meanOf = async (name: string): Promise<number> => {
    const { shape, bytes } = tensors.get(name) as { shape: readonly number[]; bytes: number };
    const [rows, k] = shape as [number, number];
    let sum = 0;
    for (const [begin, end] of chunksOf(rows, Math.max(1, Math.floor((pieceBytes * rows) / bytes))))
      for (const value of toFloats(await file.readRows(name, begin, end, where), where)) sum += Math.abs(value);
    return Math.max(sum / (rows * k), 1e-5);
  };
  const times = (stored: StoredTensor, scale: number): StoredTensor => {
    if (scales === "product") return multiplied(codedOf(stored), scale);
    const [rows, k] = stored.shape as [number, number];
    const signs = scales === "online" ? signsOf(toFloats(stored, where), scale) : unpacked(stored.bytes);
    return ternary(stored.name, signs, [scales === "online" ? rows : PACKED * rows, k], scale);
  };
  return {
    ...files,
    tensors: scaledTensors(decoder, tensors),
    file: {
      async readAll(wanted) {
        const names = [...wanted];
        const all = new Map<string, number>();
        for (const name of names) if (own.has(name)) all.set(name, await scaleOf(name));
        const found = await file.readAll(names, where);
        return new Map([...found].map(([name, each]) => [name, own.has(name) ? times(each, all.get(name)!) : each]));
      },
      async readRows(name, begin, end) {
        const { facts } = own.get(name) ?? {};
        if (facts === undefined) return file.readRows(name, begin, end, where);
        const scale = await scaleOf(name);
        if (scales === "product" || scales === "online")
          return times(await file.readRows(name, begin, end, where), scale);
        // Each quarter of the rows has two bits of all bytes.
        const [n, k] = facts.shape as [number, number];
        const signs = new Int8Array((end - begin) * k);
        for (let quarter = 0; quarter < PACKED; quarter++) {
          const first = (quarter * n) / PACKED;
          const [from, to] = [Math.max(begin, first), Math.min(end, first + n / PACKED)];
          if (from >= to) continue;
          const { bytes } = await file.readRows(name, from - first, to - first, where);
          signs.set(signsIn(bytes, quarter), (from - begin) * k);
        }
        return ternary(name, signs, [end - begin, k], scale);
      },
    },
  };
}

/** The numbers in bits 2·quarter and above of bytes. */
const signsIn = (bytes: Uint8Array, quarter: number): Int8Array =>
  Int8Array.from(bytes, (byte) => ((byte >> (2 * quarter)) & 3) - 1);

/** Those of all quarters, one behind the other. */
function unpacked(bytes: Uint8Array): Int8Array {
  const signs = new Int8Array(PACKED * bytes.length);
  for (let quarter = 0; quarter < PACKED; quarter++) signs.set(signsIn(bytes, quarter), quarter * bytes.length);
  return signs;
}

/** Floats over `mean` as the nearest of -1, 0 and 1, halves to 0. */
const signsOf = (data: Float32Array, mean: number): Int8Array =>
  Int8Array.from(data, (value) => (Math.abs(value * (1 / mean)) > 0.5 ? Math.sign(value) : 0));

/** A matrix of small integers times a scale. */
function ternary(name: string, signs: Int8Array, shape: readonly [n: number, k: number], scale: number): StoredTensor {
  const dtype = ternaryFor(shape[1]);
  if (dtype === undefined) {
    const floats = Float32Array.from(signs, (sign) => sign * Math.fround(scale));
    return { name, dtype: "F32", shape, bytes: new Uint8Array(floats.buffer) };
  }
  const { length, bytes: stride } = CODED_BLOCKS[dtype];
  const bytes = new Uint8Array((signs.length / length) * stride);
  const view = new DataView(bytes.buffer);
  for (let block = 0; block * length < signs.length; block++) {
    const own = signs.subarray(block * length, (block + 1) * length);
    const at = block * stride;
    view.setFloat32(at, scale, true);
    if (dtype === "I2_ROW")
      for (const [i, sign] of own.entries()) bytes[at + 4 + (i >> 2)]! |= (sign + 1) << ((i & 3) << 1);
    else {
      view.setFloat32(at + 4, scale, true);
      bytes.set(
        own.map((sign) => sign + 1),
        at + 8,
      );
    }
  }
  return { name, dtype, shape, bytes };
}

/** Codes times a scale, as the code less 1: of code 3, which files beside scales do not have, the difference is rounded. */
function codesTimes(stored: StoredTensor, dtype: CodedDtype, scale: number): StoredTensor {
  const { length, bytes: stride } = CODED_BLOCKS[MULTIPLIED];
  const bytes = new Uint8Array((elementsIn(stored.shape) / length) * stride);
  const view = new DataView(bytes.buffer);
  eachCode(dtype, stored.bytes, (i, own, weight) => {
    const at = Math.floor(i / length) * stride;
    if (i % length === 0) for (const each of [0, 4]) view.setFloat32(at + each, own * scale, true);
    bytes[at + stride - length + (i % length)] = weight + 1;
  });
  return { ...stored, dtype: MULTIPLIED, bytes };
}

/** A matrix times a scale: of blocks, their scales and minimums. */
function multiplied(stored: StoredTensor, scale: number): StoredTensor {
  if (!isCoded(stored.dtype)) {
    const floats = toFloats(stored).map((value) => value * scale);
    return { ...stored, dtype: "F32", bytes: new Uint8Array(floats.buffer) };
  }
  if (codeBits(stored.dtype) < 8) return codesTimes(stored, stored.dtype, scale);
  const bytes = stored.bytes.slice();
  const view = new DataView(bytes.buffer);
  const { length, bytes: stride } = CODED_BLOCKS[stored.dtype];
  for (let block = 0; block < bytes.length; block += stride)
    for (let at = block; at < block + stride - length; at += 4)
      view.setFloat32(at, scale * view.getFloat32(at, true), true);
  return { ...stored, bytes };
}
