// How a token is chosen from logits: in the order of transformers' processors, with a random number that depends on the seed and
// on the position alone, so that a token does not depend on how the ones before it were computed.

import { randomSeed } from "../../base/platform/host.ts";
import { expectFinite, expectFunction, expectInt, wrongValue } from "../../base/util/arguments.ts";
import { exp, ln } from "../../base/util/math.ts";
import { MOST_TOP } from "../blocks/block.ts";
import type { OutputRow } from "../blocks/ends.ts";

/** Logits as processors of transformers.js see them: a tensor [1, vocabSize] whose row 0 shares its data. */
export interface LogitsTensor {
  /** The logits, which a processor may change in place. */
  readonly data: Float32Array;
  /** Always [1, vocabSize]. */
  readonly dims: readonly number[];
  /** Always "float32". */
  readonly type: "float32";
  /** The only row. */
  readonly 0: {
    /** The same logits. */
    readonly data: Float32Array;
    /** Always [vocabSize]. */
    readonly dims: readonly number[];
  };
}

/**
 * Changes logits in place before they are truncated and sampled from: to -Infinity where a token may not come, never to NaN or
 * Infinity. `ids` is [all tokens of the sequence so far].
 */
export type LogitsProcessor = (ids: bigint[][], logits: LogitsTensor) => unknown;

/** How tokens are chosen. The fields apply in this order: repetitionPenalty, logitsProcessors, temperature, topK, topP, minP. */
export interface SamplingOptions {
  /**
   * Divides the logits. 0, the default, takes the most probable token, and the lower id of two; so do numbers so small that
   * the divided logits exceed float32.
   */
  readonly temperature?: number | undefined;
  /** Only the k most probable tokens. Default 0: all. */
  readonly topK?: number | undefined;
  /** Only the most probable tokens that together have at least this probability, above 0 and up to 1. Default 1: all. */
  readonly topP?: number | undefined;
  /** Only tokens with at least this share of the largest probability, from 0 to 1. Default 0: all. */
  readonly minP?: number | undefined;
  /** Divides the logits of tokens that occurred if they are positive, multiplies them if not. Above 0; default 1. */
  readonly repetitionPenalty?: number | undefined;
  /**
   * An integer from 0 to 2^32 - 1: the same seed gives the same tokens on every engine. Default a random one, which the end of the
   * generation reports.
   */
  readonly seed?: number | undefined;
  /** Run before truncation, in this order. Default none. */
  readonly logitsProcessors?: readonly LogitsProcessor[] | undefined;
}

/** Fields of SamplingOptions. */
export const SAMPLING_OPTIONS = [
  "temperature",
  "topK",
  "topP",
  "minP",
  "repetitionPenalty",
  "seed",
  "logitsProcessors",
] as const;

/** Checked SamplingOptions. */
export interface Sampling extends Required<SamplingOptions> {
  /** What the model's files say about its tokens, which runs before other processors. */
  readonly tokenRules?: LogitsProcessor | undefined;
  /** The call, for messages. */
  readonly where: string;
}

/** Above this temperature all probabilities are the same in float32, and division would make 0 or NaN of logits. */
const HOTTEST = 2 ** 64;

/** Checks options that were read. */
export function checkSampling(where: string, options: SamplingOptions): Sampling {
  const within = (name: "topP" | "minP", otherwise: number, least: number) => {
    const value = options[name] ?? otherwise;
    if (typeof value === "number" && value >= least && value <= 1 && (name === "minP" || value > 0)) return value;
    const rule = name === "topP" ? "a number above 0 and up to 1" : "a number from 0 to 1";
    throw wrongValue(where, name, rule, value);
  };
  const { temperature = 0, repetitionPenalty = 1 } = options;
  if (!(expectFinite(where, "temperature", temperature) >= 0))
    throw new RangeError(`${where}: temperature expected a number >= 0, got ${temperature}`);
  return {
    ...{ where, temperature: Math.min(temperature, HOTTEST) },
    ...{ logitsProcessors: checkProcessors(where, options.logitsProcessors ?? []) },
    repetitionPenalty: expectFinite(where, "repetitionPenalty", repetitionPenalty, true),
    topK: expectInt(where, "topK", options.topK ?? 0, 0),
    topP: within("topP", 1, 0),
    minP: within("minP", 0, 0),
    // Drawn only where it is used: not every host gives random numbers at every time.
    seed: expectInt(where, "seed", options.seed ?? (temperature > 0 ? randomSeed() : 0), 0, 2 ** 32 - 1),
  };
}

function checkProcessors(where: string, given: readonly LogitsProcessor[]): readonly LogitsProcessor[] {
  if (!Array.isArray(given)) throw wrongValue(where, "logitsProcessors", "an array of functions", given, "object");
  for (const [i, processor] of given.entries()) expectFunction(where, `logitsProcessors[${i}]`, processor);
  return [...given];
}

/** A token, and the logarithm of the probability that the model gives it, before any option changed it. */
export interface Choice {
  readonly id: number;
  readonly logprob: number;
}

/**
 * Chooses the token at `position` of a sequence from its logits, which may change in place. `listIds` gives the tokens before it:
 * a list as long as the sequence, which is made only for rules that need it.
 * @throws RangeError if no logit is above -Infinity, or one is NaN or Infinity.
 */
