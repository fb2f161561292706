import { describe, expect, test } from "vitest";
import {
  type Attention,
  type AttentionConfig,
  applyRope,
  attend,
  attendWithMaps,
  createAttention,
  loadKernels,
  ropeTables,
  type Tensor,
} from "../../../../src/entries/index.ts";
import {
  type AttentionStage,
  forwardWith,
  type TraceOptions,
  traceAttention,
} from "../../../../src/entries/inspect.ts";
import { latent } from "../../../../src/entries/latent.ts";
import { createSession, loadModel, models } from "../../../../src/entries/models.ts";
import { quantized } from "../../../../src/entries/quantized.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";
import { floats } from "../../../support/harness.ts";
import { randomWeights } from "../../../support/layers.ts";
import { TINY, tinyFolder } from "../../../support/tiny-models.ts";

const kernels = await loadKernels({ models, quantized, latent });
const NINE = ["project", "chunk", "split", "scores", "mask", "softmax", "sum", "merge", "output"];
const BATCH = 2;
const LEN = 7;

type Parts = Parameters<typeof randomWeights>[2];
type Case = readonly [
  name: string,
  config: Partial<AttentionConfig>,
  more: { parts?: Parts; options?: TraceOptions; weights?: "q8"; extra?: readonly string[] },
];

/** 1 but for one pair of each query. */
const keep = { data: Array.from({ length: LEN * LEN }, (_, i) => i % LEN !== (i / LEN + 3) % LEN), shape: [LEN, LEN] };
const random = createRandom(17);
const CASES: readonly Case[] = [
  ["MHA", {}, {}],
  ["causal MHA with biases", { causal: true }, { parts: { biases: true } }],
  ["GQA with values of another width", { numKvHeads: 2, valueDim: 5, causal: true }, {}],
  ["MQA with a window", { numKvHeads: 1, causal: true, window: { left: 2 } }, {}],
  [
    "RoPE and norms of each head",
    { causal: true, rope: { theta: 10_000, pairing: "half" }, qkNorm: { kind: "per-head" } },
    { extra: ["norm", "rotate"] },
  ],
  [
    "RoPE of some components at given positions",
    { rope: { theta: 100, pairing: "interleaved", dim: 4, start: 2 } },
    { extra: ["rotate"], options: { positions: [3, 4, 5, 9, 10, 11, 12] } },
  ],
  ["ALiBi and a softcap", { causal: true, alibi: "geometric", softcap: 2 }, { extra: ["softcap"] }],
  ["sinks", { causal: true }, { parts: { sinks: true } }],
  [
    "a key of its own and one of zeros",
    { addZeroAttn: true, numKvHeads: 2 },
    { parts: { extraKey: true }, extra: ["extend"] },
  ],
  ["masks and a bias", {}, { options: { keep, bias: { data: floats(random, LEN), shape: [LEN] } } }],
  ["weights in 8 bits", { causal: true, numKvHeads: 2 }, { weights: "q8" }],
];

const largest = (values: ArrayLike<number>) =>
  Array.from(values).reduce((most, value) => Math.max(most, Math.abs(value)), 0);
const stageOf = (stages: readonly AttentionStage[], name: string) => stages.find((stage) => stage.name === name)!;
const dataOf = (stages: readonly AttentionStage[], name: string, letter: string) =>
  stageOf(stages, name).tensors[letter]!.data;

