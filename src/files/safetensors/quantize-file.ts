// A safetensors file in fewer bits, read and written in pieces, so that it may be larger than memory.

import {
  BLOCKS,
  bitsEach,
  type Dtype,
  isBlockDtype,
  quantizeTensor,
  STORED_FORMATS,
  type StoredFormat,
  type StoredTensor,
  toFloats,
} from "../../base/tensor/dtypes.ts";
import { expectFunction, expectOneOf, readFields } from "../../base/util/arguments.ts";
import { describe, HeadwiseError, tagOf } from "../../base/util/errors.ts";
import { type ByteSource, type BytesOrSource, readRange, toSource } from "../byte-source.ts";
import type { TensorEntry } from "../tensor-file.ts";
import { compareLines, type HeaderLine, headerText } from "./header.ts";
import { asPlain, noteQuantized, openFile, QUANTIZED } from "./safetensors.ts";

/** Options of `quantizeSafetensors`. */
export interface QuantizeSafetensorsOptions {
  /** Format of the matrices that are converted. Q8_0 and Q4_0 are for matrices whose rows are a multiple of 32. */
  readonly format: StoredFormat;
  /**
   * Names of the matrices to convert. Default those of the linear weights of layers: names that end in "weight", except of
   * embeddings, norms, routers and heads of vocabularies, whose rounding costs more than it saves.
   */
  readonly include?: RegExp | undefined;
  /** Names of matrices that stay as they are, also if they are included. */
  readonly keep?: RegExp | undefined;
  /** Called after each piece that was taken, with bytes of the source's tensors, and the tensor that the piece is of. */
  readonly onProgress?: ((done: number, all: number, name: string) => void) | undefined;
}

/** What becomes of a tensor. */
export interface QuantizedTensor {
  /** Name, in both files. */
  readonly name: string;
  /** Name of the dtype in the source. */
  readonly dtype: string;
  /** Dimensions, the outermost first. */
  readonly shape: readonly number[];
  /** The new format; undefined for a tensor that is copied. */
  readonly format: StoredFormat | undefined;
  /** Why it is copied, in words; undefined for one that is converted. */
  readonly reason: string | undefined;
  /** Whether it is a matrix of floats that was chosen by its name: if it is copied, it cannot have the format. */
  readonly chosen: boolean;
}

/** A safetensors file in fewer bits: its bytes in pieces of 4 MB at most, in order, for `for await`. */
export interface QuantizedSafetensors extends AsyncIterable<Uint8Array> {
  /** Size of the new file in bytes. */
  readonly bytes: number;
  /** What becomes of each tensor, in the order of the new file. */
  readonly tensors: readonly QuantizedTensor[];
  /** Of each matrix whose pieces were all taken, by its name: ‖rounded w - w‖ / ‖w‖, the ratio of the Frobenius norms. */
  readonly errors: ReadonlyMap<string, number>;
}

const WHERE = "quantizeSafetensors";

/** Elements of a piece; at least one row. The rounded elements are in memory too. */
const PIECE_ELEMENTS: number = 2 ** 20;
/** Bytes of a piece of a tensor that is copied. */
const PIECE_BYTES: number = 2 ** 22;

const FLOATS: readonly string[] = ["F64", "F32", "F16", "BF16"];
/** Weights that are not those of a linear layer, and those of routers. */
const UNLIKE_LINEAR = /embed|norm|lm_head|relative|router|(^|\.)(gate|wte|wpe|shared)\.weight$/i;

/** Whether a matrix of this name is likely to be a linear weight of a layer. */
function isLinearName(name: string): boolean {
  return /(^|[._])weight$/.test(name) && !UNLIKE_LINEAR.test(name);
}

/** A tensor of the source, what becomes of it, and its line in the header. */
interface Move {
  readonly from: TensorEntry;
  readonly to: QuantizedTensor;
  readonly line: HeaderLine;
}

