// The forward pass of a layer against float64, feature by feature.

import { describe, expect, test } from "vitest";
import {
  type AttendOptions,
  type AttentionConfig,
  type AttentionWeights,
  attend,
  attendWithMaps,
  createAttention,
  type Kernels,
  type Tensor,
} from "../../src/entries/core.ts";
import { attendReference, type ReferenceOptions, type ReferenceWeights } from "../../src/reference/attend.ts";
import { createRandom, type Random } from "../../src/tools/diagnostics/random.ts";
import { floats } from "../support/harness.ts";
import { firstDifference, kernelsOf, randomWeights, shippedBuilds } from "../support/layers.ts";
import { sampledSeeds } from "../support/sampled.ts";

/** One feature: a layer, and how a call of it is made. Sizes that are left out are drawn. */
interface Feature {
  readonly config?: Partial<AttentionConfig>;
  readonly parts?: Parameters<typeof randomWeights>[2];
  readonly batch?: number;
  /** Keys of cross-attention; default self-attention. */
  readonly keyLen?: number;
  /** Values from rows of their own, not the rows of the keys. */
  readonly ownValues?: boolean;
  readonly options?: (random: Random, sizes: Sizes) => AttendOptions;
}

interface Sizes {
  readonly batch: number;
  readonly numHeads: number;
  readonly qLen: number;
  readonly kvLen: number;
}

const bits = (random: Random, ...shape: number[]) => ({
  data: Uint8Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => Number(random.next() < 0.7)),
  shape,
});
const biasOf = (random: Random, ...shape: number[]): Tensor => ({
  data: floats(
    random,
    shape.reduce((a, b) => a * b, 1),
  ).map((b) => (b > 1.5 ? -Infinity : b)),
  shape,
});
const group = { numHeads: 6, numKvHeads: 2, headDim: 8 };
const rope = { theta: 100, pairing: "half" } as const;
const half = { rope } as const;
const yarn = { kind: "yarn", factor: 4, originalMaxSeqLen: 16, betaFast: 2 } as const;
const llama3 = { kind: "llama3", factor: 8, lowFreqFactor: 1, highFreqFactor: 4, originalMaxSeqLen: 64 } as const;
const factors = Float32Array.of(1, 1.5, 7, 32);

