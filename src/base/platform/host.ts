// What the host has: built-in modules, files, the console, clocks, random numbers, zlib, the address of the page; environment
// variables, memory, and where a user's caches are.

import { createSha256, decodeBase64, sha256 } from "../util/bytes.ts";
import { HeadwiseError } from "../util/errors.ts";

interface WithProcess {
  readonly process?: { getBuiltinModule?(name: string): unknown };
}

/** A built-in module of Node, which Deno and Bun have too; undefined on other hosts. */
export function builtinModule<Module>(
  name: string,
  scope: WithProcess = globalThis as WithProcess,
): Module | undefined {
  return scope.process?.getBuiltinModule?.(name) as Module | undefined;
}

/**
 * Warnings that were printed already. No result depends on them; they are the only module-level state of this package.
 */
const printed = new Set<string>();

/** Prints a warning on the console, each text once. */
export function warnOnce(text: string): void {
  if (printed.has(text)) return;
  printed.add(text);
  console.warn(`headwise: ${text}`);
}

/** Warns, once a process, that a name is left from an earlier version, and gives the one that took its place. */
export function warnOld(name: string, now: string): void {
  warnOnce(`${name} is an old name, which the next version does not have: use ${now}`);
}

interface Host {
  readonly process?: { threadCpuUsage?(): { readonly user: number; readonly system: number } };
}

/**
 * The milliseconds of processor time that this thread has taken, which other programs do not add to; undefined on hosts that do not
 * say it: Node does from 23.9 on.
 */
export function threadClock(): (() => number) | undefined {
  const { process } = globalThis as Host;
  if (typeof process?.threadCpuUsage !== "function") return undefined;
  return () => {
    const { user, system } = (process as Required<NonNullable<Host["process"]>>).threadCpuUsage();
    return (user + system) / 1000;
  };
}

interface Hosts {
  readonly setImmediate?: (then: () => void) => void;
  readonly MessageChannel?: typeof MessageChannel;
}

/**
 * Resolves after waiting tasks of this thread, such as input, timers and requests, have run. A timer is the last
 * choice, because browsers delay timers by milliseconds. `scheduler.yield` is not used, because it resumes before
 * timers and messages.
 */
export function yieldToEventLoop(): Promise<void> {
  const { setImmediate, MessageChannel } = globalThis as Hosts;
  return new Promise((resolve) => {
    try {
      if (setImmediate) return setImmediate(resolve);
      const { port1, port2 } = new (MessageChannel as Required<Hosts>["MessageChannel"])();
      port1.onmessage = () => {
        port1.close();
        resolve();
      };
      port2.postMessage(undefined);
    } catch {
      // Hosts without either, and edge runtimes, which have both and throw that they do not.
      setTimeout(resolve);
    }
  });
}

/** Resolves after so many milliseconds, or as soon as the signal is aborted. */
export function wait(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener("abort", end);
    if (signal?.aborted) end();
  });
}

/** SHA-256 by the host where it has it: browsers do on secure origins only. The bytes are copied before the promise is returned. */
export async function hostSha256(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
  const { subtle } = globalThis.crypto ?? {};
  return subtle ? new Uint8Array(await subtle.digest("SHA-256", bytes)) : sha256(bytes);
}

/** What computes SHA-256 of bytes that come in parts. */
type Sha256 = ReturnType<typeof createSha256>;

/** SHA-256 of bytes that come in parts: by the host where it has it, as Node, Deno and Bun do. */
export function hostHasher(): Sha256 {
  const crypto = builtinModule<{ createHash(name: "sha256"): Sha256 }>("node:crypto");
  return crypto?.createHash("sha256") ?? createSha256();
}

/** Decompresses base64 of raw deflate. */
type Inflate = (text: string) => Uint8Array<ArrayBuffer> | Promise<Uint8Array<ArrayBuffer>>;

