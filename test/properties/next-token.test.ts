// Tokens of a cache after the first are planned: the bits, errors and states are those of calls that are not.

import { describe, expect, test } from "vitest";
import {
  type AttentionConfig,
  attend,
  attendWithMaps,
  type Cache,
  createAttention,
  createCache,
  createLinear,
  type Kernels,
  linear,
} from "../../src/entries/core.ts";
import { createRandom } from "../../src/tools/diagnostics/random.ts";
import { floats } from "../support/harness.ts";
import { kernelsOf, shippedBuilds } from "../support/layers.ts";

const D = 16;
const CONFIGS: readonly AttentionConfig[] = [
  { dModel: D, numHeads: 4, causal: true },
  { dModel: D, numHeads: 4, numKvHeads: 2, causal: true, rope: { theta: 10_000, pairing: "half", dim: 2 } },
  { dModel: D, numHeads: 2, causal: true, window: { left: 5 }, softcap: 3, addZeroAttn: true },
  { dModel: D, numHeads: 4, causal: true, qkNorm: { kind: "per-head", eps: 1e-5 }, alibi: "geometric" },
];

function layerOf(kernels: Kernels, config: AttentionConfig, seed: number) {
  const random = createRandom(seed);
  const matrix = (rows: number) => ({ data: floats(random, rows * D), shape: [rows, D] });
  const kv = (D / config.numHeads) * (config.numKvHeads ?? config.numHeads);
  const norms = config.qkNorm && {
    qNorm: floats(random, D / config.numHeads),
    kNorm: floats(random, D / config.numHeads),
  };
  return createAttention(kernels, config, { wq: matrix(D), wk: matrix(kv), wv: matrix(kv), wo: matrix(D), ...norms });
}

/** The state that a call may change, and the message of what `call` throws. */
function thrown(cache: Cache, out: Float32Array, call: () => void): string {
  const before = [cache.length, ...out];
  let text = "nothing";
  try {
    call();
  } catch (error) {
    text = String(error);
  }
  if (text !== "nothing") expect([cache.length, ...out]).toEqual(before);
  return text;
}

describe.each(shippedBuilds)("in the %s build", (build) => {
  test.each(CONFIGS.map((config, i) => [i, config] as const))(
    "layer %i: the bits of calls with maps",
    async (_, config) => {
      const kernels = await kernelsOf(build);
      const attention = layerOf(kernels, config, 1);
      const [cache, other] = [1, 2].map(() => createCache(attention, { maxSeqLen: 200 })) as [Cache, Cache];
      const big = createLinear(kernels, { weight: { data: new Float32Array(4096), shape: [1, 4096] } });
      const random = createRandom(2);
      for (let t = 0; t < 150; t++) {
        const x = floats(random, D);
        // Scratch moves, memory grows, and other calls write to scratch between two steps.
        if (t === 20) linear(big, new Float32Array(64 * 4096));
        if (t === 40) layerOf(kernels, config, 3);
        if (t === 60) attend(attention, floats(random, 5 * D));
        if (t % 30 === 29) for (const each of [cache, other]) each.truncate(each.length - 7);
        const { y } = attendWithMaps(attention, x, { cache: other });
        const out = t % 3 === 0 ? x.slice() : new Float32Array(D);
        const got =
          t % 2 === 0 ? attend(attention, t % 3 === 0 ? out : x, { cache, out }) : attend(attention, x, { cache });
        expect(new Int32Array(got.buffer)).toEqual(new Int32Array(y.buffer));
        if (t % 2 === 0) expect(got).toBe(out);
        expect(cache.length).toBe(other.length);
      }
      expect(cache.read()).toEqual(other.read());
      kernels.release();
    },
  );
});

test("a token that was prepared throws what the first one throws, and changes nothing", async () => {
  const kernels = await kernelsOf("simd");
  const attention = layerOf(kernels, CONFIGS[0]!, 1);
  const foreign = layerOf(kernels, CONFIGS[0]!, 1);
  const x = new Float32Array(2 * D).fill(0.5);
  const row = x.subarray(0, D);
  const texts = (prepared: boolean) => {
    const cache = createCache(attention, { maxSeqLen: 8 });
    const out = new Float32Array(D);
    if (prepared) for (let i = 0; i < 2; i++) attend(attention, row, { cache });
    cache.truncate(0);
    const said = [
      () => attend(attention, x.subarray(0, D - 1), { cache, out }),
      () => attend(attention, row, { cache, out: out.subarray(1) }),
      () => attend(attention, row, { cache, out: x.subarray(1, D + 1) }),
      () => attend(attention, row, { cache, out, batch: 2 }),
      () => attend(attention, row, { cache, out, path: "absorbed" }),
      () => attend(attention, row, { cache, out, align: "end" }),
      () => attend(attention, row, { cache, out, ouch: 1 } as object),
      () => attend(attention, [...row] as never, { cache, out }),
      () => attend(foreign, row, { cache, out }),
      () => attend({ ...attention } as never, row, { cache, out }),
    ].map((call) => thrown(cache, out, call));
    for (let i = 0; i < 8; i++) attend(attention, row, { cache });
    said.push(thrown(cache, out, () => attend(attention, row, { cache, out })));
    cache.release();
    said.push(thrown(cache, out, () => attend(attention, row, { cache, out })));
    return said;
  };
  const first = texts(false);
  expect(first).not.toContain("nothing");
  expect(texts(true)).toEqual(first);
  const cache = createCache(attention, { maxSeqLen: 8 });
  for (let i = 0; i < 2; i++) attend(attention, row, { cache });
  attention.release();
  expect(thrown(cache, row, () => attend(attention, row, { cache }))).toContain("attention was released");
  kernels.release();
});
