// The speed of a loaded model, and of any work, beside others.

import { expectFinite, expectFunction, expectRecord, readList } from "../../base/util/arguments.ts";
import { FORMATS, panelsOf } from "../../layers/linear/formats.ts";

import { expectModel, type Model, type PackedMlp } from "../../models/blocks/model.ts";
import { forward } from "../../models/decoder/forward.ts";
import { createSession } from "../../models/decoder/session.ts";
import { type Effort, type Load, type Rate, startStream, timeLoads } from "../diagnostics/timing.ts";

import { stoppedClock } from "./measure.ts";

/** Something to time. */
export interface TimedWork {
  /** Floating-point operations of a run, more than 0: `Rate` has them a second. It may be any other unit. */
  readonly flops: number;
  /** Does the work once, synchronously. */
  run(): void;
}

/** A few seconds for all of the works together. */
const EFFORT: Effort = { warmupMs: 60, sampleMs: 10, rounds: 15, mostMs: 2500 };

/**
 * Times works against each other: in rounds, each of which begins with another work, because the speed of a shared machine changes
 * within seconds, so that only samples next to each other can be compared. It takes some three seconds at most, unless single runs are
 * long, and the event loop runs between rounds.
 * @returns The speed of each work, in order.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `NO_CLOCK` where the clock stands still while code runs.
 * @example
 * import { timeWorks } from "headwise/configure";
 * const sum = (x: Float32Array) => ({ flops: x.length, run: () => void x.reduce((a, b) => a + b, 0) });
 * const [short, long] = await timeWorks([sum(new Float32Array(1e3)), sum(new Float32Array(1e5))]);
 * console.log(short!.ratio, long!.ms > short!.ms); // 1 true
 */
export async function timeWorks(works: readonly TimedWork[]): Promise<Rate[]> {
  const where = "timeWorks";
  const read = (work: unknown, i: number): Load => {
    expectRecord(where, `works[${i}]`, work);
    const { flops } = work as TimedWork;
    expectFinite(where, `works[${i}].flops`, flops, true);
    expectFunction(where, `works[${i}].run`, (work as TimedWork).run);
    return { flops, run: () => (work as TimedWork).run() };
  };
  return timed(where, Array.from(readList(where, "works", works, Infinity, read)), EFFORT);
}

async function timed(where: string, loads: readonly Load[], effort: Effort): Promise<Rate[]> {
  const rates = await timeLoads(loads, effort);
  if (rates) return rates;
  throw stoppedClock(where);
}

/** The speed of a decoder, beside that of reading its weights. */
export interface ModelSpeed {
  /** Tokens of the prompt, and before the decoded token: 128, or as many as the model has room for beside one more. */
  readonly tokens: number;
  /** Tokens of the prompt in a second. */
  readonly prefillTokensPerSecond: number;
  /** Tokens after the prompt in a second, one after the other. */
  readonly decodeTokensPerSecond: number;
  /** Of one thread that does nothing but read the weights of a token: what decoding on one thread cannot exceed. */
  readonly readingTokensPerSecond: number;
  /** Decoding relative to reading: the median ratio over rounds. */
  readonly ofReading: number;
}

/** Some seconds, for large models more. */
const MODEL_EFFORT: Effort = { warmupMs: 60, sampleMs: 10, rounds: 9, mostMs: 4000 };
/** Tokens of the prompt, and before the decoded token. */
const TOKENS = 128;

/**
 * Measures how fast a loaded decoder is on this machine, in some seconds: a prompt, and a token after it, beside reading the weights
 * that the token reads, all three by turns. Two sessions for so many tokens, and up to 256 MB for the reading, are allocated and freed.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `OUT_OF_MEMORY` or `RELEASED`; `NO_CLOCK` where the clock stands
 * still while code runs.
 * @example
 * import { loadKernels } from "headwise";
 * import { measureModel } from "headwise/configure";
 * import { loadModel, models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const { tokens, prefillTokensPerSecond, decodeTokensPerSecond } = await measureModel(await loadModel(kernels, "model"));
 * console.log(tokens, prefillTokensPerSecond > decodeTokensPerSecond); // 95 true: the model has room for 96
 * kernels.release();
 */
export async function measureModel(model: Model): Promise<ModelSpeed> {
  const where = "measureModel";
  expectModel(where, model);
  const tokens = Math.max(1, Math.min(TOKENS, (model.maxSeqLen ?? TOKENS + 1) - 1));
  const prompt = Array.from({ length: tokens }, (_, i) => (i * 7919) % model.vocabSize);
  using read = createSession(model, { maxSeqLen: tokens + 1 });
  using prompted = createSession(model, { maxSeqLen: tokens + 1 });
  forward(read, prompt);
  const bytes = tokenBytes(model);
  const decode = {
    flops: bytes,
    run() {
      forward(read, [1 % model.vocabSize], { top: 1 });
      read.truncate(tokens);
    },
  };
  const prefill = {
    flops: bytes * tokens,
    run() {
      forward(prompted, prompt, { top: 1 });
      prompted.truncate(0);
    },
  };
  const [reading, one, many] = (await timed(where, [startStream(bytes), decode, prefill], MODEL_EFFORT)) as [
    Rate,
    Rate,
    Rate,
  ];
  return {
    tokens,
    prefillTokensPerSecond: (1000 * tokens) / many.ms,
    decodeTokensPerSecond: 1000 / one.ms,
    readingTokensPerSecond: 1000 / reading.ms,
    ofReading: one.ratio,
  };
}

/** Bytes of weights that a token reads: not the table of tokens, unless it is the head, and the experts that are chosen. */
function tokenBytes({ bytes, weights }: Model): number {
  const { embed, positions, head, blocks } = weights;
  const tables = [head.w === embed.at ? undefined : embed, positions];
  const ofTables = tables.reduce(
    (sum, table) => sum + (table ? panelsOf(table.rows) * FORMATS[table.format].panelBytes(table.dim) : 0),
    0,
  );
  const ofExperts = blocks.reduce((sum, { moe }) => {
    const each = moe?.experts.reduce((all, expert) => all + mlpBytes(expert), 0) ?? 0;
    return sum + (moe ? each * (1 - moe.topK / moe.experts.length) : 0);
  }, 0);
  return Math.round(bytes - ofTables - ofExperts);
}

function mlpBytes({ inputs, down }: PackedMlp): number {
  return [...inputs, down].reduce((sum, { format, panels, k }) => sum + panels * FORMATS[format].panelBytes(k), 0);
}
