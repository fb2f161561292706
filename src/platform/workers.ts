/** The part of a worker that is used: a `Worker` of the web or of `node:worker_threads` fits. */
export interface ThreadWorker {
  /** Sends a message by structured clone. */
  postMessage(message: unknown): void;
  /** Ends the worker at once. */
  terminate(): unknown;
}

/** What a worker posts after its start: that it is ready, or why it is not. */
export interface WorkerAnswer {
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

/** Why a web worker did not start: the engine reports no more than that. */
export const REFUSED =
  "its source was refused: allow worker-src blob: in the content security policy, or make it with createWorker from a file that is served with Cross-Origin-Embedder-Policy: require-corp";

/** The events of a worker: `on` in Node, `addEventListener` on the web. */
interface WorkerEvents {
  on?(event: string, listener: (value: unknown) => void): void;
  addEventListener?(event: string, listener: (event: { data?: unknown; message?: string }) => void): void;
}

/** Calls `answered` with each message of the worker, and `ended` with the reason when it has ended. */
export function listen<Answer = WorkerAnswer>(
  worker: ThreadWorker,
  answered: (answer: Answer) => void,
  ended: (why: string) => void,
): void {
  const events = worker as WorkerEvents;
  if (events.on) {
    events.on("message", (answer) => answered(answer as Answer));
    events.on("error", (error) => ended(String(error)));
    events.on("exit", (code) => ended(`it ended with code ${code}`));
  } else {
    events.addEventListener?.("message", ({ data }) => answered(data as Answer));
    events.addEventListener?.("error", ({ message }) => ended(message || REFUSED));
  }
}

/** Methods of Node's workers, which web workers lack. */
interface Referenced {
  ref?(): void;
  unref?(): void;
}

/** Sets whether a worker of Node keeps the process running. Web workers never do. */
export function keepAlive(worker: ThreadWorker, alive: boolean): void {
  const referenced = worker as Referenced;
  if (alive) referenced.ref?.();
  else referenced.unref?.();
}
