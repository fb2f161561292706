// The long tutorial, cell by cell: parameters, mixing and splitting, a pipeline, two heads built by hand, shapes, strides, the
// module, a loop over heads, and a causal mask.

import {
  attend,
  attendWithMaps,
  createAttention,
  type Kernels,
  scaledDotProductAttention,
  type Tensor,
} from "headwise";
import {
  commas,
  fourLinears,
  maxAbs,
  meanAbs,
  minus,
  parameters,
  product,
  python,
  type Tutorial,
  zeros,
} from "./layers.ts";
import { contiguousStrides, isContiguous, transpose, view } from "./strides.ts";
import { TorchRandom } from "./torch-random.ts";

type Print = Parameters<Tutorial>[1];

export const run: Tutorial = (kernels, print) => {
  const sections = [countParameters, mixAndSplit, twoHeads, traceShapes, copyBeforeView, useModule, loopAndMask];
  for (const [i, section] of sections.entries()) {
    if (i > 0) print();
    section(kernels, print);
  }
};

const size = (shape: readonly number[]) => `torch.Size([${shape.join(", ")}])`;
const digits = (values: ArrayLike<number>) => Array.from(values, (value) => value.toFixed(4)).join(", ");

/** Reduced head dimensions need as many weights as one head of full width. W_o is not counted, as in the tutorial. */
function countParameters(kernels: Kernels, print: Print): void {
  const [dModel, numHeads] = [512, 8];
  const square = zeros(dModel, dModel);
  const actual = parameters(kernels, { dModel, numHeads }, { wq: square, wk: square, wv: square, wo: square });
  const reduced = numHeads * 3 * dModel * (dModel / numHeads);
  const ofProjections = actual - dModel * dModel;
  print(`d_model=${dModel}, heads=${numHeads}, d_k=${dModel / numHeads}`);
  print(`if full dims: ${commas(numHeads * 3 * dModel * dModel)}`);
  print(`if reduced dims: ${commas(reduced)}`);
  print(`actual (1 big W): ${commas(ofProjections)}`);
  print(`reduced == actual? ${python(reduced === ofProjections)}`);
}

/** Every number of q0 mixes all of x0, before q0 is split among heads. Then the same stream of numbers runs a small layer. */
function mixAndSplit(kernels: Kernels, print: Print): void {
  const random = new TorchRandom(1);
  const x0 = random.randn([8]);
  const W = random.randn([8, 8]);
  const q0 = product({ data: x0.data, shape: [1, 8] }, W);
  const column3 = Array.from({ length: 8 }, (_, row) => W.data[8 * row + 3]!);
  print(`Input vector x0: [${digits(x0.data)}]`);
  print("Mix matrix W:");
  for (let row = 0; row < 8; row++) print(`  [${digits(W.data.subarray(8 * row, 8 * row + 8))}]`);
  print(`Output vector q0 = x0 @ W: [${digits(q0.data)}]`);
  print(`W[:, 3]: [${digits(column3)}]`);
  print(`q0[3] = ${q0.data[3]!.toFixed(4)}`);
  print(`Manual calculation = ${column3.reduce((sum, weight, row) => sum + weight * x0.data[row]!, 0).toFixed(4)}`);

  const x = random.randn([2, 4, 8]);
  const [wq, wk, wv, wo] = Array.from({ length: 4 }, () => random.randn([8, 8])) as [Tensor, Tensor, Tensor, Tensor];
  const attention = createAttention(kernels, { dModel: 8, numHeads: 2 }, { wq, wk, wv, wo, layout: "in-out" });
  const { y, maps } = attendWithMaps(attention, x.data, { batch: 2 });
  attention.release();
  print();
  print(`Attention weights: ${size(maps.shape)}`);
  print(`Final output: ${size([2, 4, y.length / 8])}`);
  print("Attention weights from batch 0, head 0:");
  for (let row = 0; row < 4; row++) {
    const weights = Array.from(maps.data.subarray(4 * row, 4 * row + 4), scientific);
    print(`  [${weights.join(", ")}]`);
  }
}