const FEATURES: Readonly<Record<string, Feature>> = {
  "heads with keys of their own": { config: { numHeads: 4, headDim: 12 } },
  "groups of heads": { config: { ...group, causal: true } },
  "one key-value head for all": { config: { numHeads: 7, numKvHeads: 1, headDim: 5, causal: true } },
  "one head": { config: { numHeads: 1, headDim: 16 } },
  biases: { config: { ...group, causal: true }, parts: { biases: true } },
  "values wider than keys": { config: { ...group, valueDim: 21 }, parts: { biases: true } },
  "values narrower than keys": { config: { ...group, valueDim: 3 } },
  "heads that are not dModel together": { config: { dModel: 13, ...group } },
  "a batch": { config: { ...group, causal: true }, batch: 3 },
  "cross-attention": { config: group, keyLen: 140 },
  "cross-attention with kdim and vdim": {
    config: { ...group, kdim: 9, vdim: 23 },
    keyLen: 33,
    ownValues: true,
    batch: 2,
  },
  "cross-attention with values of their own": { config: group, keyLen: 70, ownValues: true },
  "causal cross-attention aligned at the start": {
    config: { ...group, causal: true },
    keyLen: 50,
    options: () => ({ align: "start" }),
  },
  "causal cross-attention aligned at the end": {
    config: { ...group, causal: true },
    keyLen: 90,
    options: () => ({ align: "end" }),
  },
  "lengths of keys": { config: group, batch: 3, options: (_, { kvLen }) => ({ kvLengths: [kvLen, 1, kvLen >> 1] }) },
  "lengths of keys, none among them": {
    config: group,
    batch: 2,
    options: (_, { kvLen }) => ({ kvLengths: [0, kvLen] }),
  },
  "lengths of keys of causal queries at the end": {
    config: { ...group, causal: true },
    batch: 3,
    options: (_, { kvLen, qLen }) => ({ kvLengths: [kvLen, 1, qLen >> 1], align: "end" }),
  },
  "keep [kvLen]": { config: group, options: (random, { kvLen }) => ({ keep: bits(random, kvLen) }) },
  "keep [qLen, kvLen] of causal queries": {
    config: { ...group, causal: true },
    options: (random, { qLen, kvLen }) => ({ keep: bits(random, qLen, kvLen) }),
  },
  "drop [heads, 1, kvLen]": {
    config: group,
    options: (random, { numHeads, kvLen }) => ({ drop: bits(random, numHeads, 1, kvLen) }),
  },
  "keep [batch, 1, qLen, 1] and drop [kvLen]": {
    config: group,
    batch: 2,
    options: (random, { batch, qLen, kvLen }) => ({ keep: bits(random, batch, 1, qLen, 1), drop: bits(random, kvLen) }),
  },
  "bias [1]": { config: group, options: () => ({ bias: { data: Float32Array.of(3), shape: [1] } }) },
  "bias [batch, heads, qLen, kvLen] of causal queries": {
    config: { ...group, causal: true },
    batch: 2,
    options: (random, { batch, numHeads, qLen, kvLen }) => ({ bias: biasOf(random, batch, numHeads, qLen, kvLen) }),
  },
  "bias [heads, 1, 1] and keep shorter than the keys": {
    config: group,
    options: (random, { numHeads, kvLen }) => ({
      bias: biasOf(random, numHeads, 1, 1),
      keep: bits(random, Math.max(2, kvLen - 3)),
    }),
  },
  "a bias shorter than the keys": {
    config: group,
    keyLen: 30,
    options: (random) => ({ bias: biasOf(random, 1, 20) }),
  },
  "a window to the left of causal queries": { config: { ...group, causal: true, window: { left: 5 } } },
  "a window to both sides": { config: { ...group, window: { left: 3, right: 7 } } },
  "a window of cross-attention at the end": {
    config: { ...group, window: { left: 20, right: 0 } },
    keyLen: 150,
    options: () => ({ align: "end" }),
  },
  "a softcap": { config: { ...group, softcap: 0.7, scale: 1 } },
  "a scale of the caller's": { config: { ...group, scale: -0.2 } },
  "ALiBi of a power of two heads": { config: { numHeads: 8, headDim: 4, causal: true, alibi: "geometric" } },
  "ALiBi of six heads to both sides": { config: { ...group, alibi: "geometric" } },
  "slopes of the caller's": {
    config: { ...group, causal: true, alibi: Float32Array.of(0, 1, -0.1, 0.5, 0.01, 2) },
  },
  sinks: { config: { ...group, causal: true }, parts: { sinks: true } },
  "an extra key": { config: { ...group, causal: true }, parts: { extraKey: true, biases: true } },
  "a key of zeros": { config: { ...group, addZeroAttn: true, causal: true } },
  "an extra key, a key of zeros and sinks": {
    config: { ...group, addZeroAttn: true, window: { left: 4, right: 4 } },
    parts: { extraKey: true, sinks: true },
    batch: 2,
  },
  "rotation of halves": { config: { ...group, ...half, causal: true } },
  "rotation of neighbours": { config: { ...group, rope: { theta: 500, pairing: "interleaved" }, causal: true } },
  "rotation of a part": { config: { ...group, rope: { ...rope, dim: 4 }, causal: true } },
  "rotation of a range": { config: { ...group, rope: { ...rope, start: 3, dim: 4 }, causal: true } },
  "rotation of the last components": {
    config: { ...group, rope: { theta: 500, pairing: "interleaved", start: 2 }, causal: true },
  },
  "linear scaling": { config: { ...group, rope: { ...rope, scaling: { kind: "linear", factor: 3 } } } },
  "ntk scaling": { config: { ...group, rope: { ...rope, scaling: { kind: "ntk", factor: 3 } } } },
  "a factor for each pair": { config: { ...group, rope: { ...rope, scaling: { kind: "factors", factors } } } },
  "llama3 scaling": { config: { ...group, rope: { ...rope, scaling: llama3 } } },
  "yarn scaling": { config: { ...group, rope: { ...rope, scaling: yarn }, causal: true } },
  "positions [qLen]": {
    config: { ...group, ...half },
    batch: 2,
    options: (random, { qLen }) => ({ positions: Int32Array.from({ length: qLen }, () => random.int(0, 1000)) }),
  },
  "positions [batch, qLen]": {
    config: { ...group, ...half, causal: true },
    batch: 2,
    options: (random, { qLen }) => ({ positions: Int32Array.from({ length: 2 * qLen }, () => random.int(0, 1000)) }),
  },
  "rotation in cross-attention": { config: { ...group, ...half }, keyLen: 20 },
  "a norm of each head": { config: { ...group, qkNorm: { kind: "per-head" }, causal: true } },
  "a norm of all heads": { config: { ...group, qkNorm: { kind: "full", eps: 1e-5 }, causal: true } },
  "a norm of 1 + w before rotation": { config: { ...group, qkNorm: { kind: "per-head", onePlus: true }, ...half } },
  "everything at once": {
    config: {
      ...{ dModel: 17, numHeads: 9, numKvHeads: 3, headDim: 12, valueDim: 7, causal: true, window: { left: 30 } },
      ...{ scale: 0.4, softcap: 3, alibi: "geometric", rope: { ...rope, dim: 6, scaling: yarn }, addZeroAttn: true },
      qkNorm: { kind: "full", onePlus: true },
    },
    parts: { biases: true, sinks: true, extraKey: true },
    batch: 2,
    options: (random, { batch, qLen, kvLen }) => ({
      ...{ keep: bits(random, qLen, kvLen), drop: { data: Array<boolean>(kvLen).fill(false), shape: [kvLen] } },
      ...{ bias: biasOf(random, batch, 1, 1, kvLen), kvLengths: [kvLen, kvLen - 1], align: "start" },
    }),
  },
};

