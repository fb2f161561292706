import { headwise, shards } from "./package-files.mjs";

const CONFIG = { dModel: 64, numHeads: 8, numKvHeads: 2, causal: true, rope: { theta: 10_000, pairing: "half" } };
const TOKENS = 70;

const numbers = (length, factor) => Float32Array.from({ length }, (_, i) => ((i * factor) % 101) / 505 - 0.1);
const matrix = (rows, columns, factor) => ({ data: numbers(rows * columns, factor), shape: [rows, columns] });
const WEIGHTS = {
  wq: matrix(64, 64, 37),
  wk: matrix(16, 64, 41),
  wv: matrix(16, 64, 43),
  wo: matrix(64, 64, 47),
};

/** Prefill and one token on two shards, and whether the bits are those of one engine. */
export async function twoShards(options = {}) {
  const attention = await shards.createShardedAttention(CONFIG, WEIGHTS, { shards: 2, ...options });
  const kernels = await headwise.loadKernels();
  try {
    const x = numbers(TOKENS * CONFIG.dModel, 53);
    const last = (TOKENS - 1) * CONFIG.dModel;
    const cache = await shards.createShardedCache(attention, { maxSeqLen: TOKENS });
    const y = new Float32Array(x.length);
    y.set(await shards.attendSharded(attention, x.subarray(0, last), { cache }));
    y.set(await shards.attendSharded(attention, x.subarray(last), { cache }), last);
    const expected = headwise.attend(headwise.createAttention(kernels, CONFIG, WEIGHTS), x);
    return { ...attention.shards, same: y.every((value, i) => Object.is(value, expected[i])) };
  } finally {
    attention.release();
    kernels.release();
  }
}
