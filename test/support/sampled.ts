// Sweeps that `npm test` makes of a sample, and `npm run test:long` as a whole.

import { createRandom } from "../../src/tools/diagnostics/random.ts";

/** Of test/vitest.config.ts: `whole` in the long run, else the seed of the samples, which the run prints. */
const SAMPLE = process.env.HEADWISE_SAMPLE ?? "1";
const WHOLE = SAMPLE === "whole";

type Group = string | number;

/** `count` cases of each group by a seed, or all of a group that has fewer, in their order. */
export function draw<T>(cases: readonly T[], count: number, groupOf: (each: T) => Group, seed: number): readonly T[] {
  const random = createRandom(seed);
  const places = cases.map(() => random.next());
  const order = [...cases.keys()].sort((a, b) => (places[a] as number) - (places[b] as number));
  const taken = new Map<Group, number>();
  const drawn = new Set<number>();
  for (const i of order) {
    const group = groupOf(cases[i] as T);
    const before = taken.get(group) ?? 0;
    if (before < count) drawn.add(i);
    taken.set(group, before + 1);
  }
  return cases.filter((_, i) => drawn.has(i));
}

/**
 * All cases in the long run; else `count` of each group. An edge, which must be in any sample, is a group of its own. Another `salt`
 * draws others.
 */
export function sampled<T>(
  cases: readonly T[],
  count: number,
  groupOf: (each: T) => Group = () => "",
  salt = 0,
): readonly T[] {
  return WHOLE ? cases : draw(cases, count, groupOf, Number(SAMPLE) + 1000 * salt);
}

/** `count` of the seeds from `first` to `last`; all of them in the long run. */
export function sampledSeeds(first: number, last: number, count: number): readonly number[] {
  const seeds = Array.from({ length: last - first + 1 }, (_, i) => first + i);
  return sampled(seeds, count);
}

/** How many of a row of random calls a test makes: `whole` in the long run, else `quick`. */
export function calls(whole: number, quick: number): number {
  return WHOLE ? whole : quick;
}
