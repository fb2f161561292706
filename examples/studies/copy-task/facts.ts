// What follows from the numbers of a result, and what follows from the task.

import { baselineScore, detectionPattern } from "headwise/inspect";
import { answerPattern } from "../evaluate.ts";
import type { Setup, Task } from "../groups.ts";
import { mean } from "../study.ts";
import type { CopyResult, Group } from "./result.ts";

export const TASKS = ["fixed", "varied"] as const;
export const LAYERS = [1, 2] as const;
export const HEADS = [1, 2, 4, 8, 16] as const;

/** Lengths of the texts that are copied. */
export const lengthsOf = ({ shortest, longest }: Setup, task: Task): number[] =>
  Array.from({ length: longest - shortest + 1 }, (_, i) => shortest + i).filter(
    (length) => task === "varied" || length === longest,
  );

/** Bits of a guess among all tokens. */
export const guessBits = ({ tokens }: Setup): number => Math.log2(tokens);

/** Mean bits of who knows which tokens are still to come, but not their order: log2 of their number. */
export function unorderedBits(setup: Setup, task: Task): number {
  const numbers = lengthsOf(setup, task).flatMap((length) => Array.from({ length }, (_, i) => i + 1));
  return mean(numbers.map(Math.log2));
}

/** Scores of a head that attends everything alike, in a text of the longest length. */
export function uniformScores({ longest }: Setup): { answer: number; previous: number } {
  const ids = Array.from({ length: 2 * longest + 1 }, (_, i) => i % (longest + 1));
  const targets = ids.map((_, i) => (i > longest ? 0 : -1));
  return {
    answer: baselineScore(answerPattern(ids, targets), { measure: "overlap" }),
    previous: baselineScore(detectionPattern("previous", ids)),
  };
}

export function groupOf(
  { groups }: CopyResult,
  task: Task,
  layers: number,
  heads: number,
  positions: Group["positions"] = "rope",
): Group {
  const found = groups.find((group) => {
    return group.task === task && group.layers === layers && group.heads === heads && group.positions === positions;
  });
  if (!found) throw new Error(`result.json has no group ${task}, ${layers}, ${heads}, ${positions}`);
  return found;
}

/** A change of less is called a plateau. */
export const PLATEAU = 0.1;

export type Verdict = "helps" | "plateau" | "hurts" | "unclear";

/** What more heads do: a change of more than PLATEAU counts if it is more than two standard errors of the difference of the means. */
export function verdictOf(fewer: readonly number[], more: readonly number[]): Verdict {
  const change = mean(more) - mean(fewer);
  if (Math.abs(change) <= PLATEAU) return "plateau";
  if (Math.abs(change) <= 2 * Math.hypot(standardError(fewer), standardError(more))) return "unclear";
  return change < 0 ? "helps" : "hurts";
}

function standardError(values: readonly number[]): number {
  const middle = mean(values);
  const squares = values.reduce((sum, value) => sum + (value - middle) ** 2, 0);
  return Math.sqrt(squares / (values.length - 1) / values.length);
}

/** What each doubling of the heads does; doublings of the same effect are one range. */
export function verdicts(
  result: CopyResult,
  task: Task,
  layers: number,
): { from: number; to: number; verdict: Verdict }[] {
  const ranges: { from: number; to: number; verdict: Verdict }[] = [];
  for (const [i, from] of HEADS.slice(0, -1).entries()) {
    const to = HEADS[i + 1]!;
    const verdict = verdictOf(groupOf(result, task, layers, from).bits, groupOf(result, task, layers, to).bits);
    const last = ranges.at(-1);
    if (last?.verdict === verdict) last.to = to;
    else ranges.push({ from, to, verdict });
  }
  return ranges;
}

/** The verdicts as words: "1 to 2: helps, 2 to 8: plateau". */
export const verdictText = (result: CopyResult, task: Task, layers: number): string =>
  verdicts(result, task, layers)
    .map(({ from, to, verdict }) => `${from} to ${to}: ${verdict}`)
    .join(", ");

/** Mean loss in bits. */
export const lossOf = (...of: Parameters<typeof groupOf>): number => mean(groupOf(...of).bits);

/** The number of heads with the lowest loss. */
export const bestHeads = (result: CopyResult, task: Task, layers: number): number =>
  HEADS.reduce((best, heads) =>
    lossOf(result, task, layers, heads) < lossOf(result, task, layers, best) ? heads : best,
  );

/** In how many of the four cases, tasks and layers, this number of heads is within PLATEAU of the best. */
export function casesNearBest(result: CopyResult, heads: number): number {
  const cases = TASKS.flatMap((task) => LAYERS.map((layers) => [task, layers] as const));
  return cases.filter(([task, layers]) => {
    const best = lossOf(result, task, layers, bestHeads(result, task, layers));
    return lossOf(result, task, layers, heads) <= best + PLATEAU;
  }).length;
}
