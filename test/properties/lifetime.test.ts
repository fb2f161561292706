// Memory over a life: what is planned is what is taken, what is released comes back, and a refusal changes nothing.

import { describe, expect, test, vi } from "vitest";
import * as headwise from "../../src/entries/core.ts";
import {
  type AttendOptions,
  type AttentionConfig,
  applyRope,
  attend,
  attendWithMaps,
  createAttention,
  createCache,
  createLinear,
  HeadwiseError,
  type Kernels,
  linear,
  mergeHeads,
  plan,
  scaledDotProductAttention,
  splitHeads,
  type Tensor,
} from "../../src/entries/core.ts";
import { createRandom, type Random } from "../../src/tools/diagnostics/random.ts";
import { selfTest } from "../../src/tools/diagnostics/self-test.ts";
import { floats } from "../support/harness.ts";
import { firstDifference, kernelsOf, randomLayer, randomWeights } from "../support/layers.ts";
import { sampledSeeds } from "../support/sampled.ts";

const tensor = (...shape: number[]): Tensor => ({ data: new Float32Array(shape.reduce((a, b) => a * b, 1)), shape });

function thrownBy(run: () => unknown): HeadwiseError {
  try {
    run();
  } catch (error) {
    if (error instanceof HeadwiseError) return error;
    throw error;
  }
  throw new Error(`expected a HeadwiseError of ${run}`);
}

test("200 cycles of making, using and releasing leave used bytes and memory where the first left them", async () => {
  using kernels = await kernelsOf("simd");
  const cycle = () => {
    for (let seed = 0; seed < 3; seed++) {
      const { attention, random } = randomLayer(kernels, seed);
      const { dModel } = attention.config;
      const cache = createCache(attention, { maxSeqLen: 300 });
      attend(attention, floats(random, 140 * dModel), { cache });
      const { config } = attention;
      // Released in another order than made, with a neighbour left between them for a while.
      const neighbour = createCache(attention, { maxSeqLen: 10, batch: 2 });
      attention.release();
      cache.release();
      neighbour.release();
      expect(config.dModel).toBe(dModel);
    }
  };
  cycle();
  const { usedBytes, memoryBytes } = kernels;
  for (let i = 0; i < 200; i++) {
    cycle();
    expect([kernels.usedBytes, kernels.memoryBytes], `cycle ${i}`).toEqual([usedBytes, memoryBytes]);
  }
});

/** Masks of random rank for a call, as the call and the plan take them; rank 4 where another has two readings. */
function randomMasks(random: Random, batch: number, numHeads: number, qLen: number, kvLen: number): AttendOptions {
  const shape = () => {
    const full = [batch, numHeads, qLen, kvLen].map((length) => (random.next() < 0.4 ? 1 : length));
    const rank = random.int(1, 4);
    const read = rank === 3 ? numHeads : qLen;
    return (rank === 2 || rank === 3) && batch > 1 && batch === read ? full : full.slice(4 - rank);
  };
  const mask = () => {
    const { data, shape: of } = tensor(...shape());
    return { data: new Uint8Array(data.length).fill(1), shape: of };
  };
  return {
    ...(random.next() < 0.4 && { keep: mask() }),
    ...(random.next() < 0.2 && { drop: { ...mask() } }),
    ...(random.next() < 0.4 && { bias: tensor(...shape()) }),
  };
}