describe.each(CASES)("%s", (_, rules, { parts, options = {}, weights: format, extra = [] }) => {
  const config: AttentionConfig = { dModel: 24, numHeads: 4, headDim: 8, ...rules };
  const weights = randomWeights(random, config, parts);
  const attention = createAttention(kernels, config, weights, format && { weights: format });
  const { numHeads, numKvHeads, headDim, valueDim, scale, softcap, slopes } = attention.config;
  const x = floats(random, BATCH * LEN * 24);
  const call = { ...options, batch: BATCH };
  const stages = traceAttention(attention, x, call);

  test("has the nine stages, and those of the layer's own", () => {
    const names = stages.map(({ name }) => name);
    expect(names.filter((name) => !extra.includes(name))).toEqual(NINE);
    expect(names.filter((name) => extra.includes(name))).toEqual(extra);
    for (const { text, formula, tensors } of stages) {
      expect(text).toMatch(/^[A-Z].*\.$/);
      expect(formula).not.toMatch(/undefined|NaN|false/);
      for (const { data, shape } of Object.values(tensors)) {
        expect(shape[0]).toBe(BATCH);
        expect(data.length).toBe(shape.reduce((size, length) => size * length));
      }
    }
    expect(structuredClone(stages)).toEqual(stages);
  });

  test("the last is what attend gives, and the weights are those of attendWithMaps, to the bit", () => {
    const { y, maps } = attendWithMaps(attention, x, call);
    expect(dataOf(stages, "output", "y")).toEqual(attend(attention, x, call));
    expect(dataOf(stages, "output", "y")).toEqual(y);
    expect(stageOf(stages, "softmax").tensors.weights).toEqual(maps);
  });

  test("projections are cut and moved without a change", () => {
    const [{ tensors: project }, { tensors: chunk }, { tensors: split }] = stages as [Stage, Stage, Stage];
    const widths = { q: numHeads * headDim, k: numKvHeads * headDim, v: numKvHeads * valueDim };
    let from = 0;
    for (const [part, width] of Object.entries(widths)) {
      const { data, shape } = chunk[part]!;
      expect(shape).toEqual([BATCH, LEN, width]);
      const dim = part === "v" ? valueDim : headDim;
      for (const [i, value] of data.entries()) {
        const [row, column] = [Math.floor(i / width), i % width];
        expect(value).toBe(project.qkv!.data[row * project.qkv!.shape[2]! + from + column]);
        const [b, t] = [Math.floor(row / LEN), row % LEN];
        const [head, c] = [Math.floor(column / dim), column % dim];
        expect(value).toBe(split[part]!.data[((b * (width / dim) + head) * LEN + t) * dim + c]);
      }
      from += width;
    }
  });

  test("scores, weights and sums are within 1e-6 of what their formulas make of the stage before", () => {
    const last = (letter: string) => stages.findLast(({ name, tensors }) => NINE.indexOf(name) < 3 && tensors[letter])!;
    const [q, k, v] = ["q", "k", "v"].map((letter) => last(letter).tensors[letter]!) as [Tensor, Tensor, Tensor];
    const columns = k.shape[2]!;
    const scores = stageOf(stages, "scores").tensors.scores!;
    expect(scores.shape).toEqual([BATCH, numHeads, LEN, columns]);
    const masked = dataOf(stages, "mask", "scores");
    const weightsOf = dataOf(stages, "softmax", "weights");
    const z = dataOf(stages, "sum", "z");
    const capped = extra.includes("softcap") ? dataOf(stages, "softcap", "scores") : scores.data;
    const bound = 1e-6 * Math.max(1, largest(scores.data));
    for (let row = 0; row < BATCH * numHeads * LEN; row++) {
      const [b, h, i] = [Math.floor(row / LEN / numHeads), Math.floor(row / LEN) % numHeads, row % LEN];
      const kv = b * numKvHeads + Math.floor(h / (numHeads / numKvHeads));
      const sink = weights.sinkLogits?.[h] ?? -Infinity;
      const total = Math.exp(sink) + sumOf(columns, (j) => Math.exp(masked[row * columns + j]!));
      for (let j = 0; j < columns; j++) {
        const at = row * columns + j;
        const dot = sumOf(headDim, (c) => q.data[row * headDim + c]! * k.data[(kv * columns + j) * headDim + c]!);
        expect(Math.abs(scores.data[at]! - scale * dot)).toBeLessThan(bound);
        if (softcap > 0)
          expect(Math.abs(capped[at]! - softcap * Math.tanh(scores.data[at]! / softcap))).toBeLessThan(bound);
        if (!mayAttend(i, j, rules, options)) expect(masked[at]).toBe(-Infinity);
        else {
          const added = (options.bias?.data[j] ?? 0) - (slopes?.[h] ?? 0) * Math.abs(i - j);
          expect(Math.abs(masked[at]! - capped[at]! - (j < LEN ? added : 0))).toBeLessThan(bound);
        }
        expect(Math.abs(weightsOf[at]! - Math.exp(masked[at]!) / total)).toBeLessThan(1e-6);
      }
      for (let c = 0; c < valueDim; c++) {
        const sum = sumOf(columns, (j) => weightsOf[row * columns + j]! * v.data[(kv * columns + j) * valueDim + c]!);
        expect(Math.abs(z[row * valueDim + c]! - sum)).toBeLessThan(1e-6 * largest(v.data));
      }
    }
  });

  test("heads are merged without a change, and y is their projection within 1e-6", () => {
    const merged = dataOf(stages, "merge", "z");
    const width = numHeads * valueDim;
    for (const [i, value] of merged.entries()) {
      const [row, column] = [Math.floor(i / width), i % width];
      const [b, t] = [Math.floor(row / LEN), row % LEN];
      const [h, c] = [Math.floor(column / valueDim), column % valueDim];
      expect(value).toBe(dataOf(stages, "sum", "z")[((b * numHeads + h) * LEN + t) * valueDim + c]);
    }
    if (format) return;
    for (const [i, value] of dataOf(stages, "output", "y").entries()) {
      const [row, n] = [Math.floor(i / 24), i % 24];
      const sum =
        sumOf(width, (c) => merged[row * width + c]! * weights.wo.data[n * width + c]!) + (weights.bo?.[n] ?? 0);
      expect(Math.abs(value - sum)).toBeLessThan(1e-6 * Math.max(1, largest(merged)));
    }
  });
});

