import type { BuildName } from "../lib/builds.ts";
import { compare, type Effort, type Load, spreadOf } from "../lib/measure.ts";
import type { Column } from "../lib/part.ts";

/** The time ratio that a row should not exceed. */
const LIMIT = 1.02;

/** The groups of a row, which have different engines, or are consecutive processes. All must agree that the new one is slower. */
export const GROUPS = 5;

/** Milliseconds in the other checkout and in this one, measured in the same round. */
export interface Round {
  readonly old: number;
  readonly new: number;
}

/** A row of every table of the comparison. */
export interface Difference {
  readonly work: string;
  readonly build: BuildName;
  /** Milliseconds in the other checkout and in this one: medians. */
  readonly oldMs: number;
  readonly newMs: number;
  /** New time over old time in the same round: the median, and the range of the medians of the groups. */
  readonly ratio: number;
  readonly low: number;
  readonly high: number;
  /** The fastest new time over the fastest old time: other programs slow these down least. */
  readonly best: number;
  /** Whether both outputs have the same bits; undefined where they are not compared. */
  readonly sameBits?: boolean;
}

type Summary = Pick<Difference, "oldMs" | "newMs" | "ratio" | "low" | "high" | "best">;

const ms = (value: number) => (value < 100 ? value.toPrecision(3) : value.toFixed(0));

export const columns: readonly Column<Difference>[] = [
  ["work", 38, (row) => row.work],
  ["build", 7, (row) => row.build],
  ["old ms", 8, (row) => ms(row.oldMs)],
  ["new ms", 8, (row) => ms(row.newMs)],
  ["new/old", 7, (row) => row.ratio.toFixed(3)],
  ["range", 11, (row) => `${row.low.toFixed(3)}-${row.high.toFixed(3)}`],
  ["best", 5, (row) => row.best.toFixed(3)],
  ["bits", 6, ({ sameBits }) => (sameBits === undefined ? "" : sameBits ? "same" : "differ")],
  ["", 7, verdictOf],
];

/** "slower" above the limit, but "unclear" if a group or the fastest times do not agree. */
export function verdictOf({ ratio, low, best }: Pick<Summary, "ratio" | "low" | "best">): "slower" | "unclear" | "" {
  if (ratio <= LIMIT) return "";
  return low > 1 && best > LIMIT ? "slower" : "unclear";
}

const median = (values: readonly number[]) => spreadOf(values).median;
const ratiosOf = (rounds: readonly Round[]) => rounds.map((round) => round.new / round.old);

/** Splits consecutive rounds into groups of nearly the same size. */
export function groupsOf(rounds: readonly Round[]): Round[][] {
  const at = (group: number) => Math.round((group * rounds.length) / GROUPS);
  return Array.from({ length: GROUPS }, (_, group) => rounds.slice(at(group), at(group + 1))).filter(
    (group) => group.length > 0,
  );
}

export function summarise(groups: readonly (readonly Round[])[]): Summary {
  const rounds = groups.flat();
  const medians = groups.map((group) => median(ratiosOf(group)));
  const [old, now] = [rounds.map((round) => round.old), rounds.map((round) => round.new)];
  return {
    oldMs: median(old),
    newMs: median(now),
    ratio: median(ratiosOf(rounds)),
    low: Math.min(...medians),
    high: Math.max(...medians),
    best: Math.min(...now) / Math.min(...old),
  };
}

/** The same work in the two checkouts, ready to run. */
export interface Pair {
  readonly old: Load;
  readonly new: Load;
  release(): void;
}

/** Times a pair by turns, and releases it. */
export async function timePair(pair: Pair, effort: Effort): Promise<Round[]> {
  try {
    const [old, now] = await compare([pair.old, pair.new], effort);
    return old!.rates.map((rate, round) => ({ old: 1000 / rate, new: 1000 / now!.rates[round]! }));
  } finally {
    pair.release();
  }
}
