// Calls that say the same thing in two ways give the same result: the same bits wherever the sums are the same.

import { describe, expect, test } from "vitest";
import {
  type AttentionConfig,
  type AttentionWeights,
  alibiSlopes,
  attend,
  attendWithMaps,
  createAttention,
  createCache,
  type Kernels,
  type SdpaOptions,
  scaledDotProductAttention,
  type Tensor,
} from "../../src/entries/core.ts";
import { applyRope, ropeTables } from "../../src/entries/index.ts";
import { attendReference } from "../../src/reference/attend.ts";
import { createRandom, type Random } from "../../src/tools/diagnostics/random.ts";
import { floats } from "../support/harness.ts";
import { firstDifference, kernelsOf, randomWeights, shippedBuilds } from "../support/layers.ts";

const SEEDS = Array.from({ length: 12 }, (_, seed) => seed);

function tensor(random: Random, ...shape: number[]): Tensor {
  return {
    data: floats(
      random,
      shape.reduce((a, b) => a * b, 1),
    ),
    shape,
  };
}

/** A tensor of the same numbers with axes 1 and 2 exchanged: "bhsd" <-> "bshd". */
function turned({ data, shape }: Tensor): Tensor {
  const [a, b, c, d] = shape as [number, number, number, number];
  const out = new Float32Array(data.length);
  for (let row = 0; row < a * b * c; row++) {
    const [i, j, k] = [Math.floor(row / (b * c)), Math.floor(row / c) % b, row % c];
    out.set(data.subarray(row * d, (row + 1) * d), ((i * c + k) * b + j) * d);
  }
  return { data: out, shape: [a, c, b, d] };
}

const transposed = ({ data, shape: [rows = 0, columns = 0] }: Tensor): Tensor => ({
  data: data.map((_, i) => data[(i % rows) * columns + Math.floor(i / rows)] as number),
  shape: [columns, rows],
});

function joined(...parts: readonly Float32Array[]): Float32Array {
  return Float32Array.from(parts.flatMap((part) => [...part]));
}

/** Each block of `rows` rows of a projection, `times` times behind each other. */
function repeated(data: Float32Array, blocks: number, times: number): Float32Array {
  const block = data.length / blocks;
  return joined(
    ...Array.from({ length: blocks * times }, (_, i) => {
      const from = Math.floor(i / times) * block;
      return data.subarray(from, from + block);
    }),
  );
}

function bothOf(kernels: Kernels, config: AttentionConfig, weights: AttentionWeights, x: Float32Array) {
  using attention = createAttention(kernels, config, weights);
  const { y, maps } = attendWithMaps(attention, x);
  return [y, maps.data] as const;
}

function expectSameBits(got: readonly Float32Array[], want: readonly Float32Array[], what: string): void {
  for (const [i, part] of want.entries())
    expect(firstDifference(got[i] as Float32Array, part), `${what}, part ${i}`).toBe(-1);
}

const layerOf = (random: Random, numKvHeads: number, rest: Partial<AttentionConfig> = {}): AttentionConfig => ({
  dModel: random.int(3, 40),
  numHeads: numKvHeads * random.int(2, 5),
  numKvHeads,
  headDim: 2 * random.int(1, 12),
  causal: random.next() < 0.5,
  ...rest,
});

