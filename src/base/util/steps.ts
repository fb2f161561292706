// Work in steps, generators that say how they ended, and signals that abort calls.

import type { Global } from "./arguments.ts";

/**
 * Work in steps, each of which yields the number of floating-point operations it did. Other code may run between two
 * steps; `return()` abandons the work and frees what it holds.
 */
export type Steps<T = void> = Generator<number, T, void>;

/** Steps between which there may be promises: the next one is run once they have settled. */
export type WaitingSteps<T = void> = Generator<number | Promise<void>, T, void>;

/** Runs all steps, which wait for nothing, and returns the result. */
export function finish<T>(steps: WaitingSteps<T>): T {
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
  }
}

/** An asynchronous generator, and what it gave in the end. */
interface Ended<T, End> extends AsyncGenerator<T, End, void> {
  readonly end: Promise<End>;
}

/**
 * Adds the promise `end` to a generator: what it returns, or what `endOf` gives where it was left, by `return()` or `throw()`, also
 * before its first step, or where it throws and `wasAborted` says that a signal did; it rejects with other errors, also of leaving. It settles when
 * the generator has finished, and is no unhandled rejection where nobody asks for it.
 */
export function withEnd<T, End>(
  all: AsyncGenerator<T, End, void>,
  endOf: (reason: "left" | "aborted") => End,
  wasAborted: (error: unknown) => boolean,
): Ended<T, End> {
  let settle!: (end: End | Promise<End>) => void;
  const end = new Promise<End>((resolve) => {
    settle = resolve;
  });
  end.catch(() => {});
  const [next, leave, fail] = [all.next.bind(all), all.return.bind(all), all.throw.bind(all)];
  const leaving = async (left: Promise<IteratorResult<T, End>>, thrown?: unknown) => {
    try {
      const result = await left;
      settle(endOf("left"));
      return result;
    } catch (error) {
      settle(error === thrown ? endOf("left") : Promise.reject(error));
      throw error;
    }
  };
  return Object.assign(all, {
    end,
    async next() {
      try {
        const result = await next();
        if (result.done) settle(result.value);
        return result;
      } catch (error) {
        settle(wasAborted(error) ? endOf("aborted") : Promise.reject(error));
        throw error;
      }
    },
    return: (value: End | PromiseLike<End>) => leaving(leave(value)),
    throw: (error: unknown) => leaving(fail(error), error),
  });
}

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
