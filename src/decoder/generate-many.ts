import { checkSlices, type SliceOptions, type Slices } from "../forward/slices.ts";
import { expectRecord, readFields } from "../util/arguments.ts";
import { HeadwiseError } from "../util/errors.ts";
import { CHUNK_ROWS } from "../util/rows.ts";
import { checkModelCall, type TokenIds } from "./forward.ts";
import { checkGeneration, type GeneratedToken, type GenerateOptions, type GenerationEnd } from "./generate.ts";
import type { OutputSink } from "./head.ts";
import { createJobQueue } from "./job-queue.ts";
import type { Model } from "./model.ts";
import { createPace } from "./pace.ts";
import { forgetTokens, type ModelCall, runCalls } from "./pass.ts";
import { type Choice, chooseToken, SAMPLING_OPTIONS } from "./sampling.ts";
import { expectSession, type Session } from "./session.ts";
import { forgettable } from "./speculate.ts";

/** A generation among others. */
export interface GenerationJob extends Omit<GenerateOptions, "draft" | "signal" | "sliceMs"> {
  /** Its own session; all jobs have the same model. */
  readonly session: Session;
  /** Tokens behind those that the session has read, 1 or more. */
  readonly ids: TokenIds;
}

/** What `generateMany` gives: a token of a job, or its end. */
export interface GenerationEvent<Job extends GenerationJob = GenerationJob> {
  /** The job as it was given. */
  readonly job: Job;
  /** Its next token; undefined at its end. */
  readonly token?: GeneratedToken;
  /** Why it ended; undefined before. */
  readonly end?: GenerationEnd;
}

const JOB_FIELDS = ["session", "ids", "maxTokens", "stopIds", ...SAMPLING_OPTIONS] as const;

/** A job that runs. */
interface Running<Job> extends ReturnType<typeof checkGeneration> {
  /** The call and the job, for messages. */
  readonly where: string;
  readonly job: Job;
  readonly session: Session;
  /** Tokens that the session has, unless another call changes it. */
  past: number;
  /** Tokens that are still to be read. */
  unread: Int32Array;
  count: number;
}

/**
 * Generates for many sessions at once: every step is one pass for all of them, so that weights are read once. Jobs join between
 * steps, as the iterable gives them, and leave when they end. Each job's tokens are those that `generate` gives alone. Long
 * prompts are read a chunk a step, so that the others go on. Leaving the loop early is allowed: the sessions of jobs that run then
 * hold all tokens but the last one that was given, or that of the prompt. A source that waits for its next job is told to return,
 * and not waited for.
 * @param jobs Jobs, or an asynchronous source of them that may give more while others run.
 * @throws TypeError or RangeError naming the job and the argument, HeadwiseError `CACHE_FULL` if ids do not fit, `OUT_OF_MEMORY`,
 * `RELEASED`, `IN_USE` (another call runs on a session, or has changed it since its last token), or the signal's reason, also
 * while no job is there. What was generated until then stays in the sessions.
 */
export async function* generateMany<Job extends GenerationJob>(
  jobs: Iterable<Job> | AsyncIterable<Job>,
  options: Omit<SliceOptions, "onProgress"> = {},
): AsyncGenerator<GenerationEvent<Job>, void, void> {
  const where = "generateMany";
  const slices = checkSlices(where, readFields(where, "options", options, ["signal", "sliceMs"]));
  const queue = createJobQueue(where, jobs, slices.signal);
  const pace = createPace(slices);
  const running: Running<Job>[] = [];
  let model: Model | undefined;
  let started = 0;
  try {
    for (;;) {
      for (const job of await queue.take(running.length === 0)) {
        const own = startJob(`${where}: jobs[${started++}]`, job);
        model ??= own.session.model;
        if (own.session.model !== model)
          throw new RangeError(`${own.where}: session expected one of the same model as the first job, got another`);
        if (running.some(({ session }) => session === own.session))
          throw new HeadwiseError("IN_USE", `${own.where}: session expected one that no other job is using`);
        running.push(own);
      }
      for (const one of running.slice()) {
        const end = endOf(one);
        if (!end) continue;
        running.splice(running.indexOf(one), 1);
        yield { job: one.job, end };
      }
      if (running.length === 0) {
        if (queue.done) return;
        continue;
      }
      await pace();
      const chosen = await step(where, model as Model, running, slices);
      const waiting = new Set(chosen.map(([one]) => one));
      try {
        for (const [one, choice] of chosen) {
          waiting.delete(one);
          if (one.stops.has(choice.id)) {
            running.splice(running.indexOf(one), 1);
            yield { job: one.job, end: { reason: "stop", stopId: choice.id } };
          } else {
            one.count++;
            one.unread = Int32Array.of(choice.id);
            yield { job: one.job, token: choice };
          }
        }
      } finally {
        // Left between the tokens of a step: of those that were not given, the last token before is unread again.
        for (const { session, past } of waiting) forgetTokens(session, past, past - forgettable(session, past - 1, 1));
      }
    }
  } catch (error) {
    // What the source throws besides would hide this error.
    await queue.close().catch(() => {});
    throw error;
  } finally {
    await queue.close();
  }
}

function startJob<Job extends GenerationJob>(where: string, job: Job): Running<Job> {
  expectRecord(where, "job", job);
  const given = readFields(where, "job", Object.fromEntries(JOB_FIELDS.map((name) => [name, job[name]])), JOB_FIELDS);
  const session = given.session as Session;
  expectSession(where, session);
  const { ids, past } = checkModelCall(where, session, given.ids as TokenIds, "last");
  const rules = checkGeneration(where, given as GenerateOptions, session.model.vocabSize);
  return { where, job, session, past, unread: ids, count: 0, ...rules };
}

/** Why a job ends before its next step. */
function endOf({ session, past, unread, count, maxTokens }: Running<unknown>): GenerationEnd | undefined {
  if (count >= maxTokens) return { reason: "length" };
  return past + unread.length > session.maxSeqLen ? { reason: "full" } : undefined;
}

/** One pass for all jobs: a token or a chunk of the prompt of each. Returns what was chosen. */
async function step<Job>(
  where: string,
  model: Model,
  running: readonly Running<Job>[],
  slices: Slices,
): Promise<readonly (readonly [Running<Job>, Choice])[]> {
  const calls = running.map(({ where, session, past, unread }): ModelCall => {
    const ids = unread.subarray(0, CHUNK_ROWS);
    return { where, session, past, ids, outputs: ids.length === unread.length ? 1 : 0 };
  });
  const whole = running.filter((_, i) => calls[i]?.outputs === 1);
  const chosen: (readonly [Running<Job>, Choice])[] = [];
  const sink: OutputSink = (row) => {
    const one = whole[row.output] as Running<Job>;
    const { session, past, unread, sampling } = one;
    const seen = () => [...session.tokens, ...unread];
    chosen.push([one, chooseToken(row, sampling, seen, past + unread.length)]);
  };
  await runCalls(where, model, calls, sink, slices);
  for (const [i, one] of running.entries()) {
    const count = calls[i]?.ids.length ?? 0;
    one.past += count;
    one.unread = one.unread.subarray(count);
  }
  return chosen;
}
