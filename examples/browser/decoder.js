// The model: headwise/models continues a text, and the attention layers by themselves give the maps.

import { createSession, forward, loadModel } from "headwise/models";
import { fromHfConfig, readAttentionWeights, readSafetensors, toFloats } from "headwise/weights";

/** The decoder of a safetensors file and its config.json. `headwise` is the module that loaded the kernels. */
export async function createDecoder(headwise, kernels, bytes, json) {
  const { hidden_size: dModel, num_hidden_layers: numLayers, rms_norm_eps: eps, vocabulary } = JSON.parse(json);
  const files = { "config.json": new TextEncoder().encode(json), "model.safetensors": bytes };
  const model = await loadModel(kernels, (name) => files[name]);
  const encode = (text) => Array.from(text, (character) => vocabulary.indexOf(character)); // a token is a character

  const file = readSafetensors(bytes);
  const floats = (name) => toFloats(file.tensors.get(name));
  const embedding = floats("model.embed_tokens.weight");
  const layers = Array.from({ length: numLayers }, (_, l) => ({
    gain: floats(`model.layers.${l}.input_layernorm.weight`),
    attention: headwise.createAttention(
      kernels,
      fromHfConfig(json, l),
      readAttentionWeights(file, `model.layers.${l}.self_attn.`),
    ),
  }));

  return {
    /** The first character of a text that the model has no token for, or undefined. */
    unknownIn: (text) => [...text].find((character) => !vocabulary.includes(character)),

    /** The likeliest next characters, one at a time, and the milliseconds of each. */
    *continue(prompt, count) {
      const session = createSession(model, { maxSeqLen: prompt.length + count });
      try {
        for (let next = encode(prompt), made = 0; made < count; made++) {
          const started = performance.now();
          const { logits, ids } = forward(session, next, { top: 1 });
          next = ids; // the session holds all characters before it
          yield { character: vocabulary[ids[0]], logit: logits[0], ms: performance.now() - started };
        }
      } finally {
        session.release();
      }
    },

    /** The attention maps [numHeads, queries, keys] of each layer, which adds its output to the rows of the text. */
    maps(text) {
      const x = new Float32Array(text.length * dModel);
      for (const [t, token] of encode(text).entries())
        x.set(embedding.subarray(token * dModel, (token + 1) * dModel), t * dModel);
      return layers.map(({ gain, attention }) => {
        const { y, maps } = headwise.attendWithMaps(attention, rmsNorm(x, gain, eps));
        for (let i = 0; i < x.length; i++) x[i] += y[i];
        return maps;
      });
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
