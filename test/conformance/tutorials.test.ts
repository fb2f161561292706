import { expect, test } from "vitest";
import { mergeHeads, splitHeads } from "../../src/entries/heads.ts";
import {
  type AttentionConfig,
  type AttentionWeights,
  attend,
  attendWithMaps,
  createAttention,
  loadKernels,
  plan,
  scaledDotProductAttention,
  type Tensor,
} from "../../src/entries/index.ts";
import { type TorchLinear, TorchRandom } from "../support/torch-random.ts";

// The figures that the five tutorials print. Inputs come from their seeds, drawn in the order of their text.

const kernels = await loadKernels();
const sum = (values: ArrayLike<number>): number => Array.from(values).reduce((total, value) => total + value, 0);
const meanAbs = (values: ArrayLike<number>): number => sum(Array.from(values, Math.abs)) / values.length;
const minus = (a: Float32Array, b: Float32Array): Float32Array => a.map((value, i) => value - b[i]!);
const digits = (values: ArrayLike<number>): string[] => Array.from(values, (value) => value.toFixed(4));
const zeros = (...shape: number[]): Tensor => ({ data: new Float32Array(shape.reduce((a, b) => a * b)), shape });
const square = (size: number): Tensor => zeros(size, size);

/** Four linear layers with bias, in the order in which the tutorials make them. */
function fourLinears(random: TorchRandom, width: number): AttentionWeights<Tensor> {
  const [q, k, v, o] = ["q", "k", "v", "o"].map(() => random.linear(width, width)) as [L, L, L, L];
  return { wq: q.weight, wk: k.weight, wv: v.weight, wo: o.weight, bq: q.bias, bk: k.bias, bv: v.bias, bo: o.bias };
}
type L = TorchLinear;

/** Floats of a layer that createAttention accepts. */
function parameters(config: AttentionConfig, weights: AttentionWeights): number {
  createAttention(kernels, config, weights).release();
  const tensors = Object.values(weights) as (Tensor | Float32Array | undefined)[];
  return sum(tensors.map((t) => (t === undefined ? 0 : "data" in t ? t.data.length : t.length)));
}

function noBias(dModel: number, numHeads: number, numKvHeads: number): number {
  const kv = zeros((dModel / numHeads) * numKvHeads, dModel);
  return parameters({ dModel, numHeads, numKvHeads }, { wq: square(dModel), wk: kv, wv: kv, wo: square(dModel) });
}

test("tutorial 0: 64 wide, 4 heads, with biases has 16,640 parameters; seed 0 sums to 15.3716, causal to 21.6481", () => {
  const random = new TorchRandom(0);
  const weights = fourLinears(random, 64);
  const x = random.randn([1, 5, 64]).data;
  expect(parameters({ dModel: 64, numHeads: 4 }, weights)).toBe(16_640);
  const attention = createAttention(kernels, { dModel: 64, numHeads: 4 }, weights);
  expect(attention.config.headDim).toBe(16);
  expect(sum(attend(attention, x))).toBeCloseTo(15.371616, 4);
  // Its mask is True where a pair is masked out.
  const drop = { data: Array.from({ length: 25 }, (_, i) => i % 5 > Math.floor(i / 5)), shape: [5, 5] };
  expect(sum(attend(attention, x, { drop }))).toBeCloseTo(21.648095, 4);
  attention.release();
});

/** Tutorial 1's module: both layers without bias, then drawn anew from a normal of 0.02. */
function fused(random: TorchRandom): AttentionWeights<Tensor> {
  random.linear(64, 192, false);
  random.linear(64, 64, false);
  return { wqkv: random.randn([192, 64], 0.02), wo: random.randn([64, 64], 0.02) };
}

