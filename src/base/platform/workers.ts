// Workers of the host: how they are found, started and spoken to.

import { describe } from "../util/errors.ts";
import { reasonOf } from "../util/strings.ts";
import { builtinModule } from "./host.ts";

/**
 * The part of a worker that is used: a `Worker` of the web or of `node:worker_threads` fits. Its messages are received by
 * `addEventListener` or by `on`, one of which it must have.
 */
export interface ThreadWorker {
  /** Sends a message by structured clone. */
  postMessage(message: unknown): void;
  /** Ends the worker at once. */
  terminate(): unknown;
}

/** What a worker posts after its start: that it is ready, or why it is not. */
export interface WorkerAnswer {
  /** The script that it runs, with its version. */
  readonly script: string;
  readonly ready: boolean;
  readonly text: string;
}

/** What a host offers for threads. */
export interface ThreadHost {
  /** Whether memory can be shared; if not, the reason and the remedy. */
  readonly sharing: { readonly possible: boolean; readonly reason: string };
  readonly processors: number;
  /** Makes workers; undefined if the host has none. */
  readonly createWorker: (() => ThreadWorker) | undefined;
  /** Called when no more workers will be made. */
  readonly close?: () => void;
}

/**
 * The most threads of "auto", which takes one for each processor. Some browsers report more processors than there are.
 */
export const AUTO_MOST = 8;

/** Why a web worker did not start: the engine reports no more than that. */
const REFUSED =
  "its source was refused: allow worker-src blob: in the content security policy, or make it with createWorker from a file that is served with Cross-Origin-Embedder-Policy: require-corp";

/** The version of this package, by which a worker and the thread that uses it know that they fit together. */
const VERSION = "0.5.0";

/** The name by which the messages of a worker script are known: layouts that both sides share may differ by version. */
export const scriptName = (entry: string): string => `${entry} ${VERSION}`;

/** The script that a message is not of `script` but of, in words; undefined if it is of `script`. */
export function otherScript(message: unknown, script: string): string | undefined {
  const { script: found } = (typeof message === "object" && message !== null ? message : {}) as Partial<WorkerAnswer>;
  if (found === script) return undefined;
  return typeof found === "string" && /^headwise\/[-\w. ]{1,40}$/.test(found) ? found : "another script";
}

/** The events of a worker: `on` in Node, `addEventListener` on the web. */
interface WorkerEvents {
  on?(event: string, listener: (value: unknown) => void): void;
  addEventListener?(event: string, listener: (event: WorkerEvent) => void): void;
}

interface WorkerEvent {
  readonly data?: unknown;
  readonly message?: string;
  preventDefault?(): void;
}

/** Calls `answered` with each message of the worker, and `ended` with the reason when it has ended or failed. */
export function listen(worker: ThreadWorker, answered: (message: unknown) => void, ended: (why: string) => void): void {
  const events = worker as WorkerEvents;
  const unreadable = () => ended("it posted a message that cannot be read here");
  if (events.on) {
    events.on("message", answered);
    events.on("messageerror", unreadable);
    events.on("error", (error) => ended(reasonOf(error)));
    events.on("exit", (code) => ended(`it ended with code ${code}`));
  } else {
    events.addEventListener?.("message", ({ data }) => answered(data));
    events.addEventListener?.("messageerror", unreadable);
    events.addEventListener?.("error", (event) => {
      // Deno ends the process for an error of a worker whose event is not cancelled.
      event.preventDefault?.();
      ended(event.message || REFUSED);
    });
  }
}

/** Ends a worker. If that fails, nothing can be done about it, and other workers must still be ended. */
export function endWorker(worker: ThreadWorker): void {
  try {
    Promise.resolve(worker.terminate()).catch(() => {});
  } catch {}
}

function isWorker(value: unknown): value is ThreadWorker {
  if (typeof value !== "object" || value === null) return false;
  const { postMessage, terminate, on, addEventListener } = value as ThreadWorker & WorkerEvents;
  return [postMessage, terminate, on ?? addEventListener].every((method) => typeof method === "function");
}

/**
 * Calls `createWorker` for each of `count` workers; `failed` has the reasons of the calls that threw. Throws TypeError if a
 * call returned something else than a new worker. All workers are ended then.
 */
