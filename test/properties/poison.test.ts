// What is masked cannot change a result, whatever it holds; what is attended does; and a row without a key gives zeros.

import { describe, expect, test } from "vitest";
import {
  attend,
  attendWithMaps,
  createAttention,
  createCache,
  type Kernels,
  type SdpaOptions,
  type SdpaResult,
  scaledDotProductAttention,
  type Tensor,
} from "../../src/entries/core.ts";
import { createRandom, type Random } from "../../src/tools/diagnostics/random.ts";
import { floats } from "../support/harness.ts";
import { firstDifference, kernelsOf, randomWeights, shippedBuilds } from "../support/layers.ts";

/** Bits of floats that a product with 0, a maximum or a sum would let through. */
const POISONS: Readonly<Record<string, number>> = {
  "quiet NaN": 0x7fc00000,
  "negative quiet NaN with a payload": 0xffc12345,
  "signalling NaN": 0x7f800001,
  "negative signalling NaN with a payload": 0xffa54321,
  Infinity: 0x7f800000,
  "-Infinity": 0xff800000,
  "1e38": 0x7e967699,
  "-1e38": 0xfe967699,
  "the largest denormal": 0x007fffff,
  "the smallest negative denormal": 0x80000001,
};

/** Fills floats begin..end by their bits: storing a signalling NaN as a number may quieten it. */
function poison(data: Float32Array, bits: number, begin = 0, end: number = data.length): void {
  new Uint32Array(data.buffer, data.byteOffset, data.length).fill(bits, begin, end);
}

/** Leaves the given bits in scratch and in free memory, more of both than a call takes, so that all it takes comes up dirty. */
function soil({ memory }: Kernels, bits: number): void {
  const floats = 2 ** 18;
  poison(memory.f32(memory.scratch("soil", floats * 4), floats), bits);
  const blocks = Array.from({ length: floats / 1024 }, () => memory.allocate("soil", 4096));
  for (const at of blocks) {
    poison(memory.f32(at, 1024), bits);
    memory.free(at);
  }
}

const [BATCH, HEADS, KV_HEADS, Q, KV, DIM, VALUE] = [2, 4, 2, 37, 150, 20, 12];

interface Inputs {
  readonly q: Tensor;
  readonly k: Tensor;
  readonly v: Tensor;
}

function inputs(random: Random): Inputs {
  const tensor = (heads: number, len: number, dim: number): Tensor => ({
    data: floats(random, BATCH * heads * len * dim),
    shape: [BATCH, heads, len, dim],
  });
  return { q: tensor(HEADS, Q, DIM), k: tensor(KV_HEADS, KV, DIM), v: tensor(KV_HEADS, KV, VALUE) };
}

/** Poisons the keys and values for which `hidden(batch, j)` holds. */
function poisoned({ q, k, v }: Inputs, bits: number, hidden: (batch: number, j: number) => boolean): Inputs {
  const dirty = ({ data, shape }: Tensor): Tensor => {
    const copy = data.slice();
    const dim = shape[3] as number;
    for (let row = 0; row < BATCH * KV_HEADS * KV; row++)
      if (hidden(Math.floor(row / (KV_HEADS * KV)), row % KV)) poison(copy, bits, row * dim, (row + 1) * dim);
    return { data: copy, shape };
  };
  return { q, k: dirty(k), v: dirty(v) };
}

const all = (length: number, at: (i: number) => boolean) => Uint8Array.from({ length }, (_, i) => Number(at(i)));
const odd = (j: number) => j % 3 === 1;

