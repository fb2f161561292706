import { type LoadModelOptions, loadWith } from "../decoder/load-with.ts";
import type { Model } from "../decoder/model.ts";
import { readOptions } from "../decoder/read-options.ts";
import { type ModelFiles, type ModelSource, readTexts } from "../files/model-files.ts";
import { resolveHead } from "../models/decoder/check-tensors.ts";
import { type Decoder, readDecoder } from "../models/decoder/read-spec.ts";
import { TWO_HALVES } from "../models/encoder/halves.ts";
import { GENERATION } from "../models/hf/config-fields.ts";
import type { Kernels } from "../wasm/kernels.ts";
import { loadMore } from "./load-more.ts";
import { openSafetensorsFiles } from "./open-files.ts";
import { planHalvesFit } from "./plan-fit.ts";
import { readTokenRules } from "./token-rules.ts";

/**
 * A model with two halves: an encoder reads a source at once, and a decoder, which attends to it, writes tokens. Packed in linear
 * memory until `release()`.
 */
export interface Seq2Seq extends Model {
  /** Layers of the decoder. */
  readonly layers: number;
}

/** Options of `loadSeq2Seq`. */
export interface LoadSeq2SeqOptions
  extends Pick<
    LoadModelOptions,
    "weights" | "maxSeqLen" | "activations" | "onProgress" | "signal" | "store" | "integrity"
  > {
  /**
   * Bytes of linear memory that the model, a run of its encoder, one session of `maxSeqLen` tokens and its calls may take together,
   * for a source of all positions of the encoder (or, without a table of positions, of `maxSeqLen` tokens). If they take more,
   * nothing is read of the weights, and the error says what would fit. Default none.
   */
  readonly maxBytes?: number | undefined;
}

const OPTIONS = [
  "weights",
  "maxSeqLen",
  "maxBytes",
  "activations",
  "onProgress",
  "signal",
  "store",
  "integrity",
] as const;

/**
 * Loads a model with two halves: T5, BART, Whisper. Like `loadModel`, it reads config.json and the tensors of safetensors files
 * one after the other, and packs each as it comes. Both halves share one table of tokens. Of Whisper it reads which tokens are
 * suppressed, always or at the beginning, and which are forced, of generation_config.json or else config.json: `generate` follows
 * that.
 * @param source The path of a folder (on hosts with a file system) or its URL; the files; or a function that opens a file by name.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `BAD_FILE`, `OUT_OF_MEMORY`, `RELEASED`, `NO_MODELS`,
 * `NO_QUANTIZED`, or the signal's reason. All memory is freed then.
 * @example
 * import { loadKernels } from "headwise";
 * import { loadSeq2Seq } from "headwise/encoders";
 * import { models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const failure = await loadSeq2Seq(kernels, "model").catch(({ message }) => message); // a decoder of this repository
 * console.log(failure.split(", ").at(-1)); // which loadModel reads
 * kernels.release();
 */
export async function loadSeq2Seq(
  kernels: Kernels,
  source: ModelSource,
  options: LoadSeq2SeqOptions = {},
): Promise<Seq2Seq> {
  const where = "loadSeq2Seq";
  const given = readOptions(where, options, OPTIONS);
  return loadWith(where, kernels, source, given, {
    read: async (where, files, maxSeqLen) => {
      const found = readHalves(where, files, maxSeqLen);
      if (found.spec.type !== "whisper") return found;
      const { signal, store, integrity } = given;
      const others = await readTexts(where, source, [GENERATION], readNoGguf, signal, store, integrity);
      const generation = (others as ReadonlyMap<string, string>).get(GENERATION);
      const [name, text] = generation ? [GENERATION, generation] : ["config.json", files.description as string];
      const tokenRules = readTokenRules(where, name, text, found.spec.vocabSize);
      return { ...found, spec: { ...found.spec, tokenRules } };
    },
    open: openSafetensorsFiles,
    loadMore,
    plan: planHalvesFit,
  });
}

/** `openSafetensorsFiles` has refused GGUF. */
const readNoGguf = async () => ({ metadata: new Map() });

function readHalves(where: string, files: ModelFiles, maxSeqLen?: number): Decoder {
  return resolveHead(readSeq2Seq(where, files.description as string, maxSeqLen), files.tensors);
}

/** Reads config.json of a model with two halves. */
export function readSeq2Seq(where: string, config: string | object, maxSeqLen?: number): Decoder {
  return readDecoder(where, config, maxSeqLen, TWO_HALVES);
}
