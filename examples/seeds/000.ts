// Four linear layers with biases, a mask that is true where a pair is masked out, and the sizes of known models.

import { type Attention, attend, createAttention } from "headwise";
import { commas, fourLinears, messageOf, parameters, sum, type Tutorial, tuple } from "./layers.ts";
import { TorchRandom } from "./torch-random.ts";

const MODELS = [
  { name: "Calculator", embedDim: 64, numHeads: 4 },
  { name: "GPT-2 Small", embedDim: 768, numHeads: 12 },
  { name: "GPT-3", embedDim: 12_288, numHeads: 96 },
  { name: "GPT-4 (approximate)", embedDim: 12_288, numHeads: 96 },
];

export const run: Tutorial = (kernels, print) => {
  const [dModel, numHeads] = [64, 4];
  const random = new TorchRandom(0);
  const weights = fourLinears(random, dModel);
  const x = random.randn([1, 5, dModel]);
  const attention: Attention = createAttention(kernels, { dModel, numHeads }, weights);
  const { headDim } = attention.config;
  print(`head_dim = embed_dim / num_heads = ${dModel} / ${numHeads} = ${headDim}`);
  print(`Concatenate ${numHeads} heads: ${numHeads} × ${headDim} = ${numHeads * headDim} dimensions`);
  print(`parameters, biases included: ${commas(parameters(kernels, { dModel, numHeads }, weights))}`);

  const y = attend(attention, x.data);
  const drop = { data: Array.from({ length: 25 }, (_, i) => i % 5 > Math.floor(i / 5)), shape: [5, 5] };
  const masked = attend(attention, x.data, { drop });
  print(`input ${tuple(x.shape)}, output ${tuple([1, 5, y.length / 5])}`);
  print(`seed 0, sum of the output: ${sum(y).toFixed(4)}, with a causal mask: ${sum(masked).toFixed(4)}`);
  attention.release();

  print();
  print("model                embed_dim  heads  head_dim");
  for (const { name, embedDim, numHeads: heads } of MODELS)
    print(
      `${name.padEnd(19)}  ${commas(embedDim).padStart(9)}  ${String(heads).padStart(5)}  ${String(embedDim / heads).padStart(8)}`,
    );

  print();
  print("What does not divide is refused, where embed_dim // num_heads would round 10 / 3 down:");
  print(messageOf(() => createAttention(kernels, { dModel: 10, numHeads: 3 }, weights)));
};
