// What a model can be opened from, and how its files are found: at a URL, in a folder, or on a hub.

import { environmentOf, localKind, resolvePlace } from "../base/platform/host.ts";
import type { Global } from "../base/util/arguments.ts";
import { describe, HeadwiseError, tagOf } from "../base/util/errors.ts";
import { parseJson } from "../base/util/strings.ts";
import { type ByteSource, readRange } from "../files/byte-source.ts";
import { type RangeFetch, urlSource } from "../files/http-source.ts";
import type { ModelSource } from "../files/model-files.ts";
import { createBrowserStore, createFolderStore, defaultStoreFolder, type ModelStore } from "../files/store.ts";

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

// Names of models on a hub: which files one has, which of them are taken, and where they are.

/** A hub: where it is, and what it asks for. */
export interface Hub {
  /** Its address, which ends in "/". */
  readonly url: URL;
  readonly token: string | undefined;
}

/** A model on a hub. */
interface HubModel {
  /** Its owner and name. */
  readonly name: string;
  readonly revision: string;
  readonly quantisation: string | undefined;
}

/** A file that a model could be read from, in a list of those that a hub has. */
interface HubFile {
  readonly quantisation: string;
  readonly path: string;
  /** Bytes of all its parts. */
  readonly bytes: number;
}

/** What is taken of a hub: the URL of a file or folder, and the other files that could have been taken. */
interface HubPlace {
  readonly url: URL;
  readonly files: readonly HubFile[];
}

const PUBLIC_HUB = "https://huggingface.co/";

/** The hub of the options, or else of the environment: HF_ENDPOINT and HF_TOKEN, as its own programs have them. */
export function readHub(where: string, given: string | Global<"URL"> | undefined, ownToken: string | undefined): Hub {
  const base = given ?? environmentOf("HF_ENDPOINT") ?? PUBLIC_HUB;
  if (typeof base !== "string" && tagOf(base) !== "URL")
    throw new TypeError(`${where}: options.hub expected a URL, got ${describe(base)}`);
  const token = ownToken ?? environmentOf("HF_TOKEN");
  // The value stays out of messages: it is a secret.
  if (token !== undefined && typeof token !== "string")
    throw new TypeError(`${where}: options.token expected a string, got ${tagOf(token)}`);
  if (token !== undefined && !/^[!-~]+$/.test(token))
    throw new RangeError(`${where}: options.token expected visible ASCII characters, got others`);
  let url: URL;
  try {
    url = new URL(String(base));
  } catch {
    throw new RangeError(`${where}: options.hub expected a URL, got ${describe(String(base))}`);
  }
  url.pathname = url.pathname.replace(/\/?$/, "/");
  return { url, token };
}

/** owner/name, owner/name:quantisation, owner/name@revision. */
const NAME = /^([\w-][\w.-]*\/[\w.-]+?)(?:@([\w./-]+))?(?::([\w.-]+))?$/;
const FILE = /\.(gguf|json|safetensors)$/i;

/** The model that a text names, if it is the name of one; that of the address of its page, too. */
function readHubName(text: string, { url }: Hub): HubModel | undefined {
  const path = text.startsWith(url.href) ? text.slice(url.href.length).replace(/\/$/, "") : text;
  const [, name, revision = "main", quantisation] = (FILE.test(path) ? undefined : NAME.exec(path)) ?? [];
  return name === undefined ? undefined : { name, revision, quantisation };
}

