/** The part of a worker that is used: a `Worker` of the web or of `node:worker_threads` fits. */
export interface ThreadWorker {
  /** Sends a message by structured clone. */
  postMessage(message: unknown): void;
  /** Ends the worker at once. */
  terminate(): unknown;
}

/** What a worker answers once it has started: that it is ready, or why it is not. */
export interface WorkerAnswer {
  readonly ready: boolean;
  readonly text: string;
}

/** What a host offers for threads. */
export interface ThreadHost {
  /** Whether memory can be shared, and if not, why and what helps. */
  readonly sharing: { readonly possible: boolean; readonly reason: string };
  readonly processors: number;
  /** Makes workers; undefined where there are none. */
  readonly createWorker: (() => ThreadWorker) | undefined;
  /** Called when no more workers will be made. */
  readonly close?: () => void;
}

/** Threads of "auto": one a processor, but no more than these. Some browsers claim more processors than there are. */
export const AUTO_MOST = 8;

/** How many threads to start, and why. */
export function planThreads(
  requested: number | "auto",
  { sharing, processors, createWorker }: ThreadHost,
): { readonly count: number; readonly reason: string } {
  if (requested === 1) return { count: 1, reason: "one thread was asked for" };
  if (!sharing.possible) return { count: 1, reason: sharing.reason };
  if (!createWorker) return { count: 1, reason: "this host has no workers" };
  if (requested !== "auto") return { count: requested, reason: "as many as were asked for" };
  const count = Math.max(1, Math.min(AUTO_MOST, processors));
  const has = `this host has ${processors} ${processors === 1 ? "processor" : "processors"}`;
  return { count, reason: count < processors ? `${has}; "auto" takes up to ${AUTO_MOST}` : has };
}

/** Why a worker of the web did not come to be: its engine says no more than that. */
export const REFUSED =
  "its source was refused: allow worker-src blob: in the content security policy, or make it with createWorker from a file that is served with Cross-Origin-Embedder-Policy: require-corp";

/** Workers of Node and of the web, as far as they say how they fare. */
interface Telling {
  on?(event: string, listener: (value: unknown) => void): void;
  addEventListener?(event: string, listener: (event: { data?: unknown; message?: string }) => void): void;
}

/** Calls `answered` with what the worker posts, and `ended` with the reason when it is over. */
export function listen<Answer = WorkerAnswer>(
  worker: ThreadWorker,
  answered: (answer: Answer) => void,
  ended: (why: string) => void,
): void {
  const telling = worker as Telling;
  if (telling.on) {
    telling.on("message", (answer) => answered(answer as Answer));
    telling.on("error", (error) => ended(String(error)));
    telling.on("exit", (code) => ended(`it ended with code ${code}`));
  } else {
    telling.addEventListener?.("message", ({ data }) => answered(data as Answer));
    telling.addEventListener?.("error", ({ message }) => ended(message || REFUSED));
  }
}

/** Lets the process end while the worker has nothing to do, where a worker would keep it alive. */
export function letExit(worker: ThreadWorker): void {
  (worker as { unref?(): void }).unref?.();
}
