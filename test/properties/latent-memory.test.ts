// What latent attention takes of linear memory is what planLatent says, and what fails for want of it changes nothing.

import { expect, test, vi } from "vitest";
import {
  attend,
  attendWithMaps,
  type CacheFormat,
  createCache,
  type Kernels,
  type WeightFormat,
} from "../../src/entries/core.ts";
import { createLatentAttention, type LatentConfig, type LatentSizes, planLatent } from "../../src/entries/latent.ts";
import { createRandom } from "../../src/tools/diagnostics/random.ts";
import { floats } from "../support/harness.ts";
import { latentWeights, PATHS, randomLatentConfig } from "../support/latent-layers.ts";
import { firstDifference, kernelsOf } from "../support/layers.ts";
import { calls } from "../support/sampled.ts";

/** The most bytes in use while `run` runs, less those before. */
function peakOf(kernels: Kernels, run: () => void): number {
  const before = kernels.usedBytes;
  let most = before;
  const allocate = vi.spyOn(kernels.memory, "allocate");
  const original = allocate.getMockImplementation() ?? Object.getPrototypeOf(kernels.memory).allocate;
  allocate.mockImplementation(function (this: unknown, ...args) {
    const at = original.apply(kernels.memory, args);
    most = Math.max(most, kernels.usedBytes);
    return at;
  });
  try {
    run();
  } finally {
    allocate.mockRestore();
  }
  return most - before;
}

test("planLatent gives the exact bytes that layers, caches and calls take, over 100 random layers", async () => {
  const random = createRandom(1);
  const pick = <T>(...from: readonly T[]) => from[random.int(0, from.length - 1)] as T;
  for (let i = 0; i < calls(100, 30); i++) {
    using kernels = await kernelsOf(i % 2 ? "simd" : "relaxed");
    const config: LatentConfig = { ...randomLatentConfig(random), causal: random.next() < 0.7 };
    const path = pick(...PATHS);
    const maps = random.next() < 0.3;
    const [qLen, batch] = [random.int(1, 300), random.int(1, 3)];
    // What depends on the length is planned for a full cache.
    const room = maps || path === "expanded" ? 0 : random.int(0, 300);
    const maxSeqLen = random.next() < 0.6 ? qLen + room : undefined;
    const weights = pick<WeightFormat>("f32", "f16", "q8", "q4");
    const sizes: LatentSizes = {
      ...{ batch, qLen, path, maps, weights },
      ...(maxSeqLen !== undefined && { maxSeqLen, format: pick<CacheFormat>("f32", "f16", "q8") }),
    };
    const plan = planLatent(config, sizes);
    const before = kernels.usedBytes;
    const options = { weights, expanded: path === "expanded" };
    const attention = createLatentAttention(kernels, config, latentWeights(random, config), options);
    const layer = kernels.usedBytes - before;
    const { format } = sizes;
    const cache = maxSeqLen === undefined ? undefined : createCache(attention, { maxSeqLen, batch, format });
    const x = floats(random, batch * qLen * config.dModel);
    const call = maps ? attendWithMaps : attend;
    const peak = peakOf(kernels, () => void call(attention, x, { batch, cache, path }));
    const found = { weights: layer, cache: cache?.bytes ?? plan.cache, peak };
    const own = cache ? 0 : plan.cache;
    expect(found, JSON.stringify({ config, sizes })).toEqual({
      ...{ weights: plan.weights, cache: plan.cache },
      peak: own + plan.scratch + plan.call,
    });
  }
});

const heads: LatentConfig = {
  ...{ dModel: 8, numHeads: 64, kvLoraRank: 8, nopeDim: 128, ropeDim: 0, causal: true, latentNorm: false },
};

test("no prompt on the path expanded takes more than planLatent says for the whole cache", async () => {
  const plan = planLatent(heads, { maxSeqLen: 4096, qLen: 512, path: "expanded" });
  for (const qLen of [1, 200, 512]) {
    using kernels = await kernelsOf("simd");
    const weights = latentWeights(createRandom(2), heads);
    const attention = createLatentAttention(kernels, heads, weights, { expanded: true });
    const cache = createCache(attention, { maxSeqLen: 4096 });
    const x = floats(createRandom(3), qLen * heads.dModel);
    const peak = peakOf(kernels, () => void attend(attention, x, { cache, path: "expanded" }));
    expect(peak).toBeLessThanOrEqual(plan.scratch + plan.call);
  }
});

test.each(PATHS)("%s: a call without memory for its pages writes nothing to out", async (path) => {
  using kernels = await kernelsOf("simd");
  const random = createRandom(4);
  const attention = createLatentAttention(kernels, heads, latentWeights(random, heads), { expanded: true });
  const x = floats(random, 600 * heads.dModel);
  const before = x.slice();
  const { usedBytes } = kernels;
  let failures = 0;
  for (let most = 0; ; most++) {
    let grown = 0;
    const { grow } = WebAssembly.Memory.prototype;
    const refuse = vi.spyOn(WebAssembly.Memory.prototype, "grow").mockImplementation(function (
      this: WebAssembly.Memory,
      pages,
    ) {
      if (grown++ >= most) throw new RangeError("refused by the host");
      return grow.call(this, pages);
    });
    try {
      attendWithMaps(attention, x, { path, out: x });
      break;
    } catch (error) {
      expect((error as Error).message).toMatch(/^attendWithMaps: \d+ more bytes do not fit/);
      expect([firstDifference(x, before), kernels.usedBytes]).toEqual([-1, usedBytes]);
      failures++;
    } finally {
      refuse.mockRestore();
    }
  }
  expect(failures).toBeGreaterThan(path === "expanded" ? 1 : 0);
  expect(firstDifference(x, before)).not.toBe(-1);
});

test("a query that is not finite gives its row what a rank of whole eights gives it", async () => {
  const outputs = [5, 8].map(async (kvLoraRank) => {
    using kernels = await kernelsOf("relaxed");
    const config: LatentConfig = { dModel: 2, numHeads: 1, kvLoraRank, nopeDim: 1, ropeDim: 0, latentNorm: false };
    const rows = (count: number, row: readonly number[]) => ({
      data: Float32Array.from({ length: count * row.length }, (_, i) => row[i % row.length] as number),
      shape: [count, row.length],
    });
    const attention = createLatentAttention(kernels, config, {
      wq: rows(1, [-1, -3e38]),
      wkvDown: rows(kvLoraRank, [1, 0]),
      wkvUp: rows(2, new Array(kvLoraRank).fill(1)),
      wo: rows(2, [1]),
    });
    // The second query is -Infinity in each component of the rank, and so are its scores: latents are positive.
    return attend(attention, Float32Array.of(1, 0, 2, 10));
  });
  const [odd, whole] = (await Promise.all(outputs)) as [Float32Array, Float32Array];
  expect(Array.from(odd.subarray(2))).toEqual([0, 0]);
  expect(Array.from(whole.subarray(2))).toEqual([0, 0]);
});