describe("plan", () => {
  test("gives the exact bytes that layers, caches and calls take, over 150 random configurations", async () => {
    for (const seed of sampledSeeds(0, 149, 50)) {
      // Fresh kernels, because scratch keeps its largest size.
      using kernels = await kernelsOf("simd");
      const random = createRandom(seed);
      const numKvHeads = random.int(1, 3);
      const headDim = [5, 8, 12, 32][seed % 4] as number;
      const crossing = seed % 3 === 1;
      const config: AttentionConfig = {
        dModel: random.int(1, 40),
        numHeads: numKvHeads * random.int(1, 4),
        numKvHeads,
        headDim,
        valueDim: random.int(1, 20),
        addZeroAttn: seed % 5 === 0,
        ...(crossing && { kdim: random.int(1, 50), vdim: random.int(1, 50) }),
        ...(headDim % 4 === 0 && seed % 2 && { rope: { theta: 10, pairing: "half", dim: headDim / 2 } }),
        ...(seed % 7 === 2 && { qkNorm: { kind: "full" } }),
      };
      const [batch, qLen] = [random.int(1, 3), random.int(1, seed % 10 === 0 ? 400 : 60)];
      const keyLen = crossing ? random.int(1, 300) : qLen;
      const [maps, extraKey, cached] = [random.next() < 0.5, random.next() < 0.3, random.next() < 0.5];
      const masks = randomMasks(random, batch, config.numHeads, qLen, keyLen);
      const sizes = { batch, qLen, keyLen, maps, extraKey, ...masks, ...(cached && { maxSeqLen: keyLen }) };
      const planned = plan(config, sizes);

      const empty = kernels.usedBytes;
      const attention = createAttention(kernels, config, randomWeights(random, config, { extraKey, biases: true }));
      expect(kernels.usedBytes - empty, `seed ${seed}, weights`).toBe(planned.weights);
      expect(attention.bytes, `seed ${seed}`).toBeLessThanOrEqual(planned.weights);
      const cache = cached ? createCache(attention, { maxSeqLen: keyLen, batch }) : undefined;
      const held = kernels.usedBytes - empty - planned.weights;
      expect(held, `seed ${seed}, cache`).toBe(cached ? planned.cache : 0);
      if (cache) expect(cache.bytes, `seed ${seed}`).toBe(planned.cache);

      const peak = largestUse(kernels, () => {
        const { kdim, vdim } = attention.config;
        const keys = crossing ? floats(random, batch * keyLen * kdim) : undefined;
        const values = crossing ? floats(random, batch * keyLen * vdim) : undefined;
        const call = maps ? attendWithMaps : attend;
        const x = floats(random, batch * qLen * config.dModel);
        call(attention, x, { batch, cache, keys, values, align: cache && !crossing ? undefined : "start", ...masks });
      });
      expect(peak - empty, `seed ${seed}, total`).toBe(planned.total);
      const kept = planned.weights + (cached ? planned.cache : 0) + planned.scratch;
      expect(kernels.usedBytes - empty, `seed ${seed}, scratch`).toBe(kept);
    }
  });

  test("does not grow in scratch from 300 to 3000 tokens, and neither does a call", async () => {
    const config = { dModel: 16, numHeads: 2, causal: true };
    expect(plan(config, { qLen: 3000 }).scratch).toBe(plan(config, { qLen: 300 }).scratch);
    expect(plan(config, { maxSeqLen: 3000 }).scratch).toBe(plan(config, { maxSeqLen: 300 }).scratch);
    using kernels = await kernelsOf("simd");
    using attention = createAttention(kernels, config, randomWeights(createRandom(1), config));
    attend(attention, new Float32Array(300 * 16));
    const { usedBytes } = kernels;
    attend(attention, new Float32Array(3000 * 16));
    expect(kernels.usedBytes).toBe(usedBytes);
    const heads = (len: number) => tensor(1, 2, len, 8);
    scaledDotProductAttention(kernels, heads(300), heads(300), heads(300), { causal: true });
    const { usedBytes: ofHeads } = kernels;
    scaledDotProductAttention(kernels, heads(3000), heads(3000), heads(3000), { causal: true });
    expect(kernels.usedBytes).toBe(ofHeads);
  });
});

/** The largest number of used bytes while `run` runs. */
function largestUse(kernels: Kernels, run: () => void): number {
  const { memory } = kernels;
  let largest = memory.used;
  const allocate = memory.allocate.bind(memory);
  const spy = vi.spyOn(memory, "allocate").mockImplementation((where, bytes) => {
    const at = allocate(where, bytes);
    largest = Math.max(largest, memory.used);
    return at;
  });
  run();
  spy.mockRestore();
  return largest;
}

