// A whole small decoder around headwise's attention: embedding, two pre-norm attention layers with residuals, unembedding.
// Everything but the attention is a few plain loops, so that the file reads top to bottom like the formula.

import {
  type Attention,
  attend,
  attendWithMaps,
  type Cache,
  type CacheOptions,
  createAttention,
  createCache,
  type Kernels,
  type Tensor,
  type WeightOptions,
} from "headwise";
import { fromHfConfig, readAttentionWeights, readSafetensors, toFloats } from "headwise/weights";

/** The part of config.json that is read here; the attention's part goes to fromHfConfig. */
interface DecoderConfig {
  readonly hidden_size: number;
  readonly num_hidden_layers: number;
  readonly rms_norm_eps: number;
  readonly max_position_embeddings: number;
  readonly vocabulary: string;
}

/** What the attentions and their caches keep numbers in; float32 unless it says otherwise. */
export interface DecoderFormats {
  readonly weights?: WeightOptions["weights"];
  readonly cache?: CacheOptions["format"];
}

export interface Decoder {
  /** The characters, by token id. */
  readonly vocabulary: string;
  /** Characters of the texts it was trained on. */
  readonly trainedLen: number;
  readonly caches: readonly Cache[];
  /** Bytes that the attentions' weights hold. */
  readonly weightBytes: number;
  /** Logits [vocabulary] behind each of `tokens`, which follow those already in the caches. */
  logits(tokens: readonly number[]): Float32Array[];
  /** Those behind the last of them. */
  next(tokens: readonly number[]): Float32Array;
  /** The attention maps [numHeads, tokens, tokens] of each layer for a sequence of its own. */
  maps(tokens: readonly number[]): Tensor[];
  release(): void;
}

/** Loads the decoder from its safetensors file and its config.json. `maxSeqLen` tokens fit its caches. */
export function createDecoder(
  kernels: Kernels,
  bytes: Uint8Array,
  json: string,
  maxSeqLen: number,
  formats: DecoderFormats = {},
): Decoder {
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
      { weights: formats.weights },
    ),
  }));
  const caches = layers.map(({ attention }) => createCache(attention, { maxSeqLen, format: formats.cache }));

  /** Runs all layers over x [tokens, dModel] in place of the residual stream. */
  const run = (
    tokens: readonly number[],
    step: (attention: Attention, x: Float32Array, layer: number) => Float32Array,
  ): Float32Array => {
    const x = new Float32Array(tokens.length * dModel);
    for (const [t, token] of tokens.entries())
      x.set(embedding.subarray(token * dModel, (token + 1) * dModel), t * dModel);
    for (const [l, { gain, attention }] of layers.entries()) {
      const y = step(attention, rmsNorm(x, gain, eps), l);
      for (let i = 0; i < x.length; i++) x[i] = x[i]! + y[i]!;
    }
    return x;
  };

  const cached = (tokens: readonly number[]) =>
    run(tokens, (attention, normed, l) => attend(attention, normed, { cache: caches[l] }));
  const unembed = (x: Float32Array) => {
    const normed = rmsNorm(x, finalGain, eps);
    return Float32Array.from(vocabulary, (_, token) => dot(unembedding, token * dModel, normed));
  };

  return {
    vocabulary,
    trainedLen: config.max_position_embeddings,
    caches,
    weightBytes: layers.reduce((sum, { attention }) => sum + attention.bytes, 0),
    logits(tokens) {
      const x = cached(tokens);
      return tokens.map((_, t) => unembed(x.subarray(t * dModel, (t + 1) * dModel)));
    },
    next: (tokens) => unembed(cached(tokens).subarray(-dModel)),
    maps(tokens) {
      const all: Tensor[] = [];
      run(tokens, (attention, normed) => {
        const { y, maps } = attendWithMaps(attention, normed);
        all.push(maps);
        return y;
      });
      return all;
    },
    release() {
      for (const cache of caches) cache.release();
      for (const { attention } of layers) attention.release();
    },
  };
}

function rmsNorm(x: Float32Array, gain: Float32Array, eps: number): Float32Array {
  const n = gain.length;
  const y = new Float32Array(x.length);
  for (let row = 0; row < x.length; row += n) {
    let sum = 0;
    for (let i = 0; i < n; i++) sum += x[row + i]! ** 2;
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
