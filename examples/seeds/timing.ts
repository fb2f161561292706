// What the second tutorial says of GPUs, measured here: one product for queries, keys and values against three, and attention
// that forms no matrix of all pairs against attention that also forms it.

import {
  type AttentionConfig,
  attend,
  attendWithMaps,
  createAttention,
  createLinear,
  linear,
  type Tensor,
} from "headwise";
import type { Tutorial } from "./layers.ts";
import { TorchRandom } from "./torch-random.ts";

export const run: Tutorial = (kernels, print) => {
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
  const projections = medians(
    () => three.map((each) => linear(each, x)),
    () => linear(fused, x),
  );
  const pairs = medians(
    () => attendWithMaps(attention, x),
    () => attend(attention, x),
  );
  for (const each of [fused, ...three, attention]) each.release();
  const ratio = ([slow, fast]: Pair) =>
    `${slow.toFixed(1)} and ${fast.toFixed(1)} ms, ${(slow / fast).toFixed(1)} times`;
  print("512 tokens, 512 wide, 8 heads; medians of nine");
  print(`three projections and one: ${ratio(projections)}`);
  print(`a layer that also forms the matrix of all pairs, and one that does not: ${ratio(pairs)}`);
};

type Pair = readonly [slow: number, fast: number];

/**
 * Milliseconds of two calls: the medians of nine each, after as many that the engine optimises by. They take turns, so that what slows
 * the machine slows both.
 */
function medians(...calls: readonly [() => unknown, () => unknown]): Pair {
  const times: readonly [number[], number[]] = [[], []];
  for (let round = 0; round < 18; round++)
    for (const [i, call] of calls.entries()) {
      const start = performance.now();
      call();
      if (round >= 9) times[i]!.push(performance.now() - start);
    }
  const median = (each: number[]) => each.sort((a, b) => a - b)[4]!;
  return [median(times[0]), median(times[1])];
}
