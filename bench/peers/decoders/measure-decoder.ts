// What is measured in the process or page of a peer.

import { median } from "../../../src/tools/diagnostics/timing.ts";
import { processorMs } from "../../lib/processor-time.ts";
import type { Decoder, LoadDecoder, LoadRequest } from "./decoder.ts";
import { type MachineSpeed, startLoops } from "./peak-loops.ts";

/** How much is measured. */
export interface Effort {
  /** Tokens of the prompts. */
  readonly prompts: readonly number[];
  /** Tokens behind which single ones are read. */
  readonly pasts: readonly number[];
  /** How often a prompt is read, and how many single tokens. */
  readonly promptTimes: number;
  readonly tokens: number;
  /** A work that takes longer than this is not repeated. */
  readonly mostSeconds: number;
}

/** Tokens a second of processor time (in a page, of the clock), and the speed of the loop that limits it at the same time: GFLOP/s for prompts, GB/s for tokens. */
export interface Rate {
  readonly rate: number;
  readonly peak: number;
}

export interface Measured {
  /** By name: p128 is a prompt of 128 tokens, d128 a token behind 128. */
  readonly rates: Readonly<Record<string, Rate>>;
  /** From the start of the process or page to the token behind a prompt of 128. */
  readonly startSeconds: number;
  /** Bytes of the loops, which are no part of the peer's. */
  readonly loopBytes: number;
  readonly logits: Float32Array;
  readonly greedy: readonly number[];
}

const START_TOKENS = 128;
const CHECK_TOKENS = 32;
const GREEDY_TOKENS = 8;
const WARM_TOKENS = 4;
/** After so many tokens the reading loop runs once. */
const TOKENS_BETWEEN = 4;

/** Ids that no two prompts of a model share in order. */
const promptOf = (length: number, vocabSize: number) => Array.from({ length }, (_, i) => (i * 7919) % vocabSize);

export async function measureDecoder(
  load: LoadDecoder,
  request: LoadRequest,
  vocabSize: number,
  effort: Effort,
  loops: BufferSource,
): Promise<Measured> {
  const speed = await startLoops(loops);
  const decoder = await load(request);
  await decoder.read(promptOf(START_TOKENS, vocabSize));
  const startSeconds = (performance.now() - speed.ms) / 1000;

  const checked = promptOf(CHECK_TOKENS, vocabSize);
  const logits = await decoder.logits(checked);
  const greedy: number[] = [];
  await decoder.reset();
  for (let ids: readonly number[] = checked; greedy.length < GREEDY_TOKENS; ids = greedy.slice(-1))
    greedy.push(await decoder.read(ids));

  const rates: Record<string, Rate> = {};
  for (const length of effort.prompts)
    rates[`p${length}`] = await timePrompt(decoder, promptOf(length, vocabSize), effort, speed);
  for (const past of effort.pasts)
    rates[`d${past}`] = await timeTokens(decoder, promptOf(past, vocabSize), effort, speed);
  return { rates, startSeconds, loopBytes: speed.bytes, logits, greedy };
}

async function timePrompt(
  decoder: Decoder,
  prompt: readonly number[],
  { promptTimes, mostSeconds }: Effort,
  speed: MachineSpeed,
): Promise<Rate> {
  const rates: number[] = [];
  const peaks = [speed.arithmetic()];
  const end = performance.now() + 1000 * mostSeconds;
  do {
    await decoder.reset();
    const start = processorMs();
    await decoder.read(prompt);
    rates.push((1000 * prompt.length) / (processorMs() - start));
    peaks.push(speed.arithmetic());
  } while (rates.length < promptTimes && performance.now() < end);
  return { rate: median(rates), peak: median(peaks) };
}

async function timeTokens(
  decoder: Decoder,
  prompt: readonly number[],
  { tokens, mostSeconds }: Effort,
  speed: MachineSpeed,
): Promise<Rate> {
  await decoder.reset();
  let id = await decoder.read(prompt);
  for (let i = 0; i < WARM_TOKENS; i++) id = await decoder.read([id]);
  const rates: number[] = [];
  const peaks = [speed.reading()];
  const end = performance.now() + 1000 * mostSeconds;
  do {
    const start = processorMs();
    id = await decoder.read([id]);
    rates.push(1000 / (processorMs() - start));
    if (rates.length % TOKENS_BETWEEN === 0) peaks.push(speed.reading());
  } while (rates.length < tokens && performance.now() < end);
  return { rate: median(rates), peak: median(peaks) };
}
