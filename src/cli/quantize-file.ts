// Converts a safetensors file to fewer bits. It is read and written in pieces, so that it may be larger than memory.

import { type ByteSource, readRange } from "../files/byte-source.ts";
import { compareLines, type HeaderLine, headerText } from "../files/safetensors/header-writer.ts";
import { asPlain, noteQuantized, QUANTIZED } from "../files/safetensors/quantization.ts";
import { openSafetensors } from "../files/safetensors/safetensors.ts";
import type { TensorEntry } from "../files/tensor-file.ts";
import { BLOCKS, bitsEach, type Dtype, isBlockDtype, type StoredTensor } from "../tensor/dtypes.ts";
import { quantizeTensor, type StoredFormat } from "../tensor/quantize.ts";
import { toFloats } from "../tensor/to-floats.ts";
import { describe, HeadwiseError } from "../util/errors.ts";
import { UsageError } from "./args.ts";
import { unchangedLines } from "./unchanged.ts";

interface FileOptions {
  /** Format of the converted matrices. */
  readonly format: StoredFormat;
  /** Why not to convert the matrix of this name, or undefined to convert it; default `unlessLinear`. */
  readonly excludes?: (name: string) => string | undefined;
  /** Called after every piece, with bytes of the source's tensors. */
  readonly onProgress?: (done: number, total: number, name: string) => void;
}

/** Result of a conversion. */
export interface FileSummary {
  readonly tensors: number;
  readonly quantized: number;
  /** Lines of text about the matrices that were chosen but cannot have the format. */
  readonly kept: readonly string[];
  readonly bytesBefore: number;
  readonly bytesAfter: number;
  /** The matrix with the largest error ‖w - rounded w‖ / ‖w‖. */
  readonly worst: { readonly name: string; readonly error: number } | undefined;
}

/** Elements of a piece; at least one row. The rounded elements are in memory too. */
export const PIECE_ELEMENTS: number = 2 ** 20;
/** Bytes of a piece of a tensor that is copied. */
export const PIECE_BYTES: number = 2 ** 22;

const FLOATS: readonly string[] = ["F64", "F32", "F16", "BF16"];
/** Weights that are not those of a linear layer, and those of routers: rounding them costs more than it saves. */
const UNLIKE_LINEAR = /embed|norm|lm_head|relative|router|(^|\.)(gate|wte|wpe|shared)\.weight$/i;

/** Whether a matrix of this name is likely to be a linear weight of a layer. */
export function isLinearName(name: string): boolean {
  return /(^|[._])weight$/.test(name) && !UNLIKE_LINEAR.test(name);
}

/** Why a matrix of this name is not converted by default, if it is not. */
export function unlessLinear(name: string): string | undefined {
  return isLinearName(name) ? undefined : "its name is not that of a linear weight (--include chooses others)";
}

/** A tensor of the source, and what is written for it. */
interface Move {
  readonly from: TensorEntry;
  readonly line: HeaderLine;
  /** The new format, or undefined for a tensor that is copied. */
  readonly format: StoredFormat | undefined;
  /** Why it is copied. */
  readonly reason?: string;
  /** Whether it was chosen by its name. */
  readonly chosen: boolean;
}

/**
 * Writes the file in `source` with the chosen matrices in another format: the header, then the tensors, in the order and the
 * encoding of `writeSafetensors`. Other tensors are copied.
 * @throws UsageError if no tensor would change, before anything is written, with the reasons.
 * @throws HeadwiseError `BAD_FILE` for a file that breaks the format, and for numbers that the new format cannot represent.
 */
export async function quantizeFile(
  where: string,
  source: ByteSource,
  write: (bytes: Uint8Array) => Promise<void>,
  { format, excludes = unlessLinear, onProgress }: FileOptions,
): Promise<FileSummary> {
  const { metadata, tensors } = await openSafetensors(source);
  const moves = planMoves(tensors, format, excludes);
  if (moves.every(({ format }) => format === undefined))
    throw new UsageError(
      `${where}: IN expected tensors to convert to ${format}, got none among ${moves.length}`,
      unchangedLines(moves),
    );
  const entry = noteQuantized(moves.map(({ from, format }) => ({ ...from, dtype: format ?? (from.dtype as Dtype) })));
  const texts = new Map(metadata);
  if (entry !== undefined) texts.set(QUANTIZED, entry);
  const header = headerText(
    where,
    moves.map(({ line }) => line),
    texts,
  );
  await write(header);

  const total = moves.reduce((sum, { from }) => sum + from.bytes, 0);
  let done = 0;
  let worst: FileSummary["worst"];
  const advance = ({ name }: TensorEntry, bytes: number) => {
    done += bytes;
    onProgress?.(done, total, name);
  };
  for (const { from, format } of moves) {
    if (format === undefined) {
      for (let at = 0; at < from.bytes; at += PIECE_BYTES) {
        const size = Math.min(PIECE_BYTES, from.bytes - at);
        await write(await readRange(where, source, from.offset + at, size));
        advance(from, size);
      }
      continue;
    }
    const error = createError();
    for await (const piece of piecesOf(where, source, from)) {
      const rounded = round(where, piece, format);
      error.add(piece, rounded);
      await write(rounded.bytes);
      advance(from, piece.bytes.length);
    }
    const relative = error.relative();
    if (!Number.isFinite(relative)) refuse(where, from, format);
    if (worst === undefined || relative > worst.error) worst = { name: from.name, error: relative };
  }
  return {
    tensors: moves.length,
    quantized: moves.filter(({ format }) => format !== undefined).length,
    kept: unchangedLines(moves.filter(({ chosen }) => chosen)),
    bytesBefore: source.size,
    bytesAfter: header.length + moves.reduce((sum, { line }) => sum + line.size, 0),
    worst,
  };
}

/** What is written for each tensor, in order. */
function planMoves(
  tensors: ReadonlyMap<string, TensorEntry>,
  format: StoredFormat,
  excludes: (name: string) => string | undefined,
): readonly Move[] {
  const transposed = isTransposed(tensors);
  const moves = Array.from(tensors.values(), (from): Move => {
    const excluded = unlike(from, format) ?? excludes(from.name);
    const reason = excluded ?? unfit(from, format, transposed);
    const to = reason === undefined ? format : undefined;
    return {
      from,
      line: lineOf(from, to ?? (from.dtype as Dtype)),
      format: to,
      reason,
      chosen: excluded === undefined,
    };
  });
  return moves.sort((a, b) => compareLines(a.line, b.line));
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

/** A matrix in pieces of whole rows. */
async function* piecesOf(where: string, source: ByteSource, from: TensorEntry): AsyncGenerator<StoredTensor> {
  const [n, k] = from.shape as [number, number];
  const width = from.bytes / n;
  const rows = Math.max(1, Math.floor(PIECE_ELEMENTS / k));
  for (let r = 0; r < n; r += rows) {
    const count = Math.min(rows, n - r);
    const bytes = await readRange(where, source, from.offset + r * width, count * width);
    yield { name: from.name, dtype: from.dtype as Dtype, shape: [count, k], bytes };
  }
}

function round(where: string, piece: StoredTensor, format: StoredFormat): StoredTensor {
  try {
    return quantizeTensor(piece, format);
  } catch (cause) {
    return refuse(where, piece, format, cause);
  }
}

function refuse(where: string, { name }: { readonly name: string }, format: StoredFormat, cause?: unknown): never {
  throw new HeadwiseError(
    "BAD_FILE",
    `${where}: tensor ${describe(name)} expected numbers that ${format} can represent, got others`,
    {
      cause,
    },
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
