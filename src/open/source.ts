// What a model can be opened from, and how its files are found.

import { localKind, resolvePlace } from "../base/platform/host.ts";
import type { Global } from "../base/util/arguments.ts";
import { describe, HeadwiseError, tagOf } from "../base/util/errors.ts";
import type { ByteSource } from "../files/byte-source.ts";
import { type RangeFetch, urlSource } from "../files/http-source.ts";
import type { ModelSource } from "../files/model-files.ts";
import { createBrowserStore, createFolderStore, defaultStoreFolder, type ModelStore } from "../files/store.ts";
import { type Fetch, fetchOfHub, fileOfPage, findOnHub, type Hub, type HubFile, readHubName } from "./hub.ts";

/**
 * What `openModel` takes: a URL of a GGUF file or of a folder with config.json; the path of one, on hosts with files; "owner/name" of
 * a model on a hub, with ":" and a quantisation behind it if one is wanted; a `File`, several files or a `FileList`; a `Blob` or
 * bytes; or what opens files by name.
 */
export type OpenSource = ModelSource | Global<"FileList">;

/** Where the files of a model are. */
export interface Place {
  /** What loaders take. */
  readonly source: ModelSource;
  /** What it is called in messages and in reports of progress. */
  readonly name: string;
  /** GGUF files of other quantisations that a hub has. */
  readonly others: readonly HubFile[];
}

/** The user's store: a folder among their caches, or the browser's; undefined on hosts without either. */
export function defaultStore(): ModelStore | undefined {
  const folder = defaultStoreFolder();
  if (folder !== undefined) return createFolderStore(folder);
  try {
    return createBrowserStore();
  } catch (error) {
    if ((error as { readonly code?: unknown }).code === "NO_STORAGE") return undefined;
    throw error;
  }
}

/** How much of the beginning of a file is held while it is opened: headers are read by several functions in turn. */
const MOST_HEAD = 2 ** 25;

/** Opens URLs for one call of `openModel`. */
export interface UrlOpener extends ModelStore {
  /** From now on nothing more is held. */
  settle(): void;
  /** Lets go of what is held, once the model is open: its files may stay open too. */
  drop(): void;
}

/**
 * Opens each URL once, through the store if there is one and with the token where it is for, and holds the beginnings of files until
 * `settle`. What a server refused is refused again without another request.
 */
export function createUrlOpener(store: ModelStore | undefined, hub: Hub, fetch: Fetch): UrlOpener {
  const opened = new Map<string, Promise<ByteSource>>();
  const hubFetch = fetchOfHub(fetch, hub);
  const heads: { bytes: Uint8Array }[] = [];
  let holds = true;
  const open: ModelStore["open"] = (url, options = {}) => {
    const { href, origin } = new URL(String(url));
    const known = opened.get(href);
    if (known) return known;
    const own: { fetch?: RangeFetch } = origin === hub.url.origin && hubFetch ? { fetch: hubFetch } : {};
    const given = { ...options, ...own };
    const found = (store?.open(url, given) ?? urlSource(url, given)).then((source) => {
      const head = { bytes: new Uint8Array() };
      heads.push(head);
      return holdHead(source, head, () => holds);
    });
    found.catch(() => {});
    opened.set(href, found);
    return found;
  };
  return {
    open,
    async remove(url) {
      await store?.remove(url);
    },
    settle() {
      holds = false;
    },
    drop() {
      for (const head of heads) head.bytes = new Uint8Array();
    },
  };
}

/** A source that holds what was read of its beginning in `head`, as long as `holds` says so. */
function holdHead(source: ByteSource, head: { bytes: Uint8Array }, holds: () => boolean): ByteSource {
  return {
    ...source,
    async read(offset, length) {
      const end = offset + length;
      if (end <= head.bytes.length) return head.bytes.subarray(offset, end);
      const bytes = await source.read(offset, length);
      if (holds() && offset <= head.bytes.length && end <= MOST_HEAD) {
        const longer = new Uint8Array(end);
        longer.set(head.bytes.subarray(0, offset));
        longer.set(bytes, offset);
        head.bytes = longer;
      }
      return bytes;
    },
  };
}

/** Finds what `source` means. */
export async function findPlace(
  where: string,
  source: OpenSource,
  hub: Hub,
  open: (url: URL) => Promise<ByteSource>,
): Promise<Place> {
  const isUrl = tagOf(source) === "URL";
  if (typeof source === "string" || isUrl) return findNamed(where, String(source), hub, open);
  const given = tagOf(source) === "FileList" ? Array.from(source as FileList) : source;
  if (source === null || (typeof source !== "object" && typeof source !== "function")) {
    const rule = 'a URL, a path, "owner/name" of a model on a hub, files, bytes or a function that opens files';
    throw new TypeError(`${where}: source expected ${rule}, got ${describe(source)}`);
  }
  if (Array.isArray(given) && given.length === 0)
    throw new RangeError(`${where}: source expected the files of a model, got none`);
  const [first] = Array.isArray(given) ? given : [given];
  const { name } = Object(first) as { readonly name?: unknown };
  const isNamed = typeof name === "string" && typeof source !== "function" && name !== "";
  return { source: given as ModelSource, name: isNamed ? name : "the model", others: [] };
}

async function findNamed(
  where: string,
  text: string,
  hub: Hub,
  open: (url: URL) => Promise<ByteSource>,
): Promise<Place> {
  const scheme = /^([a-z][a-z\d+.-]+):/i.exec(text)?.[1]?.toLowerCase();
  const model = readHubName(text, hub);
  // What lies in a folder of the host is a path, also if it is mistyped.
  const isPath = async () => scheme === undefined && Boolean(await localKind(text.replace(/\/.*/s, "")));
  if (model && !(await isPath())) {
    const { url, files } = await findOnHub(where, hub, model, open);
    return { source: url, name: text, others: files };
  }
  if (text.trim() === "") throw new RangeError(`${where}: source expected a URL, a path or a name, got ""`);
  if (scheme !== undefined && scheme.length > 1 && !/^(https?|file)$/.test(scheme)) {
    const rule = "a URL of http:, https: or file:";
    throw new HeadwiseError("BAD_FILE", `${where}: source expected ${rule}, got ${describe(text)}`);
  }
  const kind = scheme ? undefined : await localKind(text);
  if (kind === "" || (kind === "file" && !/\.(gguf|safetensors)$/i.test(text))) {
    const rule =
      kind === "" ? 'a path that exists, a URL, or "owner/name" of a model on a hub' : "a folder or a GGUF file";
    throw new HeadwiseError("BAD_FILE", `${where}: source expected ${rule}, got ${describe(text)}`);
  }
  const [, name = text] = /([^/\\?]+)[/\\]?(?:\?.*)?$/.exec(text) ?? [];
  // A worker of a blob has no address that a path could be relative to.
  return { source: scheme ? fileOfPage(text, hub) : resolvePlace(text), name, others: [] };
}
