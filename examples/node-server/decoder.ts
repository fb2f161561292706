// A decoder around headwise's attention (embedding, pre-norm layers with residuals, unembedding) that takes a step of
// several conversations at once.

import { attendMany, type Cache, createAttention, createCache, type Kernels } from "headwise/threads";
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

/** A conversation's new text: the prompt, later its last character. All before it is in the caches, one a layer. */
export interface Turn {
  readonly text: string;
  readonly caches: readonly Cache[];
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

  function embed(text: string): Float32Array {
    const x = new Float32Array(text.length * dModel);
    for (const [t, character] of Array.from(text).entries()) {
      const token = vocabulary.indexOf(character);
      x.set(embedding.subarray(token * dModel, (token + 1) * dModel), t * dModel);
    }
    return x;
  }

  return {
    /** Whether it has a token for each character. */
    knows: (text: string): boolean => Array.from(text).every((character) => vocabulary.includes(character)),

    /** The caches of a new conversation. */
    open: (maxSeqLen: number): Cache[] => layers.map(({ attention }) => createCache(attention, { maxSeqLen })),

    /** The next character of each conversation; a weight is read once for all of them. */
    step(turns: readonly Turn[]): Choice[] {
      const streams = turns.map(({ text }) => embed(text));
      for (const [l, { gain, attention }] of layers.entries()) {
        const calls = turns.map(({ caches }, i) => ({ x: rmsNorm(streams[i]!, gain, eps), cache: caches[l] }));
        for (const [i, y] of attendMany(attention, calls).entries()) {
          const x = streams[i]!;
          for (let j = 0; j < x.length; j++) x[j]! += y[j]!;
        }
      }
      return streams.map((x) => choose(rmsNorm(x.subarray(-dModel), finalGain, eps), unembedding, vocabulary));
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
