import { expect, test } from "vitest";
import { checkLatentConfig, type LatentConfig } from "../../src/layers/latent/config.ts";
import { attendReference } from "../../src/reference/attend.ts";
import { createRandom } from "../../src/tools/diagnostics/random.ts";
import { floats } from "../support/harness.ts";
import { latentWeights, plainOf, randomLatentConfig } from "../support/latent-layers.ts";
import { attendLatentReference } from "../support/latent-oracle.ts";

const largestDifference = (got: ArrayLike<number>, want: ArrayLike<number>) => {
  expect(got.length).toBe(want.length);
  return Array.from(got).reduce((most, one, i) => Math.max(most, Math.abs(one - want[i]!)), 0);
};

test("gives what a page of arithmetic by hand gives, on both paths", () => {
  // One head, a latent of 1 that is 1 for the first token and -1 for the second, keys 2·c and values 3·c; scale ln 3 / 4: the
  // scores of row 0 are ln 3 and -ln 3, of row 1 -ln 3 and ln 3, so that weights are 0.9 and 0.1.
  const given = { dModel: 1, numHeads: 1, kvLoraRank: 1, nopeDim: 1, ropeDim: 0, scale: Math.log(3) / 4 };
  const config = checkLatentConfig("test", { ...given, latentNorm: false });
  const weights = { wq: [2], wkvDown: [1], wkvUp: [2, 3], wo: [5], bo: [7] };
  for (const path of ["absorbed", "expanded"] as const) {
    const { y, maps } = attendLatentReference(config, weights, [1, -1], { path });
    // The scale is a float32 number.
    expect(largestDifference(maps, [0.9, 0.1, 0.1, 0.9])).toBeLessThan(1e-7);
    expect(largestDifference(y, [7 + 5 * 3 * 0.8, 7 - 5 * 3 * 0.8])).toBeLessThan(1e-5);
  }
  // With the norm, and a gain of 2, the latent is ±2; with kvLength 1 there is one key.
  const normed = checkLatentConfig("test", { ...given, normEps: 1e-30 });
  const one = attendLatentReference(normed, { ...weights, kvNorm: [2] }, [4, -1], { kvLength: 1 });
  expect(largestDifference(one.y, [7 + 5 * 3 * 2, 7 + 5 * 3 * 2])).toBeLessThan(1e-12);
});

test("the absorbed path is the expanded one within 1e-12", () => {
  for (let seed = 0; seed < 30; seed++) {
    const random = createRandom(seed);
    const config = randomLatentConfig(random);
    const weights = plainOf(latentWeights(random, config, seed % 2 === 0));
    const x = floats(random, 9 * config.dModel);
    const [absorbed, expanded] = (["absorbed", "expanded"] as const).map((path) =>
      attendLatentReference(checkLatentConfig("test", config), weights, x, { path }),
    );
    expect(largestDifference(absorbed!.y, expanded!.y), `seed ${seed}`).toBeLessThan(1e-12);
    expect(largestDifference(absorbed!.maps, expanded!.maps), `seed ${seed}`).toBeLessThan(1e-12);
  }
});

test("without norms, it is attention whose keys and values are projected from x", () => {
  for (let seed = 0; seed < 20; seed++) {
    const random = createRandom(100 + seed);
    const { qLoraRank: _, ...drawn } = randomLatentConfig(random);
    const given: LatentConfig = { ...drawn, latentNorm: false };
    const config = checkLatentConfig("test", given);
    const { dModel, numHeads, headDim, nopeDim, ropeDim, valueDim, kvLoraRank } = config;
    const { wq, wkvDown, wkvUp, wo } = plainOf(latentWeights(random, given));
    const composite = (row: number, column: number) => {
      let sum = 0;
      for (let i = 0; i < kvLoraRank; i++) sum += wkvUp[row * kvLoraRank + i]! * wkvDown[i * dModel + column]!;
      return sum;
    };
    const rowsOf = (rows: number, at: (head: number, row: number, column: number) => number) =>
      Float64Array.from({ length: numHeads * rows * dModel }, (_, i) => {
        const row = Math.floor(i / dModel);
        return at(Math.floor(row / rows), row % rows, i % dModel);
      });
    const perHead = nopeDim + valueDim;
    const wk = rowsOf(headDim, (head, row, column) =>
      row < nopeDim
        ? composite(head * perHead + row, column)
        : wkvDown[(kvLoraRank + row - nopeDim) * dModel + column]!,
    );
    const wv = rowsOf(valueDim, (head, row, column) => composite(head * perHead + nopeDim + row, column));
    expect(wk.length).toBe(numHeads * (nopeDim + ropeDim) * dModel);
    const x = floats(random, 7 * dModel);
    const positions = Array.from({ length: 7 }, () => random.int(0, 50));
    const keep = (h: number, t: number, j: number) => (h + t + j) % 5 > 0 || j === 0;
    const bias = (h: number, t: number, j: number) => ((h * 3 + t * 5 + j) % 7) / 4;
    const plain = attendReference(config, { wq: wq!, wk, wv, wo }, x, {
      ...{ positions, keyPositions: positions, keep, bias },
    });
    const latent = attendLatentReference(config, { wq: wq!, wkvDown, wkvUp, wo }, x, {
      ...{ positions, keep, bias },
    });
    expect(largestDifference(latent.y, plain.y), `seed ${seed}`).toBeLessThan(1e-12);
    expect(largestDifference(latent.maps, plain.maps), `seed ${seed}`).toBeLessThan(1e-12);
  }
});
