// `headwise quantize`: converts a safetensors file to fewer bits.

import {
  closeSync,
  fchmodSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  type Stats,
  statSync,
  writeSync,
} from "node:fs";
import { readlink } from "node:fs/promises";
import { basename, dirname, isAbsolute, join } from "node:path";
import { BLOCKS, bitsEach, type Dtype, isBlockDtype, type StoredTensor } from "../base/tensor/dtypes.ts";
import { quantizeTensor, type StoredFormat } from "../base/tensor/quantize.ts";
import { toFloats } from "../base/tensor/to-floats.ts";
import { describe, HeadwiseError, plainText } from "../base/util/errors.ts";
import { type ByteSource, fileSource, readRange } from "../files/byte-source.ts";
import { compareLines, type HeaderLine, headerText } from "../files/safetensors/header.ts";
import { asPlain, noteQuantized, QUANTIZED } from "../files/safetensors/quantization.ts";
import { openSafetensors } from "../files/safetensors/safetensors.ts";
import type { TensorEntry } from "../files/tensor-file.ts";
import { FileError, readArguments, UsageError } from "./args.ts";
import { aboutFile, openFile } from "./files.ts";
import { createProgress, print, sizeText } from "./terminal.ts";

/** A tensor of a file, and why it is not converted, unless it is. */
interface Candidate {
  readonly from: TensorEntry;
  readonly reason?: string;
}

/** Tensors whose names differ in numbers alone, of one dtype and shape. */
interface Kind {
  /** The name of the only one, or the common name with N for each number. */
  readonly name: string;
  readonly count: number;
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly reason: string;
}

const MOST_KINDS = 20;

/** The tensors that are not converted as lines of text, one for each kind, and why. */
export function unchangedLines(candidates: readonly Candidate[]): string[] {
  const kinds = kindsOf(candidates);
  const lines = kinds.slice(0, MOST_KINDS).map(({ name, count, dtype, shape, reason }) => {
    const times = count === 1 ? "" : `${count} x `;
    return `unchanged ${times}${plainText(name)} ${dtype} [${shape.join(", ")}]: ${reason}`;
  });
  const more = kinds.length - lines.length;
  return more > 0 ? [...lines, `unchanged ${more} more kinds of tensors`] : lines;
}

/** The most frequent ones first. */
function kindsOf(candidates: readonly Candidate[]): Kind[] {
  const kinds = new Map<string, Kind>();
  for (const { from, reason } of candidates) {
    if (reason === undefined) continue;
    const { dtype, shape } = from;
    const name = from.name.replace(/\d+/g, "N");
    const key = JSON.stringify([name, dtype, shape, reason]);
    const count = (kinds.get(key)?.count ?? 0) + 1;
    kinds.set(key, { name: count === 1 ? from.name : name, count, dtype, shape, reason });
  }
  return [...kinds.values()].sort((a, b) => b.count - a.count || (a.name < b.name ? -1 : 1));
}

// Converts a safetensors file to fewer bits. It is read and written in pieces, so that it may be larger than memory.

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

const FORMATS: Readonly<Record<string, StoredFormat>> = { q8: "Q8_0", q4: "Q4_0", f16: "F16", bf16: "BF16" };

const HELP = `headwise quantize IN.safetensors OUT.safetensors --weights q8|q4|f16|bf16

Writes a copy of a safetensors file with the linear weights of its layers in fewer bits. Other
tensors are unchanged. The file is processed in pieces and may be larger than memory.

  --weights FORMAT   q8, q4: 8 or 4 bits per element and one scale for each 32 (GGUF's Q8_0 and
                     Q4_0), for matrices whose rows are a multiple of 32; or f16, bf16
  --include REGEX    names of the matrices to convert (default: names that end in weight, except
                     embeddings, norms, lm_head and routers)
  --keep REGEX       names of matrices to leave unchanged
  --force            overwrite OUT if it exists`;

const OPTIONS = {
  weights: { type: "string" },
  include: { type: "string" },
  keep: { type: "string" },
  force: { type: "boolean", default: false },
  help: { type: "boolean", short: "h", default: false },
} as const;

