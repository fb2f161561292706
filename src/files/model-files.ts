// A model's files, wherever they lie: config.json and safetensors, or GGUF.

import { hostHasher, hostSha256, localKind, openLocal, resolvePlace } from "../base/platform/host.ts";
import { expectBytes, type Global } from "../base/util/arguments.ts";
import { decodeBase64, toHex } from "../base/util/bytes.ts";
import { describe, HeadwiseError, tagOf, throwUnder } from "../base/util/errors.ts";
import { reasonOf } from "../base/util/strings.ts";
import {
  type ByteSource,
  type BytesOrSource,
  fileSource,
  isBytes,
  readRange,
  sourceOfFile,
  toSource,
} from "./byte-source.ts";
import { type GgufFile, type openGgufParts, PART } from "./gguf.ts";
import { urlSource } from "./http-source.ts";
import { HeldPieces, ReadBuffer, readAhead, reading, type TensorReader } from "./read-ahead.ts";
import { openSafetensors, openSafetensorsIndex } from "./safetensors/safetensors.ts";

import { type ModelStore, PIECE } from "./store.ts";
import { joinFiles, KIND_BYTES, otherKind, type TensorEntry, type TensorFile } from "./tensor-file.ts";

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
  /** Whether all files are bytes that were given: reading them takes no memory, and reads are views. */
  readonly inMemory: boolean;
  /** From now on, single rows are read here and there, several at once, until `close`: nothing is held for reads to come. */
  settle(): void;
  /**
   * Throws unless all files that were opened have the SHA-256 that was stated, if one was: reads the rest of them. After a failure,
   * throws if that explains it.
   */
  verify(failure?: unknown): Promise<void>;
  /** Closes what was opened. */
  close(): Promise<void>;
}

/** A folder within that of a model's files: "" is that folder itself. */
export function folderOf(source: ModelSource, folder: string): ModelSource {
  if (folder === "") return source;
  const at = (name: string) => `${folder}/${name}`;
  if (typeof source === "function") return (name) => source(at(name));
  if (Array.isArray(source)) {
    const pathOf = ({ name, webkitRelativePath }: File) => `/${webkitRelativePath || name}`;
    return (name) => (source as readonly File[]).find((file) => pathOf(file).endsWith(`/${at(name)}`));
  }
  if (typeof source === "string" && !/^[a-z][a-z\d+.-]+:/i.test(source))
    return `${source.replace(/[/\\]$/, "")}/${folder}`;
  if (typeof source !== "string" && tagOf(source) !== "URL") return source;
  const url = new URL(String(source));
  url.pathname = `${url.pathname.replace(/\/?$/, "/")}${folder}/`;
  return url;
}

/** Opens a file of a model's folder; undefined if there is none. */
export async function openFile(
  where: string,
  source: ModelSource,
  name: string,
  signal?: Global<"AbortSignal">,
  store?: UrlOpener,
): Promise<{ readonly source: ByteSource; close(): Promise<void> } | undefined> {
  const closers: (() => Promise<void>)[] = [];
  const { place } = locate(where, source);
  const find = finderOf(where, place, closers, undefined, (url, _name, optional) =>
    openUrl(where, url, optional, signal, store),
  );
  const found = await find(name, true);
  const close = async () => void (await Promise.all(closers.map((each) => each())));
  return found && { source: toSource(where, found), close };
}

/** What opens URLs instead of `urlSource`. */
type UrlOpener = Pick<ModelStore, "open"> & Partial<Pick<ModelStore, "remove">>;
type FolderSource = Exclude<ModelSource, BytesOrSource>;

const GGUF = /\.gguf$/i;
/** The name of a source that has none: bytes, which must be a GGUF file to be a whole model. */
const BYTES = "bytes";
/** Pieces of a file of the host stay in the processor's cache. Of other sources, each read may be a request. */
const LOCAL_PIECE = 2 ** 20;
const REMOTE_PIECE = 2 ** 24;

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
  let inMemory = true;
  // Pieces whose digests are computed stay, unlike what is read into the buffer.
  const findAny = finderOf(where, place, closers, checks ? undefined : buffer, async (url, name, optional) => {
    const found = await openUrl(where, url, optional, signal, store);
    checks?.onMismatch(name, async () => store?.remove?.(url));
    return found && whole && !checks ? readAhead(where, found, held) : found;
  });
  const find: FindFile = async (name, optional) => {
    const found = await findAny(name, optional);
    inMemory &&= found === undefined || isBytes(found);
    return found;
  };
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
    const pieceBytes = closers.length > 0 ? LOCAL_PIECE : REMOTE_PIECE;
    held.ahead = true;
    const verify = async (failure?: unknown) => checks?.verify(failure);
    const settle = () => {
      buffer.settle();
      held.settle();
    };
    return { description, file: reading(file, buffer), tensors, pieceBytes, inMemory, settle, verify, close };
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
export type OpenGguf = typeof openGgufParts;

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