export function chooseToken(
  row: OutputRow,
  sampling: Sampling,
  listIds: () => readonly number[],
  position: number,
): Choice {
  const { largest, sum } = row.sums();
  const logTotal = largest + ln(sum);
  const { repetitionPenalty: penalty, logitsProcessors, tokenRules, temperature } = sampling;
  const processors = tokenRules ? [tokenRules, ...logitsProcessors] : logitsProcessors;
  const raw = penalty !== 1 || processors.length > 0 ? row.logits().slice() : undefined;
  const ids = raw ? listIds() : [];
  if (penalty !== 1) penalise(row.logits(), ids, penalty);
  if (processors.length > 0) {
    const changed = processed(row.logits().slice(), processors, ids);
    // The view is made afterwards: a processor may run calls that let the memory grow.
    row.logits().set(changed);
  }
  // NaN if one of them is, which `top` would pass over.
  const most = raw ? row.sums().largest : largest;
  if (!Number.isFinite(most)) throw noToken(sampling, position, most);
  const chosen = isGreedy(most, temperature) ? row.top(1) : undefined;
  const id = chosen ? (chosen.ids[0] as number) : sampleFrom(row, sampling, position);
  const value = raw ? raw[id] : chosen?.values[0];
  return { id, logprob: (value ?? rawValue(row, id, sampling.temperature)) - logTotal };
}

/**
 * Whether the most probable token is taken: also where the largest logit divided by the temperature exceeds float32. Logits
 * that differ are then so far apart that the others have no probability.
 */
function isGreedy(largest: number, temperature: number): boolean {
  return temperature === 0 || !Number.isFinite(Math.fround(largest * Math.fround(1 / temperature)));
}

function noToken({ where, logitsProcessors }: Sampling, position: number, largest: number): RangeError {
  const rule = largest === -Infinity ? "one above -Infinity" : "finite numbers or -Infinity";
  const cause = logitsProcessors.length > 0 ? " after logitsProcessors" : "";
  return new RangeError(
    `${where}: logits at position ${position} expected ${rule}${cause}, got ${largest} as the largest`,
  );
}

/** The logit of a token before the temperature divided it. */
const rawValue = (row: OutputRow, id: number, temperature: number) => (row.logits()[id] as number) * temperature;

function penalise(logits: Float32Array, ids: readonly number[], penalty: number): void {
  for (const id of new Set(ids)) {
    const logit = logits[id] as number;
    logits[id] = logit > 0 ? logit / penalty : logit * penalty;
  }
}

function processed(data: Float32Array, processors: readonly LogitsProcessor[], ids: readonly number[]): Float32Array {
  const dims = [data.length];
  const logits: LogitsTensor = { data, dims: [1, data.length], type: "float32", 0: { data, dims } };
  const input = [ids.map(BigInt)];
  for (const processor of processors) processor(input, logits);
  return data;
}

/** Samples from logits at a temperature above 0. */
function sampleFrom(row: OutputRow, sampling: Sampling, position: number): number {
  const { temperature, topK, seed } = sampling;
  if (temperature !== 1) row.divide(temperature);
  const { largest, sum } = row.sums();
  const rules = { ...sampling, random: randomAt(seed, position) };
  const most = topK > 0 ? Math.min(topK, row.vocabSize) : row.vocabSize;
  const first = candidatesOf(row.top(Math.min(most, MOST_TOP)), largest);
  if (most <= MOST_TOP) return draw(first, sumOf(first.weights), rules, true) as number;
  const found = topK === 0 ? draw(first, sum, rules, false) : undefined;
  if (found !== undefined) return found;
  const all = allCandidates(row, largest, most);
  return draw(all, sumOf(all.weights), rules, true) as number;
}

/** Tokens by descending probability, and their weights: probabilities times one number. */
interface Candidates {
  readonly ids: ArrayLike<number>;
  readonly weights: readonly number[];
}

function candidatesOf({ values, ids }: { values: Float32Array; ids: ArrayLike<number> }, largest: number): Candidates {
  return { ids, weights: Array.from(values, (value) => exp(value - largest)) };
}

/** The first `most` tokens, where they are more than `top` gives. */
function allCandidates(row: OutputRow, largest: number, most: number): Candidates {
  const logits = row.logits();
  const order = Array.from(logits.keys()).sort((a, b) => (logits[b] as number) - (logits[a] as number) || a - b);
  const ids = order.slice(0, most);
  return { ids, weights: ids.map((id) => exp((logits[id] as number) - largest)) };
}

/** Draws one of the candidates, whose weights are part of `total`; undefined if one of the others could be drawn. */
function draw(
  { ids, weights }: Candidates,
  total: number,
  { topP, minP, random }: Pick<Sampling, "topP" | "minP"> & { readonly random: number },
  complete: boolean,
): number | undefined {
  let kept = 0;
  for (let mass = 0; kept < weights.length && (topP === 1 || mass < topP * total); kept++)
    mass += weights[kept] as number;
  const among = kept;
  while (kept > 1 && (weights[kept - 1] as number) < minP * (weights[0] as number)) kept--;
  // The first tokens that a rule leaves out show that the candidates are all that it keeps.
  const known = complete || kept < weights.length || kept < among;
  let left = random * (known ? sumOf(weights.slice(0, kept)) : total);
  for (let i = 0; i < kept; i++) {
    left -= weights[i] as number;
    if (left < 0) return ids[i];
  }
  return known ? ids[kept - 1] : undefined;
}

const sumOf = (weights: readonly number[]) => weights.reduce((sum, weight) => sum + weight, 0);

/** A number from 0 to 1, below 1, for a seed and a position: two rounds of a 32-bit mixer, 53 bits. */
export function randomAt(seed: number, position: number): number {
  const high = mix(mix(seed ^ 0x9e3779b9) + position);
  const low = mix(high ^ 0x85ebca6b);
  return ((high >>> 5) * 2 ** 26 + (low >>> 6)) / 2 ** 53;
}

/** The finaliser of MurmurHash3, a bijection of 32 bits in which every bit of the input changes half of the output's. */
function mix(value: number): number {
  let x = value >>> 0;
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return (x ^ (x >>> 16)) >>> 0;
}