test("tutorial 1: its expected output block, and seed 0's sum -0.75137 and mean 0.0087714", () => {
  const random = new TorchRandom(0);
  const weights = fused(random);
  const config: AttentionConfig = { dModel: 64, numHeads: 8, causal: true };
  const x = random.randn([2, 12, 64]).data;
  expect(parameters(config, weights)).toBe(16_384);
  expect(weights.wqkv!.data.length).toBe(12_288);
  expect(weights.wo.data.length).toBe(4_096);

  const attention = createAttention(kernels, config, weights);
  expect(attention.config.headDim).toBe(8);
  const { y, maps } = attendWithMaps(attention, x, { batch: 2 });
  expect(y.length).toBe(2 * 12 * 64);
  expect(maps.shape).toEqual([2, 8, 12, 12]);
  const row11 = (head: number) => maps.data.subarray((head * 12 + 11) * 12, (head * 12 + 12) * 12);
  expect(sum(row11(0)).toFixed(6)).toBe("1.000000");
  expect(sum(row11(7)).toFixed(6)).toBe("1.000000");
  expect(meanAbs(minus(row11(0), row11(7)))).toBeGreaterThan(1e-4);
  expect(sum(y)).toBeCloseTo(-0.7513748877, 5);
  expect(meanAbs(y)).toBeCloseTo(0.0087714384, 7);
  attention.release();

  const single = fused(random);
  expect(parameters({ ...config, numHeads: 1 }, single)).toBe(16_384);
  const one = createAttention(kernels, { ...config, numHeads: 1 }, single);
  expect(attend(one, x, { batch: 2 }).length).toBe(y.length);
  one.release();
});

test("tutorials 1 and 3: what does not divide is refused in their words", () => {
  const make = () =>
    createAttention(
      kernels,
      { dModel: 10, numHeads: 3 },
      { wq: square(10), wk: square(10), wv: square(10), wo: square(10) },
    );
  expect(make).toThrow("d_model (10) must be divisible by n_heads (3)");
});

test("tutorial 3: seed 1 mixes x0 into q0, and q0[3] is 1.1985 by hand too", () => {
  const random = new TorchRandom(1);
  const x0 = random.randn([8]);
  const W = random.randn([8, 8]);
  expect(digits(x0.data)).toEqual(["0.6614", "0.2669", "0.0617", "0.6213", "-0.4519", "-0.1661", "-1.5228", "0.3817"]);
  const column3 = Array.from({ length: 8 }, (_, i) => W.data[8 * i + 3]!);
  expect(digits(column3)).toEqual([
    "0.1991",
    "-1.4465",
    "-0.7735",
    "-0.0288",
    "-0.4370",
    "-0.6446",
    "-1.0055",
    "-0.8313",
  ]);

  // One token attends to itself alone, so the layer is x · wv · wo.
  const eye = { data: Float32Array.from({ length: 64 }, (_, i) => (i % 9 === 0 ? 1 : 0)), shape: [8, 8] };
  const mixer = createAttention(
    kernels,
    { dModel: 8, numHeads: 1 },
    { wq: W, wk: W, wv: W, wo: eye, layout: "in-out" },
  );
  const q0 = attend(mixer, x0.data);
  mixer.release();
  expect(digits(q0)).toEqual(["0.0465", "0.4481", "0.3035", "1.1985", "1.6100", "-0.9023", "-2.0339", "-1.0991"]);
  expect(sum(column3.map((w, i) => w * x0.data[i]!)).toFixed(4)).toBe("1.1985");
});

test("tutorial 3: the tiny pipeline's first head gives its printed weights to 1e-4 of each", () => {
  const random = new TorchRandom(1);
  random.randn([8]);
  random.randn([8, 8]);
  const x = random.randn([2, 4, 8]).data;
  const [wq, wk, wv, wo] = ["q", "k", "v", "o"].map(() => random.randn([8, 8])) as [Tensor, Tensor, Tensor, Tensor];
  const attention = createAttention(kernels, { dModel: 8, numHeads: 2 }, { wq, wk, wv, wo, layout: "in-out" });
  const { y, maps } = attendWithMaps(attention, x, { batch: 2 });
  attention.release();
  expect(maps.shape).toEqual([2, 2, 4, 4]);
  expect(y.length).toBe(2 * 4 * 8);
  const printed = [
    [4.7919e-1, 1.197e-3, 5.1846e-1, 1.1548e-3],
    [4.1243e-2, 8.7813e-1, 8.0629e-2, 1.2459e-7],
    [1.7262e-6, 9.9997e-1, 2.7505e-8, 3.0176e-5],
    [9.7811e-1, 4.3788e-6, 2.5453e-9, 2.1887e-2],
  ].flat();
  for (const [i, want] of printed.entries()) expect(Math.abs(maps.data[i]! / want - 1)).toBeLessThan(1e-4);
});

