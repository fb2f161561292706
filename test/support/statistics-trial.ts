// Random calls of attention_statistics, and what they leave.

import { PAGE, STATISTICS } from "../../assembly/layout.ts";
import { keptPages, statisticsBytes } from "../../src/layers/pass/statistics.ts";
import { attention_statistics } from "../../src/reference/attention.ts";
import type { Plain, StatisticsShape } from "../../src/wasm/abi.ts";
import type { Instance } from "../../src/wasm/modules.ts";
import { createPages, createTrial, inRandomFormats, scratchFloats, type Trial } from "./attention-trial.ts";
import { createRandom, pieces, type Random, runKernel } from "./harness.ts";

export interface Wanted {
  readonly topK: number;
  readonly first: number;
  readonly last: number;
  readonly received: boolean;
}

export interface Left {
  readonly out: Float32Array;
  readonly lse: Float32Array;
  readonly rows: Float32Array;
  /** The sums of float64, then, of the half as many bytes, those of float32. */
  readonly received: Float64Array;
}

export const words = (x: Float32Array | Float64Array): Uint32Array =>
  new Uint32Array(x.buffer, x.byteOffset, x.byteLength / 4);

/** What a kernel, or without an instance the twin, leaves of a trial, in pages and scratch full of `fill`, in cuts. */
export function measure(
  instance: Instance | undefined,
  trial: Trial,
  wanted: Wanted,
  fill = 0,
  cuts: readonly (readonly [number, number])[] = [[0, trial.shape.qLen * trial.shape.numHeads]],
): Left {
  const { shape } = trial;
  const { numHeads, qLen, kvLen, headDim, valueDim, formats } = shape;
  const receivedStride = PAGE * Math.ceil(kvLen / PAGE);
  const left: Left = {
    out: new Float32Array(qLen * shape.outStride),
    lse: new Float32Array(numHeads * qLen),
    rows: new Float32Array(numHeads * qLen * (STATISTICS + 2 * wanted.topK)),
    received: new Float64Array(1.5 * numHeads * receivedStride),
  };
  const work = (scratchFloats(headDim, valueDim, formats) + 15) & -16;
  const pages = wanted.received ? keptPages(shape, kvLen) : 0;
  const statistics: Plain<StatisticsShape> = {
    ...{ topK: wanted.topK, first: wanted.first, last: wanted.last, work, rows: left.rows, receivedStride },
    ...{ received: wanted.received ? left.received : null, keptPages: pages },
  };
  const bytes = 4 * work + statisticsBytes(wanted.topK, pages);
  const scratch = new Float32Array(new Uint32Array(bytes / 4).fill(fill).buffer);
  const call = { ...shape, lse: left.lse };
  for (const [begin, end] of cuts) {
    const args: Parameters<typeof attention_statistics> = [
      ...([left.out, trial.q, createPages(trial, kvLen, fill), scratch, call, statistics] as const),
      ...([begin, end] as const),
    ];
    if (instance) runKernel(instance, "attention_statistics", args);
    else attention_statistics(...args);
  }
  return left;
}

/** What the keys of all heads receive, whole pages of each. */
export function receivedBy({ received }: Left): number[] {
  const keys = received.length / 1.5;
  const parts = new Float32Array(received.buffer, 8 * keys);
  return Array.from(parts, (part, key) => part + received[key]!);
}

export function drawWanted(random: Random): Wanted {
  const pick = (...from: readonly number[]) => from[random.int(0, from.length - 1)] as number;
  const topK = pick(1, 1, 2, 3, 4, 5, 8, 9, 40);
  return { topK, first: pick(0, 1, 4, 130), last: pick(0, 1, 3, 64, 200), received: random.next() < 0.6 };
}

export const drawTrial = (random: Random, seed: number): Trial => {
  const trial = createTrial(random);
  return seed % 3 === 2 ? inRandomFormats(trial, random) : trial;
};

/** Rows in pieces, with NaN in all that is not attended, that have other bits than all rows at once; undefined if there are none. */
export function checkStatistics(instance: Instance, seed: number, trials: number): string | undefined {
  for (let n = seed; n < seed + trials; n++) {
    const random = createRandom(n);
    const trial = drawTrial(random, n);
    const wanted = drawWanted(random);
    const want = measure(instance, trial, wanted);
    const cuts = pieces(random, trial.shape.qLen * trial.shape.numHeads);
    // Sums of keys take their terms by ascending rows.
    if (wanted.received) cuts.sort(([a], [b]) => a - b);
    const got = measure(instance, trial, wanted, 0x7fc00001, cuts);
    // Of what keys receive the sums: where a window leaves a page between two calls, its last part stays in float32.
    const wordsOf = (left: Left) => {
      const { out, lse, rows } = left;
      return {
        out: words(out),
        lse: words(lse),
        rows: words(rows),
        received: words(Float64Array.from(receivedBy(left))),
      };
    };
    const [all, inPieces] = [wordsOf(want), wordsOf(got)];
    for (const part of ["out", "lse", "rows", "received"] as const) {
      const [x, y] = [inPieces[part], all[part]];
      const at = x.findIndex((word, i) => word !== y[i]);
      if (at >= 0) return `seed ${n}, ${part}: word ${at} is ${x[at]}, all at once ${y[at]}`;
    }
  }
  return undefined;
}
