import type { BuildName } from "../lib/builds.ts";
import { compare, type Effort, type Load, spreadOf } from "../lib/measure.ts";
import type { Column } from "../lib/part.ts";

/** The time ratio that a row should not exceed. */
const LIMIT = 1.02;

/** A row above the limit is measured a second time, with this many times the samples. */
const MORE_SAMPLES = 3;

/** A row of every table of the comparison. */
export interface Difference {
  readonly work: string;
  readonly build: BuildName;
  /** Milliseconds in the other checkout and in this one: medians. */
  readonly oldMs: number;
  readonly newMs: number;
  /** New time over old time in the same round: the median, and its 95 % confidence interval. */
  readonly ratio: number;
  readonly low: number;
  readonly high: number;
  /** The fastest new time over the fastest old time: other programs slow this down least. */
  readonly best: number;
  /** Whether both outputs have the same bits; undefined where they are not compared. */
  readonly sameBits?: boolean;
}

/** "slower" above the limit, but "unclear" if the confidence interval includes 1 or the fastest times do not agree. */
export function verdictOf({ ratio, low, best }: Pick<Difference, "ratio" | "low" | "best">): "slower" | "unclear" | "" {
  if (ratio <= LIMIT) return "";
  return low > 1 && best > LIMIT ? "slower" : "unclear";
}

/** The median of ratios, and the order statistics that enclose the true one with 95 % probability. */
export function medianOf(ratios: readonly number[]): Pick<Difference, "ratio" | "low" | "high"> {
  const sorted = ratios.toSorted((a, b) => a - b);
  const last = sorted.length - 1;
  const reach = 0.98 * Math.sqrt(sorted.length);
  const at = (index: number) => sorted[Math.min(last, Math.max(0, index))]!;
  return {
    ratio: spreadOf(ratios).median,
    low: at(Math.floor(last / 2 - reach)),
    high: at(Math.ceil(last / 2 + reach)),
  };
}

const ms = (value: number) => (value < 100 ? value.toPrecision(3) : value.toFixed(0));

export const columns: readonly Column<Difference>[] = [
  ["work", 38, (row) => row.work],
  ["build", 7, (row) => row.build],
  ["old ms", 8, (row) => ms(row.oldMs)],
  ["new ms", 8, (row) => ms(row.newMs)],
  ["new/old", 7, (row) => row.ratio.toFixed(3)],
  ["95 %", 11, (row) => `${row.low.toFixed(3)}-${row.high.toFixed(3)}`],
  ["best", 5, (row) => row.best.toFixed(3)],
  ["bits", 6, ({ sameBits }) => (sameBits === undefined ? "" : sameBits ? "same" : "differ")],
  ["", 7, verdictOf],
];

/** The same work in the two checkouts, ready to run. */
export interface Pair {
  readonly old: Load;
  readonly new: Load;
  release(): void;
}

/**
 * Times a pair by turns. If the new one is above the limit, the pair is prepared again, so that its data has other
 * addresses, and measured with more samples: that result counts.
 */
export async function measurePair(
  prepare: () => Pair | Promise<Pair>,
  effort: Effort,
): Promise<Omit<Difference, "work" | "build" | "sameBits">> {
  const once = async (times: number, { samples, mostMs, ...rest }: Effort) => {
    const pair = await prepare();
    try {
      const scaled = { ...rest, samples: times * samples, mostMs: times * mostMs };
      const [newer, older] = await compare([pair.new, pair.old], scaled);
      // The rate of the old one over that of the new one is the time of the new one over that of the old one.
      const best = older!.bestRate / newer!.bestRate;
      return { oldMs: 1000 / older!.rate, newMs: 1000 / newer!.rate, ...medianOf(older!.ratios), best };
    } finally {
      pair.release();
    }
  };
  const first = await once(1, effort);
  return verdictOf(first) === "" ? first : once(MORE_SAMPLES, effort);
}
