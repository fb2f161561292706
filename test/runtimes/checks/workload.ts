import { createRandom } from "../../../src/tools/diagnostics/random.ts";
import { createAttention, createCache } from "../given.ts";
import type { Context } from "../suite.ts";
import { decodeRows, weightsOf } from "./layers.ts";

const ROUNDS = 5;
const CONFIG = {
  dModel: 256,
  numHeads: 8,
  numKvHeads: 2,
  causal: true,
  rope: { theta: 10_000, pairing: "half" },
} as const;

/**
 * Milliseconds of a prompt of 256 tokens and 32 tokens after it through a layer of 8 heads over 2 kv heads of 32, the best of
 * five rounds after one to warm up. A clock that stands still while code runs gives 0.
 */
export function runWorkload({ kernels }: Context): number {
  const attention = createAttention(kernels, CONFIG, weightsOf(CONFIG, 20));
  const cache = createCache(attention, { maxSeqLen: 288 });
  const x = createRandom(21).floats(288 * 256);
  let best = Number.POSITIVE_INFINITY;
  for (let round = 0; round <= ROUNDS; round++) {
    const begin = performance.now();
    cache.truncate(0);
    decodeRows(attention, cache, x, 256);
    if (round > 0) best = Math.min(best, performance.now() - begin);
  }
  cache.release();
  attention.release();
  return best;
}