test("`using` gives back what attentions and caches hold, also when the block throws", async () => {
  using kernels = await kernelsOf("simd");
  const config = { dModel: 8, numHeads: 2 };
  const weights = randomWeights(createRandom(1), config);
  const { usedBytes } = kernels;
  const held: { readonly released: boolean }[] = [];
  expect(() => {
    using attention = createAttention(kernels, config, weights);
    using cache = createCache(attention, { maxSeqLen: 300 });
    held.push(attention, cache);
    expect(kernels.usedBytes).toBeGreaterThan(usedBytes);
    throw new Error("of the block");
  }).toThrow("of the block");
  expect(held.map(({ released }) => released)).toEqual([true, true]);
  expect(kernels.usedBytes).toBe(usedBytes);
});

test("releasing twice does nothing, whichever of kernels, attention and cache goes first", async () => {
  const kernels = await kernelsOf("simd");
  const config = { dModel: 8, numHeads: 2 };
  const weights = randomWeights(createRandom(1), config);
  const [first, second] = [createAttention(kernels, config, weights), createAttention(kernels, config, weights)];
  const cache = createCache(first, { maxSeqLen: 4 });
  attend(first, new Float32Array(8), { cache });
  first.release();
  // A cache outlives the layer it was made for, and serves no other.
  expect(cache.read().key.shape).toEqual([1, 2, 1, 4]);
  expect(() => attend(second, new Float32Array(8), { cache })).toThrow("cache expected one made for this attention");
  expect(cache.length).toBe(1);
  const { usedBytes } = kernels;
  first.release();
  first[Symbol.dispose]();
  expect(kernels.usedBytes).toBe(usedBytes);
  cache.release();
  cache.release();
  expect(kernels.usedBytes).toBe(usedBytes - cache.bytes);
  kernels.release();
  kernels.release();
  second.release();
  expect([kernels.released, first.released, second.released, cache.released]).toEqual([true, true, true, true]);
});

test("after kernels.release() every use throws RELEASED", async () => {
  const kernels = await kernelsOf("simd");
  const config = { dModel: 8, numHeads: 2 };
  const weights = randomWeights(createRandom(1), config);
  const attention = createAttention(kernels, config, weights);
  const cache = createCache(attention, { maxSeqLen: 4 });
  const x = new Float32Array(8);
  attend(attention, x, { cache });
  const layer = createLinear(kernels, { weight: tensor(4, 8) });
  kernels.release();
  const heads = tensor(1, 1, 1, 2);
  const table = { cos: tensor(1, 1), sin: tensor(1, 1), pairing: "half" } as const;
  const uses: Readonly<Record<string, () => unknown>> = {
    "createAttention: kernels was released": () => createAttention(kernels, config, weights),
    "createCache: attention.kernels was released": () => createCache(attention, { maxSeqLen: 4 }),
    "attend: attention.kernels was released": () => attend(attention, x),
    "attendWithMaps: attention.kernels was released": () => attendWithMaps(attention, x, { cache }),
    "scaledDotProductAttention: kernels was released": () => scaledDotProductAttention(kernels, heads, heads, heads),
    "applyRope: kernels was released": () => applyRope(kernels, heads, table),
    "splitHeads: kernels was released": () => splitHeads(kernels, tensor(1, 2), 1),
    "mergeHeads: kernels was released": () => mergeHeads(kernels, tensor(1, 1, 2)),
    "createLinear: kernels was released": () => createLinear(kernels, { weight: tensor(4, 8) }),
    "linear: layer.kernels was released": () => linear(layer, x),
    "selfTest: kernels was released": () => selfTest(headwise, kernels),
    "read: cache.kernels was released": () => cache.read(),
    "kernels: used after release": () => kernels.usedBytes,
  };
  for (const [text, use] of Object.entries(uses)) {
    const { code, message } = thrownBy(use);
    expect([code, message]).toEqual(["RELEASED", text]);
  }
  expect(cache.length).toBe(1);
});

