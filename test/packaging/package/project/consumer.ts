// One use of every entry, as users write it. It is compiled under several compilers and settings, and run.

import * as whole from "headwise";
import {
  type Answer,
  type AnswerEnd,
  type Attention,
  type AttentionConfig,
  type AttentionWeights,
  attend,
  attendAsync,
  attendMany,
  createAttention,
  createCache,
  HeadwiseError,
  type HeadwiseErrorCode,
  type Kernels,
  loadKernels,
  mergeHeads,
  type OpenedModel,
  type OpenSource,
  openModel,
  scaledDotProductAttention,
  splitHeads,
  type Tensor,
} from "headwise";
import { configure } from "headwise/configure";
import * as core from "headwise/core";
import { type Diagnosis, diagnose, diagnosisText, selfTest } from "headwise/doctor";
import { forwardWith } from "headwise/inspect";
import { createLatentAttention, type LatentAttention, latent } from "headwise/latent";
import {
  type CachePage,
  createSession,
  type Encoder,
  embed,
  exportPages,
  forward,
  generate,
  importPages,
  loadEncoder,
  loadModel,
  type Model,
  models,
  planModel,
  type Session,
} from "headwise/models";
import type {} from "headwise/open-worker";
import { type QuantizedKernels, quantized } from "headwise/quantized";
import { reference } from "headwise/reference";
import { createIndex, packVectors, similarity, type VectorIndex } from "headwise/retrieval";
import { attendSharded, createShardedAttention, type ShardedAttention } from "headwise/shards";
import type {} from "headwise/shards-worker";
import { type ChatMessage, type chat, generateText, type Tokenizer } from "headwise/text";
import { loadKernels as loadThreads, type ThreadsOptions } from "headwise/threads";
import { openSafetensors, readAttentionWeights, readSafetensors, writeSafetensors } from "headwise/weights";
import type {} from "headwise/worker";

const matrix = (rows: number, columns: number): Tensor => ({
  data: Float32Array.from({ length: rows * columns }, (_, i) => ((i * 37) % 101) / 505 - 0.1),
  shape: [rows, columns],
});

const config: AttentionConfig = {
  dModel: 16,
  numHeads: 4,
  numKvHeads: 2,
  causal: true,
  window: { left: 8 },
  rope: { theta: 10_000, pairing: "half" },
};
const weights: AttentionWeights = { wq: matrix(16, 16), wk: matrix(8, 16), wv: matrix(8, 16), wo: matrix(16, 16) };

async function decode(kernels: Kernels): Promise<Float32Array> {
  using attention: Attention = createAttention(kernels, config, weights);
  using cache = createCache(attention, { maxSeqLen: 8 });
  const x = matrix(3, 16).data;
  attend(attention, x.subarray(0, 32), { cache });
  const row: Float32Array = await attendAsync(attention, x.subarray(32), {
    cache,
    signal: new AbortController().signal,
  });
  const [whole] = attendMany(attention, [{ x }]);
  return whole === undefined ? row : whole.subarray(32).map((y, i) => y - (row[i] ?? Number.NaN));
}

/** Tokens of a cache that continues from the pages of another one, and floats of rows that were split and merged. */
function restored(kernels: Kernels): number {
  using attention = createAttention(kernels, config, weights);
  using cache = createCache(attention, { maxSeqLen: 8 });
  using copy = createCache(attention, { maxSeqLen: 8 });
  attend(attention, matrix(3, 16).data, { cache });
  const pages: CachePage[] = exportPages(cache);
  importPages(copy, pages, 3);
  return copy.length + mergeHeads(kernels, splitHeads(kernels, matrix(3, 16), 4)).data.length;
}

async function quantised(kernels: QuantizedKernels): Promise<string> {
  using loaded = await loadKernels({ quantized: kernels });
  using attention = createAttention(loaded, config, weights, { weights: { q: "q8", o: "f16" } });
  using cache = createCache(attention, { maxSeqLen: 8, format: { keys: "q8", values: "f16" } });
  attend(attention, matrix(3, 16).data, { cache });
  return attention.formats.q;
}

/** Floats of a latent and its rotated key in the cache of a layer of latent attention. */
async function latents(): Promise<number> {
  using loaded = await loadKernels({ latent });
  using attention: LatentAttention = createLatentAttention(
    loaded,
    { dModel: 16, numHeads: 2, kvLoraRank: 8, nopeDim: 4, ropeDim: 2, rope: { theta: 10_000, pairing: "half" } },
    {
      wq: matrix(12, 16),
      wkvDown: matrix(10, 16),
      kvNorm: new Float32Array(8).fill(1),
      wkvUp: matrix(16, 8),
      wo: matrix(16, 8),
    },
  );
  using cache = createCache(attention, { maxSeqLen: 8 });
  attend(attention, matrix(3, 16).data, { cache });
  const { key, value } = cache.read();
  return (key.data.length + value.data.length) / 3;
}