interface Zlib {
  inflateRawSync(bytes: Uint8Array): Uint8Array<ArrayBuffer>;
}

interface Buffers {
  readonly Buffer: { from(text: string, encoding: "base64"): Uint8Array };
}

/**
 * By zlib of Node, Deno and Bun, where loading streams takes ten times as long as decompressing, or else by a
 * DecompressionStream. Throws if the engine has neither, or its stream does not know "deflate-raw".
 */
export function createInflate(): Inflate {
  const zlib = builtinModule<Zlib>("node:zlib");
  if (!zlib?.inflateRawSync) return inflateWith(new DecompressionStream("deflate-raw"));
  const buffers = builtinModule<Buffers>("node:buffer") as Buffers;
  return (text) => zlib.inflateRawSync(buffers.Buffer.from(text, "base64"));
}

function inflateWith(stream: DecompressionStream): Inflate {
  return async (text) => {
    const inflated = new Blob([decodeBase64(text)]).stream().pipeThrough(stream);
    return new Uint8Array(await new Response(inflated).arrayBuffer());
  };
}

/** An open file of the host. */
interface LocalFile {
  stat(): Promise<{ readonly size: number }>;
  read(into: Uint8Array, at: number, length: number, position: number): Promise<{ readonly bytesRead: number }>;
  close(): Promise<void>;
}

interface FileSystem {
  open(path: string | URL): Promise<LocalFile>;
  stat(path: string): Promise<{ isDirectory(): boolean }>;
}

/** What the host has at this path, "" for nothing; undefined on hosts without files, and where it may not be read. */
export async function localKind(path: string): Promise<"file" | "folder" | "" | undefined> {
  const system = builtinModule<FileSystem>("node:fs/promises");
  try {
    return system && ((await system.stat(path)).isDirectory() ? "folder" : "file");
  } catch (error) {
    return ["ENOENT", "ENOTDIR"].includes((error as { readonly code?: string }).code ?? "") ? "" : undefined;
  }
}

/** Opens a file of a folder on the host's file system; undefined if there is none of this name. Throws on hosts without one. */
export async function openLocal(where: string, folder: string | URL, name: string): Promise<LocalFile | undefined> {
  const system = builtinModule<FileSystem>("node:fs/promises");
  if (system === undefined)
    throw new HeadwiseError("BAD_FILE", `${where}: source expected a URL or files, since this host has no file system`);
  const path = typeof folder === "string" ? `${folder.replace(/[/\\]?$/, "/")}${name}` : new URL(name, folder);
  try {
    return await system.open(path);
  } catch (cause) {
    if ((cause as { readonly code?: unknown }).code === "ENOENT") return undefined;
    throw new HeadwiseError("BAD_FILE", `${where}: ${String(path)} cannot be opened`, { cause });
  }
}

/** A random integer from 0 to 2^32 - 1. */
export function randomSeed(): number {
  return globalThis.crypto.getRandomValues(new Uint32Array(1))[0] as number;
}

/** What a page or a worker has, and what Node, Deno and Bun have. */
interface PageScope {
  readonly document?: { readonly baseURI: string };
  readonly location?: { readonly href: string };
  readonly process?: { getBuiltinModule?(name: string): unknown };
}

const SCHEME = /^[a-z][a-z\d+.-]*:/i;

/**
 * A place as it is, unless it is a string without a scheme in a page or a worker: that is relative to the address of the document or
 * worker, as for `fetch`. On hosts with a file system it is a path, also if they have `location`.
 */
export function resolvePlace(place: string | URL, scope: PageScope = globalThis as PageScope): string | URL {
  if (typeof place !== "string" || SCHEME.test(place) || builtinModule("node:fs/promises", scope)) return place;
  try {
    return new URL(place, scope.document?.baseURI ?? scope.location?.href);
  } catch {
    // There is no address, or as in a worker of a blob one that nothing is relative to.
    return place;
  }
}

