// The attention maps of a model of attention layers alone. headwise/models continues a text; its maps come from attendWithMaps,
// layer by layer: embedding, and pre-norm attention with residuals.

import { attendWithMaps, createAttention, type Kernels, type Tensor, type WeightOptions } from "headwise/core";
import { fromHfConfig, readAttentionWeights, readSafetensors, toFloats } from "headwise/weights";

/** The fields of config.json that are read here; fromHfConfig reads those of the attention. */
interface Config {
  readonly hidden_size: number;
  readonly num_hidden_layers: number;
  readonly rms_norm_eps: number;
}

/** The maps [numHeads, queries, keys] of each layer, for `tokens` and a safetensors file with its config.json. */
export function attentionMaps(
  kernels: Kernels,
  bytes: Uint8Array,
  json: string,
  tokens: readonly number[],
  weights?: WeightOptions["weights"],
): Tensor[] {
  const { hidden_size: dModel, num_hidden_layers: layers, rms_norm_eps: eps } = JSON.parse(json) as Config;
  const file = readSafetensors(bytes);
  const floats = (name: string): Float32Array => {
    const tensor = file.tensors.get(name);
    if (!tensor) throw new Error(`the model has no tensor ${name}`);
    return toFloats(tensor);
  };
  const embedding = floats("model.embed_tokens.weight");
  const x = new Float32Array(tokens.length * dModel);
  for (const [t, token] of tokens.entries())
    x.set(embedding.subarray(token * dModel, (token + 1) * dModel), t * dModel);
  return Array.from({ length: layers }, (_, l) => {
    const own = readAttentionWeights(file, `model.layers.${l}.self_attn.`);
    const attention = createAttention(kernels, fromHfConfig(json, l), own, { weights });
    const { y, maps } = attendWithMaps(attention, rmsNorm(x, floats(`model.layers.${l}.input_layernorm.weight`), eps));
    attention.release();
    for (let i = 0; i < x.length; i++) x[i]! += y[i]!;
    return maps;
  });
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
