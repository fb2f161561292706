// The attention maps of a Llama decoder, with or without MLPs. headwise/models continues a text; its maps come from
// attendWithMaps, layer by layer: embedding, pre-norm attention and pre-norm MLP, each with its residual.

import {
  attendWithMaps,
  createAttention,
  createLinear,
  type Kernels,
  linear,
  type Tensor,
  type WeightOptions,
} from "headwise/core";
import {
  fromHfConfig,
  readAttentionWeights,
  readSafetensors,
  type SafetensorsFile,
  type StoredTensor,
  toFloats,
} from "headwise/weights";

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
  const floats = (name: string) => toFloats(tensorOf(file, name));
  const embedding = floats("model.embed_tokens.weight");
  const x = new Float32Array(tokens.length * dModel);
  for (const [t, token] of tokens.entries())
    x.set(embedding.subarray(token * dModel, (token + 1) * dModel), t * dModel);
  const add = (y: Float32Array) => {
    for (let i = 0; i < x.length; i++) x[i]! += y[i]!;
  };
  return Array.from({ length: layers }, (_, l) => {
    const layer = `model.layers.${l}.`;
    const own = readAttentionWeights(file, `${layer}self_attn.`);
    const attention = createAttention(kernels, fromHfConfig(json, l), own, { weights });
    const { y, maps } = attendWithMaps(attention, rmsNorm(x, floats(`${layer}input_layernorm.weight`), eps));
    attention.release();
    add(y);
    if (file.tensors.has(`${layer}mlp.up_proj.weight`))
      add(runMlp(kernels, file, `${layer}mlp.`, rmsNorm(x, floats(`${layer}post_attention_layernorm.weight`), eps)));
    return maps;
  });
}

function tensorOf(file: SafetensorsFile, name: string): StoredTensor {
  const tensor = file.tensors.get(name);
  if (!tensor) throw new Error(`the model has no tensor ${name}`);
  return tensor;
}

/** down(silu(gate(x)) · up(x)). */
function runMlp(kernels: Kernels, file: SafetensorsFile, prefix: string, x: Float32Array): Float32Array {
  const run = (name: string, rows: Float32Array) => {
    const layer = createLinear(kernels, { weight: tensorOf(file, `${prefix}${name}_proj.weight`) });
    const y = linear(layer, rows);
    layer.release();
    return y;
  };
  const [gate, up] = [run("gate", x), run("up", x)];
  return run(
    "down",
    up.map((value, i) => (value * gate[i]!) / (1 + Math.exp(-gate[i]!))),
  );
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
