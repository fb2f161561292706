// The shape of MiniLM-L6-v2 with random weights.

import type { StoredTensor } from "../../../src/base/tensor/dtypes.ts";
import { quantizeTensor } from "../../../src/base/tensor/quantize.ts";
import type { Tensor } from "../../../src/base/tensor/tensor.ts";
import { writeSafetensors } from "../../../src/files/safetensors/safetensors.ts";
import { readEncoder } from "../../../src/models/encoder/load.ts";
import { expectedTensors } from "../../../src/models/spec/tensors.ts";
import { createRandom } from "../../../src/tools/diagnostics/random.ts";

export const CONFIG = {
  ...{ model_type: "bert", hidden_size: 384, num_hidden_layers: 6, num_attention_heads: 12, intermediate_size: 1536 },
  ...{
    vocab_size: 30_522,
    max_position_embeddings: 512,
    type_vocab_size: 2,
    layer_norm_eps: 1e-12,
    hidden_act: "gelu",
  },
};

/** The tensors of the model, by name, without a head: random values about as large as trained weights. */
export function randomTensors(): Map<string, Tensor> {
  const random = createRandom(7);
  const decoder = readEncoder("bench", CONFIG);
  const { spec } = decoder;
  const { transform: _, ...head } = spec.head;
  const { required, optional } = expectedTensors({ ...decoder, spec: { ...spec, head } }, "");
  const tensors = new Map<string, Tensor>();
  for (const [name, shape] of [...required, ...optional]) {
    if (name.startsWith("cls.")) continue;
    const values = random.floats(shape.reduce((product, side) => product * side, 1));
    const isGain = shape.length === 1 && name.endsWith("weight");
    const scale = shape.length > 1 ? 1.7 / Math.sqrt(shape.at(-1) as number) : 0.1;
    tensors.set(name, { data: values.map((x) => (isGain ? 1 : 0) + scale * x), shape });
  }
  return tensors;
}

/** config.json and model.safetensors, in float32 or with the matrices of layers and the table of words in Q8_0. */
export const folderOf = (tensors: ReadonlyMap<string, Tensor>, format: "f32" | "q8"): Record<string, Uint8Array> => {
  const isPacked = (name: string) => format === "q8" && /(word_embeddings|query|key|value|dense)\.weight$/.test(name);
  const stored = Array.from(
    tensors,
    ([name, tensor]) => [name, isPacked(name) ? quantizeTensor(tensor, "Q8_0") : tensor] as const,
  );
  return {
    "config.json": new TextEncoder().encode(JSON.stringify(CONFIG)),
    "model.safetensors": writeSafetensors(new Map<string, Tensor | StoredTensor>(stored)),
  };
};
