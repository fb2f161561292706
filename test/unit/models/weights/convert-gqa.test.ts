import { describe, expect, test } from "vitest";
import type { MatrixLayout } from "../../../../src/base/tensor/matrix.ts";
import type { Tensor } from "../../../../src/base/tensor/tensor.ts";
import { decompose } from "../../../../src/base/util/linear-algebra.ts";
import { type AttentionConfig, type AttentionWeights, attend, createAttention } from "../../../../src/entries/core.ts";
import { quantizeTensor, toFloats } from "../../../../src/entries/weights.ts";
import type { RopeConfig } from "../../../../src/layers/attention/rope.ts";
import { type ConvertedToGqa, convertToGqa } from "../../../../src/models/weights/convert-gqa.ts";
import { DeviationSum } from "../../../../src/tools/diagnostics/quantize-report.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";
import { floats } from "../../../support/harness.ts";
import { kernelsOf, matrix as randomMatrix, randomWeights } from "../../../support/layers.ts";

/** [outputs, inputs] with element f(output, input), or its transpose. */
function matrix(outputs: number, inputs: number, layout: MatrixLayout, f: (o: number, i: number) => number): Tensor {
  const shape = layout === "out-in" ? [outputs, inputs] : [inputs, outputs];
  const [, columns] = shape as [number, number];
  const data = Float32Array.from({ length: outputs * inputs }, (_, at) => {
    const [row, column] = [Math.floor(at / columns), at % columns];
    return layout === "out-in" ? f(row, column) : f(column, row);
  });
  return { data, shape };
}

const random = (o: number, i: number) => Math.fround((((o * 7919 + i * 104_729) % 1009) - 504) / 64);

test.each(["out-in", "in-out"] as const)("keys and values of a group become their mean (%s)", (layout) => {
  const wq = matrix(12, 5, layout, random);
  const wk = matrix(12, 5, layout, (o, i) => random(o + 50, i));
  const wv = matrix(24, 5, layout, (o, i) => random(o + 90, i));
  const wo = matrix(5, 24, layout, random);
  const bk = Float32Array.from({ length: 12 }, (_, o) => o);
  const biasV = Float32Array.from({ length: 24 }, (_, o) => -o);
  const weights = { wq, wk, wv, wo, bk, biasV, layout };
  const before = structuredClone(weights);
  const result = convertToGqa(weights, { numHeads: 6, headDim: 2, valueDim: 4, causal: true, dModel: 5 }, 2);
  const mean = (f: (o: number) => number, width: number, o: number) => {
    const [group, within] = [Math.floor(o / width), o % width];
    return [0, 1, 2].reduce((sum, member) => sum + f((3 * group + member) * width + within), 0) / 3;
  };
  expect(result.weights.wk).toEqual(matrix(4, 5, layout, (o, i) => mean((from) => random(from + 50, i), 2, o)));
  expect(result.weights.wv).toEqual(matrix(8, 5, layout, (o, i) => mean((from) => random(from + 90, i), 4, o)));
  expect(result.weights.bk).toEqual(Float32Array.of(2, 3, 8, 9));
  expect(result.weights.biasV).toEqual(Float32Array.of(-4, -5, -6, -7, -16, -17, -18, -19));
  expect([result.weights.wq, result.weights.wo, result.weights.layout]).toEqual([wq, wo, layout]);
  expect(result.config).toEqual({ numHeads: 6, headDim: 2, valueDim: 4, causal: true, dModel: 5, numKvHeads: 2 });
  expect(weights).toEqual(before);
});

test("the relative error of a head is its distance from the mean over its own length", () => {
  const scales = [1, 3, 0, 2];
  const wk = matrix(4, 2, "out-in", (o) => scales[o]!);
  const wo = matrix(2, 4, "out-in", () => 1);
  const { relativeError } = convertToGqa({ wq: wk, wk, wv: wk, wo }, { numHeads: 4 }, 2);
  expect(relativeError.key).toEqual(Float32Array.of(1, 1 / 3, Number.POSITIVE_INFINITY, 0.5));
  expect(relativeError.value).toEqual(relativeError.key);
  const zeros = matrix(4, 2, "out-in", () => 0);
  const none = convertToGqa({ wq: zeros, wk: zeros, wv: zeros, wo }, { numHeads: 4 }, 2);
  expect(none.relativeError.key).toEqual(new Float32Array(4));
});

