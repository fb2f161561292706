import { REFUSED, type ThreadHost, type ThreadWorker } from "./workers.ts";

interface NodeThreads {
  readonly Worker: new (source: string, options: { eval: true; execArgv: [] }) => ThreadWorker;
}

interface NodeSystem {
  availableParallelism(): number;
}

/** What of a global scope matters for threads. */
export interface Scope {
  readonly SharedArrayBuffer?: unknown;
  readonly crossOriginIsolated?: boolean;
  readonly navigator?: { readonly hardwareConcurrency?: number };
  readonly process?: { getBuiltinModule?(name: string): unknown };
  readonly Worker?: new (url: string, options: { type: "module" }) => ThreadWorker;
  readonly Blob?: new (parts: string[], options: { type: string }) => unknown;
  readonly URL?: { createObjectURL?(blob: unknown): string; revokeObjectURL(url: string): void };
}

/** What the scope offers for threads that run `source`; `createWorker` makes them in another way. */
export function findHost(scope: Scope, source: string, createWorker?: () => ThreadWorker): ThreadHost {
  const builtin = (name: string) => scope.process?.getBuiltinModule?.(name);
  const system = builtin("node:os") as NodeSystem | undefined;
  const processors = scope.navigator?.hardwareConcurrency ?? system?.availableParallelism?.() ?? 1;
  const maker = createWorker ? { createWorker } : findWorkers(scope, source);
  return { sharing: sharingOf(scope), processors, createWorker: maker?.createWorker, close: maker?.close };
}

function sharingOf(scope: Scope): ThreadHost["sharing"] {
  // Some browsers hide shared memory from a page that is not isolated, some show it and refuse to send it.
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
  const node = scope.process?.getBuiltinModule?.("node:worker_threads") as NodeThreads | undefined;
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
        // WebKit throws where other engines send an error event without a message.
        throw new Error(REFUSED, { cause });
      }
    },
    close: () => url !== undefined && URL.revokeObjectURL(url),
  };
}

/** Whether JavaScript sees shared memory, and cross-origin isolation of a page or worker; null where there is no such thing. */
export function memorySharing(): { readonly sharedMemory: boolean; readonly isolated: boolean | null } {
  const scope = globalThis as Scope;
  return { sharedMemory: scope.SharedArrayBuffer !== undefined, isolated: scope.crossOriginIsolated ?? null };
}