/** Ways to hide keys from every query, and which keys they hide. */
const HIDING: Readonly<Record<string, { options: SdpaOptions; hidden: (batch: number, j: number) => boolean }>> = {
  "a keep mask [kvLen]": {
    options: { keep: { data: all(KV, (j) => !odd(j)), shape: [KV] } },
    hidden: (_, j) => odd(j),
  },
  "a drop mask [batch, 1, 1, kvLen]": {
    options: { drop: { data: all(BATCH * KV, (i) => odd(i)), shape: [BATCH, 1, 1, KV] } },
    hidden: (b, j) => odd(b * KV + j),
  },
  "a keep mask of booleans [heads, qLen, kvLen]": {
    options: { keep: { data: Array.from({ length: HEADS * Q * KV }, (_, i) => !odd(i % KV)), shape: [HEADS, Q, KV] } },
    hidden: (_, j) => odd(j),
  },
  "a bias of -Infinity": {
    options: {
      bias: { data: Float32Array.from({ length: KV }, (_, j) => (odd(j) ? -Infinity : j / KV)), shape: [1, KV] },
    },
    hidden: (_, j) => odd(j),
  },
  causality: { options: { causal: true, align: "start" }, hidden: (_, j) => j >= Q },
  "the left side of the window": {
    options: { window: { left: 9 }, align: "end" },
    hidden: (_, j) => j < KV - Q - 9,
  },
  "the right side of the window": { options: { window: { right: 5 }, align: "start" }, hidden: (_, j) => j >= Q + 5 },
  kvLengths: { options: { kvLengths: [130, 1] }, hidden: (b, j) => j >= (b === 0 ? 130 : 1) },
  "kvLengths of causal queries at the end": {
    options: { kvLengths: [130, 64], causal: true, align: "end" },
    hidden: (b, j) => j >= (b === 0 ? 130 : 64),
  },
  "a short keep mask": { options: { keep: { data: all(100, () => true), shape: [100] } }, hidden: (_, j) => j >= 100 },
  "a short bias": { options: { bias: { data: new Float32Array(100), shape: [100] } }, hidden: (_, j) => j >= 100 },
  "ALiBi and a softcap with a keep mask": {
    options: { keep: { data: all(KV, (j) => !odd(j)), shape: [KV] }, alibi: "geometric", softcap: 2, align: "start" },
    hidden: (_, j) => odd(j),
  },
};

function expectSame(got: SdpaResult, want: SdpaResult, what: string): void {
  expect(firstDifference(got.output.data, want.output.data), `${what}: output`).toBe(-1);
  expect(firstDifference(got.scores!.data, want.scores!.data), `${what}: scores`).toBe(-1);
  expect(firstDifference(got.lse!.data, want.lse!.data), `${what}: lse`).toBe(-1);
}

