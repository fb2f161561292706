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
import {
  fileSource,
  type QuantizedSafetensors,
  type QuantizedTensor,
  quantizeSafetensors,
  type StoredFormat,
} from "../entries/weights.ts";
import { FileError, readArguments, UsageError } from "./args.ts";
import { aboutFile, openFile } from "./files.ts";
import { createProgress, plainText, print, sizeText } from "./terminal.ts";

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
function unchangedLines(tensors: readonly QuantizedTensor[]): string[] {
  const kinds = kindsOf(tensors);
  const lines = kinds.slice(0, MOST_KINDS).map(({ name, count, dtype, shape, reason }) => {
    const times = count === 1 ? "" : `${count} x `;
    return `unchanged ${times}${plainText(name)} ${dtype} [${shape.join(", ")}]: ${reason}`;
  });
  const more = kinds.length - lines.length;
  return more > 0 ? [...lines, `unchanged ${more} more kinds of tensors`] : lines;
}

/** The most frequent ones first. */
function kindsOf(tensors: readonly QuantizedTensor[]): Kind[] {
  const kinds = new Map<string, Kind>();
  for (const { name: own, dtype, shape, reason: words } of tensors) {
    if (words === undefined) continue;
    const name = own.replace(/\d+/g, "N");
    // The library's options have the names of the command's.
    const reason = words.replace(/\b(?:keep matches|include does|include chooses)/, "--$&");
    const key = JSON.stringify([name, dtype, shape, reason]);
    const count = (kinds.get(key)?.count ?? 0) + 1;
    kinds.set(key, { name: count === 1 ? own : name, count, dtype, shape, reason });
  }
  return [...kinds.values()].sort((a, b) => b.count - a.count || (a.name < b.name ? -1 : 1));
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
    const file = await quantizeSafetensors(source, { format, include, keep, onProgress });
    if (file.tensors.every((tensor) => tensor.format === undefined))
      throw new UsageError(
        `quantize: IN expected tensors to convert to ${format}, got none among ${file.tensors.length}`,
        unchangedLines(file.tensors),
      );
    await writeWhole(await follow(to), old, file);
    progress.end();
    print(summaryText(file, weights as string, source.size));
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

/** Replaces the file at `path` by `pieces`, with the mode of the `old` one. If that fails, the file is unchanged. */
async function writeWhole(path: string, old: Stats | undefined, pieces: AsyncIterable<Uint8Array>): Promise<void> {
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
      try {
        if (old !== undefined) writing(() => fchmodSync(output, old.mode));
        for await (const bytes of pieces)
          for (let at = 0; at < bytes.length; ) at += writing(() => writeSync(output, bytes, at));
      } finally {
        writing(() => closeSync(output));
      }
      writing(() => renameSync(unfinished, path));
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

function summaryText({ tensors, bytes, errors }: QuantizedSafetensors, format: string, before: number): string {
  const lines = [
    `${errors.size} of ${tensors.length} tensors converted to ${format}, the others unchanged`,
    `${sizeText(before)} to ${sizeText(bytes)} (${((100 * bytes) / before).toFixed(1)} %)`,
  ];
  const [first, ...others] = errors;
  if (first) {
    const [name, error] = others.reduce((worst, each) => (each[1] > worst[1] ? each : worst), first);
    lines.push(`largest relative RMS error ${error.toExponential(2)}, of ${plainText(name)}`);
  }
  return [...lines, ...unchangedLines(tensors.filter(({ chosen }) => chosen))].join("\n");
}
