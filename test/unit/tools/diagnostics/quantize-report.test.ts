// The report on formats: its numbers are those of the calls it stands for, and it leaves nothing allocated.

import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import {
  type Attention,
  type AttentionConfig,
  attend,
  attendWithMaps,
  createAttention,
  createCache,
  type Kernels,
} from "../../../../src/entries/core.ts";
import { type QuantizeTrial, quantizeReport } from "../../../../src/entries/quantized.ts";
import { fromHfConfig, readAttentionWeights, readSafetensors, toFloats } from "../../../../src/entries/weights.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";
import { floats } from "../../../support/harness.ts";
import { kernelsOf, randomLayer, randomWeights, shippedBuilds } from "../../../support/layers.ts";

const CONFIG: AttentionConfig = {
  dModel: 64,
  numHeads: 4,
  numKvHeads: 2,
  headDim: 24,
  valueDim: 16,
  causal: true,
  rope: { theta: 10_000, pairing: "half" },
};

function makeLayer(kernels: Kernels, seed = 1): { attention: Attention; make: (trial: QuantizeTrial) => Attention } {
  const weights = randomWeights(createRandom(seed), CONFIG, { biases: true });
  const make = ({ weights: formats, activations }: QuantizeTrial) =>
    createAttention(kernels, CONFIG, weights, { weights: formats, activations });
  return { attention: make({}), make };
}

const samplesOf = (seed: number, ...lengths: number[]) => {
  const random = createRandom(seed);
  return lengths.map((length) => floats(random, length * 64));
};

/** |z - y| / |y| by definition. */
function relative(z: ArrayLike<number>, y: ArrayLike<number>): number {
  const size = (of: (i: number) => number) => Math.sqrt(Array.from(y, (_, i) => of(i) ** 2).reduce((a, b) => a + b));
  return size((i) => z[i]! - y[i]!) / size((i) => y[i]!);
}

/** What a layer gives by its public functions. */
function outputsOf(attention: Attention, trial: QuantizeTrial, x: Float32Array) {
  const cacheOf = () => createCache(attention, { maxSeqLen: x.length / 64, format: trial.cache });
  const { y, maps } = attendWithMaps(attention, x, { cache: cacheOf() });
  expect(attend(attention, x, { cache: cacheOf() })).toEqual(y);
  return { y, maps: maps.data, bytes: [attention.bytes, cacheOf().bytes] };
}

describe.each(shippedBuilds)("in the %s build", (build) => {
  test.each<QuantizeTrial>([
    { weights: "q8" },
    { weights: "q4" },
    { weights: "f16" },
    { weights: { k: "q8-row" } },
    { weights: "q8", activations: "fast" },
    { cache: "q8" },
    { cache: { keys: "f16", values: "q4" } },
    { weights: "q4", cache: "q8" },
  ])("%j: the numbers are those of the calls it stands for", async (trial) => {
    using kernels = await kernelsOf(build);
    const { attention, make } = makeLayer(kernels);
    const [x] = samplesOf(2, 40) as [Float32Array];
    const [result] = quantizeReport(attention, x, { trials: [trial] });
    const exact = outputsOf(attention, {}, x);
    const tried = outputsOf(make(trial), trial, x);
    expect(result?.trial).toBe(trial);
    expect([result?.weightBytes, result?.cacheBytes]).toEqual(tried.bytes);
    expect(result?.output.relative).toBeCloseTo(relative(tried.y, exact.y), 12);
    const most = (data: Float32Array) => Math.max(...data.map(Math.abs));
    const worst = most(tried.y.map((z, i) => z - exact.y[i]!)) / most(exact.y);
    expect(result?.output.largest).toBeCloseTo(worst, 6);
    const dot = (a: Float32Array, b: Float32Array) => a.reduce((sum, value, i) => sum + value * b[i]!, 0);
    const cosine = dot(exact.y, tried.y) / Math.sqrt(dot(exact.y, exact.y) * dot(tried.y, tried.y));
    expect(result?.output.cosine).toBeCloseTo(cosine, 10);
    for (const [h, head] of result!.heads.entries()) {
      let sum = 0;
      for (let i = h * 1600; i < (h + 1) * 1600; i++) {
        const [p, q] = [exact.maps[i]!, tried.maps[i]!];
        if (p > 0) sum += p * Math.log(p / q);
      }
      // Rows sum to 1 within 2^-22, which the terms q - p make up for.
      expect(Math.abs(head.divergence - sum / 40)).toBeLessThan(2 ** -21);
    }
  });

  test("layers of all kinds are taken apart and put together to the bit", async () => {
    using kernels = await kernelsOf(build);
    const everything: AttentionConfig = {
      ...CONFIG,
      alibi: "geometric",
      addZeroAttn: true,
      qkNorm: { kind: "full", onePlus: true },
    };
    const parts = { biases: true, sinks: true, extraKey: true };
    const layers = [
      createAttention(kernels, everything, randomWeights(createRandom(9), everything, parts)),
      ...Array.from({ length: 24 }, (_, seed) => randomLayer(kernels, seed).attention).filter(({ formats }) =>
        Object.values(formats).every((format) => format === "f32"),
      ),
    ];
    expect(layers.length).toBeGreaterThan(12);
    for (const attention of layers) {
      const { dModel, numHeads } = attention.config;
      const [result] = quantizeReport(attention, floats(createRandom(10), 9 * dModel), { trials: [{}] });
      const none = { relative: 0, cosine: 1, largest: 0 };
      expect(result?.output).toEqual(none);
      expect(result?.heads).toEqual(Array.from({ length: numHeads }, () => ({ ...none, divergence: 0 })));
      expect(result?.weightBytes).toBe(attention.bytes);
    }
  });
});

