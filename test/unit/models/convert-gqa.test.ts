import { expect, test } from "vitest";
import { createRandom } from "../../../src/diagnostics/random.ts";
import { quantizeTensor, toFloats } from "../../../src/entries/weights.ts";
import { convertToGqa } from "../../../src/models/convert-gqa.ts";
import type { MatrixLayout } from "../../../src/tensor/matrix.ts";
import type { Tensor } from "../../../src/tensor/tensor.ts";
import { matrix as randomMatrix } from "../../support/layers.ts";

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
