// The jobs of generateMany as they come from a list or from an asynchronous source.

import type { Slices } from "../forward/slices.ts";
import { describe } from "../util/errors.ts";

/** Jobs in the order in which they come. */
export interface JobQueue<Job> {
  /** Whether no more will come. */
  readonly done: boolean;
  /**
   * Takes up to `most` of those that have come; with `wait`, waits for one.
   * @throws What the source threw behind the last job, or the signal's reason.
   */
  take(wait: boolean, most: number): Promise<readonly Job[]>;
  /** Asks the source for no more, and tells it so. */
  close(): Promise<void>;
}

/** An asynchronous source is not asked for more while so many of its jobs wait. */
const MOST_WAITING = 64;

/** A list is read as jobs are taken, an asynchronous source ahead. Throws TypeError unless `jobs` is an iterable. */
export function createJobQueue<Job>(
  where: string,
  jobs: Iterable<Job> | AsyncIterable<Job>,
  signal: Slices["signal"],
): JobQueue<Job> {
  const isAsync = Symbol.asyncIterator in Object(jobs);
  if (!isAsync && !(Symbol.iterator in Object(jobs)))
    throw new TypeError(`${where}: jobs expected a list or another iterable of jobs, got ${describe(jobs)}`);
  const source = isAsync ? (jobs as AsyncIterable<Job>)[Symbol.asyncIterator]() : undefined;
  const list = isAsync ? undefined : (jobs as Iterable<Job>)[Symbol.iterator]();
  const waiting: Job[] = [];
  let done = false;
  let failure: { readonly cause: unknown } | undefined;
  /** Settles with the next job, and never rejects. */
  let pending: Promise<void> | undefined;
  /** How many jobs could begin. */
  let room = 0;
  const pull = () => {
    if (done || pending || waiting.length >= Math.min(room, MOST_WAITING)) return;
    // A function that is async, so that what `next` throws at once rejects, too.
    pending = (async () => source?.next())()
      .then((next) => {
        if (!next || next.done) done = true;
        else waiting.push(next.value);
      })
      .catch((cause: unknown) => {
        done = true;
        failure = { cause };
      })
      .finally(() => {
        pending = undefined;
        pull();
      });
  };
  const read = (from: Iterator<Job>) => {
    while (!done && waiting.length < room) {
      try {
        const next = from.next();
        if (next.done) done = true;
        else waiting.push(next.value);
      } catch (cause) {
        done = true;
        failure = { cause };
      }
    }
  };
  return {
    get done() {
      return done && !failure && waiting.length === 0;
    },
    async take(wait, most) {
      room = most;
      if (list) read(list);
      else pull();
      while (wait && waiting.length === 0 && pending) {
        signal?.throwIfAborted();
        await settledOrAborted(pending, signal);
        signal?.throwIfAborted();
      }
      // Jobs that came before run first.
      if (failure && waiting.length === 0) throw failure.cause;
      const taken = waiting.splice(0, most);
      room -= taken.length;
      if (source) pull();
      return taken;
    },
    async close() {
      if (done) return;
      done = true;
      list?.return?.();
      // A generator that waits for its next job would return only then.
      if (pending) void returnOf(source).catch(() => {});
      else await returnOf(source);
    },
  };
}

/** A function of its own, so that what `return` throws at once rejects, too. */
async function returnOf(source: AsyncIterator<unknown> | undefined): Promise<void> {
  await source?.return?.();
}

/** Waits for `work`, which never rejects, or until the signal is aborted. */
function settledOrAborted(work: Promise<void>, signal: Slices["signal"]): Promise<void> {
  if (!signal) return work;
  return new Promise((resolve) => {
    const settle = () => {
      signal.removeEventListener("abort", settle);
      resolve();
    };
    signal.addEventListener("abort", settle);
    void work.then(settle);
  });
}