type Stage = AttentionStage;
type Tensors = Stage["tensors"];

function sumOf(count: number, term: (i: number) => number): number {
  let sum = 0;
  for (let i = 0; i < count; i++) sum += term(i);
  return sum;
}

function mayAttend(i: number, j: number, { causal, window }: Partial<AttentionConfig>, options: TraceOptions): boolean {
  if (j >= LEN) return true;
  if (causal && j > i) return false;
  if (window?.left !== undefined && j < i - window.left) return false;
  return options.keep === undefined || options.keep.data[i * LEN + j] === true;
}

const eye = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
const square = { wq: eye, wk: eye, wv: eye, wo: eye };
const small = (config: Partial<AttentionConfig> = {}): Attention =>
  createAttention(kernels, { dModel: 4, numHeads: 2, ...config }, square);

test("projections, norms and rotations are what their formulas make of the stage before", () => {
  const rope = { theta: 10_000, pairing: "half", dim: 6 } as const;
  const config: AttentionConfig = {
    dModel: 24,
    numHeads: 4,
    headDim: 8,
    rope,
    qkNorm: { kind: "per-head", eps: 0.01 },
  };
  const weights = randomWeights(random, config, { biases: true });
  const x = floats(random, LEN * 24);
  const stages = traceAttention(createAttention(kernels, config, weights), x);
  const { q, k } = stageOf(stages, "chunk").tensors;
  for (const [tensor, w, bias] of [
    [q, weights.wq, weights.bq],
    [k, weights.wk, weights.bk],
  ] as const)
    for (const [i, value] of tensor!.data.entries()) {
      const [row, n] = [Math.floor(i / 32), i % 32];
      const sum = bias![n]! + sumOf(24, (c) => x[row * 24 + c]! * w.data[n * 24 + c]!);
      expect(Math.abs(value - sum)).toBeLessThan(1e-6 * largest(tensor!.data));
    }
  const [split, norm] = ["split", "norm"].map((name) => stageOf(stages, name).tensors) as [Tensors, Tensors];
  for (const [i, value] of norm.k!.data.entries()) {
    const head = split.k!.data.subarray(i - (i % 8), i - (i % 8) + 8);
    const root = Math.sqrt(sumOf(8, (c) => head[c]! ** 2) / 8 + 0.01);
    expect(Math.abs(value - (head[i % 8]! / root) * weights.kNorm![i % 8]!)).toBeLessThan(1e-5);
  }
  const rotated = stageOf(stages, "rotate").tensors;
  const tables = ropeTables(
    rope,
    Array.from({ length: LEN }, (_, t) => t),
  );
  for (const part of ["q", "k"]) {
    const heads = { data: norm[part]!.data, shape: [1, ...norm[part]!.shape] };
    expect(rotated[part]!.data).toEqual(applyRope(kernels, heads, { ...tables, pairing: "half" }).data);
  }
});

