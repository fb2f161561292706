import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type AttentionConfig,
  attend,
  createAttention,
  createCache,
  type Kernels,
} from "../../../../src/entries/core.ts";
import { createLatentAttention } from "../../../../src/entries/latent.ts";
import {
  type ConvertedToMla,
  convertToGqa,
  convertToMla,
  prepareMla,
  type Tensor,
  toFloats,
} from "../../../../src/entries/weights.ts";
import { DeviationSum } from "../../../../src/tools/diagnostics/quantize-report.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";
import { floats } from "../../../support/harness.ts";
import { kernelsOf, matrix, randomWeights } from "../../../support/layers.ts";

let kernels: Kernels;
beforeAll(async () => {
  kernels = await kernelsOf("simd");
});
afterAll(() => kernels.release());

type Weights = ReturnType<typeof randomWeights>;

/** |y - z| / |y| of the outputs of a layer and of what it was converted to, and of one token after another. */
function errorOf(config: AttentionConfig, weights: Weights, mla: ConvertedToMla, tokens = 40): number {
  using before = createAttention(kernels, config, weights);
  using after = createLatentAttention(kernels, mla.config, mla.weights);
  using cache = createCache(after, { maxSeqLen: tokens });
  const x = floats(createRandom(9), tokens * config.dModel);
  const y = attend(before, x);
  const z = attend(after, x);
  for (let t = 0; t < tokens; t++) {
    const at = t * config.dModel;
    const row = attend(after, x.subarray(at, at + config.dModel), { cache });
    if (config.causal) expect(row).toEqual(z.subarray(at, at + config.dModel));
  }
  const sum = new DeviationSum();
  sum.add(y, z, 0, y.length);
  return sum.result().relative;
}

/** Transposes every matrix. */
function turned(weights: Weights): Weights {
  const turn = ({ data, shape }: Tensor): Tensor => {
    const [rows, columns] = shape as [number, number];
    return {
      data: Float32Array.from(data, (_, at) => data[(at % rows) * columns + Math.floor(at / rows)]!),
      shape: [columns, rows],
    };
  };
  const { wq, wk, wv, wo } = weights;
  return { ...weights, wq: turn(wq), wk: turn(wk), wv: turn(wv), wo: turn(wo), layout: "in-out" };
}

/** Gives all key-value heads the rows of head 0 for components begin..end, in wk and bk. */
function share({ wk, bk, ...rest }: Weights, headDim: number, begin: number, end: number): Weights {
  const inputs = wk.shape[1]!;
  const source = (o: number) => (o % headDim >= begin && o % headDim < end ? o % headDim : o);
  const data = wk.data.map((_, at) => wk.data[source(Math.floor(at / inputs)) * inputs + (at % inputs)]!);
  return { ...rest, wk: { data, shape: wk.shape }, ...(bk && { bk: bk.map((_, o) => bk[source(o)]!) }) };
}

const theta = 10_000;
const base = { dModel: 48, causal: true } as const;

/** A layer that is represented exactly. */
interface ExactCase {
  readonly name: string;
  readonly config: AttentionConfig;
  /** What is expected of the configuration. */
  readonly wanted: Readonly<Record<"kvLoraRank" | "nopeDim" | "ropeDim", number>>;
  /** The components that all heads share. */
  readonly shared?: readonly [begin: number, end: number];
}

const EXACT: readonly ExactCase[] = [
  { name: "MHA", config: { ...base, numHeads: 4 }, wanted: { kvLoraRank: 48, nopeDim: 12, ropeDim: 0 } },
  {
    name: "GQA",
    config: { ...base, numHeads: 6, numKvHeads: 2 },
    wanted: { kvLoraRank: 32, nopeDim: 8, ropeDim: 0 },
  },
  {
    name: "MQA",
    config: { ...base, numHeads: 4, numKvHeads: 1 },
    wanted: { kvLoraRank: 24, nopeDim: 12, ropeDim: 0 },
  },
  {
    name: "GQA with values of another width, softcap, scale and without causality",
    config: { dModel: 48, numHeads: 4, numKvHeads: 2, headDim: 7, valueDim: 5, softcap: 3, scale: 0.4 },
    wanted: { kvLoraRank: 24, nopeDim: 7, ropeDim: 0 },
  },
  {
    name: "MQA with RoPE of all components",
    config: { ...base, numHeads: 4, numKvHeads: 1, rope: { theta, pairing: "half" } },
    wanted: { kvLoraRank: 12, nopeDim: 1, ropeDim: 12 },
  },
  {
    name: "MQA with RoPE of the first components",
    config: { ...base, numHeads: 4, numKvHeads: 1, rope: { theta, pairing: "interleaved", dim: 4 } },
    wanted: { kvLoraRank: 20, nopeDim: 8, ropeDim: 4 },
  },
  {
    name: "MQA with RoPE in the middle and yarn",
    config: {
      ...{ ...base, numHeads: 3, numKvHeads: 1, headDim: 16, valueDim: 6 },
      rope: {
        ...{ theta, pairing: "half", dim: 8, start: 3 },
        scaling: { kind: "yarn", factor: 4, originalMaxSeqLen: 16 },
      },
    },
    wanted: { kvLoraRank: 14, nopeDim: 8, ropeDim: 8 },
  },
  {
    name: "GQA whose heads share the rotated components, which are the last",
    config: { ...base, numHeads: 4, numKvHeads: 2, rope: { theta, pairing: "interleaved", dim: 4, start: 8 } },
    wanted: { kvLoraRank: 40, nopeDim: 8, ropeDim: 4 },
    shared: [8, 12],
  },
];

