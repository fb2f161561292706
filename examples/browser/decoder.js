// The model: embedding, pre-norm attention layers with residuals, unembedding.

import { fromHfConfig, readAttentionWeights, readSafetensors, toFloats } from "headwise/weights";

/** The decoder of a safetensors file and its config.json. `headwise` is the module that loaded the kernels. */
export function createDecoder(headwise, kernels, bytes, json) {
  const { attend, attendWithMaps, createAttention, createCache } = headwise;
  const { hidden_size: dModel, num_hidden_layers: numLayers, rms_norm_eps: eps, vocabulary } = JSON.parse(json);
  const file = readSafetensors(bytes);
  const floats = (name) => toFloats(file.tensors.get(name));
  const embedding = floats("model.embed_tokens.weight");
  const unembedding = floats("lm_head.weight");
  const finalGain = floats("model.norm.weight");
  const layers = Array.from({ length: numLayers }, (_, l) => ({
    gain: floats(`model.layers.${l}.input_layernorm.weight`),
    attention: createAttention(kernels, fromHfConfig(json, l), readAttentionWeights(file, `model.layers.${l}.self_attn.`)),
  }));

  /** The residual stream [characters, dModel] of `text`; each layer adds the output of `attention` to it. */
  function run(text, attention) {
    const x = new Float32Array(text.length * dModel);
    for (const [t, character] of [...text].entries()) {
      const token = vocabulary.indexOf(character);
      x.set(embedding.subarray(token * dModel, (token + 1) * dModel), t * dModel);
    }
    for (const [l, { gain }] of layers.entries()) {
      const y = attention(rmsNorm(x, gain, eps), l);
      for (let i = 0; i < x.length; i++) x[i] += y[i];
    }
    return x;
  }

  function choose(x) {
    let best = { character: "", logit: -Infinity };
    for (const [token, character] of [...vocabulary].entries()) {
      let sum = 0;
      for (let i = 0; i < dModel; i++) sum += unembedding[token * dModel + i] * x[i];
      const logit = Math.fround(sum);
      if (logit > best.logit) best = { character, logit };
    }
    return best;
  }

  return {
    /** The first character of a text that the model has no token for, or undefined. */
    unknownIn: (text) => [...text].find((character) => !vocabulary.includes(character)),

    /** The likeliest next characters, one at a time, and the milliseconds of each. */
    *continue(prompt, count) {
      const caches = layers.map(({ attention }) => createCache(attention, { maxSeqLen: prompt.length + count }));
      try {
        for (let text = prompt, made = 0; made < count; made++) {
          const started = performance.now();
          const x = run(text, (normed, l) => attend(layers[l].attention, normed, { cache: caches[l] }));
          const choice = choose(rmsNorm(x.subarray(-dModel), finalGain, eps));
          text = choice.character; // the caches hold all characters before it
          yield { ...choice, ms: performance.now() - started };
        }
      } finally {
        for (const cache of caches) cache.release();
      }
    },

    /** The attention maps [numHeads, queries, keys] of each layer. */
    maps(text) {
      const all = [];
      run(text, (normed, l) => {
        const { y, maps } = attendWithMaps(layers[l].attention, normed);
        all.push(maps);
        return y;
      });
      return all;
    },
  };
}

function rmsNorm(x, gain, eps) {
  const n = gain.length;
  const y = new Float32Array(x.length);
  for (let row = 0; row < x.length; row += n) {
    let sum = 0;
    for (let i = 0; i < n; i++) sum += x[row + i] * x[row + i];
    const inverse = 1 / Math.sqrt(sum / n + eps);
    for (let i = 0; i < n; i++) y[row + i] = x[row + i] * inverse * gain[i];
  }
  return y;
}
