// A model's files, wherever they lie: config.json and safetensors, or GGUF.

import { openLocal, resolvePlace } from "../base/platform/host.ts";
import { expectBytes } from "../base/util/arguments.ts";
import { describe, HeadwiseError, tagOf, throwUnder } from "../base/util/errors.ts";
import type { Global } from "../base/util/global.ts";
import { reasonOf } from "../base/util/strings.ts";
import { type ByteSource, type BytesOrSource, fileSource, readRange, sourceOfFile, toSource } from "./byte-source.ts";
import { type GgufFile, type GgufParts, PART } from "./gguf/gguf.ts";
import { urlSource } from "./http-source.ts";
import { FileChecks, type Integrity } from "./integrity.ts";
import { type FindFile, hubHint, type OpenFile, openFolder, refuseHubPage } from "./model-folder.ts";
import { HeldPieces, ReadBuffer, readAhead, reading, type TensorReader } from "./read-ahead.ts";
import type { ModelStore } from "./store.ts";
import { KIND_BYTES, otherKind, type TensorEntry } from "./tensor-file.ts";

/**
 * Where a model's files are: the path of a folder (on hosts with a file system) or the URL of one, ending in "/" or not, whose
 * query, if it has one, is that of each file; in pages and workers, a string without a scheme is relative to their address; the
 * files themselves; or a function that opens a file by its name, and gives undefined for one that does not exist. Of a GGUF file,
 * its path or URL, which ends in ".gguf", or what holds its bytes; of one in parts, the path or URL of any of them, or a list of all.
 */
export type ModelSource =
  | string
  | Global<"URL">
  | BytesOrSource
  | readonly Global<"File">[]
  | ((name: string) => BytesOrSource | undefined | Promise<BytesOrSource | undefined>);

/** The opened files of a model. */
export interface ModelFiles {
  /** The text of config.json, or the first GGUF file, with the tensors of all. */
  readonly description: string | GgufFile;
  readonly file: TensorReader;
  /** How many bytes of a large tensor are best read at a time. */
  readonly pieceBytes: number;
  /** All tensors, of all files, with the dtypes in which they are read. */
  readonly tensors: ReadonlyMap<string, Omit<TensorEntry, "offset">>;
  /**
   * Throws unless all files that were opened have the SHA-256 that was stated, if one was: reads the rest of them. After a failure,
   * throws if that explains it.
   */
  verify(failure?: unknown): Promise<void>;
  /** Closes what was opened. */
  close(): Promise<void>;
}

/** What opens URLs instead of `urlSource`. */
type UrlOpener = Pick<ModelStore, "open"> & Partial<Pick<ModelStore, "remove">>;
type FolderSource = Exclude<ModelSource, BytesOrSource>;

const GGUF = /\.gguf$/i;
/** The name of a source that has none: bytes, which must be a GGUF file to be a whole model. */
const BYTES = "bytes";
/** Pieces of a file of the host stay in the processor's cache. Of other sources, each read may be a request. */
const LOCAL_PIECE = 2 ** 20;
const PIECE = 2 ** 24;

/** What a model's files are opened for. */
interface OpenOptions {
  /** A folder may lack safetensors, and has no tensors then. Default false. */
  readonly configAlone?: boolean;
  /** All tensors will be read: those of URLs come ahead, several pieces at once. Default false. */
  readonly whole?: boolean;
  /** Digests of the files. */
  readonly integrity?: Integrity | undefined;
}

/**
 * Opens a model's files: reads config.json, the index where there is one, and the headers of all files. `signal` ends requests to
 * a server, also those that the reader of tensors makes; `store` keeps what they give.
 */
