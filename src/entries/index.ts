/**
 * The default entry: attention on one thread, with float32 weights and caches. Both builds of the kernels are inlined, so
 * that no file or network is used. On hosts that refuse to compile bytes (Cloudflare Workers, edge runtimes), they are
 * `.wasm` imports instead.
 * @packageDocumentation
 */

import relaxed from "../../build/relaxed.wasm";
import simd from "../../build/simd.wasm";
import { chooseKernels, type Kernels } from "../wasm/kernels.ts";
import type { LoadOptions } from "../wasm/modules.ts";
import { openModule } from "./module-source.ts";

export type { ThreadWorker } from "../base/platform/workers.ts";
export type { ByteSource } from "../files/byte-source.ts";
export type { ModelSource } from "../files/model-files.ts";
export type { ModelStore } from "../files/store.ts";
export type { Model } from "../models/blocks/model.ts";
export type { Session } from "../models/decoder/session.ts";
export type { Pooling } from "../models/encoder/encode.ts";
export type { Encoder, Seq2Seq } from "../models/encoder/load.ts";
export type { Answer, AnswerEnd } from "../open/answer.ts";
export type { Choice, Choices } from "../open/choose.ts";
export type { LoadingOptions, OpenProgress } from "../open/load.ts";
export type {
  AnswerOptions,
  ChatAnswerOptions,
  ChatMessages,
  ModelMethods,
  ModelParts,
  ModelTask,
  OpenedModel,
  OpenedModelBase,
} from "../open/model.ts";
export type { OpenLibraries, OpenModelOptions } from "../open/open-model.ts";
export type { OpenSource } from "../open/source.ts";
export type { TextTask } from "../retrieval/recipe.ts";
export type { Ranked, SparseVector } from "../retrieval/scores.ts";
export type {
  ClassifyOptions,
  Each,
  EmbedTextOptions,
  EntityOptions,
  Filled,
  FillOptions,
  FindOptions,
  FoundAnswer,
  Labelled,
  RankOptions,
  TaskOptions,
  TextPair,
  Texts,
  TextTasks,
} from "../retrieval/tasks.ts";
export type { Aggregation, Entity } from "../retrieval/texts.ts";
export type { ChatMessage } from "../text/chat.ts";
export type { Tokenizer } from "../text/tokenizer.ts";
export * from "./api.ts";
export { openModel } from "./open-model.ts";

/**
 * Starts the kernels: the build "relaxed" on engines with a fused multiply-add, else "simd".
 * @throws TypeError or RangeError naming the option. HeadwiseError `NO_SIMD`, `NO_CODEGEN`, `NO_DECOMPRESSION`,
 * `NO_QUANTIZED` or `OUT_OF_MEMORY`; for a module of your own also `BAD_FILE`, `NOT_WASM` or `ABI_MISMATCH`.
 * @example
 * import { loadKernels } from "headwise";
 * const kernels = await loadKernels({ deterministic: true });
 * console.log(kernels.build); // simd
 */
export async function loadKernels(options: LoadOptions = {}): Promise<Kernels> {
  return chooseKernels({ simd, relaxed }, await openModule(options));
}