/** The address of a file, where that of the page which shows it was given. */
function fileOfPage(text: string, { url }: Hub): string {
  return text.startsWith(url.href) ? text.replace(/^(\w+:\/\/[^/]+\/[^/]+\/[^/]+)\/blob\//, "$1/resolve/") : text;
}

/** The part of `fetch` that is used. */
export type Fetch = (
  url: string,
  init: Parameters<RangeFetch>[1] & { readonly redirect?: "manual" },
) => Promise<Response>;

const MOST_REDIRECTS = 10;

/**
 * Requests with the token of a hub, which no other host is sent: hubs redirect to others for large files, and where redirects can be
 * followed here, they are. Browsers hide them, and drop the header themselves.
 */
function fetchOfHub(fetch: Fetch, { url: { origin }, token }: Hub): RangeFetch | undefined {
  if (token === undefined) return undefined;
  return async (url, init) => {
    const headersAt = (at: string) => {
      const isHub = new URL(at).origin === origin;
      return isHub ? { ...init.headers, Authorization: `Bearer ${token}` } : init.headers;
    };
    let at = url;
    for (let count = 0; count < MOST_REDIRECTS; count++) {
      const response = await fetch(at, { ...init, headers: headersAt(at), redirect: "manual" });
      if (response.type === "opaqueredirect") return fetch(at, { ...init, headers: headersAt(at) });
      const next = response.status >= 300 && response.status < 400 ? response.headers.get("location") : null;
      if (next === null) return response;
      await response.body?.cancel().catch(() => {});
      at = new URL(next, at).href;
    }
    throw new Error(`more than ${MOST_REDIRECTS} redirects`);
  };
}

/** Of several quantisations of which none is named, the first of these that there is: small files whose answers differ little. */
const PREFERRED = [
  ...["Q4_K_M", "Q8_0", "Q4_K_S", "Q4_0", "Q5_K_M", "Q5_K_S", "Q5_0", "Q6_K", "IQ4_XS", "IQ4_NL", "MXFP4"],
  ...["F16", "BF16", "Q3_K_M", "Q3_K_L", "Q3_K_S", "F32"],
] as const;

const QUANTISATION =
  /(?:^|[-_./])((?:UD-)?(?:I?Q\d\w*|TQ\d\w*|MXFP4\w*|NVFP4\w*|B?F16|F32))(?:-\d{5}-of-\d{5})?\.gguf$/i;
const LATER_PART = /-(?!00001-)\d{5}-of-\d{5}\.gguf$/i;
/** Parts of models that see or hear, and statistics that quantisation needs. */
const NO_MODEL = /mmproj|imatrix/i;

interface TreeEntry {
  readonly type?: unknown;
  readonly path?: unknown;
  readonly size?: unknown;
}

/** The files of a model that it could be read from, and where they are. `open` reads URLs. */
async function findOnHub(
  where: string,
  hub: Hub,
  model: HubModel,
  open: (url: URL) => Promise<ByteSource>,
): Promise<HubPlace> {
  const { name, revision, quantisation } = model;
  const entries = await listFiles(where, hub, model, open);
  const paths = entries.map(({ path }) => path);
  const files = quantisationsOf(entries);
  const urlOf = (path: string) =>
    new URL(
      `${name}/resolve/${encodeURIComponent(revision)}/${path.split("/").map(encodeURIComponent).join("/")}`,
      hub.url,
    );
  const wanted = quantisation?.toLowerCase();
  const best = wanted
    ? files.find((file) => file.quantisation.toLowerCase() === wanted)
    : (PREFERRED.map((each) => files.find((file) => file.quantisation === each)).find((file) => file) ?? files[0]);
  if (best) return { url: urlOf(best.path), files };
  const isFolder = paths.includes("config.json") && paths.some((path) => /^[^/]*\.safetensors$/.test(path));
  if (isFolder && quantisation === undefined) return { url: urlOf(""), files };
  const all = files.map((file) => file.quantisation);
  if (quantisation !== undefined) {
    const rule = all.length > 0 ? `one of ${all.join(", ")} behind ${describe(name)}` : `${describe(name)} alone`;
    const got = all.length > 0 || !isFolder ? describe(quantisation) : `${describe(quantisation)}: it has safetensors`;
    throw new HeadwiseError("BAD_FILE", `${where}: source expected ${rule}, got ${got}`);
  }
  const kinds = [...new Set(paths.map((path) => /\.\w+$/.exec(path)?.[0]))].filter((kind) => kind !== undefined);
  const got = kinds.length > 0 ? `files of ${kinds.slice(0, 8).join(", ")}` : "no files";
  const rule = "a model in GGUF, or in safetensors with config.json";
  throw new HeadwiseError("BAD_FILE", `${where}: source expected ${rule}, got ${describe(name)} with ${got}`);
}

/** Those of the files that are GGUF, by quantisation: of several with the same one, that with the shortest name. */
function quantisationsOf(entries: readonly { readonly path: string; readonly size: number }[]): HubFile[] {
  const models = entries.filter(({ path }) => /\.gguf$/i.test(path) && !NO_MODEL.test(path));
  const first = models.filter(({ path }) => !LATER_PART.test(path));
  const found = new Map<string, HubFile>();
  for (const { path, size } of first) {
    const quantisation = QUANTISATION.exec(path)?.[1]?.toUpperCase() ?? path.replace(/^.*\/|\.gguf$/gi, "");
    const stem = path.replace(/-00001-of-\d{5}\.gguf$/i, "");
    const parts = models.filter((other) => stem !== path && other.path.startsWith(stem) && LATER_PART.test(other.path));
    const bytes = parts.reduce((sum, part) => sum + part.size, size);
    const known = found.get(quantisation);
    if (!known || path.length < known.path.length) found.set(quantisation, { quantisation, path, bytes });
  }
  return [...found.values()].sort((a, b) => a.bytes - b.bytes);
}

/** The files of a model, by its hub. */
async function listFiles(
  where: string,
  hub: Hub,
  { name, revision }: HubModel,
  open: (url: URL) => Promise<ByteSource>,
): Promise<{ readonly path: string; readonly size: number }[]> {
  const url = new URL(`api/models/${name}/tree/${encodeURIComponent(revision)}?recursive=true`, hub.url);
  let text: string;
  try {
    const list = await open(url);
    text = new TextDecoder().decode(await readRange(where, list, 0, list.size));
  } catch (cause) {
    throw refusalOf(where, hub, name, cause);
  }
  const entries = parseJson(where, "the list of the hub", text);
  if (!Array.isArray(entries))
    throw new HeadwiseError(
      "BAD_FILE",
      `${where}: the list of the hub expected a list of files, got ${describe(entries)}`,
    );
  return (entries as readonly TreeEntry[]).flatMap(({ type, path, size }) =>
    type === "file" && typeof path === "string" ? [{ path, size: Number(size) || 0 }] : [],
  );
}

/** What is wrong with a name, by the answer of the hub. */
function refusalOf(where: string, { url, token }: Hub, name: string, cause: unknown): unknown {
  const status = Number(Object(Object(cause).cause).status);
  if (!(cause instanceof HeadwiseError) || !(status >= 400 && status < 500)) return cause;
  const rule = `the name of a model that ${url.host} has`;
  const remedy =
    token === undefined ? "set HF_TOKEN or options.token to read one that is gated" : "the token may not read it";
  const hint = status === 404 ? "" : `; ${remedy}`;
  const text = `${where}: source expected ${rule}, got ${describe(name)} (status ${status})${hint}`;
  return new HeadwiseError("BAD_FILE", text, { cause });
}
