// What a measurement is compared with: a loop that does nothing but what limits it.

import type { Build } from "./builds.ts";
import type { Region } from "./case.ts";
import { type Effort, type Load, measure } from "./measure.ts";

const ROUNDS = 10_000;
const FLOPS_PER_ROUND = 96;

/** Multiply-adds in registers: fused in the relaxed build, a multiplication and an addition in the simd build. */
export function arithmeticPeak({ peaks }: Pick<Build, "peaks">, rounds = ROUNDS): Load {
  return { work: rounds * FLOPS_PER_ROUND, run: () => void peaks.fma_peak(rounds, 0.5, 1) };
}

export const totalBytes = (regions: readonly Region[]) => regions.reduce((sum, { length }) => sum + length, 0);

/** Reading the same bytes, in one stream or in four, whichever is faster here. */
export async function readingPeak({ peaks }: Build, regions: readonly Region[], effort: Effort): Promise<Load> {
  const load = (stream: (at: number, bytes: number) => number): Load => ({
    work: totalBytes(regions),
    run() {
      for (const { at, length } of regions) stream(at, length);
    },
  });
  const [one, four] = [load(peaks.stream_1), load(peaks.stream_4)];
  return (await measure(one, four, effort)).ratio > 1 ? one : four;
}