test("equal heads, and heads that stay as they are, have no error and the same bits", () => {
  const wk = matrix(6, 3, "out-in", random);
  const layer = { wq: matrix(12, 3, "out-in", random), wk, wv: wk, wo: matrix(3, 12, "out-in", random) };
  const same = convertToGqa(layer, { numHeads: 6, numKvHeads: 3 }, 3);
  expect(same.weights.wk).toEqual(wk);
  expect(same.relativeError.key).toEqual(new Float32Array(3));
  const repeated = matrix(6, 3, "out-in", (o, i) => random(o % 2, i));
  const wo = matrix(3, 6, "out-in", random);
  const mqa = convertToGqa({ wq: repeated, wk: repeated, wv: repeated, wo }, { numHeads: 3 }, 1);
  expect(mqa.weights.wk).toEqual(matrix(2, 3, "out-in", random));
  expect(mqa.relativeError.key).toEqual(new Float32Array(3));
});

test.each(["out-in", "in-out"] as const)("a fused matrix is split into q, k and v first (%s)", (layout) => {
  const wqkv = matrix(12, 4, layout, random);
  const bqkv = Float32Array.from({ length: 12 }, (_, i) => i);
  const wo = matrix(4, 4, layout, random);
  const part = (from: number) => matrix(4, 4, layout, (o, i) => random(o + from, i));
  const separate = { wq: part(0), wk: part(4), wv: part(8), wo, layout };
  const biases = { bq: bqkv.slice(0, 4), bk: bqkv.slice(4, 8), bv: bqkv.slice(8) };
  expect(convertToGqa({ wqkv, bqkv, wo, layout }, { numHeads: 2, headDim: 2 }, 1)).toEqual(
    convertToGqa({ ...separate, ...biases }, { numHeads: 2, headDim: 2 }, 1),
  );
});

test("a fused matrix whose values are of another width is split where they begin", () => {
  const wqkv = matrix(14, 4, "out-in", random);
  const wo = matrix(4, 6, "out-in", random);
  const { weights } = convertToGqa({ wqkv, wo }, { numHeads: 2, headDim: 2, valueDim: 3 }, 2);
  const part = (from: number, rows: number) => matrix(rows, 4, "out-in", (o, i) => random(o + from, i));
  expect(weights).toEqual({ wq: part(0, 4), wk: part(4, 4), wv: part(8, 6), wo });
});

test.each(["out-in", "in-out"] as const)("the method first keeps the first head of each group (%s)", (layout) => {
  const wk = matrix(8, 3, layout, random);
  const wq = matrix(8, 3, layout, random);
  const wo = matrix(3, 8, layout, random);
  const bk = Float32Array.from({ length: 8 }, (_, o) => o);
  const { weights, relativeError } = convertToGqa({ wq, wk, wv: wk, wo, bk, layout }, { numHeads: 4 }, 2, {
    method: "first",
  });
  const kept = (o: number) => (o < 2 ? o : o + 2);
  expect(weights).toMatchObject({
    wq,
    wo,
    wk: matrix(4, 3, layout, (o, i) => random(kept(o), i)),
    bk: Float32Array.of(0, 1, 4, 5),
  });
  const distance = (a: number, b: number) => {
    let [lost, norm] = [0, 0];
    for (const [o, i] of [0, 1].flatMap((o) => [0, 1, 2].map((i) => [o, i] as const))) {
      norm += random(2 * b + o, i) ** 2;
      lost += (random(2 * a + o, i) - random(2 * b + o, i)) ** 2;
    }
    return Math.fround(Math.sqrt(lost / norm));
  };
  expect(relativeError.key).toEqual(Float32Array.of(0, distance(0, 1), 0, distance(2, 3)));
});

