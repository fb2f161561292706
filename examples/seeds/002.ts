// Unbatched rows, weights as X @ W without biases, and a mask that is added to the scores.

import {
  attend,
  createAttention,
  createCache,
  mergeHeads,
  scaledDotProductAttention,
  splitHeads,
  type Tensor,
} from "headwise";
import { maxAbs, minus, product, python, type Tutorial, tuple } from "./layers.ts";
import { TorchRandom } from "./torch-random.ts";

const [SEQ, D_MODEL, HEADS] = [9, 48, 6];

export const run: Tutorial = (kernels, print) => {
  const random = new TorchRandom(2);
  const X = random.randn([SEQ, D_MODEL]);
  const [wq, wk, wv, wo] = Array.from({ length: 4 }, () => random.randn([D_MODEL, D_MODEL], 0.15)) as [T, T, T, T];
  const weights = { wq, wk, wv, wo, layout: "in-out" } as const;
  const attention = createAttention(kernels, { dModel: D_MODEL, numHeads: HEADS }, weights);
  const { headDim } = attention.config;
  print("GPT-2 small has 12 heads × 64 dimensions = 768 d_model");
  print(`d_k = d_v = d_model / h = ${D_MODEL} / ${HEADS} = ${headDim}`);

  // The steps, each as its own function: X @ W, reshape to heads, attention, reshape back, X @ W.
  const [Q, K, V] = [wq, wk, wv].map((w) => product(X, w)) as [T, T, T];
  const heads = [Q, K, V].map((rows) => splitHeads(kernels, rows, HEADS)) as [T, T, T];
  print(`reshape_to_heads: ${tuple(Q.shape)} -> ${tuple(heads[0].shape)}`);
  const causal = additiveMask();
  const step = scaledDotProductAttention(kernels, ...heads, { bias: causal, scores: "weights" });
  print(`scores: ${tuple(step.scores!.shape)}, head_outputs: ${tuple(step.output.shape)}`);
  const rows = mergeHeads(kernels, step.output);
  print(`reshape_to_model_dim: ${tuple(step.output.shape)} -> ${tuple(rows.shape)}`);
  const byStep = product(rows, wo);

  const y = attend(attention, X.data, { bias: causal });
  print(`in one call: the same within 1e-5: ${python(maxAbs(minus(y, byStep.data)) < 1e-5)}`);

  // One large product and a reshape are h small products: head 1 uses columns 8 to 15 of W_Q.
  const columns = Float32Array.from({ length: D_MODEL * headDim }, (_, i) => {
    const [row, column] = [Math.floor(i / headDim), i % headDim];
    return wq.data[row * D_MODEL + headDim + column]!;
  });
  const own = product(X, { data: columns, shape: [D_MODEL, headDim] });
  const sliced = heads[0].data.subarray(SEQ * headDim, 2 * SEQ * headDim);
  print(`a matrix for each head and one for all give the same: ${python(maxAbs(minus(own.data, sliced)) === 0)}`);

  // The cache keeps keys and values of each layer and head, so that a token computes only its own.
  const cached = createAttention(kernels, { dModel: D_MODEL, numHeads: HEADS, causal: true }, weights);
  const whole = attend(cached, X.data);
  const cache = createCache(cached, { maxSeqLen: SEQ });
  let same = true;
  for (let token = 0; token < SEQ; token++) {
    const row = attend(cached, X.data.subarray(token * D_MODEL, (token + 1) * D_MODEL), { cache });
    same &&= row.every((value, i) => Object.is(value, whole[token * D_MODEL + i]));
  }
  print(`token by token with a cache: the same bits: ${python(same)}`);
  cached.release();
  attention.release();
};

type T = Tensor;

/** 0 where a query may attend, minus infinity where it may not. */
function additiveMask(): Tensor {
  const data = Float32Array.from({ length: SEQ * SEQ }, (_, i) => (i % SEQ > Math.floor(i / SEQ) ? -Infinity : 0));
  return { data, shape: [SEQ, SEQ] };
}