/** Logits and tokens of a decoder of one layer, and whether its plan is exact. */
async function decoder(): Promise<string> {
  const config = {
    ...{ model_type: "llama", hidden_size: 16, num_attention_heads: 4, num_hidden_layers: 1, intermediate_size: 24 },
    ...{ vocab_size: 32, max_position_embeddings: 64, tie_word_embeddings: true },
  };
  const layer = "model.layers.0.";
  const gain: Tensor = { data: new Float32Array(16).fill(1), shape: [16] };
  const bytes = writeSafetensors({
    "model.embed_tokens.weight": matrix(32, 16),
    "model.norm.weight": gain,
    [`${layer}input_layernorm.weight`]: gain,
    [`${layer}post_attention_layernorm.weight`]: gain,
    ...Object.fromEntries(
      ["q", "k", "v", "o"].map((name) => [`${layer}self_attn.${name}_proj.weight`, matrix(16, 16)]),
    ),
    [`${layer}mlp.gate_proj.weight`]: matrix(24, 16),
    [`${layer}mlp.up_proj.weight`]: matrix(24, 16),
    [`${layer}mlp.down_proj.weight`]: matrix(16, 24),
  });
  const folder = new Map([
    ["config.json", new TextEncoder().encode(JSON.stringify(config))],
    ["model.safetensors", bytes],
  ]);
  using loaded = await loadKernels({ models });
  const model: Model = await loadModel(loaded, (name) => folder.get(name));
  const exact = planModel(config).weights === model.bytes;
  using session: Session = createSession(model);
  const { logits } = forward(session, [1, 2, 3]);
  let count = 0;
  for await (const { id } of generate(session, [4], { maxTokens: 3 })) if (id < 32) count++;
  const numbers: Tokenizer = { encode: (text) => text.split(" ").map(Number), decode: (ids) => ids.join(" ") };
  let text = "";
  for await (const piece of generateText(session, numbers, "1 2 3", { maxTokens: 2 })) text += piece;
  using seen: Session = createSession(model);
  const { captured } = forwardWith(seen, [1, 2, 3], { capture: [{ at: "residPost", layer: 0 }] });
  model.release();
  using encoder: Encoder = await loadEncoder(loaded, (name) => folder.get(name));
  const [vector] = embed(encoder, [[1, 2, 3]], { pooling: "last" });
  if (!vector) throw new Error("expected a vector");
  using index: VectorIndex = createIndex(loaded, packVectors([vector], { format: "int8" }));
  if (index.search(vector)[0]?.index !== 0 || similarity([vector], [vector])[0]?.length !== 1)
    throw new Error("expected a vector to be the most similar to itself");
  const { numHeads } = configure({ parameterBudget: 125e6, seqLen: 2048, target: "browser" });
  const opened = await openWith((name) => folder.get(name), numbers);
  const isSame = opened === text;
  return `${logits.length} ${count} ${exact} ${isSame} ${vector.length} ${captured.length} ${numHeads}`;
}

/** What a model that is opened in one call writes behind "1 2 3". */
async function openWith(source: OpenSource, tokenizer: Tokenizer): Promise<string> {
  using model: OpenedModel<"text"> = await openModel(source, { tokenizer, for: "text", cache: "f32", store: false });
  const answer: Answer = model.text("1 2 3", { maxTokens: 2 });
  let text = "";
  for await (const piece of answer) text += piece;
  const { written }: AnswerEnd = await answer.end;
  return written === 2 && model.choices.cache?.value === "f32" ? text : "";
}

/** Conversations as other programs type them. */
interface Message {
  role: string;
  content: string;
}
type ApiMessage =
  | { role: "system" | "developer"; content: string | { type: "text"; text: string }[]; name?: string }
  | {
      role: "user";
      content: string | ({ type: "text"; text: string } | { type: "image_url"; image_url: { url: string } })[];
    }
  | {
      role: "assistant";
      content?: string | null;
      tool_calls?: { id: string; type: "function" }[];
      refusal?: string | null;
    }
  | { role: "tool"; content: string; tool_call_id: string };
type Conversation = Parameters<typeof chat>[2];
export const conversations = (messages: Message[], api: readonly ApiMessage[], own: ChatMessage[]): Conversation[] => [
  messages,
  api,
  own,
  [{ role: "assistant", tool_calls: [] }],
];

async function examined(): Promise<string | undefined> {
  const diagnosis: Diagnosis = await diagnose(whole, { version: "0", engine: "this one" }, { deterministic: true });
  return diagnosisText(diagnosis).split("\n")[0];
}

async function files(): Promise<AttentionWeights> {
  const bytes = writeSafetensors({ "q_proj.weight": matrix(16, 16), "k_proj.weight": matrix(16, 16) });
  const file = await openSafetensors(new Blob([bytes.slice()]));
  const { tensors } = readSafetensors(bytes);
  return readAttentionWeights({ metadata: file.metadata, tensors });
}

async function shards(): Promise<Float32Array> {
  using attention: ShardedAttention = await createShardedAttention(config, weights, { shards: 1 });
  return await attendSharded(attention, matrix(2, 16).data);
}

function codeOf(error: unknown): HeadwiseErrorCode | undefined {
  return error instanceof HeadwiseError ? error.code : undefined;
}

const options: ThreadsOptions = { threads: 2, deterministic: true };
using kernels = await loadThreads(options);
const single: Kernels = await whole.loadKernels({ deterministic: true });
const own = core.loadKernels({ module: new Uint8Array([0, 97, 115, 109]) }).then(() => undefined, codeOf);
const { output } = scaledDotProductAttention(single, matrix1(), matrix1(), matrix1(), { causal: true });

function matrix1(): Tensor {
  return { data: new Float32Array(4), shape: [1, 1, 2, 2] };
}

console.log(
  selfTest(core, await loadKernels()).ok && selfTest(core, kernels).ok,
  (await decode(single)).every((difference) => difference === 0),
  restored(single),
  await quantised(quantized),
  await latents(),
  await decoder(),
  await examined(),
  (await shards()).length,
  output.shape.length,
  typeof reference.linear_f32,
  await own,
  await files().then(() => undefined, codeOf),
);
single.release();
