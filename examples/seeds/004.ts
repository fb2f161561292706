// Splitting and combining heads, groups of heads that share keys and values, and what that saves.

import {
  attendWithMaps,
  createAttention,
  mergeHeads,
  plan,
  scaledDotProductAttention,
  splitHeads,
  type Tensor,
} from "headwise";
import { commas, maxAbs, minus, parameters, product, python, type Tutorial, tuple, zeros } from "./layers.ts";
import { TorchRandom } from "./torch-random.ts";

const SENTENCE = ["the", "cat", "sat", "on", "it"];
/** Of the caches that are compared. */
const TOKENS = 2048;
const SIZES = [
  ["~125M", 768, 12],
  ["~350M", 1024, 16],
  ["~1B", 2048, 16],
  ["~70B", 8192, 64],
] as const;

export const run: Tutorial = (kernels, print) => {
  const random = new TorchRandom(4);
  const n = SENTENCE.length;
  const X = random.randn([n, 24]);
  const heads = splitHeads(kernels, X, 3);
  print(`split_heads: ${tuple(X.shape)} -> ${tuple(heads.shape)}`);
  const back = mergeHeads(kernels, heads);
  print(`combine_heads gives X back: ${python(maxAbs(minus(back.data, X.data)) === 0)}`);

  const [wq, wk, wv, wo] = Array.from({ length: 4 }, () => random.randn([24, 24], 0.3)) as [
    Tensor,
    Tensor,
    Tensor,
    Tensor,
  ];
  const attention = createAttention(kernels, { dModel: 24, numHeads: 4 }, { wq, wk, wv, wo, layout: "in-out" });
  const { y, maps } = attendWithMaps(attention, X.data);
  attention.release();
  print(`mha_forward: out ${tuple([n, y.length / n])}, weights ${tuple(maps.shape)}`);
  const own = (head: number) => maps.data.subarray(head * n * n, (head + 1) * n * n);
  const differ = [1, 2, 3].every((head) => maxAbs(minus(own(head), own(0))) > 0.1);
  print(`heads differ, at random weights: ${python(differ)}`);
  for (let head = 0; head < 4; head++) {
    print(`head ${head}`);
    for (const [query, word] of SENTENCE.entries()) {
      const row = Array.from(maps.data.subarray((head * n + query) * n, (head * n + query + 1) * n));
      print(`${word.padStart(5)}  ${row.map((weight) => weight.toFixed(2)).join("  ")}`);
    }
  }

  print();
  const kv = splitHeads(kernels, product(X, random.randn([24, 12])), 2);
  const groups = [0, 0, 1, 1].map((head) => kv.data.subarray(head * n * 6, (head + 1) * n * 6));
  const repeated = { data: Float32Array.of(...groups.flatMap((each) => [...each])), shape: [4, n, 6] };
  const q = splitHeads(kernels, X, 4);
  const attendTo = (keys: Tensor) => scaledDotProductAttention(kernels, q, keys, keys, { causal: true }).output.data;
  print("gqa_project repeats heads in blocks: h0, h0, h1, h1");
  print(`enable_gqa with 2 kv heads gives that: ${python(maxAbs(minus(attendTo(repeated), attendTo(kv))) === 0)}`);

  print();
  print(`kv heads            cache of ${TOKENS} tokens, float32`);
  for (const [dModel, numHeads] of [
    [512, 8],
    [64, 8],
    [768, 12],
  ] as const) {
    const [all, one] = [cacheBytes(dModel, numHeads, numHeads), cacheBytes(dModel, numHeads, 1)];
    print(
      `${`${dModel} wide, ${numHeads} -> 1`.padEnd(18)}  ${commas(all)} -> ${commas(one)} bytes, ${all / one} times`,
    );
  }
  print(
    `Llama 3 70B, 64 query heads with 8 kv heads: ${cacheBytes(8192, 64, 64) / cacheBytes(8192, 64, 8)} times less`,
  );
  const tokenBytes = (kvHeads: number) => cacheBytes(8192, 64, kvHeads, "f16") / TOKENS;
  const both = (of: (bytes: number) => string) => [64, 8].map((kvHeads) => of(tokenBytes(kvHeads))).join(" -> ");
  print(
    `in float16, a token of a layer: ${both(commas)} bytes, of 80 layers: ${both((bytes) => commas(80 * bytes))} bytes`,
  );
  print(`8,192 tokens: ${both((bytes) => `${(bytes * 80 * 8192) / 2 ** 30} GiB`)}`);

  print();
  for (const width of [512, 64]) {
    const [all, one] = [8, 1].map((kvHeads) => parameters(kernels, ...withoutBiases(width, 8, kvHeads))) as [
      number,
      number,
    ];
    print(
      `parameters ${width} wide, MHA -> MQA: ${commas(all)} -> ${commas(one)}, ${((100 * one) / all - 100).toFixed(2)} %`,
    );
  }
  const module = { wqkv: zeros(1536, 512), bqkv: zeros(1536).data, wo: zeros(512, 512), bo: zeros(512).data };
  print(
    `nn.MultiheadAttention(512, 8): ${commas(parameters(kernels, { dModel: 512, numHeads: 8 }, module))} parameters`,
  );

  print();
  print("model  d_model  heads  d_head");
  for (const [name, dModel, numHeads] of SIZES)
    print(
      `${name.padEnd(5)}  ${String(dModel).padStart(7)}  ${String(numHeads).padStart(5)}  ${String(dModel / numHeads).padStart(6)}`,
    );
};

/** Bytes of keys and values alone: a cache also has a table of its pages, 4 bytes for each 128 tokens. */
function cacheBytes(dModel: number, numHeads: number, numKvHeads: number, format: "f32" | "f16" = "f32"): number {
  return plan({ dModel, numHeads, numKvHeads }, { maxSeqLen: TOKENS, format }).cache - 4 * (TOKENS / 128);
}

function withoutBiases(dModel: number, numHeads: number, numKvHeads: number) {
  const kv = zeros((dModel / numHeads) * numKvHeads, dModel);
  const square = zeros(dModel, dModel);
  return [
    { dModel, numHeads, numKvHeads },
    { wq: square, wk: kv, wv: kv, wo: square },
  ] as const;
}