/** The element of a broadcast mask, undefined behind a short last dimension. */
function elementOf<T>(
  { data, shape }: { readonly data: ArrayLike<T>; readonly shape: readonly number[] },
  index: readonly [b: number, h: number, t: number, j: number],
): T | undefined {
  let at = 0;
  for (const [axis, length] of shape.entries()) {
    const i = index[axis + 4 - shape.length] as number;
    if (length !== 1 && i >= length) return undefined;
    at = at * length + (length === 1 ? 0 : i);
  }
  return data[at];
}

/** A call of one batch row as the reference takes it. */
function referenceOf(config: AttentionConfig, options: AttendOptions, sizes: Sizes, b: number): ReferenceOptions {
  const { qLen, kvLen, batch } = sizes;
  const { keys, values, positions, keep, drop, bias, kvLengths, align } = options;
  const { vdim = config.dModel } = config;
  const kvLength = kvLengths?.[b] ?? kvLen;
  const row =
    positions &&
    Array.from(positions)
      .slice(positions.length === qLen ? 0 : b * qLen)
      .slice(0, qLen);
  return {
    kvLength,
    qStart: align === "end" ? kvLength - qLen : 0,
    ...(keys && { keys: keys.subarray((b * keys.length) / batch, ((b + 1) * keys.length) / batch) }),
    ...(values && { values: values.subarray(b * kvLen * vdim, (b + 1) * kvLen * vdim) }),
    ...(row && { positions: row, ...(keys === undefined && { keyPositions: row }) }),
    // Behind a short mask of either kind a key is excluded.
    keep: (h, t, j) =>
      (!keep || Boolean(elementOf<number | boolean>(keep, [b, h, t, j]) ?? false)) &&
      (!drop || !(elementOf<number | boolean>(drop, [b, h, t, j]) ?? true)),
    bias: (h, t, j) => (bias ? (elementOf<number>(bias, [b, h, t, j]) ?? -Infinity) : 0),
  };
}

const plainOf = ({ wq, wk, wv, wo, layout: _, ...vectors }: AttentionWeights<Tensor>): ReferenceWeights => ({
  ...vectors,
  wq: wq!.data,
  wk: wk!.data,
  wv: wv!.data,
  wo: wo.data,
});

/**
 * Every float moved by up to 16 ulp, in float64: what rounding in some tens of additions can do, weighed by the layer's
 * own condition.
 */
