// Converts a safetensors file to fewer bits. It is read and written in pieces, so that it may be larger than memory.

import { type ByteSource, readRange } from "../files/byte-source.ts";
import { compareLines, type HeaderLine, headerText } from "../files/safetensors/header-writer.ts";
import { asPlain, noteQuantized, QUANTIZED } from "../files/safetensors/quantization.ts";
import { openSafetensors } from "../files/safetensors/safetensors.ts";
import type { TensorEntry } from "../files/tensor-file.ts";
import { BLOCKS, bitsEach, type Dtype, isBlockDtype, type StoredTensor, toFloats } from "../tensor/dtypes.ts";
import { quantizeTensor, type StoredFormat } from "../tensor/quantize.ts";
import { describe, HeadwiseError } from "../util/errors.ts";

interface FileOptions {
  /** Format of the converted matrices. */
  readonly format: StoredFormat;
  /** Whether to convert the matrix of this name; default `isLinearName`. */
  readonly chooses?: (name: string) => boolean;
  /** Called after every piece, with bytes of the source's tensors. */
  readonly onProgress?: (done: number, total: number, name: string) => void;
}

/** Result of a conversion. */
export interface FileSummary {
  readonly tensors: number;
  readonly quantized: number;
  /** Matrices that were chosen but cannot have the format: name -> reason. */
  readonly kept: ReadonlyMap<string, string>;
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

/** A tensor of the source, and what is written for it. */
interface Move {
  readonly from: TensorEntry;
  readonly line: HeaderLine;
  readonly format: StoredFormat | undefined;
}

/**
 * Writes the file in `source` with the chosen matrices in another format: the header, then the tensors, in the order and the
 * encoding of `writeSafetensors`. Other tensors are copied.
 * @throws HeadwiseError `BAD_FILE` for a file that breaks the format, and for numbers that the new format cannot represent.
 */
export async function quantizeFile(
  where: string,
  source: ByteSource,
  write: (bytes: Uint8Array) => Promise<void>,
  { format, chooses = isLinearName, onProgress }: FileOptions,
): Promise<FileSummary> {
  const { metadata, tensors } = await openSafetensors(source);
  const { moves, kept } = planMoves(tensors, format, chooses);
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
    kept,
    bytesBefore: source.size,
    bytesAfter: header.length + moves.reduce((sum, { line }) => sum + line.size, 0),
    worst,
  };
}

/** What is written for each tensor, in order, and the chosen matrices that stay as they are, with the reason. */
function planMoves(
  tensors: ReadonlyMap<string, TensorEntry>,
  format: StoredFormat,
  chooses: (name: string) => boolean,
): { moves: readonly Move[]; kept: ReadonlyMap<string, string> } {
  const transposed = isTransposed(tensors);
  const kept = new Map<string, string>();
  const moves = Array.from(tensors.values(), (from): Move => {
    const copy = { from, line: lineOf(from, from.dtype as Dtype), format: undefined };
    const isMatrix = FLOATS.includes(from.dtype) && from.shape.length === 2;
    if (!isMatrix || from.dtype === format || !chooses(from.name)) return copy;
    const reason = unfit(from, format, transposed);
    if (reason === undefined) return { from, line: lineOf(from, format), format };
    kept.set(from.name, reason);
    return copy;
  });
  return { moves: moves.sort((a, b) => compareLines(a.line, b.line)), kept };
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
