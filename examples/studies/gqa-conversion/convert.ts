// A Llama checkpoint, without biases, with fewer key-value heads, by `convertToGqa` of headwise/weights.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import {
  convertToGqa,
  fromHfConfig,
  readAttentionWeights,
  readSafetensors,
  type WeightTensor,
  type WritableTensor,
  writeSafetensors,
} from "headwise/weights";
import { TorchRandom } from "../../seeds/torch-random.ts";
import { mean, round } from "../study.ts";

/** "random" is no conversion: key-value heads that learned nothing, with which the others are compared. */
export const METHODS = ["mean", "first", "svd", "random"] as const;
export type Method = (typeof METHODS)[number];

/** Of random weights: that of the beginning of the training. */
const DEVIATION = 0.06;

/** Mean relative error of the heads of all layers, as `convertToGqa` reports it. */
export interface ConversionError {
  readonly key: number;
  readonly value: number;
}

/** Writes the checkpoint in `from` with `kvHeads` key-value heads to `to`. */
export function convertCheckpoint(from: URL, to: URL, method: Method, kvHeads: number): ConversionError | undefined {
  const file = readSafetensors(readFileSync(new URL("model.safetensors", from)));
  const json = JSON.parse(readFileSync(new URL("config.json", from), "utf8"));
  const tensors: Record<string, WritableTensor> = Object.fromEntries(file.tensors);
  const errors: ConversionError[] = [];
  for (let layer = 0; layer < json.num_hidden_layers; layer++) {
    const prefix = `model.layers.${layer}.self_attn.`;
    const config = fromHfConfig(json, layer);
    const given = readAttentionWeights(file, prefix, config);
    const options = { method: method === "random" ? "mean" : method };
    const { weights, relativeError } = convertToGqa(given, config, kvHeads, options);
    const random = new TorchRandom(layer);
    const initial = ({ shape }: WeightTensor) => random.randn(shape, DEVIATION);
    const { wk, wv } = method === "random" ? { wk: initial(weights.wk), wv: initial(weights.wv) } : weights;
    for (const [name, matrix] of Object.entries({ q: weights.wq, k: wk, v: wv, o: weights.wo }))
      tensors[`${prefix}${name}_proj.weight`] = matrix!;
    errors.push({ key: mean([...relativeError.key]), value: mean([...relativeError.value]) });
  }
  mkdirSync(to, { recursive: true });
  writeFileSync(new URL("model.safetensors", to), writeSafetensors(tensors));
  writeFileSync(new URL("config.json", to), `${JSON.stringify({ ...json, num_key_value_heads: kvHeads }, null, 2)}\n`);
  if (method === "random") return undefined;
  return { key: round(mean(errors.map(({ key }) => key))), value: round(mean(errors.map(({ value }) => value))) };
}
