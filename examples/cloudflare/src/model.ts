// A decoder around headwise's attention, whose layers are shared and whose caches are not: a server has one of it, and two
// caches (one a layer) for each conversation. Runs wherever headwise does; load.mjs runs it in Node.

import { type Attention, attend, type Cache, createAttention, createCache, type Kernels } from "headwise";
import { fromHfConfig, readAttentionWeights, readSafetensors, toFloats } from "headwise/weights";

/** The part of config.json that is read here; the attention's part goes to fromHfConfig. */
export interface ModelConfig {
  readonly hidden_size: number;
  readonly num_hidden_layers: number;
  readonly rms_norm_eps: number;
  readonly max_position_embeddings: number;
  /** The characters, by token id. */
  readonly vocabulary: string;
}

export interface Model {
  readonly vocabulary: string;
  /** Characters of the texts it was trained on. */
  readonly trainedLen: number;
  readonly layers: number;
  createCaches(maxSeqLen: number): Cache[];
  /** Logits [vocabulary] behind the last of `tokens`, which follow those that the caches hold. */
  next(tokens: readonly number[], caches: readonly Cache[]): Float32Array;
}

export function createModel(kernels: Kernels, weights: Uint8Array, config: ModelConfig): Model {
  const { hidden_size: dModel, num_hidden_layers: numLayers, rms_norm_eps: eps, vocabulary } = config;
  const file = readSafetensors(weights);
  const floats = (name: string): Float32Array => {
    const tensor = file.tensors.get(name);
    if (!tensor) throw new Error(`the model has no tensor ${name}`);
    return toFloats(tensor);
  };
  const embedding = floats("model.embed_tokens.weight");
  const unembedding = floats("lm_head.weight");
  const finalGain = floats("model.norm.weight");
  const layers = Array.from({ length: numLayers }, (_, l) => ({
    gain: floats(`model.layers.${l}.input_layernorm.weight`),
    attention: createAttention(
      kernels,
      fromHfConfig(JSON.stringify(config), l),
      readAttentionWeights(file, `model.layers.${l}.self_attn.`),
    ),
  }));

  const embed = (tokens: readonly number[]) => {
    const x = new Float32Array(tokens.length * dModel);
    for (const [t, token] of tokens.entries())
      x.set(embedding.subarray(token * dModel, (token + 1) * dModel), t * dModel);
    return x;
  };
  const addLayer = (x: Float32Array, attention: Attention, gain: Float32Array, cache: Cache | undefined) => {
    const y = attend(attention, rmsNorm(x, gain, eps), { cache });
    for (let i = 0; i < x.length; i++) x[i] = x[i]! + y[i]!;
  };
  return {
    vocabulary,
    trainedLen: config.max_position_embeddings,
    layers: numLayers,
    createCaches: (maxSeqLen) => layers.map(({ attention }) => createCache(attention, { maxSeqLen })),
    next(tokens, caches) {
      const x = embed(tokens);
      for (const [l, { attention, gain }] of layers.entries()) addLayer(x, attention, gain, caches[l]);
      const normed = rmsNorm(x.subarray(-dModel), finalGain, eps);
      return Float32Array.from(vocabulary, (_, token) => dot(unembedding, token * dModel, normed));
    },
  };
}

/** The token of the largest logit, the first of several. */
export function argmax(logits: Float32Array): number {
  return logits.indexOf(logits.reduce((a, b) => Math.max(a, b)));
}

/** The SHA-256 of the bits of logits, 64 hexadecimal digits. */
export async function digestOf(logits: readonly Float32Array[]): Promise<string> {
  const bytes = new Uint8Array(logits.reduce((sum, { byteLength }) => sum + byteLength, 0));
  let at = 0;
  for (const { buffer, byteOffset, byteLength } of logits) {
    bytes.set(new Uint8Array(buffer, byteOffset, byteLength), at);
    at += byteLength;
  }
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function rmsNorm(x: Float32Array, gain: Float32Array, eps: number): Float32Array {
  const n = gain.length;
  const y = new Float32Array(x.length);
  for (let row = 0; row < x.length; row += n) {
    let sum = 0;
    for (let i = 0; i < n; i++) sum += x[row + i]! * x[row + i]!;
    const inverse = 1 / Math.sqrt(sum / n + eps);
    for (let i = 0; i < n; i++) y[row + i] = x[row + i]! * inverse * gain[i]!;
  }
  return y;
}

function dot(w: Float32Array, at: number, x: Float32Array): number {
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += w[at + i]! * x[i]!;
  return sum;
}