describe("the method svd", () => {
  const generator = createRandom(12);

  /** |y - z| / |y| of the outputs of a layer and of what it was converted to. */
  async function outputError(
    config: AttentionConfig,
    weights: AttentionWeights,
    converted: ConvertedToGqa,
  ): Promise<number> {
    using kernels = await kernelsOf("simd");
    const x = floats(generator, 20 * config.dModel);
    const y = attend(createAttention(kernels, config, weights), x);
    const z = attend(createAttention(kernels, converted.config, converted.weights), x);
    const sum = new DeviationSum();
    sum.add(y, z, 0, y.length);
    return sum.result().relative;
  }

  /** Rows [heads·width, inputs], and a vector [heads·width] with them: each head is `transform` of a head that its group has. */
  function related(heads: number, group: number, width: number, transform: (head: number) => number[][]) {
    const inputs = 24;
    const shared = Array.from({ length: heads / group }, () => floats(generator, width * (inputs + 1)));
    const at = (head: number, c: number, i: number) => {
      const rows = shared[Math.floor(head / group)]!;
      return transform(head)[c]!.reduce((sum, factor, j) => sum + factor * rows[j * (inputs + 1) + i]!, 0);
    };
    const data = Float32Array.from({ length: heads * width * inputs }, (_, e) => {
      const [o, i] = [Math.floor(e / inputs), e % inputs];
      return at(Math.floor(o / width), o % width, i) / 5;
    });
    const bias = Float32Array.from({ length: heads * width }, (_, o) => at(Math.floor(o / width), o % width, inputs));
    return { matrix: { data, shape: [heads * width, inputs] }, bias };
  }

  const anyTransforms = (heads: number, width: number) => {
    const all = Array.from({ length: heads }, () =>
      Array.from({ length: width }, () => Array.from(floats(generator, width))),
    );
    return (head: number) => all[head]!;
  };

  /** Random factors and rotations of the pairs, and any transformation of the other components. */
  const pairTransforms = (heads: number, width: number, pairs: readonly (readonly [number, number])[]) => {
    const paired = new Set(pairs.flat());
    const all = Array.from({ length: heads }, () => {
      const rows = Array.from({ length: width }, (_, c) =>
        Array.from({ length: width }, (_, j) => (paired.has(c) || paired.has(j) ? 0 : generator.next() - 0.5)),
      );
      for (const [a, b] of pairs) {
        const [real, imaginary] = [generator.next() + 0.5, generator.next() - 0.5];
        rows[a]![a] = rows[b]![b] = real;
        rows[b]![a] = imaginary;
        rows[a]![b] = -imaginary;
      }
      return rows;
    });
    return (head: number) => all[head]!;
  };

  const shape = { dModel: 24, numHeads: 8, numKvHeads: 4, headDim: 6, valueDim: 5, causal: true } as const;
  const cases: readonly (readonly [
    name: string,
    rope: RopeConfig | undefined,
    pairs: readonly (readonly [number, number])[],
  ])[] = [
    ["no RoPE", undefined, []],
    [
      "half",
      { theta: 100, pairing: "half" },
      [
        [0, 3],
        [1, 4],
        [2, 5],
      ],
    ],
    [
      "interleaved",
      { theta: 100, pairing: "interleaved" },
      [
        [0, 1],
        [2, 3],
        [4, 5],
      ],
    ],
    ["two components from the second on", { theta: 100, pairing: "half", start: 1, dim: 2 }, [[1, 2]]],
  ];

  test.each(cases)(
    "is exact within 2^-17 where heads of a group are transformations of one: %s",
    async (_, rope, pairs) => {
      const config: AttentionConfig = { ...shape, ...(rope && { rope }) };
      for (const after of [2, 1]) {
        const group = 4 / after;
        const keys = related(4, group, 6, rope ? pairTransforms(4, 6, pairs) : anyTransforms(4, 6));
        const values = related(4, group, 5, anyTransforms(4, 5));
        const rest = randomWeights(generator, config, { biases: true });
        const weights = { ...rest, wk: keys.matrix, bk: keys.bias, wv: values.matrix, bv: values.bias };
        const svd = convertToGqa(weights, config, after, { method: "svd" });
        expect(svd.config).toEqual({ ...config, numKvHeads: after });
        expect(Math.max(...svd.relativeError.key, ...svd.relativeError.value)).toBeLessThan(1e-6);
        expect(await outputError(config, weights, svd)).toBeLessThan(2 ** -17);
        // The mean is not.
        expect(await outputError(config, weights, convertToGqa(weights, config, after))).toBeGreaterThan(0.1);
      }
    },
  );

  test.each(cases)("is never worse than the other methods, summed over a group: %s", (_, rope) => {
    const config = { ...shape, ...(rope && { rope }) };
    for (let trial = 0; trial < 10; trial++) {
      const weights = randomWeights(generator, config);
      const lostBy = (method: "mean" | "first" | "svd") => {
        const { relativeError } = convertToGqa(weights, config, 2, { method });
        const lost = (errors: Float32Array, { data }: Tensor) =>
          [0, 1].map((group) =>
            [0, 1].reduce((sum, member) => {
              const [head, size] = [2 * group + member, data.length / 4];
              const norm = data.subarray(head * size, (head + 1) * size).reduce((total, w) => total + w * w, 0);
              return sum + errors[head]! ** 2 * norm;
            }, 0),
          );
        return [...lost(relativeError.key, weights.wk), ...lost(relativeError.value, weights.wv)];
      };
      const [mean, first, svd] = [lostBy("mean"), lostBy("first"), lostBy("svd")];
      for (const [i, error] of svd.entries()) expect(error).toBeLessThan(0.999 * Math.min(mean[i]!, first[i]!));
      // Without RoPE, it is what the singular values of the group leave out.
      const rows = Float64Array.from(weights.wv.data.subarray(0, 10 * 24));
      const rest = decompose(rows, 10, 24)
        .values.slice(5)
        .reduce((sum, value) => sum + value * value, 0);
      expect(svd[2]! / rest).toBeCloseTo(1, 5);
    }
  });

  test("the errors are those of the layer that results: keys as its queries meet them", () => {
    // Scores of head h, without its query's input: wqᵀ·wk.
    const config = { ...shape, valueDim: 6 };
    const weights = randomWeights(generator, config);
    const { weights: after, relativeError } = convertToGqa(weights, config, 2, { method: "svd" });
    const scores = (wq: Tensor, wk: Tensor, head: number, kvHead: number, [i, j]: readonly [number, number]) =>
      [0, 1, 2, 3, 4, 5].reduce(
        (sum, c) => sum + wq.data[(head * 6 + c) * 24 + i]! * wk.data[(kvHead * 6 + c) * 24 + j]!,
        0,
      );
    const eye = {
      data: weights.wq.data.map((_, at) => (Math.floor(at / 24) % 6 === at % 24 ? 1 : 0)),
      shape: [48, 24],
    };
    const { weights: read } = convertToGqa({ ...weights, wq: eye }, config, 2, { method: "svd" });
    // With queries that are the first components of x, the scores are the keys that the head stands for.
    let [lost, norm] = [0, 0];
    for (let c = 0; c < 6; c++)
      for (let j = 0; j < 24; j++) {
        const want = weights.wk.data[(2 * 6 + c) * 24 + j]!;
        lost += (scores(read.wq as Tensor, read.wk, 4, 1, [c, j]) - want) ** 2;
        norm += want ** 2;
      }
    expect(Math.sqrt(lost / norm)).toBeCloseTo(relativeError.key[2]!, 5);
    expect(after.wk).toEqual(read.wk);
  });

  test("layouts and dtypes give the same layer, biasK and biasV included", () => {
    const config = { ...shape, rope: { theta: 100, pairing: "half" } } as const;
    const weights = randomWeights(generator, config, { biases: true, extraKey: true });
    const turn = ({ data, shape: [rows = 0, columns = 0] }: Tensor): Tensor => ({
      data: Float32Array.from(data, (_, at) => data[(at % rows) * columns + Math.floor(at / rows)]!),
      shape: [columns, rows],
    });
    const { wq, wk, wv, wo } = weights;
    const want = convertToGqa(weights, config, 2, { method: "svd" });
    const turned = { ...weights, wq: turn(wq), wk: turn(wk), wv: turn(wv), wo: turn(wo), layout: "in-out" } as const;
    const got = convertToGqa(turned, config, 2, { method: "svd" });
    expect(got.relativeError).toEqual(want.relativeError);
    for (const name of ["wq", "wk", "wv", "wo"] as const)
      expect(turn(got.weights[name] as Tensor)).toEqual(want.weights[name]);
    for (const name of ["bq", "bk", "bv", "biasK", "biasV", "bo"] as const) {
      expect(got.weights[name]).toEqual(want.weights[name]);
      expect(want.weights[name]?.length).toBeGreaterThan(0);
    }
    expect(convertToGqa(weights, config, 4, { method: "svd" }).weights).toEqual(weights);
  });
});

