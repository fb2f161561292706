// attention_statistics: the bits of attention_pages, and statistics that are those of the whole matrix.

import { describe, expect, it } from "vitest";
import { PAGE, STATISTICS } from "../../assembly/layout.ts";
import type { Instance } from "../../src/wasm/modules.ts";
import { createPages, createTrial, scratchFloats, type Trial, tolerance } from "../support/attention-trial.ts";
import { builds, createRandom, floats, load, runKernel } from "../support/harness.ts";
import { calls, sampledSeeds } from "../support/sampled.ts";
import {
  checkStatistics,
  drawTrial,
  drawWanted,
  type Left,
  measure,
  receivedBy,
  type Wanted,
  words,
} from "../support/statistics-trial.ts";

/** The out and lse of attention_pages. */
function attend(instance: Instance, trial: Trial): Pick<Left, "out" | "lse"> {
  const { shape } = trial;
  const out = new Float32Array(shape.qLen * shape.outStride);
  const lse = new Float32Array(shape.numHeads * shape.qLen);
  const scratch = new Float32Array(scratchFloats(shape.headDim, shape.valueDim, shape.formats));
  const pages = createPages(trial, shape.kvLen, 0);
  const end = shape.qLen * shape.numHeads;
  runKernel(instance, "attention_pages", [out, trial.q, pages, scratch, { ...shape, lse }, 0, end]);
  return { out, lse };
}

/**
 * The largest excess over the bounds. Scores differ by at most e (`tolerance`), so that weights differ by a factor of at most
 * e^2e: weights and masses by 2e, an entropy by 2e of itself and of the logarithm, a distance by 2e of the range, 1 / Σ p² by 4e
 * of itself; to which come the roundings of float32 sums of a page.
 */
function expectNear(trial: Trial, wanted: Wanted, got: Left, all: Left): void {
  const { numHeads, qLen, kvLen } = trial.shape;
  const e = 2 * tolerance(trial).lse + 2 ** -20;
  const relative = Math.expm1(Math.min(20, 2 * e));
  const size = STATISTICS + 2 * wanted.topK;
  const whole = STATISTICS + 2 * kvLen;
  const ids = new Int32Array(got.rows.buffer);
  const allIds = new Int32Array(all.rows.buffer);
  const near = (name: string, row: number, x: number, y: number, allowed: number) => {
    if (!(Object.is(x, y) || Math.abs(x - y) <= allowed))
      expect.fail(`${name} of row ${row}: ${x} is not ${y} ± ${allowed}`);
  };
  for (let row = 0; row < numHeads * qLen; row++) {
    const [x, y] = [got.rows.subarray(row * size), all.rows.subarray(row * whole, (row + 1) * whole)];
    near("lse", row, x[0]!, y[0]!, e + 2 ** -22 * Math.abs(y[0]!));
    for (const i of [1, 2, 3]) near(`mass ${i}`, row, x[i]!, y[i]!, Math.min(1, relative));
    near("entropy", row, x[4]!, y[4]!, relative * (1 + y[4]! + Math.log(kvLen)) + 2 ** -20);
    near("distance", row, x[5]!, y[5]!, relative * (kvLen + qLen) + 2 ** -13);
    near("effective", row, x[6]!, y[6]!, Math.min(kvLen, (2 * relative + 2 ** -20) * y[6]!));
    const weights = new Map<number, number>();
    for (let i = 0; i < kvLen; i++)
      weights.set(allIds[row * whole + STATISTICS + kvLen + i]!, all.rows[row * whole + STATISTICS + i]!);
    const seen = new Set<number>();
    for (let i = 0; i < wanted.topK; i++) {
      const key = ids[row * size + STATISTICS + wanted.topK + i]!;
      const nth = i < kvLen ? y[STATISTICS + i]! : 0;
      near(`weight ${i}`, row, x[STATISTICS + i]!, nth, Math.min(1, relative));
      if (key >= 0) near(`key ${i}`, row, x[STATISTICS + i]!, weights.get(key)!, Math.min(1, relative));
      if (seen.has(key)) expect.fail(`key ${i} of row ${row} is there twice: ${key}`);
      if (key >= 0) seen.add(key);
    }
  }
  const [received, allReceived] = [receivedBy(got), receivedBy(all)];
  for (let i = 0; i < received.length; i++)
    near("received", i, received[i]!, allReceived[i]!, qLen * Math.min(1, relative));
}