/**
 * Converts the linear weights in a safetensors file to fewer bits, as `quantizeTensor` does, and copies all other tensors. The bytes
 * are those that `writeSafetensors` gives for the same tensors. The source is read while the pieces are taken, some megabytes at
 * a time, so that the file may be larger than memory; `readSafetensors` and `openSafetensors` read the result.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `BAD_FILE` for a file that breaks the format; and, while
 * pieces are taken, for bytes that cannot be read and for numbers that the new format cannot represent.
 * @example
 * import { quantizeSafetensors, readSafetensors, writeSafetensors } from "headwise/weights";
 * const w = { data: Float32Array.from({ length: 64 }, (_, i) => i / 64), shape: [2, 32] };
 * const file = await quantizeSafetensors(writeSafetensors({ "up.weight": w, "norm.weight": w }), { format: "Q8_0" });
 * console.log(file.bytes, file.tensors.map(({ name, format }) => `${name} ${format}`)); // 564 [ 'norm.weight undefined', 'up.weight Q8_0' ]
 * const pieces: Uint8Array[] = [];
 * for await (const piece of file) pieces.push(piece);
 * const written = new Uint8Array(await new Blob(pieces as BlobPart[]).arrayBuffer());
 * console.log(readSafetensors(written).tensors.get("up.weight")?.dtype, file.errors.get("up.weight")! < 0.01); // Q8_0 true
 */
export async function quantizeSafetensors(
  source: BytesOrSource,
  options: QuantizeSafetensorsOptions,
): Promise<QuantizedSafetensors> {
  const given = readFields(WHERE, "options", options, ["format", "include", "keep", "onProgress"]);
  const { format, onProgress } = given;
  expectOneOf(WHERE, "options.format", format, STORED_FORMATS);
  for (const name of ["include", "keep"] as const)
    if (given[name] !== undefined && tagOf(given[name]) !== "RegExp")
      throw new TypeError(`${WHERE}: options.${name} expected a RegExp, got ${describe(given[name])}`);
  if (onProgress !== undefined) expectFunction(WHERE, "options.onProgress", onProgress);
  const from = toSource(WHERE, source);
  const { metadata, tensors } = await openFile(WHERE, from);
  const moves = planMoves(tensors, given);
  const note = noteQuantized(moves.map(({ from, to }) => ({ ...from, dtype: to.format ?? (from.dtype as Dtype) })));
  const texts = new Map(metadata);
  if (note !== undefined) texts.set(QUANTIZED, note);
  const lines = moves.map(({ line }) => line);
  const header = headerText(WHERE, lines, texts);
  const errors = new Map<string, number>();
  return {
    bytes: header.length + lines.reduce((sum, { size }) => sum + size, 0),
    tensors: moves.map(({ to }) => to),
    errors,
    [Symbol.asyncIterator]: () => piecesOf(from, header, moves, errors, onProgress),
  };
}

/** What is written for each tensor, in order. */
function planMoves(tensors: ReadonlyMap<string, TensorEntry>, options: QuantizeSafetensorsOptions): readonly Move[] {
  const { format } = options;
  const transposed = isTransposed(tensors);
  const moves = Array.from(tensors.values(), (from): Move => {
    const { name, dtype, shape } = from;
    const excluded = unlike(from, format) ?? excludedBy(name, options);
    const reason = excluded ?? unfit(from, format, transposed);
    const to = { name, dtype, shape, format: reason === undefined ? format : undefined, reason };
    return { from, to: { ...to, chosen: excluded === undefined }, line: lineOf(from, to.format ?? (dtype as Dtype)) };
  });
  return moves.sort((a, b) => compareLines(a.line, b.line));
}

/** Why a matrix of this name is not converted, if it is not. `search` begins at the start whatever was matched before. */
function excludedBy(name: string, { include, keep }: QuantizeSafetensorsOptions): string | undefined {
  if (keep && name.search(keep) >= 0) return "keep matches its name";
  if (include) return name.search(include) >= 0 ? undefined : "include does not match its name";
  return isLinearName(name) ? undefined : "its name is not that of a linear weight (include chooses others)";
}

/** Why a tensor is none that could be converted, whatever its name is. */
function unlike({ dtype, shape }: TensorEntry, format: StoredFormat): string | undefined {
  if (dtype === format) return "it has this format already";
  if (!FLOATS.includes(dtype)) return `its dtype is none of ${FLOATS.join(", ")}`;
  return shape.length === 2 ? undefined : `its rank is ${shape.length}, not 2`;
}