const TOKENS = ["The", "cat", "sat", "on", "the", "mat", "because", "it", "was", "soft"];

/** The strongest key of each token, as the tutorial prints it: only above 0.5. */
function patterns(strong: Readonly<Record<string, readonly [string, number]>>): string[] {
  const logits = new Float32Array(100);
  for (const [i, token] of TOKENS.entries()) {
    const [key, logit] = strong[token] ?? [token, 5];
    logits[i * 10 + TOKENS.indexOf(key)] = logit;
  }
  const nothing = zeros(1, 1, 10, 1);
  const { scores } = scaledDotProductAttention(kernels, nothing, nothing, nothing, {
    bias: { data: logits, shape: [10, 10] },
    scores: "weights",
  });
  return TOKENS.flatMap((token, i) => {
    const row = scores!.data.subarray(10 * i, 10 * i + 10);
    const most = Math.max(...row);
    return most > 0.5 ? [`'${token}' → '${TOKENS[row.indexOf(most)]}' (${most.toFixed(2)})`] : [];
  });
}

test("tutorial 3: the semantic head points 'it' and 'soft' at 'mat', the syntactic one 'cat' and 'sat' at each other", () => {
  const itself = (token: string) => `'${token}' → '${token}' (0.94)`;
  const printed = (changes: Readonly<Record<string, string>>) => TOKENS.map((token) => changes[token] ?? itself(token));
  expect(patterns({ it: ["mat", 8], soft: ["mat", 6] })).toEqual(
    printed({ it: "'it' → 'mat' (1.00)", soft: "'soft' → 'mat' (0.98)" }),
  );
  expect(patterns({ sat: ["cat", 8], cat: ["sat", 6] })).toEqual(
    printed({ cat: "'cat' → 'sat' (0.98)", sat: "'sat' → 'cat' (1.00)" }),
  );
});

test("tutorial 3: 32 wide, 4 heads, seed 0 moves x by 0.7951 on average with 4,224 parameters, 128 of them biases", () => {
  const random = new TorchRandom(0);
  const weights = fourLinears(random, 32);
  const x = random.randn([2, 5, 32]).data;
  const attention = createAttention(kernels, { dModel: 32, numHeads: 4 }, weights);
  const y = attend(attention, x, { batch: 2 });
  attention.release();
  expect(y.length).toBe(2 * 5 * 32);
  expect(meanAbs(minus(y, x)).toFixed(4)).toBe("0.7951");
  expect(parameters({ dModel: 32, numHeads: 4 }, weights)).toBe(4_224);
  const { bq, bk, bv, bo, ...matrices } = weights;
  expect(parameters({ dModel: 32, numHeads: 4 }, matrices)).toBe(4_096);
});