describe("without a rank, the outputs are those of the layer within 2^-18", () => {
  test.each(EXACT)("$name", ({ config, wanted, shared }) => {
    const random = createRandom(5);
    const { numHeads, headDim = config.dModel / numHeads } = config;
    const plain = randomWeights(random, config);
    const weights = shared ? share(plain, headDim, ...shared) : plain;
    const mla = convertToMla(weights, config);
    const { valueDim = headDim } = config;
    expect(mla.config).toMatchObject({ ...wanted, dModel: 48, numHeads, valueDim, latentNorm: false });
    expect(mla.errors.length).toBe(wanted.kvLoraRank);
    expect(errorOf(config, weights, mla)).toBeLessThan(2 ** -18);
    expect(mla.weights.bkvDown).toBe(undefined);
    // The same with every bias, for which the latent has one more float.
    const biases = randomWeights(random, config, { biases: true });
    const biased = shared ? share(biases, headDim, ...shared) : biases;
    const withBias = convertToMla(biased, config);
    // A bias adds to the rank of wk and wv only if that is the number of inputs: else it is among their outputs.
    expect(withBias.config.kvLoraRank).toBe(wanted.kvLoraRank === 48 ? 49 : wanted.kvLoraRank);
    expect(errorOf(config, biased, withBias)).toBeLessThan(2 ** -18);
    // And with the inputs of a matrix as its rows.
    const inOut = convertToMla(turned(biased), config);
    expect(inOut.weights.layout).toBe("in-out");
    expect(errorOf(config, biased, inOut)).toBeLessThan(2 ** -18);
    expect(inOut.errors).toEqual(withBias.errors);
  });

  test("heads with rotated components of their own are converted by way of MQA", () => {
    const config = { ...base, numHeads: 4, numKvHeads: 2, rope: { theta, pairing: "half" } } as const;
    const weights = randomWeights(createRandom(11), config, { biases: true });
    expect(() => convertToMla(weights, config)).toThrow("config.rope expected rotated rows of wk");
    const mqa = convertToGqa(weights, config, 1, { method: "svd" });
    const mla = convertToMla(mqa.weights, mqa.config);
    expect(mla.config).toMatchObject({ kvLoraRank: 12, nopeDim: 1, ropeDim: 12 });
    expect(errorOf(mqa.config, mqa.weights as Weights, mla)).toBeLessThan(2 ** -18);
  });

  test("heads that repeat others take no room: the rank is that of the matrix", () => {
    const config = { ...base, numHeads: 4, headDim: 6 };
    const { wk, wv, ...rest } = randomWeights(createRandom(1), { ...config, numKvHeads: 1 });
    const repeated = ({ data }: Tensor) => ({
      data: Float32Array.from([...data, ...data, ...data, ...data]),
      shape: [24, 48],
    });
    const weights = { ...rest, wk: repeated(wk), wv: repeated(wv) };
    const mla = convertToMla(weights, config);
    expect(mla.config.kvLoraRank).toBe(12);
    expect(errorOf(config, weights, mla)).toBeLessThan(2 ** -18);
  });

  test("stored weights are read, and what stays is handed on as it is", () => {
    const config = { ...base, numHeads: 4 };
    const weights = randomWeights(createRandom(2), config);
    const halves = {
      name: "q",
      dtype: "BF16",
      shape: [48, 48],
      bytes: new Uint8Array(2 * 48 * 48).fill(0x3c),
    } as const;
    const fused = {
      data: Float32Array.from([...toFloats(halves), ...weights.wk.data, ...weights.wv.data]),
      shape: [144, 48],
    };
    const separate = convertToMla({ ...weights, wq: halves, wo: halves }, config);
    expect([separate.weights.wq, separate.weights.wo]).toMatchObject([
      { ...halves, name: "wq" },
      { ...halves, name: "wo" },
    ]);
    expect(convertToMla({ wqkv: fused, wo: halves }, config).weights).toEqual({
      ...separate.weights,
      wq: { data: toFloats(halves), shape: [48, 48] },
    });
  });

  test("weights of zeros have a latent of one float", () => {
    const zeros = { data: new Float32Array(64), shape: [8, 8] };
    const { config, errors, weights } = convertToMla(
      { wq: zeros, wk: zeros, wv: zeros, wo: zeros },
      { dModel: 8, numHeads: 2 },
    );
    expect([config.kvLoraRank, errors]).toEqual([1, [{ rank: 1, key: 0, value: 0 }]]);
    expect(weights.wkvUp).toEqual({ data: new Float32Array(16), shape: [16, 1] });
  });
});