const W = matrix(12, 6, "out-in", random);
const weights = { wq: W, wk: W, wv: W, wo: matrix(6, 12, "out-in", random) };

test.each<[what: string, args: readonly unknown[], message: string]>([
  [
    "heads that do not divide",
    [weights, { numHeads: 6 }, 4],
    "config.numKvHeads expected a multiple of numKvHeads (4), got 6",
  ],
  [
    "more heads than there are",
    [weights, { numHeads: 6, numKvHeads: 3 }, 6],
    "config.numKvHeads expected a multiple of numKvHeads (6), got 3",
  ],
  ["no heads", [weights, { numHeads: 6 }, 0], "numKvHeads expected an integer >= 1, got 0"],
  [
    "a wrong configuration",
    [weights, { numHeads: 6, numKvHeads: 4 }, 2],
    "config.numHeads expected a multiple of config.numKvHeads (4), got 6",
  ],
  [
    "keys that do not divide",
    [{ ...weights, wk: matrix(10, 6, "out-in", random) }, { numHeads: 6 }, 2],
    "outputs of weights.wk expected a multiple of config.numKvHeads (6), got 10",
  ],
  ["keys of another width", [weights, { numHeads: 6, headDim: 3 }, 2], "weights.wk expected 18 outputs, got 12"],
  [
    "values of another width",
    [weights, { numHeads: 6, headDim: 2, valueDim: 3 }, 2],
    "weights.wv expected 18 outputs, got 12",
  ],
  [
    "values of another width than a headDim that stands for both",
    [{ ...weights, wv: matrix(18, 6, "out-in", random) }, { numHeads: 6, headDim: 2 }, 2],
    "weights.wv expected 12 outputs, got 18",
  ],
  [
    "a fused bias without its matrix",
    [{ ...weights, bqkv: new Float32Array(36) }, { numHeads: 6 }, 2],
    "weights.bqkv expected none without wqkv, got Float32Array",
  ],
  [
    "a fused matrix beside others",
    [{ ...weights, wqkv: matrix(36, 6, "out-in", random) }, { numHeads: 6 }, 2],
    "weights.wq expected none beside wqkv, got Object",
  ],
  [
    "a fused matrix of another height",
    [{ wqkv: matrix(35, 6, "out-in", random), wo: W }, { numHeads: 6, headDim: 2 }, 2],
    "weights.wqkv expected shape [36, 6], got [35, 6]",
  ],
  [
    "an output projection that is no matrix",
    [{ ...weights, wo: 5 }, { numHeads: 6 }, 2],
    "weights.wo expected { data, shape }, got 5",
  ],
  [
    "an output projection of another shape",
    [{ ...weights, wo: W }, { numHeads: 6 }, 2],
    "weights.wo expected shape [6, 12], got [12, 6]",
  ],
  [
    "queries of another height",
    [{ ...weights, wq: matrix(6, 6, "out-in", random) }, { numHeads: 6 }, 2],
    "weights.wq expected shape [12, 6], got [6, 6]",
  ],
  [
    "a bias of queries that is no vector",
    [{ ...weights, bq: [1, 2] }, { numHeads: 6 }, 2],
    "weights.bq expected Float32Array, got Array",
  ],
  [
    "sinks of another number",
    [{ ...weights, sinkLogits: new Float32Array(5) }, { numHeads: 6 }, 2],
    "weights.sinkLogits expected 6 floats, got 5",
  ],
  [
    "a gain of another length",
    [{ ...weights, kNorm: new Float32Array(3) }, { numHeads: 6 }, 2],
    "weights.kNorm expected 2 or 12 floats, got 3",
  ],
  [
    "weights that there are not",
    [{ ...weights, bK: new Float32Array(12) }, { numHeads: 6 }, 2],
    'weights expected only wq, wk, wv, wqkv, wo, bq, bk, bv, bqkv, bo, qNorm, kNorm, sinkLogits, biasK, biasV, layout, got "bK"',
  ],
  [
    "a bias of another length",
    [{ ...weights, bv: new Float32Array(11) }, { numHeads: 6 }, 2],
    "weights.bv expected 12 floats, got 11",
  ],
  [
    "a norm over all heads",
    [weights, { numHeads: 6, qkNorm: { kind: "full" } }, 2],
    'config.qkNorm.kind expected "per-head", got "full"',
  ],
  [
    "no keys",
    [{ ...weights, wk: undefined }, { numHeads: 6 }, 2],
    "weights.wk expected { data, shape }, got undefined",
  ],
  [
    "a method that there is not",
    [weights, { numHeads: 6 }, 2, { method: "median" }],
    'options.method expected "mean" or "first" or "svd", got "median"',
  ],
  ["other options", [weights, { numHeads: 6 }, 2, { by: "svd" }], 'options expected only method, got "by"'],
  [
    "a norm between queries and keys that are transformed",
    [weights, { numHeads: 6, qkNorm: { kind: "per-head" } }, 2, { method: "svd" }],
    'config.qkNorm expected none with the method "svd", which transforms what it would normalise, got Object',
  ],
  [
    "RoPE that does not fit the heads, where heads are transformed",
    [weights, { numHeads: 6, rope: { theta: 100, pairing: "half", dim: 4 } }, 2, { method: "svd" }],
    "rope.dim expected an even integer from 2 to headDim (2), got 4",
  ],
  [
    "weights that are not finite, where heads are transformed",
    [
      { ...weights, wv: { data: new Float32Array(72).fill(Number.NaN), shape: [12, 6] } },
      { numHeads: 6 },
      2,
      { method: "svd" },
    ],
    "weights.wv expected finite numbers, got NaN",
  ],
  [
    "a bias that is not finite, where heads are transformed",
    [{ ...weights, bk: new Float32Array(12).fill(Infinity) }, { numHeads: 6 }, 2, { method: "svd" }],
    "weights.bk expected finite numbers, got Infinity",
  ],
  ["no weights", [null, { numHeads: 6 }, 2], "weights expected an object, got null"],
])("converting refuses %s", (_, args, message) => {
  expect(() => convertToGqa(...(args as Parameters<typeof convertToGqa>))).toThrow(`convertToGqa: ${message}`);
});

test("stored keys and values are widened, and the other matrices stay as they are stored", () => {
  const random = createRandom(9);
  const weights = {
    wq: quantizeTensor(randomMatrix(random, 64, 64), "Q8_0"),
    wk: quantizeTensor(randomMatrix(random, 64, 64), "Q8_0"),
    wv: quantizeTensor(randomMatrix(random, 64, 64), "Q8_0"),
    wo: quantizeTensor(randomMatrix(random, 64, 64), "Q4_0"),
  };
  const converted = convertToGqa(weights, { numHeads: 4, headDim: 16 }, 2).weights;
  const widened = {
    ...weights,
    wk: { data: toFloats(weights.wk), shape: [64, 64] },
    wv: { data: toFloats(weights.wv), shape: [64, 64] },
  };
  const want = convertToGqa(widened, { numHeads: 4, headDim: 16 }, 2).weights;
  expect([converted.wk, converted.wv]).toEqual([want.wk, want.wv]);
  expect([converted.wq, converted.wo]).toEqual([weights.wq, weights.wo]);
});
