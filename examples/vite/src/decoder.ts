// A decoder around headwise's attention: embedding, pre-norm attention layers with residuals, unembedding.

import { attend, attendWithMaps, createAttention, createCache, type Kernels, type Tensor } from "headwise";
import { fromHfConfig, readAttentionWeights, readSafetensors, toFloats } from "headwise/weights";

/** What config.json says beside what `fromHfConfig` reads. */
interface ModelConfig {
  readonly hidden_size: number;
  readonly num_hidden_layers: number;
  readonly rms_norm_eps: number;
  readonly vocabulary: string;
}

export interface Choice {
  /** The character that the model finds likeliest. */
  readonly character: string;
  readonly logit: number;
}

export type Decoder = ReturnType<typeof createDecoder>;

/** The model of a safetensors file and its config.json. */
export function createDecoder(kernels: Kernels, bytes: Uint8Array, json: string) {
  const config = JSON.parse(json) as ModelConfig;
  const { hidden_size: dModel, num_hidden_layers: numLayers, rms_norm_eps: eps, vocabulary } = config;
  const file = readSafetensors(bytes);
  const floats = (name: string) => toFloats(file.tensors.get(name)!);
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

  /** The residual stream [tokens, dModel] of `text` through all layers; `attention` is what a layer adds to it. */
  function run(text: string, attention: (normed: Float32Array, layer: number) => Float32Array): Float32Array {
    const x = new Float32Array(text.length * dModel);
    for (const [t, character] of Array.from(text).entries()) {
      const token = vocabulary.indexOf(character);
      x.set(embedding.subarray(token * dModel, (token + 1) * dModel), t * dModel);
    }
    for (const [l, { gain }] of layers.entries()) {
      const y = attention(rmsNorm(x, gain, eps), l);
      for (let i = 0; i < x.length; i++) x[i]! += y[i]!;
    }
    return x;
  }

  return {
    /** Whether it has a token for each character. */
    knows: (text: string): boolean => Array.from(text).every((character) => vocabulary.includes(character)),

    /** Continues `prompt` by `count` characters, one at a time. */
    *continue(prompt: string, count: number): Generator<Choice, void> {
      const caches = layers.map(({ attention }) => createCache(attention, { maxSeqLen: prompt.length + count }));
      try {
        for (let text = prompt, made = 0; made < count; made++) {
          const x = run(text, (normed, l) => attend(layers[l]!.attention, normed, { cache: caches[l] }));
          const choice = choose(rmsNorm(x.subarray(-dModel), finalGain, eps), unembedding, vocabulary);
          text = choice.character; // all before it is in the caches
          yield choice;
        }
      } finally {
        for (const cache of caches) cache.release();
      }
    },

    /** What each head of each layer looks at in `text`: a tensor [numHeads, queries, keys] a layer. */
    maps(text: string): Tensor[] {
      const all: Tensor[] = [];
      run(text, (normed, l) => {
        const { y, maps } = attendWithMaps(layers[l]!.attention, normed);
        all.push(maps);
        return y;
      });
      return all;
    },
  };
}

function choose(x: Float32Array, unembedding: Float32Array, vocabulary: string): Choice {
  let best: Choice = { character: "", logit: -Infinity };
  for (const [token, character] of Array.from(vocabulary).entries()) {
    let logit = 0;
    for (let i = 0; i < x.length; i++) logit += unembedding[token * x.length + i]! * x[i]!;
    if (logit > best.logit) best = { character, logit };
  }
  return best;
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
