// Fused projections without biases, causal: the tutorial's expected output, line for line.

import {
  type AttentionConfig,
  type AttentionWeights,
  attend,
  attendWithMaps,
  createAttention,
  type Tensor,
} from "headwise";
import { traceAttention } from "headwise/inspect";
import {
  commas,
  maxAbs,
  meanAbs,
  messageOf,
  minus,
  parameters,
  python,
  sum,
  type Tutorial,
  tuple,
  zeros,
} from "./layers.ts";
import { TorchRandom } from "./torch-random.ts";

const CONFIG = { dModel: 64, numHeads: 8, causal: true } satisfies AttentionConfig;
const SHAPE = [2, 12, 64] as const;
const MODELS = [
  ["GPT-2 small", 768, 12],
  ["LLaMA-3 8B", 4096, 32],
] as const;

const pad = (value: number, width: number) => String(value).padStart(width);

/** Both layers of the module, drawn anew from a normal of 0.02 behind PyTorch's default. */
function module(random: TorchRandom): AttentionWeights<Tensor> & { readonly wqkv: Tensor } {
  random.linear(64, 192, false);
  random.linear(64, 64, false);
  return { wqkv: random.randn([192, 64], 0.02), wo: random.randn([64, 64], 0.02) };
}

export const run: Tutorial = (kernels, print) => {
  const random = new TorchRandom(0);
  const weights = module(random);
  const x = random.randn(SHAPE).data;
  const [batch, qLen] = SHAPE;
  const attention = createAttention(kernels, CONFIG, weights);
  const { y, maps } = attendWithMaps(attention, x, { batch });
  const row = (head: number, query: number) =>
    maps.data.subarray((head * 12 + query) * 12, (head * 12 + query + 1) * 12);

  print(`params: ${commas(parameters(kernels, CONFIG, weights))}`);
  print(`d_head: ${attention.config.headDim}`);
  print(`input shape:  ${tuple(SHAPE)}`);
  print(`output shape: ${tuple([batch, qLen, y.length / (batch * qLen)])}`);
  const ofOne = module(random);
  const one = createAttention(kernels, { ...CONFIG, numHeads: 1 }, ofOne);
  const single = tuple([batch, qLen, attend(one, x, { batch }).length / (batch * qLen)]);
  one.release();
  print(`single-head output shape: ${single} (should match ${tuple(SHAPE)})`);
  print(`attention weights shape: ${tuple(maps.shape)}`);
  for (const head of [0, 7]) print(`row sum, head ${head}, row 11: ${sum(row(head, 11)).toFixed(6)}`);
  print(`head 0 vs head 7 at row 11 differ: ${python(maxAbs(minus(row(0, 11), row(7, 11))) > 1e-6)}`);

  print();
  print(`seed 0, sum of the output: ${sum(y).toFixed(4)}, mean of its absolute values: ${meanAbs(y).toFixed(7)}`);
  for (const head of [0, 7])
    print(`weights of head ${head}, row 11: ${Array.from(row(head, 11), (weight) => weight.toFixed(4)).join(" ")}`);
  print(`params of wqkv: 64 × 3·64 = ${weights.wqkv.data.length}, of wo: 64 × 64 = ${weights.wo.data.length}`);
  print(`params of a single head: ${commas(parameters(kernels, { ...CONFIG, numHeads: 1 }, ofOne))}`);
  print(
    messageOf(() => createAttention(kernels, { dModel: 10, numHeads: 3 }, { wqkv: zeros(30, 10), wo: zeros(10, 10) })),
  );

  print();
  for (const [i, { name, formula, tensors }] of traceAttention(attention, x, { batch }).entries()) {
    const shapes = Object.entries(tensors).map(([letter, { shape }]) => `${letter} ${tuple(shape)}`);
    print(`${i + 1} ${name}: ${formula}`);
    print(`  ${shapes.join(", ")}`);
  }
  print();

  // One product for queries, keys and values is what three products give.
  const part = (index: number): Tensor => ({
    data: weights.wqkv.data.subarray(index * 64 * 64, (index + 1) * 64 * 64),
    shape: [64, 64],
  });
  const separate = createAttention(kernels, CONFIG, { wq: part(0), wk: part(1), wv: part(2), wo: weights.wo });
  const same = attend(separate, x, { batch }).every((value, i) => Object.is(value, y[i]));
  print(`fused and separate projections give the same bits: ${python(same)}`);
  separate.release();
  attention.release();

  print();
  print("model        d_model  heads  d_head");
  for (const [name, width, heads] of MODELS)
    print(`${name.padEnd(11)}  ${pad(width, 7)}  ${pad(heads, 5)}  ${pad(width / heads, 6)}`);
};
