// A model's folder: config.json and its safetensors file or files, wherever they lie.

import { openLocal } from "../platform/local-files.ts";
import { expectBytes } from "../util/arguments.ts";
import { describe, HeadwiseError, tagOf } from "../util/errors.ts";
import type { Global } from "../util/global.ts";
import { reasonOf } from "../util/reason.ts";
import { type ByteSource, type BytesOrSource, fileSource, readRange, sourceOfFile, toSource } from "./byte-source.ts";
import { ReadBuffer } from "./read-buffer.ts";
import { openSafetensorsIndex } from "./safetensors/model-index.ts";
import { openSafetensors } from "./safetensors/safetensors.ts";
import type { TensorEntry, TensorFile } from "./tensor-file.ts";
import { urlSource } from "./url-source.ts";

/**
 * Where a model's files are: the path of a folder (on hosts with a file system) or the URL of one, ending in "/" or not, whose
 * query, if it has one, is that of each file; the files themselves; or a function that opens a file by its name, and gives
 * undefined for one that does not exist.
 */
export type ModelSource =
  | string
  | Global<"URL">
  | readonly Global<"File">[]
  | ((name: string) => BytesOrSource | undefined | Promise<BytesOrSource | undefined>);

/** What reads the tensors of all files. The bytes that a read gives are overwritten by the next one. */
export type TensorReader = Pick<TensorFile<string>, "readAll" | "readRows">;

/** An opened folder. */
export interface ModelFolder {
  /** The text of config.json. */
  readonly config: string;
  readonly file: TensorReader;
  /** How many bytes of a large tensor are best read at a time. */
  readonly pieceBytes: number;
  /** All tensors, of all files. */
  readonly tensors: ReadonlyMap<string, Omit<TensorEntry, "offset">>;
  /** Closes what was opened. */
  close(): Promise<void>;
}

const CONFIG = "config.json";
const WHOLE = "model.safetensors";
const INDEX = "model.safetensors.index.json";
/** Pieces of a file of the host stay in the processor's cache. Of other sources, each read may be a request. */
const LOCAL_PIECE = 2 ** 20;
const PIECE = 2 ** 24;

/**
 * Opens a model's folder: reads config.json, the index where there is one, and the headers of all files. `signal` ends requests
 * to a server, also those that the reader of tensors makes.
 */
export async function openModelFolder(
  where: string,
  source: ModelSource,
  signal?: Global<"AbortSignal">,
): Promise<ModelFolder> {
  const closers: (() => Promise<void>)[] = [];
  const close = async () => {
    await Promise.all(closers.splice(0).map((each) => each()));
  };
  const buffer = new ReadBuffer();
  const find = finderOf(where, source, closers, buffer, signal);
  const open = async (name: string): Promise<ByteSource> => {
    const found = await find(name);
    if (found !== undefined) return toSource(where, found);
    const place = typeof source === "string" || tagOf(source) === "URL" ? ` in ${describe(String(source))}` : "";
    throw new HeadwiseError("BAD_FILE", `${where}: source expected a file ${describe(name)}${place}, got none`);
  };
  const text = async (name: string, from: ByteSource) =>
    new TextDecoder().decode(await readRange(`${where}: ${name}`, from, 0, from.size));
  const opened = (config: string, file: TensorReader, tensors: ModelFolder["tensors"]): ModelFolder => ({
    ...{ config, file: reading(file, buffer), tensors, close },
    pieceBytes: closers.length > 0 ? LOCAL_PIECE : PIECE,
  });
  try {
    const config = await text(CONFIG, await open(CONFIG));
    const indexed = await find(INDEX, true);
    if (indexed === undefined) {
      const file = await openSafetensors(await open(WHOLE));
      return opened(config, file, file.tensors);
    }
    const index = await openSafetensorsIndex(await text(INDEX, toSource(where, indexed)), open);
    const files = new Map<string, TensorFile<string>>();
    for (const name of new Set(index.tensors.values())) files.set(name, await openSafetensors(await open(name)));
    const tensors = new Map<string, TensorEntry>();
    for (const [name, fileName] of index.tensors) {
      const entry = files.get(fileName)?.tensors.get(name);
      if (entry !== undefined) tensors.set(name, entry);
    }
    return opened(config, joinFiles(index.tensors, files), tensors);
  } catch (error) {
    await close();
    throw error;
  }
}

/** The most bytes of a file that is read as text: vocabularies of 256 thousand tokens take some 35 MB. */
const LARGEST_TEXT = 2 ** 28;

