// Tokens of many sessions that are generated together.

import { expectInt, expectRecord, expectSignal, type Global, readFields } from "../../base/util/arguments.ts";
import { describe, HeadwiseError } from "../../base/util/errors.ts";
import { CHUNK_ROWS } from "../../base/util/rows.ts";
import { settledOrAborted } from "../../base/util/steps.ts";
import { checkSlices, type SliceOptions, type Slices } from "../../layers/pass/forward.ts";
import type { OutputSink } from "../blocks/ends.ts";
import type { LoadedModel } from "../blocks/model.ts";
import { checkModelCall, type ModelCall, runCalls } from "../decoder/forward.ts";
import { expectReady, expectSession, forgetTokens, type Session, type TokenIds } from "../decoder/session.ts";
import {
  checkGeneration,
  createPace,
  forgettable,
  type GeneratedToken,
  type GenerateOptions,
  type GenerationEnd,
} from "./generate.ts";
import { type Choice, chooseToken, SAMPLING_OPTIONS } from "./sampling.ts";

/** A generation among others. */
export interface GenerationJob extends Omit<GenerateOptions, "draft" | "signal" | "sliceMs"> {
  /** Ends this job alone, before the next step, with the reason "aborted". Its session keeps the tokens that were read. */
  readonly signal?: Global<"AbortSignal"> | undefined;
  /** Its own session; all jobs have the same model. */
  readonly session: Session;
  /** Tokens behind those that the session has read, 1 or more. */
  readonly ids: TokenIds;
}

/** The end of a job that could not begin or go on. */
export interface GenerationFailure {
  /** Its arguments were refused, its session was released or used by another call, or its processors threw. */
  readonly reason: "error";
  /** What `generate` would throw, with the job in its message. */
  readonly error: unknown;
}

/** What `generateMany` gives: a token of a job, or its end. */
export interface GenerationEvent<Job extends GenerationJob = GenerationJob> {
  /** The job as it was given. */
  readonly job: Job;
  /** Its next token; undefined at its end. */
  readonly token?: GeneratedToken;
  /** Why it ended, and with which seed; undefined before. */
  readonly end?: GenerationEnd | GenerationFailure;
}

/** How `generateMany` runs its jobs. */
export interface GenerateManyOptions extends Omit<SliceOptions, "onProgress"> {
  /**
   * Jobs that run at once at most; the next ones begin as others end, and a list or source of jobs is asked for no more than can
   * run, so that it may create a session for each, and need not end. Default: all that come.
   */
  readonly maxJobs?: number | undefined;
}

const JOB_FIELDS = ["session", "ids", "maxTokens", "stopIds", "signal", ...SAMPLING_OPTIONS] as const;

/** A job that runs. */
interface Running<Job> extends ReturnType<typeof checkGeneration> {
  /** The call and the job, for messages. */
  readonly where: string;
  readonly job: Job;
  readonly session: Session;
  readonly signal: GenerationJob["signal"];
  /** Tokens that the session has, unless another call changes it. */
  past: number;
  /** Its changes until then. */
  changes: number;
  /** Tokens that are still to be read. */
  unread: Int32Array;
  count: number;
}

/**
 * Generates for many sessions at once: every step is one pass for all of them, so that weights are read once. Jobs join between
 * steps, as the iterable gives them, and leave when they end. Each job's tokens are those that `generate` gives alone. Long
 * prompts are read a chunk a step, so that the others go on. Leaving the loop early is allowed: the sessions of jobs that run then
 * hold all tokens but the last one that was given, or that of the prompt. For a session that was forked in the loop this may take
 * memory: without it `OUT_OF_MEMORY` is thrown, and the session holds that token too. `return()` of a source that waits for its next
 * job is called, and not awaited.
 *
 * A job that fails ends alone, with the reason "error"; the others go on. Its session keeps the tokens that were read.
 * @param jobs Jobs, or an asynchronous source of them that may give more while others run.
 * @throws TypeError or RangeError for `jobs` and `options`, HeadwiseError `OUT_OF_MEMORY` or `BAD_FILE` of a step, what the source
 * throws, or the signal's reason, also while no job is there. What was generated until then stays in the sessions.
 */