test("tutorial 3: seed 123, all heads at once and a loop over single heads agree to 1e-6; the causal demo differs by 0.0999", () => {
  const random = new TorchRandom(123);
  const weights = fourLinears(random, 32);
  const x = random.randn([2, 6, 32]).data;
  const attention = createAttention(kernels, { dModel: 32, numHeads: 4 }, weights);
  const vectorised = attend(attention, x, { batch: 2 });
  attention.release();

  const looped = new Float32Array(vectorised.length);
  const head = { dModel: 32, numHeads: 1, headDim: 8 };
  for (let h = 0; h < 4; h++) {
    const rows = (tensor: Tensor | undefined): Tensor => ({
      data: tensor!.data.subarray(h * 8 * 32, (h + 1) * 8 * 32),
      shape: [8, 32],
    });
    const floats = (bias: Float32Array | undefined) => bias?.subarray(h * 8, h * 8 + 8);
    // The head's eight columns of W_o; its bias comes in with the first head.
    const columns = Float32Array.from({ length: 32 * 8 }, (_, i) => weights.wo.data[(i >> 3) * 32 + h * 8 + (i & 7)]!);
    const single = createAttention(kernels, head, {
      wq: rows(weights.wq),
      wk: rows(weights.wk),
      wv: rows(weights.wv),
      wo: { data: columns, shape: [32, 8] },
      bq: floats(weights.bq),
      bk: floats(weights.bk),
      bv: floats(weights.bv),
      bo: h === 0 ? weights.bo : undefined,
    });
    for (const [i, value] of attend(single, x, { batch: 2 }).entries()) looped[i]! += value;
    single.release();
  }
  expect(Math.max(...minus(vectorised, looped).map(Math.abs))).toBeLessThan(1e-6);

  const next = createAttention(kernels, { dModel: 32, numHeads: 4 }, fourLinears(random, 32));
  const input = random.randn([2, 6, 32]).data;
  // Its mask is 0 where a pair is masked.
  const keep = { data: Array.from({ length: 36 }, (_, i) => i % 6 <= Math.floor(i / 6)), shape: [1, 1, 6, 6] };
  const difference = minus(attend(next, input, { batch: 2, keep }), attend(next, input, { batch: 2 }));
  next.release();
  expect(meanAbs(difference).toFixed(4)).toBe("0.0999");
});

test("tutorial 3: one matrix for all heads has 786,432 parameters for q, k and v of 512", () => {
  const { wo, ...qkv } = { wq: square(512), wk: square(512), wv: square(512), wo: square(512) };
  expect(parameters({ dModel: 512, numHeads: 8 }, { ...qkv, wo }) - wo.data.length).toBe(786_432);
});

test("tutorial 4: combining split heads gives the rows back, and head 1 begins at the second slice of each row", () => {
  const X = new TorchRandom(4).randn([5, 24]);
  const heads = splitHeads(kernels, X, 3);
  expect(heads.shape).toEqual([3, 5, 8]);
  expect(heads.data.subarray(5 * 8, 5 * 8 + 8)).toEqual(X.data.subarray(8, 16));
  expect(mergeHeads(kernels, heads)).toEqual(X);
});

test("tutorial 4: MQA has 43.75 % fewer parameters, nn.MultiheadAttention(512, 8) has 1,050,624", () => {
  expect([noBias(512, 8, 8), noBias(512, 8, 1)]).toEqual([1_048_576, 589_824]);
  expect([noBias(64, 8, 8), noBias(64, 8, 1)]).toEqual([16_384, 9_216]);
  const module = { wqkv: zeros(1536, 512), bqkv: zeros(1536).data, wo: square(512), bo: zeros(512).data };
  expect(parameters({ dModel: 512, numHeads: 8 }, module)).toBe(1_050_624);
});

test("tutorial 4: the float32 cache of 2048 tokens has its bytes, beside 4 bytes for each of 16 pages", () => {
  const cache = (dModel: number, numHeads: number, numKvHeads: number) =>
    plan({ dModel, numHeads, numKvHeads }, { maxSeqLen: 2048 }).cache - 4 * (2048 / 128);
  expect([cache(512, 8, 8), cache(512, 8, 1)]).toEqual([8_388_608, 1_048_576]);
  expect([cache(64, 8, 8), cache(64, 8, 1)]).toEqual([1_048_576, 131_072]);
  expect([cache(768, 12, 12), cache(768, 12, 1)]).toEqual([12_582_912, 1_048_576]);
  // Llama 3 70B: 64 query heads over 8 key-value heads.
  expect(cache(8192, 64, 64) / cache(8192, 64, 8)).toBe(8);
});