const STEP = 2 ** -20;
const moved = (random: Random, data: ArrayLike<number>) =>
  Float64Array.from(data, (value) => value * (1 + (random.next() < 0.5 ? STEP : -STEP)));

const largest = (data: ArrayLike<number>) => Array.from(data).reduce((most, one) => Math.max(most, Math.abs(one)), 0);

/** The largest |got - want| over what is allowed: what moving every input by 16 ulp does, and 4 ulp of the largest. */
function excess(got: Float32Array, want: Float64Array, other: Float64Array): number {
  expect(got.length).toBe(want.length);
  const allowed = largest(want.map((one, i) => one - other[i]!)) + largest(want) * 2 ** -22;
  const error = largest(want.map((one, i) => one - got[i]!));
  return error === 0 ? 0 : error / allowed;
}

function runFeature(kernels: Kernels, { config: rules = {}, parts = {}, ...call }: Feature, seed: number): number {
  const random = createRandom(seed);
  const config = { dModel: random.int(5, 40), numHeads: 2, ...rules };
  const weights = randomWeights(random, config, parts);
  using attention = createAttention(kernels, config, weights);
  const { dModel, numHeads, kdim, vdim } = attention.config;
  const { batch = 1, keyLen } = call;
  const qLen = random.int(4, 45);
  const sizes = { batch, numHeads, qLen, kvLen: keyLen ?? qLen };
  const x = floats(random, batch * qLen * dModel);
  const options: AttendOptions = {
    ...(batch > 1 && { batch }),
    ...(keyLen && { keys: floats(random, batch * keyLen * kdim) }),
    ...(call.ownValues && { values: floats(random, batch * sizes.kvLen * vdim) }),
    ...call.options?.(random, sizes),
  };
  const { y, maps } = attendWithMaps(attention, x, options);
  const columns = sizes.kvLen + Number(weights.biasK !== undefined) + Number(attention.config.addZeroAttn);
  expect(maps.shape).toEqual([...(batch > 1 ? [batch] : []), numHeads, qLen, columns]);
  expect(firstDifference(attend(attention, x, options), y)).toBe(-1);

  const plain = plainOf(weights);
  const shaken = Object.fromEntries(
    Object.entries(plain).flatMap(([name, data]) => (data ? [[name, moved(random, data)]] : [])),
  ) as unknown as ReferenceWeights;
  let most = 0;
  for (let b = 0; b < batch; b++) {
    const row = x.subarray(b * qLen * dModel, (b + 1) * qLen * dModel);
    const given = referenceOf(config, options, sizes, b);
    const want = attendReference(attention.config, plain, row, given);
    const other = attendReference(attention.config, shaken, moved(random, row), {
      ...given,
      ...(given.keys && { keys: moved(random, given.keys) }),
      ...(given.values && { values: moved(random, given.values) }),
    });
    const part = (data: Float32Array) => data.subarray((b * data.length) / batch, ((b + 1) * data.length) / batch);
    if (options.kvLengths && !keyLen && given.qStart === 0) {
      // Rows of padding are zeros.
      const real = options.kvLengths[b]!;
      for (const { y } of [want, other]) y.fill(0, real * dModel);
      for (const { maps } of [want, other])
        for (let h = 0; h < numHeads; h++) maps.fill(0, (h * qLen + real) * columns, (h + 1) * qLen * columns);
      expect(
        part(y)
          .subarray(real * dModel)
          .every((value) => Object.is(value, 0)),
      ).toBe(true);
    }
    most = Math.max(most, excess(part(y), want.y, other.y), excess(part(maps.data), want.maps, other.maps));
  }
  return most;
}

describe.each(shippedBuilds)("in the %s build, the error is within that of moving every input by 16 ulp", (build) => {
  test.each(Object.entries(FEATURES))("with %s", async (_, feature) => {
    using kernels = await kernelsOf(build);
    for (const seed of sampledSeeds(0, 3, 2)) {
      const ratio = runFeature(kernels, feature, seed);
      expect(ratio, `seed ${seed}`).toBeLessThanOrEqual(1);
    }
  });
});
