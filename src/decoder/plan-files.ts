// The memory of a model in files, from their headers alone.

import { type ModelFiles, type ModelSource, openModelFiles } from "../files/model-files.ts";
import type { ModelStore } from "../files/model-store.ts";
import { checkTensors } from "../models/decoder/check-tensors.ts";
import type { Decoder } from "../models/decoder/read-spec.ts";
import { expectFlag, expectFunction, expectInt, expectSignal, readFields } from "../util/arguments.ts";
import { throwUnder } from "../util/errors.ts";
import type { Global } from "../util/global.ts";
import type { GgufReader } from "./gguf.ts";
import { readModel } from "./load-model.ts";
import { expectGguf } from "./load-with.ts";
import { readFormats } from "./model-formats.ts";
import { type ModelPlan, type ModelPlanSizes, planSpec, SIZES } from "./plan-model.ts";
import { storedFormats } from "./stored-formats.ts";
import { formatsOf } from "./weight-reader.ts";

/** What to plan memory for, and how files are read. */
export interface FilesPlanOptions extends ModelPlanSizes {
  /** What GGUF files are read by, where `source` is one: `gguf`. */
  readonly gguf?: GgufReader | undefined;
  /** Whether the kernels will be loaded with `quantized`, which keep 16-bit floats as they are stored. Default true. */
  readonly quantized?: boolean | undefined;
  /** Ends requests: the promise rejects with the signal's reason. */
  readonly signal?: Global<"AbortSignal"> | undefined;
  /** Keeps what is read of URLs, as of `loadModel`. */
  readonly store?: ModelStore | undefined;
}

const OPTIONS = [...SIZES, "gguf", "quantized", "signal", "store"] as const;

/**
 * The memory that `loadModel` of the same source, its sessions and its calls will take. Of each file only the header is read: of a
 * URL, a few requests for ranges. Formats are those of the files unless `options.weights` asks for others, and files say whether
 * there is a head beside the table of tokens, so this is exact where `planModel` has to assume.
 * @param source As `loadModel` takes it: a folder or a GGUF file, by path or URL; files; bytes; or what opens files.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `BAD_FILE`, `NO_GGUF`, or the signal's reason.
 * @example
 * import { gguf, planModelFiles } from "headwise/models";
 * const { weights } = await planModelFiles("model/stories/stories.gguf", { gguf, maxSeqLen: 256 });
 * console.log(weights > 700_000 && weights < 1_200_000); // true
 */
export async function planModelFiles(source: ModelSource, options: FilesPlanOptions = {}): Promise<ModelPlan> {
  const where = "planModelFiles";
  const given = readFields(where, "options", options, OPTIONS);
  const { maxSeqLen, gguf, quantized = true, signal, store } = given;
  if (maxSeqLen !== undefined) expectInt(where, "options.maxSeqLen", maxSeqLen);
  readFormats(where, given.weights);
  expectGguf(where, gguf);
  expectFlag(where, "options.quantized", quantized);
  if (signal !== undefined) expectSignal(where, signal);
  if (store !== undefined) expectFunction(where, "options.store.open", Object(store).open);
  signal?.throwIfAborted();
  let files: ModelFiles | undefined;
  try {
    files = await openModelFiles(where, source, gguf?.open, signal, store);
    return planDecoderFiles(where, await readModel(where, files, maxSeqLen, gguf), files, given, quantized);
  } catch (error) {
    // A request that the signal ended fails with an error of its own.
    signal?.throwIfAborted();
    return throwUnder(where, error);
  } finally {
    await files?.close();
  }
}

/** The memory of a decoder whose files were opened, in the formats that they store where none is asked for. */
export function planDecoderFiles(
  where: string,
  decoder: Decoder,
  files: Pick<ModelFiles, "tensors">,
  { weights, ...sizes }: ModelPlanSizes,
  quantized: boolean,
): ModelPlan {
  const stored = formatsOf(where, checkTensors(where, decoder, files.tensors), quantized);
  return planSpec(where, decoder.spec, storedFormats(stored, decoder, readFormats(where, weights)), sizes);
}
