// What the types must refuse: each line below an `@ts-expect-error` is an error, or the compiler says that it is none.

import { type AttentionConfig, attend, createAttention, createCache, loadKernels, type Tensor } from "headwise";
import * as core from "headwise/core";
import { loadModel, models } from "headwise/models";
import { attendSharded } from "headwise/shards";
import { loadKernels as loadThreads } from "headwise/threads";
import { readAttentionWeights } from "headwise/weights";

const matrix: Tensor = { data: new Float32Array(16), shape: [4, 4] };
const weights = { wq: matrix, wk: matrix, wv: matrix, wo: matrix };
const config: AttentionConfig = { dModel: 4, numHeads: 2 };

export async function refused(): Promise<void> {
  const kernels = await loadKernels();
  const attention = createAttention(kernels, config, weights);

  // @ts-expect-error: kernels come from loadKernels
  createAttention({}, config, weights);
  // @ts-expect-error: a promise of kernels is not kernels
  createAttention(loadKernels(), config, weights);
  // @ts-expect-error: numHeads is missing
  createAttention(kernels, { dModel: 4 }, weights);
  // @ts-expect-error: no such field
  createAttention(kernels, { dModel: 4, numHeads: 2, heads: 2 }, weights);
  // @ts-expect-error: pairing has no default
  createAttention(kernels, { dModel: 4, numHeads: 2, rope: { theta: 10_000 } }, weights);
  // @ts-expect-error: no such pairing
  createAttention(kernels, { dModel: 4, numHeads: 2, rope: { theta: 10_000, pairing: "halves" } }, weights);
  // @ts-expect-error: a matrix has a shape
  createAttention(kernels, config, { ...weights, wq: new Float32Array(16) });
  // @ts-expect-error: no such format
  createAttention(kernels, config, weights, { weights: "q5" });
  // @ts-expect-error: rows are 32-bit floats
  attend(attention, [1, 2, 3, 4]);
  // @ts-expect-error: rows are 32-bit floats
  attend(attention, new Float64Array(4));
  // @ts-expect-error: maxSeqLen is missing
  createCache(attention, {});
  // @ts-expect-error: what is read only stays
  attention.config.numHeads = 4;
  // @ts-expect-error: core has no module of its own
  await core.loadKernels();
  // @ts-expect-error: kernels of weights are no kernels of caches as well
  await loadKernels({ quantized: { simd: { weights: "" } } });
  // @ts-expect-error: what reads GGUF files is what headwise/models exports
  await loadModel(await loadKernels({ models }), "model.gguf", { gguf: true });
  // @ts-expect-error: "auto" or a number
  await loadThreads({ threads: "all" });
  // @ts-expect-error: that is an attention of one piece
  attendSharded(attention, new Float32Array(4));
  // @ts-expect-error: a file is bytes or what readSafetensors gives
  readAttentionWeights("model.safetensors");
}
