// Identity: within one build, the same bits for one prefill, any chunks of it, token by token, and any batch.

import { describe, expect, test } from "vitest";
import { type Attention, attend, attendWithMaps, createCache } from "../../src/entries/core.ts";
import { asHeads } from "../../src/layers/attention/heads.ts";
import type { Random } from "../../src/tools/diagnostics/random.ts";
import { floats } from "../support/harness.ts";
import { firstDifference, kernelsOf, randomLayer, shippedBuilds } from "../support/layers.ts";

const SEEDS = Array.from({ length: 60 }, (_, seed) => seed);

/** Feeds x in pieces of the given lengths through a cache. */
function inPieces(attention: Attention, x: Float32Array, lengths: readonly number[]): Float32Array {
  const { dModel } = attention.config;
  using cache = createCache(attention, { maxSeqLen: x.length / dModel });
  const y = new Float32Array(x.length);
  let past = 0;
  for (const length of lengths) {
    const [begin, end] = [past * dModel, (past + length) * dModel];
    y.set(attend(attention, x.subarray(begin, end), { cache }), begin);
    past += length;
  }
  return y;
}

function randomPieces(random: Random, total: number): number[] {
  const lengths: number[] = [];
  for (let left = total; left > 0; ) {
    const length = random.int(1, Math.max(1, Math.min(left, random.int(0, 3) === 0 ? left : 40)));
    lengths.push(length);
    left -= length;
  }
  return lengths;
}

describe.each(shippedBuilds)("in the %s build", (build) => {
  test("a prefill, any chunks of it and one token at a time give the same bits at lengths 1 to 300", async () => {
    using kernels = await kernelsOf(build);
    for (const seed of SEEDS) {
      const { attention, random } = randomLayer(kernels, seed);
      const tokens = random.int(1, 300);
      const x = floats(random, tokens * attention.config.dModel);
      const once = attend(attention, x);
      const lengths = randomPieces(random, tokens);
      expect(firstDifference(inPieces(attention, x, lengths), once), `seed ${seed}, chunks ${lengths}`).toBe(-1);
      if (seed % 3 === 0) {
        const singly = inPieces(attention, x, Array<number>(tokens).fill(1));
        expect(firstDifference(singly, once), `seed ${seed}, one at a time`).toBe(-1);
      }
      attention.release();
    }
  });

  test("a sequence has the same bits in any batch", async () => {
    using kernels = await kernelsOf(build);
    for (const seed of SEEDS) {
      const { attention, random } = randomLayer(kernels, seed + 1000);
      const [batch, tokens] = [random.int(2, 5), random.int(1, 130)];
      const row = tokens * attention.config.dModel;
      const x = floats(random, batch * row);
      const together = attend(attention, x, { batch });
      using cache = createCache(attention, { maxSeqLen: tokens, batch });
      expect(firstDifference(attend(attention, x, { cache }), together), `seed ${seed}, cached`).toBe(-1);
      for (let b = 0; b < batch; b++) {
        const alone = attend(attention, x.subarray(b * row, (b + 1) * row));
        const part = together.subarray(b * row, (b + 1) * row);
        expect(firstDifference(alone, part), `seed ${seed}, row ${b} of ${batch}`).toBe(-1);
      }
      attention.release();
    }
  });

  test("truncating a cache and replaying gives the same bits", async () => {
    using kernels = await kernelsOf(build);
    for (const seed of SEEDS.slice(0, 20)) {
      const { attention, random } = randomLayer(kernels, seed + 2000);
      const { dModel } = attention.config;
      const tokens = random.int(2, 200);
      const x = floats(random, tokens * dModel);
      using cache = createCache(attention, { maxSeqLen: tokens });
      const first = attend(attention, x, { cache });
      const kept = random.int(0, tokens - 1);
      cache.truncate(kept);
      const again = attend(attention, x.subarray(kept * dModel), { cache });
      expect(firstDifference(again, first.subarray(kept * dModel)), `seed ${seed}, kept ${kept}`).toBe(-1);
      attention.release();
    }
  });

  test("attendWithMaps gives the bits of attend, and maps whose rows sum to 1 within 2e-6", async () => {
    using kernels = await kernelsOf(build);
    for (const seed of SEEDS.slice(0, 30)) {
      const { attention, random } = randomLayer(kernels, seed + 3000);
      const tokens = random.int(1, 270);
      const x = floats(random, tokens * attention.config.dModel);
      const { y, maps } = attendWithMaps(attention, x);
      expect(firstDifference(y, attend(attention, x)), `seed ${seed}`).toBe(-1);
      if (asHeads(attention).layer.sinks === 0) {
        const columns = maps.shape.at(-1) as number;
        for (let r = 0; r < maps.data.length; r += columns) {
          const sum = maps.data.subarray(r, r + columns).reduce((total, weight) => total + weight, 0);
          expect(Math.abs(sum - 1), `seed ${seed}, row ${r / columns}`).toBeLessThan(2e-6);
        }
      }
      attention.release();
    }
  });
});