test("by default every format is tried for each part and for all, and each part shows where it acts", async () => {
  using kernels = await kernelsOf("simd");
  const { attention } = makeLayer(kernels);
  const results = quantizeReport(attention, samplesOf(3, 33));
  const keys = results.map(({ trial }) => JSON.stringify(trial));
  expect(new Set(keys).size).toBe(5 * 5 + 3 * 3 + 2);
  const of = (trial: QuantizeTrial) => results[keys.indexOf(JSON.stringify(trial))]!;
  const drifts = (trial: QuantizeTrial) => of(trial).heads.map((head) => head.divergence > 0);
  const strays = (trial: QuantizeTrial) => of(trial).heads.map((head) => head.relative > 0);
  const [all, none] = [Array(4).fill(true), Array(4).fill(false)];
  for (const format of ["f16", "bf16", "q8", "q8-row", "q4"] as const) {
    const alone = (["q", "k", "v", "o"] as const).map((part): QuantizeTrial => ({ weights: { [part]: format } }));
    expect(alone.map(drifts)).toEqual([all, all, none, none]);
    expect(alone.map(strays)).toEqual([all, all, all, none]);
    for (const trial of alone) {
      expect(of(trial).output.relative).toBeGreaterThan(0);
      expect(of(trial).output.relative).toBeLessThan(of({ weights: format }).output.relative);
      expect(of(trial).weightBytes).toBeLessThan(attention.bytes);
    }
  }
  for (const format of ["f16", "q8", "q4"] as const) {
    expect(drifts({ cache: { keys: format, values: "f32" } })).toEqual(all);
    expect(drifts({ cache: { keys: "f32", values: format } })).toEqual(none);
    expect(strays({ cache: { keys: "f32", values: format } })).toEqual(all);
  }
  const errors = (["f16", "bf16", "q8", "q4"] as const).map((weights) => of({ weights }).output.relative);
  expect(errors).toEqual(errors.toSorted((a, b) => a - b));
});

test("several samples are one sum, each a sequence of its own", async () => {
  using kernels = await kernelsOf("simd");
  const { attention, make } = makeLayer(kernels);
  const trials = [{ weights: "q4", cache: "q8" }] as const;
  const samples = samplesOf(4, 20, 1, 140);
  const shares: number[] = [];
  const [together] = quantizeReport(attention, samples, { trials, onProgress: (done) => void shares.push(done) });
  expect(shares).toEqual([1 / 3, 2 / 3, 1]);
  const tried = make(trials[0]);
  const pairs = samples.map((x) => ({
    y: attend(attention, x),
    z: attend(tried, x, { cache: createCache(tried, { maxSeqLen: 140, format: "q8" }) }),
  }));
  const flat = (part: "y" | "z") => pairs.flatMap((pair) => Array.from(pair[part]));
  expect(together?.output.relative).toBeCloseTo(relative(flat("z"), flat("y")), 12);
  const weighted = samples.map((x) => quantizeReport(attention, [x], { trials })[0]!.heads[1]!.divergence);
  expect(together?.heads[1]?.divergence).toBeCloseTo((20 * weighted[0]! + weighted[1]! + 140 * weighted[2]!) / 161, 12);
  const [cache] = [createCache(tried, { maxSeqLen: 140, format: "q8" }).bytes];
  expect(together?.cacheBytes).toBe(cache);
});