export function makeWorkers(
  where: string,
  count: number,
  createWorker: () => unknown,
): { readonly workers: readonly ThreadWorker[]; readonly failed: readonly string[] } {
  const workers: ThreadWorker[] = [];
  const failed: string[] = [];
  for (let i = 0; i < count; i++) {
    let made: unknown;
    let worker: ThreadWorker | undefined;
    try {
      made = createWorker();
      if (isWorker(made)) worker = made;
    } catch (error) {
      failed.push(reasonOf(error));
      continue;
    }
    const again = worker !== undefined && workers.includes(worker);
    if (worker && !again) {
      workers.push(worker);
      continue;
    }
    for (const other of workers) endWorker(other);
    // A worker that a promise gives would run on, and a promise that rejects would be reported as unhandled.
    if (made instanceof Promise)
      made.then(
        (late) => isWorker(late) && endWorker(late),
        () => {},
      );
    const got = again
      ? "one that returns the same Worker again"
      : `one that returns ${made instanceof Promise ? "a promise" : describe(made)}`;
    throw new TypeError(`${where}: createWorker expected a function that returns a new Worker, got ${got}`);
  }
  return { workers, failed };
}

/** Methods of Node's workers, which web workers lack. */
interface Referenced {
  ref?(): void;
  unref?(): void;
}

/**
 * Sets whether a worker of Node keeps the process running. Web workers have no such methods: pages do not wait for them,
 * and Deno waits until they are ended.
 */
export function keepAlive(worker: ThreadWorker, alive: boolean): void {
  const referenced = worker as Referenced;
  if (alive) referenced.ref?.();
  else referenced.unref?.();
}

interface NodeThreads {
  readonly Worker: new (source: string, options: { eval: true; execArgv: [] }) => ThreadWorker;
}

interface NodeSystem {
  availableParallelism(): number;
}

/** The properties of a global scope that threads depend on. */
export interface Scope {
  readonly SharedArrayBuffer?: unknown;
  readonly crossOriginIsolated?: boolean;
  readonly navigator?: { readonly hardwareConcurrency?: number };
  readonly process?: { getBuiltinModule?(name: string): unknown };
  readonly Worker?: new (url: string, options: { type: "module" }) => ThreadWorker;
  readonly Blob?: new (parts: string[], options: { type: string }) => unknown;
  readonly URL?: { createObjectURL?(blob: unknown): string; revokeObjectURL(url: string): void };
}

/** What the scope offers for threads that run `source`. With `createWorker`, workers are made by that instead. */
export function findHost(scope: Scope, source: string, createWorker?: () => ThreadWorker): ThreadHost {
  const system = builtinModule<NodeSystem>("node:os", scope);
  const processors = scope.navigator?.hardwareConcurrency ?? system?.availableParallelism?.() ?? 1;
  const maker = createWorker ? { createWorker } : findWorkers(scope, source);
  return { sharing: sharingOf(scope), processors, createWorker: maker?.createWorker, close: maker?.close };
}

function sharingOf(scope: Scope): ThreadHost["sharing"] {
  // In a page that is not cross-origin isolated, some browsers hide shared memory, others refuse to post it.
  if (scope.crossOriginIsolated === false)
    return {
      possible: false,
      reason:
        "this page is not cross-origin isolated: serve it with the headers Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp",
    };
  if (!scope.SharedArrayBuffer) return { possible: false, reason: "this engine has no shared memory" };
  return { possible: true, reason: "" };
}

function findWorkers(scope: Scope, source: string): Pick<ThreadHost, "createWorker" | "close"> | undefined {
  const node = builtinModule<NodeThreads>("node:worker_threads", scope);
  if (node?.Worker) return { createWorker: () => new node.Worker(source, { eval: true, execArgv: [] }) };
  const { Worker, Blob, URL } = scope;
  if (!Worker || !Blob || !URL?.createObjectURL) return undefined;
  let url: string | undefined;
  return {
    createWorker: () => {
      url ??= URL.createObjectURL?.(new Blob([source], { type: "text/javascript" })) as string;
      try {
        return new Worker(url, { type: "module" });
      } catch (cause) {
        // WebKit throws here; other engines send an error event without a message.
        throw new Error(REFUSED, { cause });
      }
    },
    close: () => url !== undefined && URL.revokeObjectURL(url),
  };
}

/**
 * Whether JavaScript has shared memory, and whether the page or worker is cross-origin isolated; null if the host has
 * no such concept.
 */
export function memorySharing(): { readonly sharedMemory: boolean; readonly isolated: boolean | null } {
  const scope = globalThis as Scope;
  return { sharedMemory: scope.SharedArrayBuffer !== undefined, isolated: scope.crossOriginIsolated ?? null };
}

/** The end of a worker's message channel that is inside the worker. */
interface WorkerPort<Request, Reply> {
  onmessage: ((event: { readonly data: Request }) => void) | null;
  postMessage(reply: Reply, transfer?: readonly ArrayBuffer[]): void;
}

/** The port of the worker that runs this: the global scope on the web, `parentPort` in Node. */
export function findWorkerPort<Request, Reply>(): WorkerPort<Request, Reply> {
  type Port = WorkerPort<Request, Reply>;
  const threads = builtinModule<{ readonly parentPort: Port | null }>("node:worker_threads");
  return threads?.parentPort ?? (globalThis as unknown as Port);
}