/** 4.7919e-01, as PyTorch prints it. */
function scientific(value: number): string {
  return value.toExponential(4).replace(/e([+-])(\d)$/, "e$10$2");
}

const TOKENS = ["The", "cat", "sat", "on", "the", "mat", "because", "it", "was", "soft"];

/** Two heads whose scores are set by hand: a token's own is 5, and those named here replace it. All others are 0. */
function twoHeads(kernels: Kernels, print: Print): void {
  print(`Tokens: ${TOKENS.length}`);
  const heads = [
    { name: "Head 1 (semantic)", looks: { it: ["mat", 8], soft: ["mat", 6] } },
    { name: "Head 2 (syntactic)", looks: { sat: ["cat", 8], cat: ["sat", 6] } },
  ] as const;
  for (const { name, looks } of heads) {
    print(`Key patterns in ${name}:`);
    for (const pattern of patterns(kernels, looks)) print(`  ${pattern}`);
  }
}

/** The strongest key of each token where its weight is above 0.5. */
function patterns(kernels: Kernels, looks: Readonly<Record<string, readonly [key: string, score: number]>>): string[] {
  const count = TOKENS.length;
  const bias = zeros(count, count);
  for (const [query, token] of TOKENS.entries()) {
    const [key, score] = looks[token] ?? [token, 5];
    (bias.data as Float32Array)[query * count + TOKENS.indexOf(key)] = score;
  }
  const nothing = zeros(1, count, 1);
  const { scores } = scaledDotProductAttention(kernels, nothing, nothing, nothing, { bias, scores: "weights" });
  return TOKENS.flatMap((token, query) => {
    const row = scores!.data.subarray(count * query, count * (query + 1));
    const most = Math.max(...row);
    return most > 0.5 ? [`'${token}' → '${TOKENS[row.indexOf(most)]}' (${most.toFixed(2)})`] : [];
  });
}

/** The shapes that a batch goes through. Here heads are strides, so that views and transpositions move nothing. */
function traceShapes(_: Kernels, print: Print): void {
  const [B, S, D, H] = [2, 10, 512, 8];
  const q = { shape: [B, S, D], strides: contiguousStrides([B, S, D]) };
  const split = transpose(view(q, [B, S, H, D / H]), 1, 2);
  print(`x: ${size(q.shape)}`);
  print(`q: ${size(q.shape)}`);
  print(`q_split: ${size([B, S, H, D / H])}`);
  print(`q_reordered: ${size(split.shape)}`);
  print(`attention output: ${size(split.shape)}`);
  print(`One head slice: ${size([B, S, D / H])}`);
  print(`heads side by side: ${size(transpose(split, 1, 2).shape)}`);
  print(`concatenated: ${size([B, S, D])}`);
  print(`after W_o: ${size([B, S, D])}`);
}

/** A transposed tensor has the strides of another order, which no flat view can express. */
function copyBeforeView(_: Kernels, print: Print): void {
  const x = { shape: [2, 3, 4], strides: contiguousStrides([2, 3, 4]) };
  const turned = transpose(x, 1, 2);
  print(`x_t: ${size(turned.shape)}, strides (${turned.strides.join(", ")})`);
  print(`x_t.is_contiguous(): ${python(isContiguous(turned))}`);
  try {
    view(turned, [2, 12]);
  } catch (error) {
    print(`view() failed as expected: ${(error as Error).message}`);
  }
  const copied = { shape: turned.shape, strides: contiguousStrides(turned.shape) };
  print(`x_t.contiguous().is_contiguous(): ${python(isContiguous(copied))}`);
  print(`x_t.contiguous().view(2, 12): ${size(view(copied, [2, 12]).shape)}`);
}