/** The keys and values' projection that the converted weights stand for: wkvUp · [wkvDown | bkvDown] of kv head `head`. */
function product({ weights, config }: ConvertedToMla, head: number, part: "k" | "v", withBias: boolean): number[] {
  const { wkvDown, wkvUp, bkvDown } = weights;
  const { kvLoraRank: rank, nopeDim, dModel, valueDim = nopeDim } = config;
  const begin = head * (nopeDim + valueDim) + (part === "k" ? 0 : nopeDim);
  return Array.from({ length: part === "k" ? nopeDim : valueDim }, (_, r) =>
    Array.from({ length: withBias ? 1 : dModel }, (_, c) => {
      let sum = 0;
      for (let i = 0; i < rank; i++)
        sum += wkvUp.data[(begin + r) * rank + i]! * (withBias ? bkvDown![i]! : wkvDown.data[i * dModel + c]!);
      return sum;
    }),
  ).flat();
}

const relative = (want: ArrayLike<number>, got: ArrayLike<number>) => {
  const sum = new DeviationSum();
  sum.add(want, got, 0, want.length);
  return sum.result().relative;
};

describe("a smaller rank", () => {
  const config = { ...base, numHeads: 4, numKvHeads: 2 };

  test.each([false, true])(
    "has the errors that `errors` gives within 1e-6; biases stay exact (biases: %s)",
    (biases) => {
      const weights = randomWeights(createRandom(4), config, { biases });
      const { errors } = convertToMla(weights, config);
      const { at, errors: same } = prepareMla(weights, config);
      expect(same).toEqual(errors);
      expect(errors.map(({ rank }) => rank)).toEqual(Array.from({ length: 48 }, (_, i) => i + 1));
      for (const rank of [1, 2, 17, 40, 48]) {
        const mla = convertToMla(weights, config, { rank });
        expect([mla.config.kvLoraRank, mla.weights.wkvUp.shape, mla.weights.wkvDown.shape]).toEqual([
          rank,
          [96, rank],
          [rank, 48],
        ]);
        expect(mla.errors).toEqual(errors);
        expect(at(rank)).toEqual({ config: mla.config, weights: mla.weights });
        // Query heads 0 and 1 have the first key-value head.
        const both = (part: "k" | "v", withBias: boolean) =>
          [0, 2].flatMap((head) => product(mla, head, part, withBias));
        expect(Math.abs(relative(weights.wk.data, both("k", false)) - errors[rank - 1]!.key)).toBeLessThan(1e-6);
        expect(Math.abs(relative(weights.wv.data, both("v", false)) - errors[rank - 1]!.value)).toBeLessThan(1e-6);
        expect(product(mla, 1, "k", false)).toEqual(product(mla, 0, "k", false));
        if (biases) {
          expect(relative(weights.bk!, both("k", true))).toBeLessThan(1e-6);
          expect(relative(weights.bv!, both("v", true))).toBeLessThan(1e-6);
        }
      }
      expect(() => at(49)).toThrow(new RangeError("prepareMla: rank expected an integer from 1 to 48, got 49"));
    },
  );

  test("is the best one: rows that are orthogonal lose the shortest", () => {
    const eye = (...scales: number[]) => ({
      data: Float32Array.from({ length: 16 }, (_, at) => (at % 5 === 0 ? scales[at / 5]! : 0)),
      shape: [4, 4],
    });
    // Stacked, the columns have the squares 16 + 1, 9 + 0, 4 + 4 and 1 + 16.
    const weights = { wq: eye(1, 1, 1, 1), wk: eye(4, 3, 2, 1), wv: eye(1, 0, 2, 4), wo: eye(1, 1, 1, 1) };
    const { errors } = convertToMla(weights, { dModel: 4, numHeads: 2 });
    const keys = [undefined, 13, 4, 0];
    const values = [undefined, 4, 4, 0];
    for (const rank of [2, 3, 4]) {
      expect(errors[rank - 1]!.key).toBeCloseTo(Math.sqrt(keys[rank - 1]! / 30), 7);
      expect(errors[rank - 1]!.value).toBeCloseTo(Math.sqrt(values[rank - 1]! / 21), 7);
    }
  });

  test("leaves rotated keys exact, and its errors count them", () => {
    const mqa = { ...base, numHeads: 4, numKvHeads: 1, rope: { theta, pairing: "half" } } as const;
    const weights = randomWeights(createRandom(8), mqa);
    const { config, errors, weights: latent } = convertToMla(weights, mqa, { rank: 3 });
    expect(config).toMatchObject({ kvLoraRank: 3, ropeDim: 12, nopeDim: 1, rope: { theta, pairing: "half" } });
    expect(errors.every(({ key }) => key === 0)).toBe(true);
    expect(errors[2]!.value).toBeGreaterThan(0.1);
    expect(latent.wkvDown.data.subarray(3 * 48)).toEqual(weights.wk.data);
  });

  test("the error of the outputs falls with the rank", () => {
    const weights = randomWeights(createRandom(6), config, { biases: true });
    const errors = [1, 12, 24, 36, 47, 48].map((rank) =>
      errorOf(config, weights, convertToMla(weights, config, { rank })),
    );
    expect(errors).toEqual(errors.toSorted((a, b) => b - a));
    expect(errors[0]).toBeGreaterThan(0.1);
    expect(errors.at(-1)).toBeLessThan(2 ** -18);
  });
});