describe.each(builds)("attention_statistics (%s)", (build) => {
  const instance = load(build);
  const seeds = build === "debug" ? sampledSeeds(0, 29, 10) : sampledSeeds(0, 89, 30);

  it("leaves the bits of attention_pages, whatever it measures", () => {
    for (const seed of seeds) {
      const random = createRandom(seed);
      const trial = drawTrial(random, seed);
      const [got, want] = [measure(instance, trial, drawWanted(random)), attend(instance, trial)];
      expect(words(got.out), `seed ${seed}`).toEqual(words(want.out));
      expect(words(got.lse), `seed ${seed}`).toEqual(words(want.lse));
    }
  });

  it("measures what the twin measures of the whole matrix, within the errors of the scores", () => {
    for (const seed of seeds) {
      const random = createRandom(seed);
      const trial = drawTrial(random, seed);
      const wanted = drawWanted(random);
      const { kvLen, qLen, numHeads } = trial.shape;
      if (kvLen === 0 || kvLen * qLen * numHeads > 60_000) continue;
      // The twin names all keys.
      const all = measure(undefined, trial, { ...wanted, topK: kvLen });
      expectNear(trial, wanted, measure(instance, trial, wanted), all);
    }
  });

  it("gives the same bits in pieces, and with NaN in all that is not attended", () => {
    expect(checkStatistics(instance, 0, calls(90, 30))).toBeUndefined();
  });

  it("gives the same bits with other topK", () => {
    for (const seed of seeds) {
      const random = createRandom(seed);
      const trial = drawTrial(random, seed);
      const wanted = drawWanted(random);
      const want = measure(instance, trial, wanted);
      const size = STATISTICS + 2 * wanted.topK;
      const more = measure(instance, trial, { ...wanted, topK: wanted.topK + 7, received: false });
      for (let row = 0; row < trial.shape.qLen * trial.shape.numHeads; row++)
        expect(
          words(more.rows.subarray(row * (size + 14)).subarray(0, STATISTICS + wanted.topK)),
          `seed ${seed}`,
        ).toEqual(words(want.rows.subarray(row * size).subarray(0, STATISTICS + wanted.topK)));
    }
  });

  it("names keys by descending scores, the lowest first of equal ones", () => {
    const random = createRandom(4);
    const T = 300;
    const drawn = createTrial(random, { numKvHeads: 1, headDim: 8, valueDim: 8 });
    // Scores of a row are 1 or 2 times a number above 0, below 0, +0 or -0.
    const signs = [1, -1, 0, -0];
    const largerOf = (key: number) => key % 3 === 2;
    const trial: Trial = {
      q: Float32Array.from({ length: T * 8 }, (_, i) => (i % 8 === 0 ? signs[(i / 8) % 4]! : 0)),
      k: Float32Array.from({ length: T * 8 }, (_, i) => (i % 8 > 0 ? 0 : largerOf(i / 8) ? 2 : 1)),
      v: floats(random, T * 8),
      shape: {
        ...{ ...drawn.shape, qLen: T, kvLen: T, qStart: 0, left: 1 << 30, right: 0, numHeads: 1, numKvHeads: 1 },
        ...{ qStride: 8, outStride: 8, outHeadStride: 8, softcap: 0, slopes: null, sinks: null, extraKey: null },
        ...{ extraValue: null, zeroKey: 0, keep: null, bias: null },
      },
    };
    for (const topK of [1, 2, 4, 5, 8, 9, 20]) {
      const { rows } = measure(instance, trial, { topK, first: 0, last: 0, received: false });
      const size = STATISTICS + 2 * topK;
      const ids = new Int32Array(rows.buffer);
      for (let row = 0; row < T; row++) {
        const keys = Array.from({ length: row + 1 }, (_, key) => key);
        const sign = signs[row % 4] as number;
        if (sign !== 0) keys.sort((a, b) => sign * (Number(largerOf(b)) - Number(largerOf(a))) || a - b);
        const want = Array.from({ length: topK }, (_, i) => keys[i] ?? -1);
        const at = row * size + STATISTICS + topK;
        expect(Array.from(ids.subarray(at, at + topK)), `row ${row}, topK ${topK}`).toEqual(want);
      }
    }
  });

  it("makes NaN what keys receive that a row with a score of NaN attends, and no others", () => {
    const random = createRandom(3);
    const [T, wanted] = [300, { topK: 1, first: 1, last: 1, received: true }];
    const drawn = createTrial(random, { numKvHeads: 1, headDim: 8, valueDim: 8 });
    const trial: Trial = {
      ...{ q: floats(random, T * 8), k: floats(random, T * 8), v: floats(random, T * 8) },
      shape: {
        ...{ ...drawn.shape, qLen: T, kvLen: T, qStart: 0, left: 9, right: 0, numHeads: 1, numKvHeads: 1 },
        ...{ qStride: 8, outStride: 8, outHeadStride: 8, softcap: 0, slopes: null, sinks: null, extraKey: null },
        ...{ extraValue: null, zeroKey: 0, keep: null, bias: null },
      },
    };
    trial.q[200 * 8] = Number.NaN;
    const keys = receivedBy(measure(instance, trial, wanted)).flatMap((x, key) => (Number.isNaN(x) ? key : []));
    expect(keys).toEqual(Array.from({ length: 10 }, (_, i) => 191 + i));
  });

  it("is within 1e-6 of the matrix in float64 at 1024 tokens of unit scores", () => {
    const random = createRandom(5);
    const [T, heads, headDim] = [build === "debug" ? 200 : calls(1024, 400), 1, 64];
    const { shape } = createTrial(random, { numKvHeads: 1, headDim, valueDim: 8 });
    const [none, sizes] = [1 << 30, T * heads * headDim];
    const trial: Trial = {
      q: floats(random, sizes),
      k: floats(random, T * headDim),
      v: floats(random, T * 8),
      shape: {
        ...{ ...shape, qLen: T, kvLen: T, qStart: 0, left: none, right: 0, numHeads: heads, numKvHeads: 1 },
        ...{ qStride: heads * headDim, outStride: heads * 8, outHeadStride: 8, softcap: 0, slopes: null, sinks: null },
        ...{ extraKey: null, extraValue: null, zeroKey: 0, keep: null, bias: null },
      },
    };
    const wanted = { topK: 4, first: 4, last: 64, received: true };
    const [got, want] = [measure(instance, trial, wanted), measure(undefined, trial, wanted)];
    const size = STATISTICS + 2 * wanted.topK;
    const worst = (i: number, per: (y: number) => number) => {
      let most = 0;
      for (let row = 0; row < heads * T; row++) {
        const [x, y] = [got.rows[row * size + i]!, want.rows[row * size + i]!];
        most = Math.max(most, Math.abs(x - y) / per(y));
      }
      return most;
    };
    const received = receivedBy(want);
    const bounds = {
      lse: worst(0, (y) => Math.max(1, Math.abs(y))),
      mass: Math.max(
        worst(1, () => 1),
        worst(2, () => 1),
        worst(3, () => 1),
      ),
      entropy: worst(4, (y) => 1 + y),
      distance: worst(5, (y) => PAGE + y),
      effective: worst(6, (y) => 2 * y),
      weights: Math.max(...[0, 1, 2, 3].map((i) => worst(STATISTICS + i, () => 1))),
      received: Math.max(...receivedBy(got).map((x, i) => Math.abs(x - received[i]!) / Math.max(1, received[i]!))),
    };
    for (const [name, most] of Object.entries(bounds)) expect(most, name).toBeLessThan(1e-6);
  });
});