interface MachineScope {
  readonly process?: {
    readonly env?: Readonly<Record<string, string | undefined>>;
    readonly platform?: string;
    availableMemory?(): number;
    getBuiltinModule?(name: string): unknown;
  };
  readonly navigator?: { readonly deviceMemory?: number };
  readonly Deno?: { readonly permissions: { querySync(asked: Permission): { readonly state: string } } };
}

/** What Deno permits, by its names. */
type Permission =
  | { readonly name: "env"; readonly variable: string }
  | { readonly name: "sys"; readonly kind: "homedir" | "systemMemoryInfo" };

/** An environment variable; undefined where it is not set, is empty, may not be read, or the host has none. */
export function environmentOf(name: string, scope: MachineScope = globalThis as MachineScope): string | undefined {
  return permitted(scope, { name: "env", variable: name }, () => scope.process?.env?.[name] || undefined);
}

/** What `read` gives; undefined if the host does not permit it, as Deno without its permissions, for which its user is not asked. */
function permitted<T>({ Deno }: MachineScope, asked: Permission, read: () => T): T | undefined {
  try {
    return (Deno?.permissions.querySync(asked).state ?? "granted") === "granted" ? read() : undefined;
  } catch {
    return undefined;
  }
}

/** The bytes that a program may take, and how that is known. */
export interface MachineMemory {
  readonly bytes: number;
  readonly reason: string;
}

interface System {
  totalmem(): number;
  homedir(): string;
}

const MEMORY: Permission = { name: "sys", kind: "systemMemoryInfo" };

/** What is left for other programs, and for what JavaScript itself needs. */
const SHARE = 0.9;

/** The memory of this machine; undefined where the host does not say it. */
export function machineMemory(scope: MachineScope = globalThis as MachineScope): MachineMemory | undefined {
  const available = permitted(scope, MEMORY, () => scope.process?.availableMemory?.());
  if (available)
    return { bytes: Math.floor(SHARE * available), reason: "nine tenths of what the system has available" };
  const total = permitted(scope, MEMORY, () => builtinModule<System>("node:os", scope)?.totalmem?.());
  if (total) return { bytes: Math.floor(total / 2), reason: "half of the memory of the machine" };
  const { deviceMemory } = scope.navigator ?? {};
  if (!deviceMemory) return undefined;
  return { bytes: Math.floor((deviceMemory * 2 ** 30) / 2), reason: "half of what the browser says the device has" };
}

interface Paths {
  join(...parts: readonly string[]): string;
  isAbsolute(path: string): boolean;
}

/** The folder of headwise among the caches of a user, by the conventions of the system; undefined on hosts without files. */
export function cacheFolder(scope: MachineScope = globalThis as MachineScope): string | undefined {
  const asked: Permission = { name: "sys", kind: "homedir" };
  const home = permitted(scope, asked, () => builtinModule<System>("node:os", scope)?.homedir?.());
  if (!home || !builtinModule("node:fs/promises", scope)) return undefined;
  const names = ["LOCALAPPDATA", "XDG_CACHE_HOME"];
  const env = Object.fromEntries(names.map((name) => [name, environmentOf(name, scope)]));
  return storeFolder(env, scope.process?.platform ?? "", home);
}

/** `cacheFolder` of a home folder on a platform. */
export function storeFolder(env: Readonly<Record<string, string | undefined>>, platform: string, home: string): string {
  const { join, isAbsolute } = builtinModule<Paths>("node:path") as Paths;
  const { LOCALAPPDATA, XDG_CACHE_HOME = "" } = env;
  if (platform === "win32") return join(LOCALAPPDATA || join(home, "AppData", "Local"), "headwise");
  if (platform === "darwin") return join(home, "Library", "Caches", "headwise");
  // The XDG Base Directory Specification says to ignore a relative path.
  return join(isAbsolute(XDG_CACHE_HOME) ? XDG_CACHE_HOME : join(home, ".cache"), "headwise");
}