const plain = { dModel: 8, numHeads: 2, headDim: 4 } as const;
const W = matrix(createRandom(1), 8, 8);
const weights = { wq: W, wk: W, wv: W, wo: W };

test.each<[config: AttentionConfig, given: Record<string, unknown>, options: unknown, message: string]>([
  [plain, {}, { rank: 0 }, "rank expected an integer >= 1, got 0"],
  [plain, {}, { rank: 9 }, "rank expected an integer from 1 to 8, got 9"],
  [plain, {}, { rank: 1.5 }, "rank expected an integer >= 1, got 1.5"],
  [plain, {}, { ranks: 2 }, 'options expected only rank, got "ranks"'],
  [
    { ...plain, rope: { theta: 100, pairing: "half" } },
    {},
    {},
    "config.rope expected rotated rows of wk that are the same for all 2 key-value heads, because latent attention has one rotated key for all heads and no latent gives keys that depend on their position, got another row for component 0 of head 1",
  ],
  [
    { ...plain, window: { left: 3 } },
    {},
    {},
    "config.window expected none, since latent attention has none, got Object",
  ],
  [
    { ...plain, alibi: "geometric" },
    {},
    {},
    "config.alibi expected none, since latent attention has none, got Float32Array",
  ],
  [
    { ...plain, qkNorm: { kind: "per-head" } },
    { qNorm: new Float32Array(4), kNorm: new Float32Array(4) },
    {},
    "config.qkNorm expected none, since latent attention has none, got Object",
  ],
  [
    { ...plain, addZeroAttn: true },
    {},
    {},
    "config.addZeroAttn expected none, since latent attention has none, got true",
  ],
  [
    plain,
    { sinkLogits: new Float32Array(2) },
    {},
    "sinkLogits expected none, since latent attention has none, got Float32Array",
  ],
  [
    plain,
    { biasK: new Float32Array(8), biasV: new Float32Array(8) },
    {},
    "biasK expected none, since latent attention has none, got Float32Array",
  ],
  [{ ...plain, kdim: 5 }, { wk: matrix(createRandom(1), 8, 5) }, {}, "kdim and vdim expected dModel (8), got 5 and 8"],
  [
    plain,
    { wk: { data: new Float32Array(64).fill(Number.NaN), shape: [8, 8] } },
    {},
    "wk expected finite numbers, got NaN",
  ],
  [plain, { bv: new Float32Array(8).fill(Infinity) }, {}, "bv expected finite numbers, got Infinity"],
  [plain, { wv: matrix(createRandom(1), 4, 8) }, {}, "wv expected shape [8, 8], got [4, 8]"],
])("config %j with %j and options %j is refused", (config, given, options, message) => {
  const error = (() => {
    try {
      return convertToMla({ ...weights, ...given }, config, options as never);
    } catch (error) {
      return error as Error;
    }
  })();
  expect((error as Error).message).toBe(`convertToMla: ${message}`);
});
