import type { ModelFiles, ModelSource } from "../files/model-files.ts";
import { resolveHead } from "../models/decoder/check-tensors.ts";
import { type Decoder, readDecoder } from "../models/decoder/read-spec.ts";
import type { Kernels } from "../wasm/kernels.ts";
import type { GgufReader } from "./gguf.ts";
import { type LoadModelOptions, loadWith } from "./load-with.ts";
import type { Model } from "./model.ts";

export type { LoadModelOptions } from "./load-with.ts";

/**
 * Loads a whole decoder from safetensors with config.json, or with the option `gguf` from GGUF: reads tensors one after the other,
 * and packs each as it comes. A model, a field of config.json or a rule of the metadata that is not known is refused by name, as are
 * tensors that are missing, unexpected or of another shape, all in one error. Not read are masks and tables that follow from the
 * configuration, nor a head where `tie_word_embeddings` says that it is the table of tokens, which it must equal.
 * @param source A folder or a GGUF file, by path (on hosts with a file system) or URL; files; bytes of a GGUF; or what opens files.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `BAD_FILE`, `OUT_OF_MEMORY`, `RELEASED`, `NO_MODELS`,
 * `NO_QUANTIZED`, `NO_LATENT`, `NO_GGUF`, or the signal's reason. All memory is freed then.
 * @example
 * import { loadKernels } from "headwise";
 * import { loadModel, models } from "headwise/models";
 * import { writeSafetensors } from "headwise/weights";
 * const tensor = (...shape: number[]) => ({ data: new Float32Array(shape.reduce((a, b) => a * b)).fill(0.1), shape });
 * const [layer, mlp] = ["model.layers.0.", { gate_proj: [16, 8], up_proj: [16, 8], down_proj: [8, 16] }];
 * const bytes = writeSafetensors({
 *   "model.embed_tokens.weight": tensor(32, 8), "model.norm.weight": tensor(8),
 *   [`${layer}input_layernorm.weight`]: tensor(8), [`${layer}post_attention_layernorm.weight`]: tensor(8),
 *   ...Object.fromEntries(["q", "k", "v", "o"].map((name) => [`${layer}self_attn.${name}_proj.weight`, tensor(8, 8)])),
 *   ...Object.fromEntries(Object.entries(mlp).map(([name, shape]) => [`${layer}mlp.${name}.weight`, tensor(...shape)])),
 * });
 * const config = { model_type: "llama", hidden_size: 8, num_attention_heads: 2, num_hidden_layers: 1, intermediate_size: 16,
 *   vocab_size: 32 };
 * const files = new Map([["config.json", new TextEncoder().encode(JSON.stringify(config))], ["model.safetensors", bytes]]);
 * const kernels = await loadKernels({ models });
 * using model = await loadModel(kernels, (name) => files.get(name));
 * console.log(model.type, model.layers, model.vocabSize); // llama 1 32
 */
export async function loadModel(kernels: Kernels, source: ModelSource, options: LoadModelOptions = {}): Promise<Model> {
  return loadWith("loadModel", kernels, source, options, { read: readModel });
}

/** Reads what a decoder consists of from its opened files. */
export async function readModel(
  where: string,
  { description, tensors }: ModelFiles,
  maxSeqLen: number | undefined,
  gguf: GgufReader | undefined,
): Promise<Decoder> {
  if (typeof description === "string") return resolveHead(readDecoder(where, description, maxSeqLen), tensors);
  return (gguf as GgufReader).read(where, description, maxSeqLen);
}