/** Whether linear weights are [inputs, outputs], as GPT-2's are: blocks would then lie across the sums. */
function isTransposed(tensors: ReadonlyMap<string, TensorEntry>): boolean {
  return Array.from(tensors.values()).some(
    ({ name, shape: [inputs = 0, outputs] }) => /(^|\.)c_attn\.weight$/.test(name) && outputs === 3 * inputs,
  );
}

/** Why a matrix cannot have the format, if it cannot. */
function unfit({ name, shape }: TensorEntry, format: StoredFormat, transposed: boolean): string | undefined {
  if (!isBlockDtype(format)) return undefined;
  const { length } = BLOCKS[format];
  if ((shape[1] as number) % length !== 0) return `its rows are not a multiple of ${length}`;
  return transposed && /(^|\.)c_\w+\.weight$/.test(name) ? "its layout is [inputs, outputs]" : undefined;
}

/** The entry of the header for a tensor that is written as `dtype`. */
function lineOf({ name, dtype: before, shape, bytes }: TensorEntry, dtype: Dtype): HeaderLine {
  const size = dtype === before ? bytes : (bytes / bitsEach(before as Dtype)) * bitsEach(dtype);
  return { name, ...asPlain(dtype, shape), size };
}

/** The header, then the tensors. A piece counts as done when the next one is asked for. */
async function* piecesOf(
  source: ByteSource,
  header: Uint8Array,
  moves: readonly Move[],
  errors: Map<string, number>,
  onProgress: QuantizeSafetensorsOptions["onProgress"],
): AsyncGenerator<Uint8Array, void, undefined> {
  yield header;
  const all = moves.reduce((sum, { from }) => sum + from.bytes, 0);
  let done = 0;
  const advance = ({ name }: TensorEntry, bytes: number) => {
    done += bytes;
    onProgress?.(done, all, name);
  };
  for (const { from, to } of moves) {
    const { format } = to;
    if (format === undefined) {
      for (let at = 0; at < from.bytes; at += PIECE_BYTES) {
        const size = Math.min(PIECE_BYTES, from.bytes - at);
        yield await readRange(WHERE, source, from.offset + at, size);
        advance(from, size);
      }
      continue;
    }
    const error = createError();
    for await (const piece of rowsOf(source, from)) {
      const rounded = round(piece, format);
      error.add(piece, rounded);
      yield rounded.bytes;
      advance(from, piece.bytes.length);
    }
    const relative = error.relative();
    if (!Number.isFinite(relative)) refuse(from, format);
    errors.set(from.name, relative);
  }
}

/** A matrix in pieces of whole rows. */
async function* rowsOf(source: ByteSource, from: TensorEntry): AsyncGenerator<StoredTensor> {
  const [n, k] = from.shape as [number, number];
  const width = from.bytes / n;
  const rows = Math.max(1, Math.floor(PIECE_ELEMENTS / k));
  for (let r = 0; r < n; r += rows) {
    const count = Math.min(rows, n - r);
    const bytes = await readRange(WHERE, source, from.offset + r * width, count * width);
    yield { name: from.name, dtype: from.dtype as Dtype, shape: [count, k], bytes };
  }
}

function round(piece: StoredTensor, format: StoredFormat): StoredTensor {
  try {
    return quantizeTensor(piece, format);
  } catch (cause) {
    return refuse(piece, format, cause);
  }
}

function refuse({ name }: { readonly name: string }, format: StoredFormat, cause?: unknown): never {
  throw new HeadwiseError(
    "BAD_FILE",
    `${WHERE}: tensor ${describe(name)} expected numbers that ${format} can represent, got others`,
    { cause },
  );
}

/** The error of a matrix over all its pieces. */
function createError(): { add(exact: StoredTensor, rounded: StoredTensor): void; relative(): number } {
  let lost = 0;
  let all = 0;
  return {
    add(exact, rounded) {
      const [a, b] = [toFloats(exact), toFloats(rounded)];
      for (let i = 0; i < a.length; i++) {
        const value = a[i] as number;
        const difference = value - (b[i] as number);
        lost += difference * difference;
        all += value * value;
      }
    },
    relative: () => (all === 0 ? lost : Math.sqrt(lost / all)),
  };
}