test("a cache that ages is tried as it would age", async () => {
  using kernels = await kernelsOf("simd");
  const { attention } = makeLayer(kernels);
  const aging = [
    { keys: "f32", values: "f32", tokens: 128 },
    { keys: "q4", values: "q4" },
  ] as const;
  const trials = [{ cache: aging }, { cache: "q4" }] as const;
  const errors = (length: number) =>
    quantizeReport(attention, samplesOf(5, length), { trials }).map(({ output }) => output.relative) as [
      number,
      number,
    ];
  expect(errors(128)[0]).toBe(0);
  const [aged, all] = errors(600);
  expect(aged).toBeGreaterThan(0);
  expect(aged).toBeLessThan(all);
});

/** Layers of the shipped model, each with its inputs for held-out texts. */
function shippedLayers(kernels: Kernels): { attention: Attention; samples: Float32Array[] }[] {
  const read = (file: string) => readFileSync(new URL(`../../../../model/${file}`, import.meta.url));
  const json = read("config.json").toString();
  const { vocabulary, rms_norm_eps: eps } = JSON.parse(json) as { vocabulary: string; rms_norm_eps: number };
  const { sequences } = JSON.parse(read("heldout.json").toString()) as { sequences: { text: string }[] };
  const file = readSafetensors(read("model.safetensors"));
  const tensor = (name: string) => toFloats(file.tensors.get(`model.${name}.weight`)!);
  const embedding = tensor("embed_tokens");
  const row = (c: string) =>
    Array.from(embedding.subarray(64 * vocabulary.indexOf(c), 64 * vocabulary.indexOf(c) + 64));
  let streams = sequences.slice(0, 16).map(({ text }) => Float32Array.from(Array.from(text).flatMap(row)));
  return [0, 1].map((layer) => {
    const gain = tensor(`layers.${layer}.input_layernorm`);
    const samples = streams.map((x) =>
      x.map((value, i) => {
        const at = i - (i % 64);
        const mean = x.subarray(at, at + 64).reduce((sum, each) => sum + each * each, 0) / 64;
        return (value / Math.sqrt(mean + eps)) * gain[i % 64]!;
      }),
    );
    const weights = readAttentionWeights(file, `model.layers.${layer}.self_attn.`);
    const attention = createAttention(kernels, fromHfConfig(json, layer), weights);
    streams = streams.map((x, s) => attend(attention, samples[s]!).map((y, i) => x[i]! + y));
    return { attention, samples };
  });
}

// Measured on all 64 texts: 8.95e-3 and 1.09e-2 of |y| with q8, of which the root mean square is 1.80e-3 and 2.48e-3 of the
// largest |y|; 0.148 and 0.181 of |y| with q4.
test("on the shipped model, q8 weights and caches are within 1.25e-2 of |y|, 3e-3 of its largest; q4 within 0.2", async () => {
  using kernels = await kernelsOf("simd");
  for (const { attention, samples } of shippedLayers(kernels)) {
    const trials = [
      { weights: "q8", cache: "q8" },
      { weights: "q4", cache: "q4" },
    ] as const;
    const [q8, q4] = quantizeReport(attention, samples, { trials });
    const ys = samples.flatMap((x) => Array.from(attend(attention, x)));
    const rms = Math.sqrt(ys.reduce((sum, y) => sum + y * y, 0) / ys.length);
    const largest = ys.reduce((most, y) => Math.max(most, Math.abs(y)), 0);
    expect(q8!.output.relative).toBeLessThan(1.25e-2);
    expect((q8!.output.relative * rms) / largest).toBeLessThan(3e-3);
    expect(q4!.output.relative).toBeLessThan(0.2);
  }
});