describe.each(shippedBuilds)("in the %s build", (build) => {
  test.each(Object.entries(HIDING))(
    "keys and values behind %s change no bit of output, weights, masked scores and lse",
    async (name, { options, hidden }) => {
      using kernels = await kernelsOf(build);
      const clean = inputs(createRandom(name.length));
      const run = ({ q, k, v }: Inputs, scores: "weights" | "masked") =>
        scaledDotProductAttention(kernels, q, k, v, { ...options, scores, lse: true });
      const [weights, masked] = [run(clean, "weights"), run(clean, "masked")];
      expect(weights.output.data.every(Number.isFinite)).toBe(true);
      for (const [what, bits] of Object.entries(POISONS)) {
        soil(kernels, bits);
        const dirty = poisoned(clean, bits, hidden);
        expectSame(run(dirty, "weights"), weights, what);
        expectSame(run(dirty, "masked"), masked, what);
      }
    },
  );

  test("memory that held NaN or infinities gives the same bits as fresh memory, in 40 layers", async () => {
    using clean = await kernelsOf(build);
    using dirty = await kernelsOf(build);
    for (let seed = 0; seed < 40; seed++) {
      const random = createRandom(seed);
      const numKvHeads = random.int(1, 3);
      const headDim = [3, 8, 12, 20][seed % 4] as number;
      const config = {
        dModel: random.int(1, 30),
        numHeads: numKvHeads * random.int(1, 4),
        numKvHeads,
        headDim,
        valueDim: random.int(1, 20),
        causal: seed % 2 === 0,
        addZeroAttn: seed % 5 === 3,
        ...(seed % 3 === 1 && { qkNorm: { kind: "full" as const } }),
        ...(headDim % 2 === 0 && { rope: { theta: 100, pairing: "half" as const } }),
      };
      const weights = randomWeights(random, config, { biases: seed % 2 === 1, extraKey: seed % 4 === 2 });
      const x = floats(random, random.int(1, 200) * config.dModel);
      const runs = [clean, dirty].map((kernels) => {
        const bits = Object.values(POISONS)[seed % 10] as number;
        const soiled = kernels === dirty ? () => soil(kernels, bits) : () => {};
        soiled();
        using attention = createAttention(kernels, config, weights);
        soiled();
        const { y, maps } = attendWithMaps(attention, x);
        soiled();
        using cache = createCache(attention, { maxSeqLen: 200 });
        const cached = attend(attention, x, { cache });
        const { key, value } = cache.read();
        return [y, maps.data, cached, key.data, value.data];
      });
      const [want, got] = runs as [Float32Array[], Float32Array[]];
      for (const [i, part] of want.entries())
        expect(firstDifference(got[i] as Float32Array, part), `seed ${seed}, part ${i}`).toBe(-1);
    }
  });

  test("padded rows of x behind kvLengths change no bit of the real rows", async () => {
    using kernels = await kernelsOf(build);
    for (const [seed, causal] of [true, false, true, false].entries()) {
      const random = createRandom(400 + seed);
      const config = { dModel: 12, numHeads: 4, numKvHeads: 2, headDim: 6, causal };
      using attention = createAttention(kernels, config, randomWeights(random, config, { biases: seed > 1 }));
      const [tokens, lengths] = [70, [70, 33, 1]];
      const batch = lengths.length;
      const x = floats(random, batch * tokens * 12);
      const want = attendWithMaps(attention, x, { batch, kvLengths: lengths });
      for (const [what, bits] of Object.entries(POISONS)) {
        const dirty = x.slice();
        for (const [b, length] of lengths.entries())
          poison(dirty, bits, (b * tokens + length) * 12, (b + 1) * tokens * 12);
        soil(kernels, bits);
        const got = attendWithMaps(attention, dirty, { batch, kvLengths: lengths });
        const alone = attend(attention, dirty, { batch, kvLengths: lengths });
        for (const [b, length] of lengths.entries()) {
          const rows = (y: Float32Array) => y.subarray(b * tokens * 12, (b * tokens + length) * 12);
          expect(firstDifference(rows(got.y), rows(want.y)), `${what}, row ${b}`).toBe(-1);
          expect(firstDifference(rows(alone), rows(want.y)), `${what}, row ${b}`).toBe(-1);
          for (let h = 0; h < 4; h++) {
            const from = (b * 4 + h) * tokens * tokens;
            const maps = ({ data }: Tensor) => data.subarray(from, from + length * tokens);
            expect(firstDifference(maps(got.maps), maps(want.maps)), `${what}, row ${b}, head ${h}`).toBe(-1);
          }
        }
      }
    }
  });

  test("NaN and infinities in attended keys and values come through", async () => {
    using kernels = await kernelsOf(build);
    const clean = inputs(createRandom(9));
    const { q, k, v } = clean;
    const at = 77;
    for (const bits of [0x7fc00000, 0x7f800001, 0xffa54321]) {
      const dirty = poisoned(clean, bits, (b, j) => b === 1 && j === at);
      for (const [name, keys, values] of [
        ["key", dirty.k, v],
        ["value", k, dirty.v],
      ] as const) {
        const { output } = scaledDotProductAttention(kernels, q, keys, values, { causal: true, align: "end" });
        // Query t stands at KV - Q + t, behind the key, so all rows of batch row 1 are NaN and none of row 0.
        const half = output.data.length / 2;
        expect(output.data.subarray(0, half).every(Number.isFinite), name).toBe(true);
        expect(output.data.subarray(half).every(Number.isNaN), name).toBe(true);
      }
    }
    const infinite = poisoned(clean, 0x7f800000, (_, j) => j === at);
    const { output } = scaledDotProductAttention(kernels, q, k, infinite.v);
    expect(output.data.every((value) => value === Number.POSITIVE_INFINITY)).toBe(true);
    const nan = scaledDotProductAttention(
      kernels,
      { data: q.data.slice().fill(Number.NaN, 0, DIM), shape: q.shape },
      k,
      v,
    );
    expect(nan.output.data.subarray(0, VALUE).every(Number.isNaN)).toBe(true);
    expect(nan.output.data.subarray(VALUE).every(Number.isFinite)).toBe(true);
  });

  test("rows without a key give zeros and lse -Infinity; with a sink, zeros and lse = sink within 2^-23 of it", async () => {
    using kernels = await kernelsOf(build);
    const none: Readonly<Record<string, SdpaOptions>> = {
      keep: { keep: { data: new Uint8Array(1), shape: [1] } },
      drop: { drop: { data: [true], shape: [1, 1, 1, 1] } },
      bias: { bias: { data: Float32Array.of(-Infinity), shape: [1] } },
      "empty mask": { keep: { data: new Uint8Array(0), shape: [0] } },
      kvLengths: { kvLengths: [0, 0] },
      "queries before the keys": { kvLengths: [0, 0], causal: true, align: "end" },
      "keep and drop together": {
        keep: { data: all(KV, (j) => odd(j)), shape: [KV] },
        drop: { data: all(KV, (j) => odd(j)), shape: [KV] },
      },
    };
    const clean = inputs(createRandom(11));
    for (const bits of [0, ...Object.values(POISONS)]) {
      const { q, k, v } = poisoned(clean, bits, () => bits !== 0);
      soil(kernels, bits);
      for (const [name, options] of Object.entries(none)) {
        const { output, scores, lse } = scaledDotProductAttention(kernels, q, k, v, {
          ...options,
          scores: "weights",
          lse: true,
        });
        expect(
          output.data.every((value) => Object.is(value, 0)),
          name,
        ).toBe(true);
        expect(
          scores?.data.every((value) => Object.is(value, 0)),
          name,
        ).toBe(true);
        expect(
          lse?.data.every((value) => value === -Infinity),
          name,
        ).toBe(true);
        const sinkLogits = Float32Array.of(-3, 0, 0.5, 40);
        const sunk = scaledDotProductAttention(kernels, q, k, v, {
          ...options,
          sinkLogits,
          scores: "weights",
          lse: true,
        });
        expect(
          sunk.output.data.every((value) => Object.is(value, 0)),
          name,
        ).toBe(true);
        expect(
          sunk.scores?.data.every((value) => Object.is(value, 0)),
          name,
        ).toBe(true);
        // The kernel keeps its maximum in base 2: one rounding there, one back.
        const near = (value: number, sink: number) => Math.abs(value - sink) <= 2 ** -23 * Math.abs(sink);
        expect(
          sunk.lse?.data.every((value, i) => near(value, sinkLogits[Math.floor(i / Q) % HEADS] as number)),
          name,
        ).toBe(true);
      }
    }
  });

  test("only the rows before the keys are zeros when queries begin before them", async () => {
    using kernels = await kernelsOf(build);
    const { q, k, v } = inputs(createRandom(12));
    const options = { causal: true, align: "end", kvLengths: [30, 5], lse: true } as const;
    const { output, lse } = scaledDotProductAttention(kernels, q, k, v, options);
    for (let row = 0; row < BATCH * HEADS * Q; row++) {
      const position = (row < HEADS * Q ? 30 : 5) - Q + (row % Q);
      const zeros = output.data.subarray(row * VALUE, (row + 1) * VALUE).every((value) => Object.is(value, 0));
      expect([zeros, lse?.data[row] === -Infinity], `row ${row}`).toEqual([position < 0, position < 0]);
    }
  });
});