export async function* generateMany<Job extends GenerationJob>(
  jobs: Iterable<Job> | AsyncIterable<Job>,
  options: GenerateManyOptions = {},
): AsyncGenerator<GenerationEvent<Job>, void, void> {
  const where = "generateMany";
  const { maxJobs, ...sliced } = readFields(where, "options", options, ["signal", "sliceMs", "maxJobs"]);
  const most = maxJobs === undefined ? Infinity : expectInt(where, "maxJobs", maxJobs);
  const slices = checkSlices(where, sliced);
  const queue = new JobQueue(where, jobs, slices.signal);
  const pace = createPace(slices);
  const running: Running<Job>[] = [];
  let model: LoadedModel | undefined;
  let started = 0;
  try {
    for (;;) {
      for (const job of await queue.take(running.length === 0, most - running.length)) {
        const failure = failureOf(() => {
          const own = startJob(`${where}: jobs[${started++}]`, job, running, model);
          model ??= own.session.model;
          running.push(own);
        });
        if (failure) yield { job, end: failure };
      }
      await pace();
      slices.signal?.throwIfAborted();
      const before = running.length;
      // From the first again: while an end is given, owners may change the sessions of other jobs.
      for (let one = running.find(endOf); one; one = running.find(endOf)) {
        running.splice(running.indexOf(one), 1);
        yield { job: one.job, end: endOf(one) };
      }
      if (running.length === 0 && queue.done) return;
      // Others may take their places before the next step.
      if (running.length === 0 || (running.length < before && !queue.done)) continue;
      let chosen: readonly Outcome<Job>[];
      try {
        chosen = await step(where, model as LoadedModel, running, slices);
      } catch (error) {
        // Nothing has changed, and the step is repeated without the jobs whose sessions were released in it.
        if (!running.some((one) => endOf(one)?.reason === "error")) throw error;
        continue;
      }
      yield* give(chosen, running);
    }
  } catch (error) {
    // What the source throws besides would hide this error.
    await queue.close().catch(() => {});
    throw error;
  } finally {
    await queue.close();
  }
}

/** Gives what a step has chosen; jobs that end with it leave those that run. */
function* give<Job extends GenerationJob>(
  chosen: readonly Outcome<Job>[],
  running: Running<Job>[],
): Generator<GenerationEvent<Job>, void, void> {
  const waiting = new Set(chosen.map(([one]) => one));
  try {
    for (const [one, choice] of chosen) {
      waiting.delete(one);
      const failed = "reason" in choice;
      if (failed || one.stops.has(choice.id)) {
        running.splice(running.indexOf(one), 1);
        yield { job: one.job, end: failed ? choice : { reason: "stop", stopId: choice.id, ...one.seeded } };
      } else {
        one.count++;
        one.unread = Int32Array.of(choice.id);
        yield { job: one.job, token: choice };
      }
    }
  } finally {
    // Left between the tokens of a step: of those that were not given, the last token before is unread again.
    forgetLast(waiting);
  }
}

/** Has the sessions of jobs forget the token that each read last. If one has no memory for it, the others have forgotten theirs. */
function forgetLast(jobs: Iterable<Running<unknown>>): void {
  const failures = Array.from(jobs, ({ where, session, past, changes }) =>
    failureOf(() => forgetTokens(where, session, past, past - forgettable(session, past - 1, 1), changes)),
  );
  const failure = failures.find((each) => each !== undefined);
  if (failure) throw failure.error;
}

/** Checks a job that comes to those that run, with sessions of `model`. */
function startJob<Job extends GenerationJob>(
  where: string,
  job: Job,
  running: readonly Running<Job>[],
  model: LoadedModel | undefined,
): Running<Job> {
  expectRecord(where, "job", job);
  const given = readFields(
    where,
    "job",
    Object.fromEntries(JOB_FIELDS.map((name) => [name, job[name]])) as Partial<GenerationJob>,
    JOB_FIELDS,
  );
  const session = given.session as Session;
  expectSession(where, session);
  const { signal } = given;
  if (signal !== undefined) expectSignal(where, signal);
  const { ids, past } = checkModelCall(where, session, given.ids as TokenIds, "last");
  const rules = checkGeneration(where, given as GenerateOptions, session.model.vocabSize);
  if (session.model !== (model ?? session.model))
    throw new RangeError(`${where}: session expected one of the same model as the first job, got another`);
  if (running.some((other) => other.session === session))
    throw new HeadwiseError("IN_USE", `${where}: session expected one that no other job is using`);
  const sampling = { ...rules.sampling, tokenRules: session.model.spec.tokenRules?.(ids.length) };
  const changes = session.changes.count;
  return { where, job, session, signal, past, changes, unread: ids, count: 0, ...rules, sampling };
}

function failureOf(work: () => void): GenerationFailure | undefined {
  try {
    work();
  } catch (error) {
    return { reason: "error", error };
  }
}

/** Why a job ends before its next step. */
function endOf(one: Running<unknown>): GenerationEnd | GenerationFailure | undefined {
  const { where, session, signal, past, changes, unread, count, maxTokens, seeded } = one;
  if (signal?.aborted) return { reason: "aborted", ...seeded };
  if (count >= maxTokens) return { reason: "length", ...seeded };
  if (past + unread.length > session.maxSeqLen) return { reason: "full", ...seeded };
  return failureOf(() => expectReady(where, session, past, changes));
}

/** The token that was chosen for a job, or why none could be. */
type Outcome<Job> = readonly [Running<Job>, Choice | GenerationFailure];