// SHA-256 of files, as those who publish them state it: computed while a file is read, and compared once all of it was.

/** The digest of the only file, or digests by the names of files. */
type Integrity = string | Readonly<Record<string, string>>;

/** Pieces that came before one that lies in front of them, and wait for it: 32 MiB. Others are read again in the end. */
const MOST_EARLY = 8;

/** Digests as hex. Throws unless each has one of the forms. */
function readDigests(where: string, integrity: Integrity): string | ReadonlyMap<string, string> {
  const digestOf = (name: string, text: unknown): string => {
    const given = typeof text === "string" ? text : "";
    const hex = /^(?:sha256:)?([0-9a-f]{64})$/i.exec(given)?.[1];
    if (hex) return hex.toLowerCase();
    const base64 = /^sha256-([\w+/]{43}=)$/.exec(given)?.[1];
    if (base64) return toHex(decodeBase64(base64));
    const rule = 'a SHA-256, as 64 hex digits or as "sha256-" and base64';
    const wrong = typeof text === "string" ? RangeError : TypeError;
    throw new wrong(`${where}: ${name} expected ${rule}, got ${describe(text)}`);
  };
  if (tagOf(integrity) !== "Object") return digestOf("options.integrity", integrity);
  const names = Object.entries(integrity);
  return new Map(names.map(([name, text]) => [name, digestOf(`options.integrity[${describe(name)}]`, text)]));
}

/** A file whose digest is computed as it is read. */
interface CheckedFile {
  readonly name: string;
  /** Reads what was not read yet, and compares the digest. */
  finish(): Promise<void>;
}

/** The files of a load whose digests are stated. */
export class FileChecks {
  readonly #where: string;
  readonly #digests: string | ReadonlyMap<string, string>;
  readonly #files: CheckedFile[] = [];
  /** Removes from a store what was kept of a file. */
  readonly #forgets = new Map<string, () => Promise<void>>();
  #mismatch: HeadwiseError | undefined;
  /** Whether what failed is not for a digest to explain: a read, or the option. */
  #isExplained = false;

  constructor(where: string, integrity: Integrity) {
    this.#where = where;
    this.#digests = readDigests(where, integrity);
  }

  /** What is called if a file turns out to be another one. */
  onMismatch(name: string, forget: () => Promise<void>): void {
    this.#forgets.set(name, forget);
  }

  /** A source of the same bytes, whose digest is computed. */
  #follow(name: string, source: ByteSource, held: HeldPieces): ByteSource {
    const want = this.#digestOf(name);
    const hash = hostHasher();
    let next = 0;
    const early = new Map<number, Uint8Array>();
    /** Of all pieces that were read: a piece that is read again must be the same. */
    const digests = new Map<number, string>();
    const see = async (index: number, bytes: Uint8Array): Promise<void> => {
      const digest = toHex(await hostSha256(bytes as Uint8Array<ArrayBuffer>));
      const known = digests.get(index) ?? digest;
      if (known !== digest) throw await this.#refuse(name, "to stay as it was while it was read", "other bytes");
      digests.set(index, digest);
      if (index < next) return;
      early.set(index, bytes);
      for (let due = early.get(next); due !== undefined; due = early.get(next)) {
        hash.update(due);
        early.delete(next++);
      }
      if (early.size > MOST_EARLY) early.delete(Math.max(...early.keys()));
    };
    const failing: ByteSource = {
      ...source,
      read: (...range) =>
        source.read(...range).catch((error) => {
          this.#isExplained = true;
          throw error;
        }),
    };
    const ahead = readAhead(this.#where, failing, held, see);
    const finish = async () => {
      ahead.rewind();
      held.ahead = true;
      while (next * PIECE < source.size) {
        const [index, begin] = [next, next * PIECE];
        const bytes = await ahead.read(begin, Math.min(PIECE, source.size - begin));
        // Unlike one that was read just now, a piece that was held all along may have lost its place in `early`.
        if (next === index) await see(index, bytes);
      }
      const got = toHex(hash.digest());
      if (got !== want) throw await this.#refuse(name, `SHA-256 ${want} (options.integrity)`, got);
    };
    this.#files.push({ name, finish });
    return { ...source, read: ahead.read };
  }

  /** Finds files whose digests are computed. */
  following(find: FindFile, held: HeldPieces): FindFile {
    return async (name, optional) => {
      const found = await find(name, optional);
      return found && this.#follow(name, toSource(this.#where, found), held);
    };
  }