describe.each(shippedBuilds)("in the %s build", (build) => {
  test("grouped heads, one group among them, are heads with repeated keys and values, bit for bit", async () => {
    using kernels = await kernelsOf(build);
    for (const seed of SEEDS) {
      const random = createRandom(seed);
      const config = layerOf(random, [1, 2, 3][seed % 3] as number, { rope: { theta: 50, pairing: "half" } });
      const { numHeads, numKvHeads = 1 } = config;
      const weights = randomWeights(random, config, { biases: true, sinks: seed % 2 === 0 });
      const wide = (t: Tensor): Tensor => {
        const data = repeated(t.data, numKvHeads, numHeads / numKvHeads);
        return { data, shape: [data.length / (t.shape[1] as number), t.shape[1] as number] };
      };
      const widened = {
        ...weights,
        ...{ wk: wide(weights.wk!), wv: wide(weights.wv!) },
        bk: repeated(weights.bk!, numKvHeads, numHeads / numKvHeads),
        bv: repeated(weights.bv!, numKvHeads, numHeads / numKvHeads),
      };
      const x = floats(random, random.int(1, 150) * config.dModel);
      const grouped = bothOf(kernels, config, weights, x);
      expectSameBits(bothOf(kernels, { ...config, numKvHeads: numHeads }, widened, x), grouped, `seed ${seed}`);
    }
  });

  test("one wqkv is wq, wk and wv, and in-out is out-in, bit for bit", async () => {
    using kernels = await kernelsOf(build);
    for (const seed of SEEDS) {
      const random = createRandom(100 + seed);
      const config = layerOf(random, random.int(1, 3), { valueDim: random.int(1, 9) });
      const weights = randomWeights(random, config, { biases: seed % 2 === 0 });
      const { wq, wk, wv, bq, bk, bv, ...rest } = weights as Required<AttentionWeights<Tensor>>;
      const data = joined(wq.data, wk.data, wv.data);
      const wqkv = { data, shape: [data.length / config.dModel, config.dModel] };
      const fused = { ...rest, wqkv, ...(bq && { bqkv: joined(bq, bk, bv) }) };
      const x = floats(random, random.int(1, 40) * config.dModel);
      const separate = bothOf(kernels, config, weights, x);
      expectSameBits(bothOf(kernels, config, fused, x), separate, `seed ${seed}, fused`);
      const turn = { wq: transposed(wq), wk: transposed(wk), wv: transposed(wv), wo: transposed(rest.wo) };
      const inOut = { ...weights, ...turn, layout: "in-out" as const };
      expectSameBits(bothOf(kernels, config, inOut, x), separate, `seed ${seed}, in-out`);
      const both = { ...fused, wo: turn.wo, wqkv: transposed(wqkv), layout: "in-out" as const };
      expectSameBits(bothOf(kernels, config, both, x), separate, `seed ${seed}, fused in-out`);
    }
  });

  test("one head with identity projections is scaledDotProductAttention, bit for bit", async () => {
    using kernels = await kernelsOf(build);
    for (const seed of SEEDS) {
      const random = createRandom(200 + seed);
      const [dim, len] = [random.int(1, 20), random.int(1, 150)];
      const eye = {
        data: Float32Array.from({ length: dim * dim }, (_, i) => Number(i % (dim + 1) === 0)),
        shape: [dim, dim],
      };
      const rules = { causal: seed % 2 === 0, window: { left: random.int(0, 30) }, softcap: 1.5, scale: 0.8 };
      const x = floats(random, len * dim);
      const layer = bothOf(kernels, { dModel: dim, numHeads: 1, ...rules }, { wq: eye, wk: eye, wv: eye, wo: eye }, x);
      const heads = { data: x, shape: [1, 1, len, dim] };
      const { output, scores } = scaledDotProductAttention(kernels, heads, heads, heads, {
        ...rules,
        scores: "weights",
      });
      // Adding +0 products turns -0 into 0, which no comparison of numbers tells apart.
      const plain = (data: Float32Array) => data.map((value) => value + 0);
      expectSameBits([plain(output.data), scores!.data], [plain(layer[0]), layer[1]], `seed ${seed}`);
    }
  });

  test("bhsd is bshd, and a past is its concatenation with k and v, bit for bit", async () => {
    using kernels = await kernelsOf(build);
    for (const seed of SEEDS) {
      const random = createRandom(300 + seed);
      const [batch, kvHeads, len, past] = [random.int(1, 3), random.int(1, 3), random.int(1, 40), random.int(0, 300)];
      const heads = kvHeads * random.int(1, 3);
      const [dim, valueDim] = [random.int(1, 20), random.int(1, 20)];
      const q = tensor(random, batch, heads, len, dim);
      const [k, v] = [tensor(random, batch, len, kvHeads, dim), tensor(random, batch, len, kvHeads, valueDim)].map(
        turned,
      );
      const pastOf = {
        key: tensor(random, batch, kvHeads, past, dim),
        value: tensor(random, batch, kvHeads, past, valueDim),
      };
      const rules: SdpaOptions = {
        causal: seed % 2 === 0,
        ...(seed % 3 === 0 && { alibi: "geometric" }),
        ...(seed % 4 === 1 && { window: { left: 20 } }),
        ...(seed % 5 === 2 && { keep: { data: new Uint8Array(past + len).fill(1, 3), shape: [past + len] } }),
      };
      const asked = { scores: "weights", lse: true, present: true } as const;
      const head = scaledDotProductAttention(kernels, q, k!, v!, { ...rules, ...asked, past: pastOf });
      const parts = [head.output.data, head.scores!.data, head.lse!.data];

      const token = scaledDotProductAttention(kernels, turned(q), turned(k!), turned(v!), {
        ...{ ...rules, ...asked, layout: "bshd" },
        past: { key: turned(pastOf.key), value: turned(pastOf.value) },
      });
      expectSameBits([turned(token.output).data, token.scores!.data, token.lse!.data], parts, `seed ${seed}, bshd`);
      const [key, value] = [turned(token.present!.key), turned(token.present!.value)];
      expectSameBits(
        [key.data, value.data],
        [head.present!.key.data, head.present!.value.data],
        `seed ${seed}, present`,
      );

      for (let row = 0; row < batch * kvHeads; row++) {
        const width = (past + len) * dim;
        const whole = joined(
          pastOf.key.data.subarray(row * past * dim, (row + 1) * past * dim),
          k!.data.subarray(row * len * dim, (row + 1) * len * dim),
        );
        const { data } = head.present!.key;
        expect(firstDifference(data.subarray(row * width, (row + 1) * width), whole), `seed ${seed}, row ${row}`).toBe(
          -1,
        );
      }
      const once = scaledDotProductAttention(kernels, q, key, value, { ...rules, ...asked, align: "end" });
      expectSameBits([once.output.data, once.scores!.data, once.lse!.data], parts, `seed ${seed}, at once`);
    }
  });

  test("keys cached once and attended without appending are cross-attention, bit for bit", async () => {
    using kernels = await kernelsOf(build);
    for (const seed of SEEDS) {
      const random = createRandom(400 + seed);
      const config = layerOf(random, 2, {
        causal: false,
        kdim: 11,
        vdim: 7,
        rope: { theta: 9, pairing: "interleaved" },
      });
      using attention = createAttention(kernels, config, randomWeights(random, config, { biases: true }));
      const [batch, len, keyLen] = [random.int(1, 3), random.int(1, 30), random.int(2, 280)];
      const [first, x] = [floats(random, batch * config.dModel), floats(random, batch * len * config.dModel)];
      const [keys, values] = [floats(random, batch * keyLen * 11), floats(random, batch * keyLen * 7)];
      const want = attendWithMaps(attention, x, { batch, keys, values });
      using cache = createCache(attention, { maxSeqLen: keyLen, batch });
      attend(attention, first, { cache, keys, values });
      expect(cache.length).toBe(keyLen);
      const positions = Array.from({ length: len }, (_, i) => i);
      for (let step = 0; step < 2; step++) {
        const got = attendWithMaps(attention, x, { batch, cache, append: false, positions });
        expectSameBits([got.y, got.maps.data], [want.y, want.maps.data], `seed ${seed}, step ${step}`);
        expect(cache.length).toBe(keyLen);
      }
    }
  });

  test("a cache holds the projected keys and values, within 2e-6 of float64", async () => {
    using kernels = await kernelsOf(build);
    const random = createRandom(500);
    const config = { dModel: 12, numHeads: 2, numKvHeads: 1, headDim: 12, valueDim: 12 };
    // A row of one token attends to itself alone, so with wo = 1 y of the reference is the value that the cache holds.
    const eye = { data: Float32Array.from({ length: 144 }, (_, i) => Number(i % 13 === 0)), shape: [12, 12] };
    const weights = randomWeights(random, config, { biases: true });
    using attention = createAttention(kernels, config, weights);
    using cache = createCache(attention, { maxSeqLen: 300, batch: 2 });
    const x = floats(random, 2 * 300 * 12);
    attend(attention, x, { cache });
    const { key, value } = cache.read();
    expect([key.shape, value.shape]).toEqual([
      [2, 1, 300, 12],
      [2, 1, 300, 12],
    ]);
    const plain = { ...attention.config, numHeads: 1 };
    for (const [name, got, w, b] of [
      ["key", key, weights.wk!, weights.bk!],
      ["value", value, weights.wv!, weights.bv!],
    ] as const)
      for (let row = 0; row < 600; row += 7) {
        const one = x.subarray(row * 12, (row + 1) * 12);
        const layer = { wq: eye.data, wk: eye.data, wv: w.data, bv: b, wo: eye.data };
        const { y } = attendReference(plain, layer, one);
        for (let d = 0; d < 12; d++)
          expect(Math.abs(got.data[row * 12 + d]! - y[d]!), `${name} ${row}`).toBeLessThan(2e-6);
      }
  });

  test("permuting keys permutes the maps, within 1e-6 of a weight, and leaves y within 1e-6 of the largest", async () => {
    using kernels = await kernelsOf(build);
    for (const seed of SEEDS) {
      const random = createRandom(600 + seed);
      const config = layerOf(random, 2, { causal: false });
      const { dModel, numHeads } = config;
      using attention = createAttention(kernels, config, randomWeights(random, config));
      const [len, keyLen] = [random.int(1, 20), random.int(2, 300)];
      const [x, keys] = [floats(random, len * dModel), floats(random, keyLen * dModel)];
      const order = Array.from({ length: keyLen }, (_, j) => j).sort(() => random.next() - 0.5);
      const shuffled = joined(...order.map((j) => keys.subarray(j * dModel, (j + 1) * dModel)));
      const want = attendWithMaps(attention, x, { keys });
      const got = attendWithMaps(attention, x, { keys: shuffled });
      for (let row = 0; row < numHeads * len; row++) {
        const [a, b] = [got, want].map(({ maps }) => maps.data.subarray(row * keyLen, (row + 1) * keyLen));
        const tooFar = order.findIndex((j, at) => !(Math.abs(a![at]! - b![j]!) <= 1e-6 * b![j]!));
        expect(tooFar, `seed ${seed}, row ${row}`).toBe(-1);
      }
      const top = want.y.reduce((most, one) => Math.max(most, Math.abs(one)), 0);
      expect(
        got.y.every((one, i) => Math.abs(one - want.y[i]!) <= 1e-6 * top),
        `seed ${seed}`,
      ).toBe(true);
    }
  });

  test("rotating q and k by the same shift leaves each score within 2^-20 of |q||k|", async () => {
    using kernels = await kernelsOf(build);
    for (const seed of SEEDS) {
      const random = createRandom(700 + seed);
      const [len, dim, shift] = [random.int(1, 20), 2 * random.int(1, 20), random.int(1, 100_000)];
      const pairing = seed % 2 === 0 ? "half" : "interleaved";
      const [q, k] = [tensor(random, 1, 2, len, dim), tensor(random, 1, 2, len, dim)];
      const at = (first: number) => {
        const positions = Array.from({ length: len }, (_, t) => first + t);
        const tables = ropeTables({ theta: 10_000, pairing, dim }, positions);
        const rotated = (x: Tensor) => applyRope(kernels, x, { ...tables, pairing });
        return scaledDotProductAttention(kernels, rotated(q), rotated(k), k, { scale: 1, scores: "raw" }).scores!.data;
      };
      const norm = ({ data }: Tensor, row: number) =>
        Math.sqrt(data.subarray(row * dim, (row + 1) * dim).reduce((sum, one) => sum + one * one, 0));
      const [here, there] = [at(0), at(shift)];
      for (const [i, score] of here.entries()) {
        const [row, key] = [Math.floor(i / len), Math.floor(i / len / len) * len + (i % len)];
        const allowed = 2 ** -20 * norm(q, row) * norm(k, key);
        expect(Math.abs(score - there[i]!), `seed ${seed}, score ${i}`).toBeLessThanOrEqual(allowed);
      }
    }
  });

  test.each([undefined, 0.25, 1, 4, 16, 64, 256])(
    "the output is the weights times the values at scale %s, within 2^-20·(1 + S/2) of the sum of their sizes",
    async (scale) => {
      using kernels = await kernelsOf(build);
      for (const seed of SEEDS) {
        const random = createRandom(800 + seed);
        const [heads, len, kvLen, dim] = [random.int(1, 4), random.int(1, 60), random.int(1, 400), random.int(1, 24)];
        const q = tensor(random, 1, heads, len, dim);
        const [k, v] = [tensor(random, 1, heads, kvLen, dim), tensor(random, 1, heads, kvLen, dim)];
        const options: SdpaOptions = {
          causal: seed % 2 === 0,
          align: "end",
          scores: "weights",
          scale,
          ...(seed % 3 === 0 && { alibi: "geometric" }),
          ...(seed % 4 === 0 && { sinkLogits: floats(random, heads) }),
        };
        const { output, scores } = scaledDotProductAttention(kernels, q, k, v, options);
        const slopes = options.alibi ? alibiSlopes(heads) : new Float32Array(heads);
        let worst = 0;
        for (let row = 0; row < heads * len; row++) {
          const [head, position] = [Math.floor(row / len), (row % len) + kvLen - len];
          const weights = scores!.data.subarray(row * kvLen, (row + 1) * kvLen);
          // S: the largest sum of magnitudes of a score's terms, of the keys that have a weight.
          let largest = 0;
          for (let j = 0; j < kvLen; j++) {
            if (weights[j] === 0) continue;
            let terms = (slopes[head] as number) * Math.abs(position - j);
            for (let d = 0; d < dim; d++)
              terms +=
                (scale ?? 1 / Math.sqrt(dim)) *
                Math.abs(q.data[row * dim + d]! * k.data[(head * kvLen + j) * dim + d]!);
            largest = Math.max(largest, terms);
          }
          // At the default scale, where S is a few units, the rounding of sums is most of the error.
          const allowed = 2 ** -20 * (scale === undefined ? 1 : 1 + largest / 2);
          for (let d = 0; d < dim; d++) {
            let [sum, size] = [0, 0];
            for (let j = 0; j < kvLen; j++) {
              const term = weights[j]! * v.data[(head * kvLen + j) * dim + d]!;
              sum += term;
              size += Math.abs(term);
            }
            const error = Math.abs(output.data[row * dim + d]! - sum);
            if (error > 0) worst = Math.max(worst, error / (allowed * size));
          }
        }
        expect(worst, `seed ${seed}`).toBeLessThanOrEqual(1);
      }
    },
  );

  test("one finite bias on every key changes nothing, down to the lowest float", async () => {
    using kernels = await kernelsOf(build);
    const zeros = tensor(createRandom(1), 1, 1, 3, 4);
    zeros.data.fill(0);
    const v = tensor(createRandom(2), 1, 1, 3, 4);
    const plain = scaledDotProductAttention(kernels, zeros, zeros, v, { scores: "weights" });
    for (const bias of [-1e9, -1e38, -3.4028234663852886e38]) {
      const same = { data: new Float32Array(3).fill(bias), shape: [3] };
      const biased = scaledDotProductAttention(kernels, zeros, zeros, v, { bias: same, scores: "weights" });
      expect(biased.output.data, `bias ${bias}`).toEqual(plain.output.data);
      expect(biased.scores?.data, `bias ${bias}`).toEqual(plain.scores?.data);
    }
  });

  test("a softcap of 0 is none, a sink of -Infinity is none, and -0 is 0, bit for bit", async () => {
    using kernels = await kernelsOf(build);
    for (const seed of SEEDS) {
      const random = createRandom(900 + seed);
      const [heads, len, dim] = [random.int(1, 4), random.int(1, 150), random.int(1, 24)];
      const [q, k, v] = [
        tensor(random, 1, heads, len, dim),
        tensor(random, 1, heads, len, dim),
        tensor(random, 1, heads, len, dim),
      ];
      const asked = { causal: true, scores: "weights", lse: true } as const;
      const bitsOf = (options: SdpaOptions) => {
        const { output, scores, lse } = scaledDotProductAttention(kernels, q, k, v, { ...asked, ...options });
        return [output.data, scores!.data, lse!.data];
      };
      const plain = bitsOf({});
      const sinkLogits = new Float32Array(heads).fill(Number.NEGATIVE_INFINITY);
      expectSameBits(bitsOf({ softcap: 0 }), plain, `seed ${seed}, softcap 0`);
      expectSameBits(bitsOf({ softcap: -0 }), plain, `seed ${seed}, softcap -0`);
      expectSameBits(bitsOf({ sinkLogits }), plain, `seed ${seed}, sinks`);
      const config = layerOf(random, 2);
      const weights = randomWeights(random, config);
      const x = floats(random, len * config.dModel);
      const off = { ...weights, sinkLogits: new Float32Array(config.numHeads).fill(Number.NEGATIVE_INFINITY) };
      const layer = bothOf(kernels, config, weights, x);
      expectSameBits(bothOf(kernels, { ...config, softcap: 0 }, off, x), layer, `seed ${seed}, layer`);
    }
  });

  test("scales, softcaps, slopes and sinks of 1e38 leave finite outputs, within 1e-6 of their limits", async () => {
    using kernels = await kernelsOf(build);
    const random = createRandom(950);
    const [q, k, v] = [tensor(random, 1, 1, 9, 4), tensor(random, 1, 1, 9, 4), tensor(random, 1, 1, 9, 4)];
    const run = (options: SdpaOptions, query = q, key = k) =>
      scaledDotProductAttention(kernels, query, key, v, { lse: true, ...options });
    const near = (got: Float32Array, want: Float32Array, what: string) => {
      for (const [i, one] of want.entries())
        expect(Math.abs(got[i]! - one), `${what}, ${i}`).toBeLessThanOrEqual(1e-6 * Math.max(1, Math.abs(one)));
    };
    const small = ({ data, shape }: Tensor): Tensor => ({ data: data.map((one) => one * 1e-19), shape });
    for (const sign of [1, -1])
      near(run({ scale: sign * 1e38 }, small(q), small(k)).output.data, run({ scale: sign }).output.data, "scale");
    near(run({ scale: 1e-6, softcap: 1e38 }).output.data, run({ scale: 1e-6 }).output.data, "softcap");
    // Each key but the query's own is as far down as scores go.
    near(run({ causal: true, alibi: Float32Array.of(1e38) }).output.data, v.data, "slopes");
    const sunk = run({ sinkLogits: Float32Array.of(1e38) });
    near(sunk.output.data, new Float32Array(36), "sink");
    near(sunk.lse!.data, new Float32Array(9).fill(1e38), "lse");
    const risen = run({ sinkLogits: Float32Array.of(-1e38) });
    near(risen.output.data, run({}).output.data, "low sink");
  });

  test("a mask whose last dimension is 1 broadcasts over any number of keys, none among them", async () => {
    using kernels = await kernelsOf(build);
    const q = tensor(createRandom(960), 2, 3, 5, 4);
    for (const kvLen of [0, 1, 130]) {
      const k = tensor(createRandom(961), 2, 3, kvLen, 4);
      for (const shape of [[1], [5, 1], [3, 1, 1], [2, 3, 5, 1]]) {
        const size = shape.reduce((a, b) => a * b, 1);
        const keep = { data: new Uint8Array(size).fill(1), shape };
        const masks = {
          keep,
          drop: { data: new Uint8Array(size), shape },
          bias: { data: new Float32Array(size), shape },
        };
        const [masked, plain] = [masks, {}].map((options) =>
          scaledDotProductAttention(kernels, q, k, k, { ...options, scores: "weights", lse: true }),
        );
        expectSameBits(
          [masked!.output.data, masked!.scores!.data, masked!.lse!.data],
          [plain!.output.data, plain!.scores!.data, plain!.lse!.data],
          `${kvLen} keys, mask [${shape}]`,
        );
      }
      const config = { dModel: 4, numHeads: 2 };
      using attention = createAttention(kernels, config, randomWeights(createRandom(962), config));
      const keep = { data: [true], shape: [1] };
      const y = attend(attention, new Float32Array(8).fill(1), { keys: new Float32Array(kvLen * 4).fill(1), keep });
      if (kvLen === 0) expect(y).toEqual(new Float32Array(8));
      else expect(y.some((one) => one !== 0)).toBe(true);
    }
  });
});
