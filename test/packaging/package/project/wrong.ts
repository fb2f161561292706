// What the types must refuse: each line below an `@ts-expect-error` is an error, or the compiler says that it is none.

import { type AttentionConfig, attend, createAttention, createCache, loadKernels, type Tensor } from "headwise";
import * as core from "headwise/core";
import {
  createSession,
  embed,
  encode,
  encodeAsync,
  forward,
  generate,
  generateMany,
  loadEncoder,
  loadModel,
  loadSeq2Seq,
  maskedLogits,
  models,
  readSource,
} from "headwise/models";
import { attendSharded } from "headwise/shards";
import { chat, generateText, type Tokenizer } from "headwise/text";
import { loadKernels as loadThreads } from "headwise/threads";
import { readAttentionWeights } from "headwise/weights";

const matrix: Tensor = { data: new Float32Array(16), shape: [4, 4] };
const weights = { wq: matrix, wk: matrix, wv: matrix, wo: matrix };
const config: AttentionConfig = { dModel: 4, numHeads: 2 };

/** Each kind of model where another is due, and a model where a session is. */
export async function refusedModels(tokenizer: Tokenizer): Promise<void> {
  const kernels = await loadKernels({ models });
  const model = await loadModel(kernels, "model");
  const encoder = await loadEncoder(kernels, "encoder");
  const halves = await loadSeq2Seq(kernels, "halves");
  const session = createSession(model);
  const written = await readSource(halves, [1]);
  generateText(model, tokenizer, "a");
  generateText(written, tokenizer, "");
  forward(written, [1]);
  encode(halves, [[1]]);

  // @ts-expect-error: an encoder reads no tokens one after the other
  createSession(encoder);
  // @ts-expect-error: the decoder of two halves needs a source: readSource
  createSession(halves);
  // @ts-expect-error: the model of a session may have two halves
  createSession(written.model);
  // @ts-expect-error: an encoder writes no text
  generateText(encoder, tokenizer, "a");
  // @ts-expect-error: what it writes follows from a source
  generateText(halves, tokenizer, "a");
  // @ts-expect-error: an encoder does not chat
  chat(encoder, tokenizer, []);
  // @ts-expect-error: tokens are generated on a session
  generate(model, [1]);
  // @ts-expect-error: an encoder has no session
  generateMany([{ session: encoder, ids: [1] }]);
  // @ts-expect-error: tokens are read by a session
  forward(encoder, [1]);
  // @ts-expect-error: a decoder gives logits; loadEncoder loads it for vectors
  encode(model, [[1]]);
  // @ts-expect-error: the same in time slices
  await encodeAsync(model, [[1]]);
  // @ts-expect-error: the same
  embed(model, [[1]]);
  // @ts-expect-error: a session is no model
  embed(session, [[1]]);
  // @ts-expect-error: two halves fill no masks
  maskedLogits(halves, [[1]]);
  // @ts-expect-error: an encoder has no decoder that a source is for
  await readSource(encoder, [1]);
  // @ts-expect-error: nor has a decoder an encoder
  await readSource(model, [1]);
}

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
