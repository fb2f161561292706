// The page's side of the engine: a worker with the package in it. A task is a function of worker/tasks.ts, called by its name.

import type { Answer, Reports } from "../worker/call.ts";
import type { TASKS } from "../worker/tasks.ts";

declare const ENGINE: string;

type Tasks = typeof TASKS;
type TaskName = keyof Tasks;
type Given<N extends TaskName> = Parameters<Tasks[N]>[0];
type Result<N extends TaskName> = Awaited<ReturnType<Tasks[N]>>;

export type OnReport = (report: Reports[keyof Reports]) => void;

export interface Engine {
  /** Runs a task. `onReport` gets its progress; `signal` stops it, which rejects the promise with an AbortError. */
  run<N extends TaskName>(
    task: N,
    given: Given<N>,
    options?: { readonly onReport?: OnReport; readonly signal?: AbortSignal },
  ): Promise<Result<N>>;
  /** Ends the worker, and with it all that it holds. */
  end(): void;
}

export function startEngine(): Engine {
  const worker = new Worker(new URL(ENGINE, import.meta.url), { type: "module" });
  const waiting = new Map<
    number,
    { resolve(value: unknown): void; reject(error: Error): void; onReport?(report: unknown): void }
  >();
  let calls = 0;
  let isStarted = false;
  /** Why there is no engine, where it failed before it answered anything. */
  let missing: Error | undefined;
  worker.addEventListener("message", ({ data }: MessageEvent<Answer>) => {
    isStarted = true;
    const call = waiting.get(data.id);
    if (!call) return;
    if ("report" in data) return call.onReport?.(data.report);
    waiting.delete(data.id);
    if ("error" in data) call.reject(Object.assign(new Error(data.error.message), { name: data.error.name }));
    else call.resolve(data.result);
  });
  worker.addEventListener("error", ({ message }) => {
    const error = new Error(`the engine ended: ${message || "a file of it could not be loaded"}`);
    if (!isStarted) missing = error;
    for (const { reject } of waiting.values()) reject(error);
    waiting.clear();
  });
  return {
    run(task, given, { onReport, signal } = {}) {
      if (missing) return Promise.reject(missing);
      const id = calls++;
      signal?.addEventListener("abort", () => worker.postMessage({ stop: id }), { once: true });
      return new Promise((resolve, reject) => {
        waiting.set(id, { resolve: resolve as (value: unknown) => void, reject, onReport: onReport as never });
        worker.postMessage({ id, task, given });
        if (signal?.aborted) worker.postMessage({ stop: id });
      });
    },
    end() {
      worker.terminate();
      for (const { reject } of waiting.values()) reject(new DOMException("the engine was ended", "AbortError"));
      waiting.clear();
    },
  };
}