/** `headwise quantize`. */
export async function quantize(args: string[]): Promise<void> {
  const { values, positionals } = readArguments("quantize", args, OPTIONS);
  if (values.help) return print(HELP);
  const [from, to, ...more] = positionals;
  if (from === undefined || to === undefined || more.length > 0)
    throw new UsageError(`quantize: expected two files, IN and OUT, got ${positionals.length}`);
  const { weights } = values;
  const format = weights !== undefined && Object.hasOwn(FORMATS, weights) ? FORMATS[weights] : undefined;
  if (format === undefined)
    throw new UsageError(`quantize: --weights expected ${Object.keys(FORMATS).join(", ")}, got ${weights ?? "none"}`);
  const include = readPattern("--include", values.include);
  const keep = readPattern("--keep", values.keep);
  const excludes = (name: string) => {
    if (keep?.test(name)) return "--keep matches its name";
    if (include) return include.test(name) ? undefined : "--include does not match its name";
    return unlessLinear(name);
  };
  const old = writing(() => statSync(to, { throwIfNoEntry: false }));
  if (old !== undefined && !old.isFile()) throw new FileError(`quantize: OUT expected a regular file, got ${to}`);
  if (old !== undefined && !values.force)
    throw new FileError(`quantize: OUT expected a new file (or --force), got ${to}, which exists`);

  const input = await openFile("quantize", "IN", from);
  const progress = createProgress(process.stderr, () => performance.now());
  const onProgress = (done: number, total: number, name: string) =>
    progress.at(done / total, `${sizeText(done)} of ${sizeText(total)}  ${plainText(name)}`);
  try {
    const source = await fileSource(input);
    const summary = await writeWhole(await follow(to), old, (write) =>
      quantizeFile("quantize", source, write, { format, excludes, onProgress }),
    );
    progress.end();
    print(summaryText(summary, weights as string));
  } catch (error) {
    throw aboutFile("quantize", from, error);
  } finally {
    progress.end();
    await input.close();
  }
}

function readPattern(name: string, text: string | undefined): RegExp | undefined {
  if (text === undefined) return undefined;
  try {
    return new RegExp(text, "u");
  } catch (error) {
    throw new UsageError(`quantize: ${name} expected a regular expression, got ${(error as Error).message}`);
  }
}

/** Replaces the file at `path` by what `produce` writes, with the mode of the `old` one. If that fails, the file is unchanged. */
async function writeWhole<T>(
  path: string,
  old: Stats | undefined,
  produce: (write: (bytes: Uint8Array) => Promise<void>) => Promise<T>,
): Promise<T> {
  // In the same folder, since a rename works within one file system only.
  const unfinished = `${path}.${process.pid}.${crypto.randomUUID().slice(0, 8)}.part`;
  removeStale(path);
  const interrupted = (signal: NodeJS.Signals) => {
    rmSync(unfinished, { force: true });
    process.kill(process.pid, signal);
  };
  for (const signal of SIGNALS) process.once(signal, interrupted);
  try {
    // Synchronous: an asynchronous open could create the file after the handler has removed it.
    const output = writing(() => openSync(unfinished, "wx", old?.mode));
    try {
      let result: T;
      try {
        if (old !== undefined) writing(() => fchmodSync(output, old.mode));
        result = await produce(async (bytes) => {
          for (let at = 0; at < bytes.length; ) at += writing(() => writeSync(output, bytes, at));
        });
      } finally {
        writing(() => closeSync(output));
      }
      writing(() => renameSync(unfinished, path));
      return result;
    } finally {
      rmSync(unfinished, { force: true });
    }
  } finally {
    for (const signal of SIGNALS) process.off(signal, interrupted);
  }
}

/** How long nothing was written to a part whose process is not known to live: it may live on another machine. */
const STALE_MS = 10 * 60 * 1000;

/** Removes what runs that were killed have left of the file at `path`: parts that grow no more, of processes that do not live. */
function removeStale(path: string): void {
  const [folder, start] = [dirname(path), `${basename(path)}.`];
  try {
    for (const name of readdirSync(folder)) {
      const pid = name.startsWith(start) && /^(\d+)(?:\.[\da-f]{8})?\.part$/.exec(name.slice(start.length))?.[1];
      if (!pid || isOther(Number(pid)) || Date.now() - statSync(join(folder, name)).mtimeMs < STALE_MS) continue;
      rmSync(join(folder, name), { force: true });
    }
  } catch {
    // A folder that cannot be listed may be written nevertheless, and another run may remove the same parts.
  }
}

/** Whether a process of this number lives and is not this one, which has made no file yet. */
function isOther(pid: number): boolean {
  if (pid === process.pid) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== "ESRCH";
  }
}

function writing<T>(step: () => T): T {
  try {
    return step();
  } catch (error) {
    throw new Error(`quantize: OUT expected a path that can be written, got ${(error as Error).message}`);
  }
}

const SIGNALS: readonly NodeJS.Signals[] = ["SIGINT", "SIGTERM", "SIGHUP"];

/** The path behind symbolic links, whether or not it exists: a rename would replace the link. */
async function follow(path: string): Promise<string> {
  const link = await readlink(path).catch(() => undefined);
  if (link === undefined) return path;
  return follow(isAbsolute(link) ? link : `${dirname(path)}/${link}`);
}

function summaryText(
  { tensors, quantized, kept, bytesBefore, bytesAfter, worst }: FileSummary,
  format: string,
): string {
  const lines = [
    `${quantized} of ${tensors} tensors converted to ${format}, the others unchanged`,
    `${sizeText(bytesBefore)} to ${sizeText(bytesAfter)} (${((100 * bytesAfter) / bytesBefore).toFixed(1)} %)`,
  ];
  if (worst) lines.push(`largest relative RMS error ${worst.error.toExponential(2)}, of ${plainText(worst.name)}`);
  return [...lines, ...kept].join("\n");
}
