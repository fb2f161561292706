import type { AttentionConfig } from "./config.ts";
import { describe, expectInt, expectOneOf, expectRecord } from "./errors.ts";
import { openLayer, readLayer } from "./reading.ts";
import { readSafetensors, type SafetensorsFile } from "./safetensors.ts";
import type { Tensor } from "./tensor.ts";

/** The weights of one attention layer: either `wq`, `wk` and `wv`, or `wqkv`. What a layer lacks is undefined. */
export interface AttentionWeights {
  /** [numHeads·headDim, dModel]; with layout "in-out" [dModel, numHeads·headDim]. The same turn for each matrix. */
  readonly wq?: Tensor;
  /** [numKvHeads·headDim, kdim]. */
  readonly wk?: Tensor;
  /** [numKvHeads·valueDim, vdim]. */
  readonly wv?: Tensor;
  /** [numHeads·headDim + numKvHeads·headDim + numKvHeads·valueDim, dModel]: the rows of q, then k, then v. */
  readonly wqkv?: Tensor;
  /** [dModel, numHeads·valueDim]. */
  readonly wo: Tensor;
  /** One float for each output of the matrix. */
  readonly bq?: Float32Array;
  readonly bk?: Float32Array;
  readonly bv?: Float32Array;
  readonly bqkv?: Float32Array;
  readonly bo?: Float32Array;
  /** Gains of the RMS norm of queries and keys: [headDim], or [numHeads·headDim] and [numKvHeads·headDim]. */
  readonly qNorm?: Float32Array;
  readonly kNorm?: Float32Array;
  /** [numHeads]. One logit a head in the softmax's denominator; it has no value. */
  readonly sinkLogits?: Float32Array;
  /** One more key [numKvHeads·headDim] and value [numKvHeads·valueDim] behind the projected ones (add_bias_kv). */
  readonly biasK?: Float32Array;
  readonly biasV?: Float32Array;
  /** How the matrices lie; default "out-in". */
  readonly layout?: "out-in" | "in-out";
}

/** What `readAttentionWeights` needs to know where the shapes of the tensors leave it open. */
export type WeightsConfig = Partial<Pick<AttentionConfig, "numHeads" | "numKvHeads" | "headDim">> & {
  /** Rows of a fused matrix: all q, all k, all v; or for each key-value head its q's, its k and its v. */
  readonly fused?: "qkv" | "grouped";
};

const WHERE = "readAttentionWeights";

/**
 * Reads the weights of one attention layer from a safetensors file, by the names and layouts of PyTorch's
 * nn.MultiheadAttention, Llama, Mistral, Qwen, Gemma, OLMo, gpt-oss, Phi-3, GPT-2, GPT-NeoX, Falcon, T5, BERT, ViT,
 * Whisper, BART and CLIP, and by W_q, W_k, W_v, W_o and their like. F16, BF16 and F64 become float32; F32 is borrowed
 * from the file where it lies aligned. A relative position bias (T5) is not a weight of the layer: pass it as `bias`.
 * @param prefix What comes before the layer's own names, e.g. "model.layers.0.self_attn." (the last dot may be left
 * out).
 * @param config Shapes are compared with it as far as it is given. Falcon and GPT-NeoX need `numHeads` and `fused`
 * (or `numKvHeads: 1`): nothing in their files says in which order the rows lie. `fromHfConfig` gives both.
 * @throws HeadwiseError `BAD_FILE` for a file that breaks the format, for names that are not recognised (with what
 * was found), for a missing tensor, for shapes that do not fit each other (with both), and for layers whose other
 * tensors would change the result.
 * @example
 * import { readAttentionWeights, writeSafetensors } from "headwise";
 * const square = { data: new Float32Array(16), shape: [4, 4] };
 * const bytes = writeSafetensors(
 *   Object.fromEntries(["q", "k", "v", "o"].map((part) => [`layers.0.${part}_proj.weight`, square])),
 * );
 * console.log(readAttentionWeights(bytes, "layers.0.").wq?.shape); // [4, 4]
 */
export function readAttentionWeights(
  source: Uint8Array | ArrayBuffer | SafetensorsFile,
  prefix = "",
  config: WeightsConfig = {},
): AttentionWeights {
  if (typeof prefix !== "string") throw new TypeError(`${WHERE}: prefix expected a string, got ${describe(prefix)}`);
  expectRecord(WHERE, "config", config);
  for (const name of ["numHeads", "numKvHeads", "headDim"] as const)
    if (config[name] !== undefined) expectInt(WHERE, `config.${name}`, config[name]);
  if (config.fused !== undefined) expectOneOf(WHERE, "config.fused", config.fused, ["qkv", "grouped"]);
  const { numHeads, numKvHeads } = config;
  if (numHeads !== undefined && numKvHeads !== undefined && numHeads % numKvHeads !== 0)
    throw new RangeError(
      `${WHERE}: config.numHeads expected a multiple of config.numKvHeads (${numKvHeads}), got ${numHeads}`,
    );
  const file = isFile(source) ? source : readSafetensors(source, WHERE);
  return readLayer(WHERE, openLayer(WHERE, file, prefix), config);
}

function isFile(source: unknown): source is SafetensorsFile {
  if (source === null || typeof source !== "object" || !("tensors" in source)) return false;
  return Object.prototype.toString.call(source.tensors) === "[object Map]";
}
