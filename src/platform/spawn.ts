import { builtinModule } from "./builtin.ts";
import { REFUSED, type ThreadHost, type ThreadWorker } from "./workers.ts";

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
