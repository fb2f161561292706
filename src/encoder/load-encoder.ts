import { type LoadModelOptions, loadWith } from "../decoder/load-with.ts";
import type { Model } from "../decoder/model.ts";
import type { ModelFiles, ModelSource } from "../files/model-files.ts";
import { resolveHead } from "../models/decoder/check-tensors.ts";
import { type Decoder, positionsOf, readDecoder } from "../models/decoder/read-spec.ts";
import { ENCODER_FAMILIES } from "../models/encoder/families.ts";
import { readFields } from "../util/arguments.ts";
import { HeadwiseError } from "../util/errors.ts";
import { expectMade } from "../util/lifetime.ts";
import { expectKernels, type Kernels } from "../wasm/kernels.ts";
import { openEncoderFiles } from "./open-files.ts";

/**
 * A whole encoder: its weights, packed in linear memory until `release()`.
 * @example
 * import { loadKernels } from "headwise";
 * import { loadEncoder } from "headwise/encoders";
 * import { models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const failure = await loadEncoder(kernels, () => undefined).catch(({ code }) => code);
 * console.log(failure); // BAD_FILE
 */
export interface Encoder extends Model {
  /** Tokens of the longest text: those that the model has positions for, else what config.json says. */
  readonly maxSeqLen: number | undefined;
}

/** Options of `loadEncoder`. */
export type LoadEncoderOptions = Pick<LoadModelOptions, "weights" | "activations" | "onProgress" | "signal">;

const OPTIONS = ["weights", "activations", "onProgress", "signal"] as const;

/**
 * Loads a whole encoder: BERT and its relatives, ModernBERT, MPNet, Nomic BERT. Like `loadModel`, it reads config.json and
 * the tensors of safetensors files one after the other, and packs each as it comes. Not read are heads for tasks and poolers.
 * @param source The path of a folder (on hosts with a file system) or its URL; the files; or a function that opens a file by name.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `BAD_FILE`, `OUT_OF_MEMORY`, `RELEASED`, `NO_MODELS`,
 * `NO_QUANTIZED`, or the signal's reason. All memory is freed then.
 */
export async function loadEncoder(
  kernels: Kernels,
  source: ModelSource,
  options: LoadEncoderOptions = {},
): Promise<Encoder> {
  const where = "loadEncoder";
  expectKernels(where, kernels);
  const given = readFields(where, "options", options, OPTIONS);
  return loadWith(where, kernels, source, given, readFiles, openEncoderFiles);
}

function readFiles(where: string, { description, tensors }: ModelFiles): Decoder {
  if (typeof description === "string") return resolveHead(readEncoder(where, description), tensors);
  throw new HeadwiseError("BAD_FILE", `${where}: source expected config.json and safetensors, got a GGUF file`);
}

/** Reads config.json of an encoder. */
export function readEncoder(where: string, config: string | object): Decoder {
  const { spec, ...rest } = readDecoder(where, config, undefined, ENCODER_FAMILIES);
  const most = Math.min(spec.maxSeqLen ?? Number.POSITIVE_INFINITY, positionsOf(spec.embed));
  return { ...rest, spec: { ...spec, maxSeqLen: Number.isFinite(most) ? most : undefined } };
}

/** Throws unless `model` came from loadEncoder and neither it nor its kernels were released. */
export function expectEncoder(where: string, model: Encoder): void {
  expectMade(where, "model", model, "loadEncoder");
  expectKernels(where, model.kernels, "model.kernels");
}