test("calls of more rows than a chunk have the bits of attend, and raw scores of all keys, behind a window too", () => {
  const [len, dim] = [300, 8];
  const rope = { theta: 10_000, pairing: "half" } as const;
  const config: AttentionConfig = { dModel: 16, numHeads: 2, causal: true, window: { left: 5 }, rope };
  const attention = createAttention(kernels, config, randomWeights(random, config));
  const x = floats(random, len * 16);
  const stages = traceAttention(attention, x);
  expect(dataOf(stages, "output", "y")).toEqual(attend(attention, x));
  const [q, k] = ["q", "k"].map((part) => dataOf(stages, "rotate", part)) as [Float32Array, Float32Array];
  const scores = dataOf(stages, "scores", "scores");
  for (const [i, j] of [
    [0, 299],
    [299, 0],
    [257, 255],
    [128, 290],
  ] as const) {
    const at = (len + i) * dim; // of head 1
    const dot = sumOf(dim, (c) => q[at + c]! * k[(len + j) * dim + c]!) / Math.sqrt(dim);
    expect(Math.abs(scores[(len + i) * len + j]! - dot)).toBeLessThan(1e-6 * Math.max(1, largest(scores)));
  }
});

test("no rows have stages without data", () => {
  const stages = traceAttention(small({ causal: true, rope: { theta: 100, pairing: "half" } }), new Float32Array(0));
  expect(stages.map(({ name }) => name)).toEqual([...NINE.slice(0, 3), "rotate", ...NINE.slice(3)]);
  for (const { tensors } of stages) for (const { data } of Object.values(tensors)) expect(data.length).toBe(0);
});

test("without batch, shapes are those of one sequence; keys of other rows are projected apart", () => {
  const stages = traceAttention(small(), new Float32Array(8), { keys: new Float32Array(12) });
  const [project, chunk, split] = stages as [Stage, Stage, Stage];
  const shapes = (stage: Stage) => Object.entries(stage.tensors).map(([letter, { shape }]) => [letter, shape]);
  expect(shapes(project)).toEqual([
    ["q", [2, 4]],
    ["k", [3, 4]],
    ["v", [3, 4]],
  ]);
  expect(chunk.tensors).toEqual(project.tensors);
  expect(shapes(split).map(([, shape]) => shape)).toEqual([
    [2, 2, 2],
    [2, 3, 2],
    [2, 3, 2],
  ]);
  expect(stageOf(stages, "scores").tensors.scores?.shape).toEqual([2, 2, 3]);
});

test("formulas have the numbers of the layer", () => {
  const formulas = (attention: Attention, options?: TraceOptions) =>
    Object.fromEntries(
      traceAttention(attention, new Float32Array(8), options).map(({ name, formula }) => [name, formula]),
    );
  const rules = { causal: true, window: { left: 3 }, softcap: 30, rope: { theta: 100, pairing: "half" } } as const;
  expect(formulas(small(rules))).toEqual({
    project: "qkv = x · [wq; wk; wv]ᵀ + [bq; bk; bv]",
    chunk: "q = qkv[:, 0 … 3], k = qkv[:, 4 … 7], v = qkv[:, 8 … 11]",
    split: "q[h, i, :] = q[i, 2·h … 2·h + 1], k and v likewise",
    rotate: "(a, b) = (a·cos − b·sin, b·cos + a·sin), angle of pair n = position · 100^(−2n / 2)",
    scores: "scores[h, i, j] = 0.7071 · q[h, i, :] · k[h, j, :]",
    softcap: "scores = 30 · tanh(scores / 30)",
    mask: "scores[h, i, j] = −∞ where j > i or j < i − 3, else scores[h, i, j]",
    softmax: "weights[h, i, j] = e^scores[h, i, j] / Σ e^scores[h, i, :]",
    sum: "z[h, i, :] = Σ weights[h, i, j] · v[h, j, :] over j",
    merge: "z[i, 2·h … 2·h + 1] = z[h, i, :]",
    output: "y = z · woᵀ + bo",
  });
  expect(formulas(small()).mask).toBe("scores[h, i, j] = scores[h, i, j]");
  const drop = { data: [true, false], shape: [2] };
  expect(
    formulas(small({ alibi: "geometric" }), { keys: new Float32Array(12), align: "end", drop: { ...drop } }).mask,
  ).toBe(
    "scores[h, i, j] = −∞ where drop[h, i, j], else scores[h, i, j] − slope[h] · |i − j|, with the first query at i = 1",
  );
});