export async function openModelFiles(
  where: string,
  source: ModelSource,
  openGguf: OpenGguf | undefined,
  signal?: Global<"AbortSignal">,
  store?: UrlOpener,
  { configAlone = false, whole = false, integrity }: OpenOptions = {},
): Promise<ModelFiles> {
  const closers: (() => Promise<void>)[] = [];
  const close = async () => {
    await Promise.all(closers.splice(0).map((each) => each()));
  };
  const buffer = new ReadBuffer();
  const { place, gguf } = locate(where, source);
  const openParts: OpenGguf = openGguf ?? refuseGguf;
  const checks = integrity === undefined ? undefined : new FileChecks(where, integrity);
  const held = new HeldPieces();
  // Pieces whose digests are computed stay, unlike what is read into the buffer.
  const find = finderOf(where, place, closers, checks ? undefined : buffer, async (url, name, optional) => {
    const found = await openUrl(where, url, optional, signal, store);
    checks?.onMismatch(name, async () => store?.remove?.(url));
    return found && whole && !checks ? readAhead(where, found, held) : found;
  });
  const findChecked = checks?.following(find, held) ?? find;
  const open: OpenFile = async (name) => {
    // In a page the name of a model on the hub is a URL, whose server does not have it.
    const hint = name === "config.json" && typeof source === "string" ? await hubHint(source) : "";
    const found = await findChecked(name, hint !== "");
    if (found !== undefined) return toSource(where, found);
    const at = typeof place === "string" || tagOf(place) === "URL" ? ` in ${describe(String(place))}` : "";
    throw new HeadwiseError("BAD_FILE", `${where}: source expected a file ${describe(name)}${at}, got none${hint}`);
  };
  try {
    const { description, file, tensors } =
      gguf === undefined ? await openFolder(where, findChecked, open, configAlone) : await openParts(where, gguf, open);
    const pieceBytes = closers.length > 0 ? LOCAL_PIECE : PIECE;
    held.ahead = true;
    const verify = async (failure?: unknown) => checks?.verify(failure);
    return { description, file: reading(file, buffer), tensors, pieceBytes, verify, close };
  } catch (error) {
    try {
      if (!signal?.aborted) await checks?.verify(error);
    } finally {
      await close();
    }
    return throwUnder(where, error);
  }
}

/** Opens a GGUF file, and the other parts of its model. */
export type OpenGguf = (where: string, name: string, open: OpenFile) => Promise<GgufParts>;

const refuseGguf: OpenGguf = async (where, name, open) => {
  if (name === BYTES) {
    const bytes = await open(name);
    const head = await readRange(where, bytes, 0, Math.min(bytes.size, KIND_BYTES));
    const other = otherKind(where, "source", "a GGUF file", head);
    if (other) throw other;
  }
  const rule = "one of safetensors, or options with { gguf }, which headwise/models exports";
  throw new HeadwiseError(
    "NO_GGUF",
    `${where}: source expected ${rule}, got ${name === BYTES ? "bytes" : describe(name)}`,
  );
};

/** A folder's files, or the name of a GGUF file in it. */
function locate(where: string, source: ModelSource): { place: FolderSource; gguf?: string } {
  if (typeof source === "function") return { place: source };
  if (Array.isArray(source)) {
    const names = (source as readonly File[]).map(({ name }) => name).filter((name) => GGUF.test(name));
    const [first] = names;
    if (first === undefined) return { place: source };
    const other = names.find((name) => name.replace(PART, "") !== first.replace(PART, ""));
    if (other === undefined) return { place: source, gguf: first };
    const rule = "one GGUF file, or the parts of one";
    throw new HeadwiseError(
      "BAD_FILE",
      `${where}: source expected ${rule}, got ${describe(first)} and ${describe(other)}`,
    );
  }
  if (typeof source === "string" || tagOf(source) === "URL") return locateFolder(where, source as string | URL);
  if (source === null || typeof source !== "object")
    throw new TypeError(
      `${where}: source expected a path, a URL, bytes, a list of files or a function that opens them, got ${describe(source)}`,
    );
  return { place: () => source as BytesOrSource, gguf: BYTES };
}

