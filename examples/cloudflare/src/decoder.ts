// A small decoder around headwise's attention: embedding, pre-norm attention layers with residuals, unembedding. Its caches are
// those of createCache, whose pages are stored between calls; headwise/models has no pages to store. Besides the attention there
// are only loops with + - * / and Math.sqrt, which give the same bits on every engine.

import { type Attention, attend, type Cache, createAttention, createCache, type Kernels } from "headwise/core";
import { fromHfConfig, readAttentionWeights, readSafetensors, toFloats } from "headwise/weights";

/** The fields of config.json that are read here; fromHfConfig reads those of the attention. */
interface DecoderConfig {
  readonly hidden_size: number;
  readonly num_hidden_layers: number;
  readonly rms_norm_eps: number;
  readonly max_position_embeddings: number;
  readonly vocabulary: string;
}

/** New tokens of a sequence, and the caches that hold the tokens before them: one for each layer. */
export interface Sequence {
  readonly tokens: readonly number[];
  readonly caches: readonly Cache[];
}

export type Decoder = ReturnType<typeof createDecoder>;

/** The decoder of a safetensors file and its config.json. */
export function createDecoder(kernels: Kernels, bytes: Uint8Array, json: string) {
  const config = JSON.parse(json) as DecoderConfig;
  const { hidden_size: dModel, num_hidden_layers: numLayers, rms_norm_eps: eps, vocabulary } = config;
  const file = readSafetensors(bytes);
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
      fromHfConfig(json, l),
      readAttentionWeights(file, `model.layers.${l}.self_attn.`),
    ),
  }));

  /** x [tokens, dModel] */
  function embed(tokens: readonly number[]): Float32Array {
    const x = new Float32Array(tokens.length * dModel);
    for (const [t, token] of tokens.entries())
      x.set(embedding.subarray(token * dModel, (token + 1) * dModel), t * dModel);
    return x;
  }

  /** The residual stream [tokens, dModel] after all layers; each adds the output of `step` to it. */
  function run(
    tokens: readonly number[],
    step: (attention: Attention, normed: Float32Array, layer: number) => Float32Array,
  ): Float32Array {
    const x = embed(tokens);
    for (const [l, { gain, attention }] of layers.entries()) addTo(x, step(attention, rmsNorm(x, gain, eps), l));
    return x;
  }

  const runCached = ({ tokens, caches }: Sequence) =>
    run(tokens, (attention, normed, l) => attend(attention, normed, { cache: caches[l] }));

  /** Logits [vocabulary] of one row of x. */
  function unembed(x: Float32Array): Float32Array {
    const normed = rmsNorm(x, finalGain, eps);
    return Float32Array.from(vocabulary, (_, token) => dot(unembedding, token * dModel, normed));
  }

  return {
    /** The characters, by token. */
    vocabulary,
    /** Characters of the texts that it was trained on. */
    trainedLen: config.max_position_embeddings,
    encode: (text: string): number[] => Array.from(text, (character) => vocabulary.indexOf(character)),

    /** Empty caches for a sequence of at most `maxSeqLen` tokens, one for each layer. */
    createCaches: (maxSeqLen: number): Cache[] => layers.map(({ attention }) => createCache(attention, { maxSeqLen })),

    /** Logits [vocabulary] after the last of the tokens, which are added to the caches. */
    next: (sequence: Sequence): Float32Array => unembed(runCached(sequence).subarray(-dModel)),
  };
}

/** The token of the largest logit, the first of several. */
export function argmax(logits: Float32Array): number {
  return logits.indexOf(logits.reduce((a, b) => Math.max(a, b)));
}

function addTo(x: Float32Array, y: Float32Array): void {
  for (let i = 0; i < x.length; i++) x[i]! += y[i]!;
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