test("7-bit activations err more than twice as much as 14-bit ones", async () => {
  using kernels = await kernelsOf("simd");
  const { attention } = makeLayer(kernels);
  const trials = [{ weights: "q8" }, { weights: "q8", activations: "fast" }] as const;
  const [exact, fast] = quantizeReport(attention, samplesOf(6, 32), { trials });
  expect(fast!.output.relative).toBeGreaterThan(2 * exact!.output.relative);
});

test("nothing stays allocated, whether it ends or throws", async () => {
  using kernels = await kernelsOf("simd");
  const { attention } = makeLayer(kernels);
  const before = kernels.usedBytes;
  quantizeReport(attention, samplesOf(7, 50), { trials: [{ weights: "q8", cache: "q4" }] });
  expect(kernels.usedBytes).toBe(before);
  // More maps than an array can be long.
  const long = new Float32Array(64 * 100_000);
  expect(() => quantizeReport(attention, long, { trials: [{ weights: "q8" }] })).toThrow(/does not fit|do not fit/);
  expect(kernels.usedBytes).toBe(before);
});

test("wrong arguments throw their text and allocate nothing", async () => {
  using kernels = await kernelsOf("simd");
  const { attention, make } = makeLayer(kernels);
  const cross = { ...CONFIG, kdim: 32, vdim: 32 };
  const crossing = createAttention(kernels, cross, randomWeights(createRandom(1), cross));
  const narrow = make({ weights: { v: "q8" } });
  const released = make({});
  released.release();
  const before = kernels.usedBytes;
  const loose = quantizeReport as (...args: readonly unknown[]) => unknown;
  const x = new Float32Array(128);
  const rows: [args: unknown[], kind: string, text: string][] = [
    [[{}, x], "TypeError", "quantizeReport: attention expected what createAttention gives, got Object"],
    [[released, x], "HeadwiseError", "quantizeReport: attention was released"],
    [[narrow, x], "RangeError", 'quantizeReport: attention expected weights of "f32", got "q8" for wv'],
    [
      [crossing, x],
      "RangeError",
      "quantizeReport: attention expected kdim and vdim equal to dModel (64), got 32 and 32",
    ],
    [[attention], "TypeError", "quantizeReport: samples expected Float32Array, got undefined"],
    [[attention, []], "RangeError", "quantizeReport: samples expected one or more, got none"],
    [[attention, [x, [1]]], "TypeError", "quantizeReport: samples[1] expected Float32Array, got Array"],
    [
      [attention, new Float32Array(65)],
      "RangeError",
      "quantizeReport: samples expected a multiple of dModel (64) floats, got 65",
    ],
    [
      [attention, [x, new Float32Array(0)]],
      "RangeError",
      "quantizeReport: samples[1] expected a multiple of dModel (64) floats, got 0",
    ],
    [
      [attention, x, { trial: [] }],
      "TypeError",
      'quantizeReport: options expected only trials, onProgress, got "trial"',
    ],
    [[attention, x, { onProgress: 1 }], "TypeError", "quantizeReport: onProgress expected a function, got 1"],
    [[attention, x, { trials: {} }], "TypeError", "quantizeReport: trials expected an array, got Object"],
    [
      [attention, x, { trials: [{}, { formats: 1 }] }],
      "TypeError",
      'quantizeReport: trials[1] expected only weights, activations, cache, got "formats"',
    ],
    [[attention, x, { trials: [{ weights: "q5" }] }], "RangeError", "quantizeReport: trials[0].weights expected "],
    [
      [attention, x, { trials: [{ activations: "slow" }] }],
      "RangeError",
      "quantizeReport: trials[0].activations expected ",
    ],
    [[attention, x, { trials: [{ cache: "q5" }] }], "RangeError", "quantizeReport: trials[0].cache expected "],
  ];
  for (const [args, kind, text] of rows) {
    let thrown: unknown;
    try {
      loose(...args);
    } catch (error) {
      thrown = error;
    }
    expect([
      (thrown as Error | undefined)?.name,
      String((thrown as Error | undefined)?.message).slice(0, text.length),
    ]).toEqual([kind, text]);
  }
  expect(kernels.usedBytes).toBe(before);
});