/** One pass for all jobs: a token or a chunk of the prompt of each. Returns what was chosen. */
async function step<Job>(
  where: string,
  model: LoadedModel,
  running: readonly Running<Job>[],
  slices: Slices,
): Promise<readonly Outcome<Job>[]> {
  const calls = running.map(({ where, session, past, unread }): ModelCall => {
    const ids = unread.subarray(0, CHUNK_ROWS);
    return { where, session, past, ids, outputs: ids.length === unread.length ? 1 : 0 };
  });
  const whole = running.filter((_, i) => calls[i]?.outputs === 1);
  const chosen: Outcome<Job>[] = [];
  const sink: OutputSink = (row) => {
    const one = whole[row.output] as Running<Job>;
    const { session, past, unread, sampling } = one;
    const seen = () => [...session.tokens, ...unread];
    const failure = failureOf(() => chosen.push([one, chooseToken(row, sampling, seen, past + unread.length)]));
    if (failure) chosen.push([one, failure]);
  };
  await runCalls(where, model, calls, sink, slices);
  for (const [i, one] of running.entries()) {
    const count = calls[i]?.ids.length ?? 0;
    one.past += count;
    one.changes = one.session.changes.count;
    one.unread = one.unread.subarray(count);
  }
  return chosen;
}

// The jobs of generateMany as they come from a list or from an asynchronous source.

/** An asynchronous source is not asked for more while so many of its jobs wait. */
const MOST_WAITING = 64;

/** Jobs in the order in which they come: a list is read as jobs are taken, an asynchronous source ahead. */
class JobQueue<Job> {
  readonly #source: AsyncIterator<Job> | undefined;
  readonly #list: Iterator<Job> | undefined;
  readonly #signal: Slices["signal"];
  readonly #waiting: Job[] = [];
  #ended = false;
  #failure: { readonly cause: unknown } | undefined;
  /** Settles with the next job, and never rejects. */
  #pending: Promise<void> | undefined;
  /** How many jobs could begin. */
  #room = 0;

  /** Throws TypeError unless `jobs` is an iterable. */
  constructor(where: string, jobs: Iterable<Job> | AsyncIterable<Job>, signal: Slices["signal"]) {
    const isAsync = Symbol.asyncIterator in Object(jobs);
    if (!isAsync && !(Symbol.iterator in Object(jobs)))
      throw new TypeError(`${where}: jobs expected a list or another iterable of jobs, got ${describe(jobs)}`);
    this.#source = isAsync ? (jobs as AsyncIterable<Job>)[Symbol.asyncIterator]() : undefined;
    this.#list = isAsync ? undefined : (jobs as Iterable<Job>)[Symbol.iterator]();
    this.#signal = signal;
  }

  /** Whether no more will come. */
  get done(): boolean {
    return this.#ended && !this.#failure && this.#waiting.length === 0;
  }

  /**
   * Takes up to `most` of those that have come; with `wait`, waits for one.
   * @throws What the source threw behind the last job, or the signal's reason.
   */
  async take(wait: boolean, most: number): Promise<readonly Job[]> {
    const [waiting, signal] = [this.#waiting, this.#signal];
    this.#room = most;
    if (this.#list) this.#read(this.#list);
    else this.#pull();
    while (wait && waiting.length === 0 && this.#pending) {
      signal?.throwIfAborted();
      await settledOrAborted(this.#pending, signal);
      signal?.throwIfAborted();
    }
    // Jobs that came before run first.
    if (this.#failure && waiting.length === 0) throw this.#failure.cause;
    const taken = waiting.splice(0, most);
    this.#room -= taken.length;
    if (this.#source) this.#pull();
    return taken;
  }

  /** Asks the source for no more, and tells it so. */
  async close(): Promise<void> {
    if (this.#ended) return;
    this.#ended = true;
    this.#list?.return?.();
    // A generator that waits for its next job would return only then.
    if (this.#pending) void returnOf(this.#source).catch(() => {});
    else await returnOf(this.#source);
  }

  #add(next: IteratorResult<Job> | undefined): void {
    if (!next || next.done) this.#ended = true;
    else this.#waiting.push(next.value);
  }

  #fail(cause: unknown): void {
    this.#ended = true;
    this.#failure = { cause };
  }

  #read(list: Iterator<Job>): void {
    while (!this.#ended && this.#waiting.length < this.#room)
      try {
        this.#add(list.next());
      } catch (cause) {
        this.#fail(cause);
      }
  }

  #pull(): void {
    if (this.#ended || this.#pending || this.#waiting.length >= Math.min(this.#room, MOST_WAITING)) return;
    // A function that is async, so that what `next` throws at once rejects, too.
    this.#pending = (async () => this.#source?.next())()
      .then((next) => this.#add(next))
      .catch((cause: unknown) => this.#fail(cause))
      .finally(() => {
        this.#pending = undefined;
        this.#pull();
      });
  }
}

/** A function of its own, so that what `return` throws at once rejects, too. */
async function returnOf(source: AsyncIterator<unknown> | undefined): Promise<void> {
  await source?.return?.();
}