/** The texts of those of the files of a model's folder that exist, by name. */
export async function readTexts(
  where: string,
  source: ModelSource,
  names: readonly string[],
  signal?: Global<"AbortSignal">,
): Promise<ReadonlyMap<string, string>> {
  const closers: (() => Promise<void>)[] = [];
  const find = finderOf(where, source, closers, undefined, signal);
  const read = async (name: string): Promise<readonly [string, string][]> => {
    const found = await find(name, true);
    if (found === undefined) return [];
    const from = toSource(where, found);
    if (from.size > LARGEST_TEXT) {
      const rule = `a file ${describe(name)} of at most ${LARGEST_TEXT} bytes`;
      throw new HeadwiseError("BAD_FILE", `${where}: source expected ${rule}, got ${from.size}`);
    }
    return [[name, new TextDecoder().decode(await readRange(`${where}: ${name}`, from, 0, from.size))]];
  };
  try {
    const texts = await Promise.allSettled(names.map(read));
    return new Map(
      texts.flatMap((text) => {
        if (text.status === "rejected") throw text.reason;
        return text.value;
      }),
    );
  } catch (error) {
    // A request that the signal ended fails with an error of its own.
    signal?.throwIfAborted();
    throw error;
  } finally {
    await Promise.all(closers.map((close) => close()));
  }
}

/** Reads tensors into `buffer`, each time from its start. */
function reading({ readAll, readRows }: TensorReader, buffer: ReadBuffer): TensorReader {
  return {
    readAll(...names) {
      buffer.reuse();
      return readAll(...names);
    },
    readRows(...rows) {
      buffer.reuse();
      return readRows(...rows);
    },
  };
}

/** Reads tensors of several files as those of one. */
function joinFiles(owners: ReadonlyMap<string, string>, files: ReadonlyMap<string, TensorFile<string>>): TensorReader {
  const fileOf = (name: string) => files.get(owners.get(name) as string) as TensorFile<string>;
  return {
    readRows: (name, ...rows) => fileOf(name).readRows(name, ...rows),
    async readAll(names, where) {
      const wanted = new Map<string, string[]>();
      for (const name of names) {
        const owner = owners.get(name) as string;
        const own = wanted.get(owner);
        if (own) own.push(name);
        else wanted.set(owner, [name]);
      }
      const read = Array.from(wanted, ([owner, own]) => files.get(owner)?.readAll(own, where));
      return new Map((await Promise.all(read)).flatMap((tensors) => [...(tensors ?? [])]));
    },
  };
}

/** Opens a file by name; undefined if there is none. A server may forbid or not find one that is `optional`. */
type Find = (name: string, optional?: boolean) => Promise<BytesOrSource | undefined>;

/** How files of a source are opened. Those of the host are read into `buffer`, if there is one, and added to `closers`. */
function finderOf(
  where: string,
  source: ModelSource,
  closers: (() => Promise<void>)[],
  buffer: ReadBuffer | undefined,
  signal: Global<"AbortSignal"> | undefined,
): Find {
  if (typeof source === "function")
    return async (name) => {
      const found = await source(name);
      return found instanceof ArrayBuffer ? expectBytes(where, name, found) : found;
    };
  if (Array.isArray(source)) return async (name) => (source as readonly File[]).find((file) => file.name === name);
  const isUrl = tagOf(source) === "URL" || (typeof source === "string" && /^(https?|file):/.test(source));
  if (!isUrl && typeof source !== "string")
    throw new TypeError(
      `${where}: source expected a path, a URL, a list of files or a function that opens them, got ${describe(source)}`,
    );
  const folder = isUrl ? new URL(String(source)) : String(source);
  if (folder instanceof URL) {
    folder.pathname = folder.pathname.replace(/\/?$/, "/");
    if (folder.protocol !== "file:")
      return (name, optional) => openUrl(where, new URL(name + folder.search, folder), optional, signal);
  }
  return async (name) => {
    const file = await openLocal(where, folder, name);
    if (file === undefined) return undefined;
    closers.push(() => file.close());
    return buffer ? sourceOfFile(file, (where, length) => buffer.take(where, length)) : fileSource(file);
  };
}

/** A file of a server; undefined if it is `optional` and the server says that there is none. */
async function openUrl(
  where: string,
  url: URL,
  optional: boolean | undefined,
  signal: Global<"AbortSignal"> | undefined,
): Promise<ByteSource | undefined> {
  try {
    return await urlSource(url, { signal });
  } catch (cause) {
    const { status } = Object(Object(cause).cause);
    if ((status === 403 || status === 404) && optional) return undefined;
    throw new HeadwiseError("BAD_FILE", `${where}: ${reasonOf(cause)}`, { cause });
  }
}
