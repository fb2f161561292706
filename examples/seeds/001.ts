// Fused projections without biases, causal: the tutorial's expected output, line for line.

import {
  type AttentionConfig,
  type AttentionWeights,
  attend,
  attendWithMaps,
  createAttention,
  createLinear,
  type Kernels,
  linear,
  type Tensor,
} from "headwise";
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
  const one = createAttention(kernels, { ...CONFIG, numHeads: 1 }, module(random));
  const single = tuple([batch, qLen, attend(one, x, { batch }).length / (batch * qLen)]);
  one.release();
  print(`single-head output shape: ${single} (should match ${tuple(SHAPE)})`);
  print(`attention weights shape: ${tuple(maps.shape)}`);
  for (const head of [0, 7]) print(`row sum, head ${head}, row 11: ${sum(row(head, 11)).toFixed(6)}`);
  print(`head 0 vs head 7 at row 11 differ: ${python(maxAbs(minus(row(0, 11), row(7, 11))) > 1e-6)}`);

  print();
  print(`seed 0, sum of the output: ${sum(y).toFixed(4)}, mean of its absolute values: ${meanAbs(y).toFixed(7)}`);
  print(`params of wqkv: 64 × 3·64 = ${weights.wqkv.data.length}, of wo: 64 × 64 = ${weights.wo.data.length}`);
  print(
    messageOf(() => createAttention(kernels, { dModel: 10, numHeads: 3 }, { wqkv: zeros(30, 10), wo: zeros(10, 10) })),
  );

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
  for (const line of timings(kernels)) print(line);
};

/**
 * What the tutorial says of GPUs, measured here: one product for queries, keys and values against three, and attention that
 * forms no matrix of all pairs against the one that does.
 */
function timings(kernels: Kernels): string[] {
  const config: AttentionConfig = { dModel: 512, numHeads: 8, causal: true };
  const random = new TorchRandom(0);
  const [wq, wk, wv, wo] = Array.from({ length: 4 }, () => random.randn([512, 512], 0.02)) as [
    Tensor,
    Tensor,
    Tensor,
    Tensor,
  ];
  const x = random.randn([512, 512]).data;
  const joined = [wq, wk, wv].flatMap(({ data }) => Array.from(data));
  const fused = createLinear(kernels, { weight: { data: Float32Array.from(joined), shape: [1536, 512] } });
  const three = [wq, wk, wv].map((weight) => createLinear(kernels, { weight }));
  const attention = createAttention(kernels, config, { wq, wk, wv, wo });
  const ms = {
    fused: median(() => linear(fused, x)),
    three: median(() => three.map((each) => linear(each, x))),
    tiled: median(() => attend(attention, x)),
    naive: median(() => attendWithMaps(attention, x)),
  };
  for (const each of [fused, ...three, attention]) each.release();
  const ratio = (slow: number, fast: number) =>
    `${slow.toFixed(1)} and ${fast.toFixed(1)} ms, ${(slow / fast).toFixed(1)} times`;
  return [
    `timed, 512 tokens: three projections and one: ${ratio(ms.three, ms.fused)}`,
    `timed, 512 tokens: with the matrix of all pairs and without: ${ratio(ms.naive, ms.tiled)}`,
  ];
}

/** Milliseconds of a call: the median of nine, after as many that the engine optimises by. */
function median(call: () => unknown): number {
  const times = Array.from({ length: 18 }, () => {
    const start = performance.now();
    call();
    return performance.now() - start;
  });
  return times.slice(9).sort((a, b) => a - b)[4]!;
}
