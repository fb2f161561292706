// Signals that abort calls, beside the work that they abort.

import type { Global } from "./arguments.ts";

type Signal = Global<"AbortSignal">;

/** Waits for `work`, or until the signal is aborted: then it resolves, and what becomes of the work is nobody's concern. */
export function settledOrAborted(work: Promise<void>, signal: Signal | undefined): Promise<void> {
  if (!signal) return work;
  return new Promise((resolve, reject) => {
    signal.addEventListener("abort", settle);
    function settle() {
      signal?.removeEventListener("abort", settle);
      resolve();
    }
    if (signal.aborted) settle();
    work.finally(() => signal.removeEventListener("abort", settle)).then(resolve, reject);
  });
}

/**
 * A signal that follows another one until `end`: for files that stay open behind the call that opened them, and whose later reads are
 * not for its signal to abort.
 */
export function followSignal(signal: Signal | undefined): { readonly signal: Signal | undefined; end(): void } {
  if (!signal) return { signal, end() {} };
  const controller = new AbortController();
  const follow = () => controller.abort(signal.reason);
  signal.addEventListener("abort", follow);
  if (signal.aborted) follow();
  return { signal: controller.signal, end: () => signal.removeEventListener("abort", follow) };
}