function locateFolder(where: string, source: string | URL): { place: FolderSource; gguf?: string } {
  const given = resolvePlace(source);
  const isUrl = typeof given !== "string" || /^(https?|file):/.test(given);
  const path = isUrl ? new URL(String(given)) : given;
  const [, before = "", name = ""] =
    /^(.*[/\\])?([^/\\]*)$/s.exec(typeof path === "string" ? path : path.pathname) ?? [];
  if (/\.safetensors$/i.test(name))
    throw new HeadwiseError(
      "BAD_FILE",
      `${where}: source expected the folder of config.json and model.safetensors, or a GGUF file, got ${describe(name)}`,
    );
  if (isUrl) refuseHubPage(where, String(path));
  if (!GGUF.test(name)) return { place: path };
  if (!(path instanceof URL)) return { place: before || ".", gguf: name };
  path.pathname = before;
  return { place: path, gguf: name };
}

/** The most bytes of a file that is read as text: vocabularies of 256 thousand tokens take some 35 MB. */
const LARGEST_TEXT = 2 ** 28;

/** The texts of those of the files of a model's folder that exist, by name; or the metadata of the GGUF file. */
export async function readTexts(
  where: string,
  source: ModelSource,
  names: readonly string[],
  readGguf: (source: ByteSource) => Promise<Pick<GgufFile, "metadata">>,
  signal?: Global<"AbortSignal">,
  store?: UrlOpener,
  integrity?: Integrity,
): Promise<ReadonlyMap<string, string> | Pick<GgufFile, "metadata">> {
  const closers: (() => Promise<void>)[] = [];
  const { place, gguf } = locate(where, source);
  const checks = integrity === undefined ? undefined : new FileChecks(where, integrity);
  const findAny = finderOf(where, place, closers, undefined, (url, name, optional) => {
    checks?.onMismatch(name, async () => store?.remove?.(url));
    return openUrl(where, url, optional, signal, store);
  });
  const find = checks?.following(findAny, new HeldPieces()) ?? findAny;
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
  const readAll = async () => {
    if (gguf !== undefined) {
      const found = await find(gguf);
      if (found !== undefined) return await readGguf(toSource(where, found));
      throw new HeadwiseError("BAD_FILE", `${where}: source expected a file ${describe(gguf)}, got none`);
    }
    const texts = await Promise.allSettled(names.map(read));
    return new Map(
      texts.flatMap((text) => {
        if (text.status === "rejected") throw text.reason;
        return text.value;
      }),
    );
  };
  try {
    const found = await readAll();
    await checks?.verify();
    return found;
  } catch (error) {
    // A request that the signal ended fails with an error of its own.
    signal?.throwIfAborted();
    await checks?.verify(error);
    return throwUnder(where, error);
  } finally {
    await Promise.all(closers.map((close) => close()));
  }
}

/** How files of a source are opened. Those of the host are read into `buffer`, if there is one, and added to `closers`. */
function finderOf(
  where: string,
  source: FolderSource,
  closers: (() => Promise<void>)[],
  buffer: ReadBuffer | undefined,
  openAt: (url: URL, name: string, optional?: boolean) => ReturnType<FindFile>,
): FindFile {
  if (typeof source === "function")
    return async (name) => {
      const found = await source(name);
      return found instanceof ArrayBuffer ? expectBytes(where, name, found) : found;
    };
  if (Array.isArray(source)) return async (name) => (source as readonly File[]).find((file) => file.name === name);
  const folder = tagOf(source) === "URL" ? new URL(String(source)) : String(source);
  if (folder instanceof URL) {
    folder.pathname = folder.pathname.replace(/\/?$/, "/");
    if (folder.protocol !== "file:")
      return (name, optional) => openAt(new URL(`./${name}${folder.search}`, folder), name, optional);
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
  store?: UrlOpener,
): Promise<ByteSource | undefined> {
  try {
    return await (store?.open(url, { signal }) ?? urlSource(url, { signal }));
  } catch (cause) {
    const { status } = Object(Object(cause).cause);
    if ((status === 403 || status === 404) && optional) return undefined;
    // Errors of the package begin with the name of an inner function.
    const text = cause instanceof HeadwiseError ? cause.message.replace(/^\w+: /, "") : reasonOf(cause);
    throw new HeadwiseError("BAD_FILE", `${where}: ${text}`, { cause });
  }
}
