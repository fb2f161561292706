import type { GgufReader } from "../decoder/gguf.ts";
import { type LoadModelOptions, loadWith } from "../decoder/load-with.ts";
import type { Model } from "../decoder/model.ts";
import { readOptions } from "../decoder/read-options.ts";
import type { ModelFiles, ModelSource } from "../files/model-files.ts";
import { resolveHead } from "../models/decoder/check-tensors.ts";
import { FAMILIES } from "../models/decoder/families.ts";
import { type Decoder, mostTokens, readDecoder } from "../models/decoder/read-spec.ts";
import { ENCODER_FAMILIES } from "../models/encoder/families.ts";
import { GGUF_ENCODERS } from "../models/gguf/encoders.ts";
import { describe, HeadwiseError } from "../util/errors.ts";
import { expectMade } from "../util/lifetime.ts";
import { expectKernels, type Kernels } from "../wasm/kernels.ts";
import { loadMore } from "./load-more.ts";
import { openEncoderFiles } from "./open-files.ts";
import { planEncoderFit } from "./plan-fit.ts";

/** A whole encoder: its weights, packed in linear memory until `release()`. */
export interface Encoder extends Model {
  /** Tokens of the longest text: those that the model has positions for, else what config.json says. */
  readonly maxSeqLen: number | undefined;
}

/** Options of `loadEncoder`. */
export interface LoadEncoderOptions
  extends Pick<LoadModelOptions, "weights" | "activations" | "gguf" | "onProgress" | "signal" | "store" | "integrity"> {
  /**
   * Bytes of linear memory that the model and calls on texts of 512 tokens, or as many as it has positions for, may take together:
   * the `total` of `planEncoder`, with a head for masked tokens where the file has one. If they take more, nothing is read of the
   * weights, and the error says what would fit. Default none.
   */
  readonly maxBytes?: number | undefined;
}

const OPTIONS = ["weights", "maxBytes", "activations", "gguf", "onProgress", "signal", "store", "integrity"] as const;

/**
 * Loads a whole encoder: BERT and its relatives, ModernBERT, MPNet, Nomic BERT, and the decoders of `loadModel` besides those with
 * latent attention, of which some were trained to give vectors. Like `loadModel`, it reads config.json and the tensors of
 * safetensors files one after the other, and packs each as it comes; with the option `gguf` also GGUF files of BERT, Nomic BERT
 * and those decoders. Not read are poolers and heads for other tasks than masked tokens.
 * @param source A folder or a GGUF file, by path (on hosts with a file system) or URL; files; bytes of a GGUF; or what opens files.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `BAD_FILE`, `OUT_OF_MEMORY`, `RELEASED`, `NO_MODELS`,
 * `NO_QUANTIZED`, `NO_GGUF`, or the signal's reason. All memory is freed then.
 * @example
 * import { loadKernels } from "headwise";
 * import { loadEncoder } from "headwise/encoders";
 * import { models } from "headwise/models";
 * import { writeSafetensors } from "headwise/weights";
 * const tensor = (...shape: number[]) => ({ data: new Float32Array(shape.reduce((a, b) => a * b)).fill(0.1), shape });
 * const bytes = writeSafetensors({
 *   "embeddings.word_embeddings.weight": tensor(32, 8), "embeddings.position_embeddings.weight": tensor(16, 8),
 *   ...Object.fromEntries(["embeddings.LayerNorm", "transformer.layer.0.sa_layer_norm", "transformer.layer.0.output_layer_norm"]
 *     .map((name) => [`${name}.weight`, tensor(8)])),
 *   ...Object.fromEntries(["q", "k", "v", "out"].map((name) => [`transformer.layer.0.attention.${name}_lin.weight`, tensor(8, 8)])),
 *   "transformer.layer.0.ffn.lin1.weight": tensor(16, 8), "transformer.layer.0.ffn.lin2.weight": tensor(8, 16),
 * });
 * const config = { model_type: "distilbert", dim: 8, hidden_dim: 16, n_heads: 2, n_layers: 1, vocab_size: 32,
 *   max_position_embeddings: 16 };
 * const files = new Map([["config.json", new TextEncoder().encode(JSON.stringify(config))], ["model.safetensors", bytes]]);
 * const kernels = await loadKernels({ models });
 * using model = await loadEncoder(kernels, (name) => files.get(name));
 * console.log(model.type, model.layers, model.maxSeqLen); // distilbert 1 16
 */
export async function loadEncoder(
  kernels: Kernels,
  source: ModelSource,
  options: LoadEncoderOptions = {},
): Promise<Encoder> {
  const where = "loadEncoder";
  expectKernels(where, kernels);
  const given = readOptions(where, options, OPTIONS);
  const kind = { read: readFiles, open: openEncoderFiles, loadMore, plan: planEncoderFit };
  return loadWith(where, kernels, source, given, kind);
}

async function readFiles(
  where: string,
  { description, tensors }: ModelFiles,
  _maxSeqLen: number | undefined,
  gguf: GgufReader | undefined,
): Promise<Decoder> {
  if (typeof description === "string") return resolveHead(readEncoder(where, description), tensors);
  const found = await (gguf as GgufReader).read(where, description, undefined, GGUF_ENCODERS);
  return asEncoder(where, found, 'key "general.architecture"');
}

/** Reads config.json of an encoder. */
export function readEncoder(where: string, config: string | object): Decoder {
  const found = readDecoder(where, config, undefined, { ...FAMILIES, ...ENCODER_FAMILIES });
  return asEncoder(where, found, "model_type");
}

/** A model whose sequences are run as a whole. `field` is where its file states the type. */
function asEncoder(where: string, { spec, ...rest }: Decoder, field: string): Decoder {
  if (spec.blocks.some(({ attention }) => attention.kind === "latent"))
    throw new HeadwiseError(
      "BAD_FILE",
      `${where}: ${field} expected one without latent attention, got ${describe(spec.type)}`,
    );
  const most = Math.min(spec.maxSeqLen ?? Number.POSITIVE_INFINITY, mostTokens(spec));
  return { ...rest, spec: { ...spec, maxSeqLen: Number.isFinite(most) ? most : undefined } };
}

/** Throws unless `model` came from loadEncoder or loadSeq2Seq and neither it nor its kernels were released. */
export function expectEncoder(where: string, model: Model): void {
  expectMade(where, "model", model, "loadEncoder", "loadSeq2Seq");
  expectKernels(where, model.kernels, "model.kernels");
}