test("memory that cannot grow gives OUT_OF_MEMORY, and everything stays as it was", async () => {
  using kernels = await kernelsOf("simd");
  const config = { dModel: 12, numHeads: 3 };
  const random = createRandom(5);
  using attention = createAttention(kernels, config, randomWeights(random, config));
  using cache = createCache(attention, { maxSeqLen: 1000 });
  using layer = createLinear(kernels, { weight: tensor(4000, 12) });
  const x = floats(random, 36);
  attend(attention, x, { cache });
  const before = attend(attention, x, { cache });
  cache.truncate(3);
  const { usedBytes, memoryBytes } = kernels;
  const large = { dModel: 200, numHeads: 2 };
  const heads = tensor(1, 1, 3000, 64);
  const table = { cos: tensor(5000, 2), sin: tensor(5000, 2), pairing: "half" } as const;
  const calls: Readonly<Record<string, () => unknown>> = {
    createAttention: () => createAttention(kernels, large, randomWeights(random, large)).release(),
    createCache: () => createCache(attention, { maxSeqLen: 10_000 }).release(),
    attend: () => attend(attention, new Float32Array(12 * 5000)),
    attendWithMaps: () => attendWithMaps(attention, new Float32Array(12 * 900), { cache, append: true }),
    createLinear: () => createLinear(kernels, { weight: tensor(1000, 500) }).release(),
    linear: () => linear(layer, new Float32Array(12 * 300)),
    scaledDotProductAttention: () => scaledDotProductAttention(kernels, heads, heads, heads),
    applyRope: () => applyRope(kernels, tensor(1, 4, 5000, 4), table),
    splitHeads: () => splitHeads(kernels, tensor(50_000, 4), 2),
    mergeHeads: () => mergeHeads(kernels, tensor(2, 50_000, 4)),
  };
  const refuse = vi.spyOn(WebAssembly.Memory.prototype, "grow").mockImplementation(() => {
    throw new RangeError("refused by the host");
  });
  try {
    for (const [where, run] of Object.entries(calls)) {
      const { code, message } = thrownBy(run);
      expect(message).toMatch(
        new RegExp(`^${where}: \\d+ more bytes do not fit: \\d+ in use of ${memoryBytes}, growth refused$`),
      );
      expect([code, kernels.usedBytes, kernels.memoryBytes, cache.length], where).toEqual([
        "OUT_OF_MEMORY",
        usedBytes,
        memoryBytes,
        3,
      ]);
    }
  } finally {
    refuse.mockRestore();
  }
  expect(firstDifference(attend(attention, x, { cache }), before)).toBe(-1);
  cache.truncate(3);
  for (const run of Object.values(calls)) expect(run).not.toThrow();
});

test("the largest cache and the largest scores throw OUT_OF_MEMORY before anything is allocated", async () => {
  using kernels = await kernelsOf("simd");
  const config = { dModel: 12, numHeads: 3 };
  using attention = createAttention(kernels, config, randomWeights(createRandom(1), config));
  const { usedBytes, memoryBytes } = kernels;
  const state = `${usedBytes} in use of ${memoryBytes}, growth refused`;
  const cache = thrownBy(() => createCache(attention, { maxSeqLen: 2 ** 31 - 1 }));
  // 2^24 pages of 3 heads x 128 tokens x (4 + 8) floats, and a table of 4 bytes a page.
  expect(cache.message).toBe(`createCache: ${2 ** 24 * (3 * 128 * 12 * 4 + 4)} more bytes do not fit: ${state}`);
  const long = tensor(1, 1, 2 ** 21, 1);
  const scores = thrownBy(() => scaledDotProductAttention(kernels, long, long, long, { scores: "raw" }));
  expect(scores.message).toBe(
    `scaledDotProductAttention: scores of ${2 ** 42} floats does not fit, the engine refused`,
  );
  expect([cache.code, scores.code, kernels.usedBytes]).toEqual(["OUT_OF_MEMORY", "OUT_OF_MEMORY", usedBytes]);
});