test("what it cannot trace is refused by name", () => {
  const options = { kvLengths: [1] } as TraceOptions;
  expect(() => traceAttention(small(), new Float32Array(8), options)).toThrow(
    new TypeError(
      'traceAttention: options expected only batch, keys, values, align, keep, drop, bias, positions, got "kvLengths"',
    ),
  );
  expect(() => traceAttention(small(), new Float32Array(7))).toThrow(/^traceAttention: x expected /);
  const released = small();
  released.release();
  expect(() => traceAttention(released, new Float32Array(8))).toThrow("traceAttention: attention was released");
});

const SMALL = { hidden_size: 40, intermediate_size: 52, num_hidden_layers: 3, vocab_size: 67 };
const DECODERS: Readonly<Record<string, object>> = {
  ...TINY,
  // Layer norms of heads.
  cohere: {
    ...{ model_type: "cohere", ...SMALL, num_attention_heads: 5, num_key_value_heads: 5 },
    ...{ max_position_embeddings: 128, use_qk_norm: true },
  },
};

test.each(Object.keys(DECODERS))(
  "%s: layers of a decoder have the weights of its pass, and give what it adds to the residual, to the bit",
  async (name) => {
    const model = await loadModel(kernels, tinyFolder(DECODERS[name]!));
    const ids = Array.from({ length: 11 }, (_, i) => (i * 29 + 5) % 67);
    for (let layer = 0; layer < model.layers; layer++) {
      const capture = [
        { at: "attnIn", layer },
        { at: "attnOut", layer },
      ] as const;
      const { captured, patterns } = forwardWith(createSession(model), ids, { capture, patterns: [layer] });
      const [read, added] = captured as [Tensor, Tensor];
      const stages = traceAttention({ model, layer }, read.data);
      expect(stageOf(stages, "softmax").tensors.weights).toEqual(patterns[0]);
      const { norms } = model.weights.blocks[layer]!;
      if (!norms.attentionPost) expect(stageOf(stages, "output").tensors.y).toEqual(added);
    }
  },
);

test("layer norms of a decoder's heads are a stage", async () => {
  const model = await loadModel(kernels, tinyFolder(DECODERS.cohere!));
  const { captured } = forwardWith(createSession(model), [5, 60, 2], { capture: [{ at: "attnIn", layer: 1 }] });
  const stages = traceAttention({ model, layer: 1 }, captured[0]!.data);
  const norm = stageOf(stages, "norm");
  expect(norm.formula).toMatch(/^q = \(q − mean\(q\)\) \/ √\(var\(q\) \+ .*\) · gain \+ bias, k likewise$/);
  expect(norm.tensors.q).not.toEqual(stageOf(stages, "split").tensors.q);
  expect(stageOf(stages, "rotate").tensors.q).not.toEqual(norm.tensors.q);
});

test("what is no layer of a decoder is refused, by how to name one", async () => {
  const model = await loadModel(kernels, tinyFolder(TINY.llama));
  const trace = (attention: unknown) => () => traceAttention(attention as Attention, new Float32Array(40));
  expect(trace(model)).toThrow("traceAttention: attention expected { model, layer } for a layer of a model, got Model");
  expect(trace({ model, layer: 2 })).toThrow("attention.layer expected an integer from 0 to 1, got 2");
  expect(trace({ model: {}, layer: 0 })).toThrow("traceAttention: model expected what loadModel gives");
});