  /**
   * Throws unless all files that were opened have their digests; what was not read of them is read. After a failure, throws only if
   * a file is another one than stated, which explains it.
   */
  async verify(failure?: unknown): Promise<void> {
    const finishAll = async () => {
      for (const { finish } of this.#files.splice(0)) await finish();
    };
    if (failure === undefined) return finishAll();
    const isOfFiles = failure instanceof HeadwiseError && failure.code === "BAD_FILE";
    if (isOfFiles && !this.#isExplained) await finishAll().catch(() => {});
    if (this.#mismatch) throw this.#mismatch;
  }

  #digestOf(name: string): string {
    const digests = this.#digests;
    const isOther = this.#files.some((file) => file.name !== name);
    const found = typeof digests !== "string" ? digests.get(name) : isOther ? undefined : digests;
    if (found !== undefined) return found;
    this.#isExplained = true;
    const [rule, got] =
      typeof digests === "string"
        ? ["digests by the names of files, as several are read", "a single one"]
        : [`one of file ${describe(name)} too`, "none"];
    throw new RangeError(`${this.#where}: options.integrity expected ${rule}, got ${got}`);
  }

  async #refuse(name: string, rule: string, got: string): Promise<HeadwiseError> {
    await this.#forgets.get(name)?.();
    this.#mismatch = new HeadwiseError(
      "BAD_FILE",
      `${this.#where}: file ${describe(name)} expected ${rule}, got ${got}`,
    );
    return this.#mismatch;
  }
}

// The files of a model in a folder: config.json, and safetensors in one file or several.

/** Opens a file by name; undefined if there is none. A server may forbid or not find one that is `optional`. */
type FindFile = (name: string, optional?: boolean) => Promise<BytesOrSource | undefined>;
type OpenFile = (name: string) => Promise<ByteSource>;

/** An opened folder: the text of config.json, and the tensors of all files. */
interface OpenedFolder {
  readonly description: string;
  readonly file: ReturnType<typeof joinFiles<string>>;
  readonly tensors: ReadonlyMap<string, TensorEntry>;
}

const CONFIG = "config.json";
const WHOLE = "model.safetensors";
const INDEX = "model.safetensors.index.json";

/** Opens config.json and the safetensors files beside it, of which there may be none with `configAlone`. */
async function openFolder(where: string, find: FindFile, open: OpenFile, configAlone: boolean): Promise<OpenedFolder> {
  const text = async (name: string, from: ByteSource) =>
    new TextDecoder().decode(await readRange(`${where}: ${name}`, from, 0, from.size));
  const config = await text(CONFIG, await open(CONFIG));
  const indexed = await find(INDEX, true);
  if (indexed === undefined) {
    const whole = configAlone ? await find(WHOLE, true) : await open(WHOLE);
    if (whole === undefined) return { description: config, file: joinFiles(new Map(), new Map()), tensors: new Map() };
    const file = await openSafetensors(toSource(where, whole));
    return { description: config, file, tensors: file.tensors };
  }
  const index = await openSafetensorsIndex(await text(INDEX, toSource(where, indexed)), open);
  const files = new Map<string, TensorFile<string>>();
  for (const name of new Set(index.tensors.values())) files.set(name, await openSafetensors(await open(name)));
  const tensors = new Map<string, TensorEntry>();
  for (const [name, fileName] of index.tensors) {
    const entry = files.get(fileName)?.tensors.get(name);
    if (entry !== undefined) tensors.set(name, entry);
  }
  return { description: config, file: joinFiles(index.tensors, files), tensors };
}

/** The name of a model on Hugging Face, or the address of its page. */
const HUB = /^(?:https:\/\/huggingface\.co\/)?([\w-][\w.-]*\/[\w.-]+?)\/?$/;
const FILE = /\.(gguf|json|safetensors)$/i;

/** Where the files of a model with this name would be, as the end of an error; nothing if the text is no such name. */
function hintOf(text: string): string {
  const name = FILE.test(text) ? undefined : HUB.exec(text)?.[1];
  const url = `https://huggingface.co/${name}/resolve/main/`;
  return name ? `: a model of that name on Hugging Face would have the URL ${url}` : "";
}

/** `hintOf`, unless the text is a path in a folder of the host, where a mistake in it is likelier. */
export async function hubHint(text: string): Promise<string> {
  const hint = hintOf(text);
  return hint && (await localKind(text.replace(/\/.*/s, ""))) ? "" : hint;
}

/** Throws if a URL is that of a model's page, which has no files. */
function refuseHubPage(where: string, url: string): void {
  const hint = hintOf(url);
  if (hint) throw new HeadwiseError("BAD_FILE", `${where}: source expected files, got ${describe(url)}, a page${hint}`);
}