/** The module with seed 0. */
function useModule(kernels: Kernels, print: Print): void {
  const random = new TorchRandom(0);
  const config = { dModel: 32, numHeads: 4 };
  const weights = fourLinears(random, config.dModel);
  const x = random.randn([2, 5, config.dModel]);
  const attention = createAttention(kernels, config, weights);
  const y = attend(attention, x.data, { batch: 2 });
  print(`d_k: ${attention.config.headDim}`);
  attention.release();
  print(`Output: ${size([2, 5, y.length / 10])}`);
  print(`Output differs from input (mean abs diff: ${meanAbs(minus(y, x.data)).toFixed(4)})`);
  const { bq, bk, bv, bo, ...matrices } = weights;
  const [all, ofMatrices] = [weights, matrices].map((each) => parameters(kernels, config, each)) as [number, number];
  print(`Total parameters: ${commas(all)}`);
  for (const name of ["W_q", "W_k", "W_v", "W_o"]) print(`  ${name}: ${commas(ofMatrices / 4)}`);
  print(`Total: ${commas(ofMatrices)} (breakdown of weights), and 4 × 32 = ${all - ofMatrices} biases`);
}

/** A loop over heads gives what all heads at once give; and what a causal mask changes. */
function loopAndMask(kernels: Kernels, print: Print): void {
  const random = new TorchRandom(123);
  const config = { dModel: 32, numHeads: 4 };
  const weights = fourLinears(random, config.dModel);
  const x = random.randn([2, 6, config.dModel]).data;
  const attention = createAttention(kernels, config, weights);
  const atOnce = attend(attention, x, { batch: 2 });
  attention.release();
  const looped = new Float32Array(atOnce.length);
  for (let head = 0; head < config.numHeads; head++) {
    const single = createAttention(kernels, { dModel: 32, numHeads: 1, headDim: 8 }, weightsOf(weights, head));
    for (const [i, value] of attend(single, x, { batch: 2 }).entries()) looped[i]! += value;
    single.release();
  }
  const difference = minus(atOnce, looped);
  print(`Max absolute diff below 0.000001: ${python(maxAbs(difference) < 1e-6)}`);
  print(`Mean absolute diff below 0.000001: ${python(meanAbs(difference) < 1e-6)}`);
  print(`Results match: ${python(maxAbs(difference) < 1e-6)}`);

  const next = createAttention(kernels, config, fourLinears(random, config.dModel));
  const input = random.randn([2, 6, config.dModel]).data;
  // 0 where a pair is masked.
  const keep = { data: Array.from({ length: 36 }, (_, i) => i % 6 <= Math.floor(i / 6)), shape: [1, 1, 6, 6] };
  print();
  print(`Causal mask shape: ${size(keep.shape)}`);
  for (let row = 0; row < 4; row++)
    print(
      `  [${keep.data
        .slice(6 * row, 6 * row + 4)
        .map(Number)
        .join(", ")}]`,
    );
  const changed = minus(attend(next, input, { batch: 2, keep }), attend(next, input, { batch: 2 }));
  next.release();
  print(`Mean absolute difference: ${meanAbs(changed).toFixed(4)}`);
}

/** One head as a layer: its 8 rows of the projections, its 8 columns of W_o; the bias of W_o comes with the first head. */
function weightsOf(weights: ReturnType<typeof fourLinears>, head: number) {
  const rows = (tensor: Tensor | undefined): Tensor => ({
    data: tensor!.data.subarray(head * 8 * 32, (head + 1) * 8 * 32),
    shape: [8, 32],
  });
  const floats = (bias: Float32Array | undefined) => bias?.subarray(head * 8, head * 8 + 8);
  const wo = Float32Array.from({ length: 32 * 8 }, (_, i) => weights.wo.data[(i >> 3) * 32 + head * 8 + (i & 7)]!);
  return {
    ...{ wq: rows(weights.wq), wk: rows(weights.wk), wv: rows(weights.wv), wo: { data: wo, shape: [32, 8] } },
    ...{
      bq: floats(weights.bq),
      bk: floats(weights.bk),
      bv: floats(weights.bv),
      bo: head === 0 ? weights.bo : undefined,
    },
  };
}
