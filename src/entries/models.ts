/**
 * Whole models, from config.json and safetensors or a GGUF file: decoders, and the tokens that they go on with; encoders, and vectors
 * of texts, states of tokens, logits of masked tokens; models with two halves. Caches and sessions as pages of bytes, to store a
 * conversation and continue it later, in another process or on another machine.
 * @packageDocumentation
 */

import decodersRelaxed from "../../build/decoders-relaxed.wasm";
import decodersSimd from "../../build/decoders-simd.wasm";
import type { ModelKernels } from "../wasm/modules.ts";

export type { PieceStore } from "../base/platform/piece-stores.ts";
export type { Tensor } from "../base/tensor/tensor.ts";
export { HeadwiseError, type HeadwiseErrorCode } from "../base/util/errors.ts";
export type { UrlSourceOptions } from "../files/http-source.ts";
export type { ModelSource } from "../files/model-files.ts";
export {
  createBrowserStore,
  createFolderStore,
  createStore,
  defaultStoreFolder,
  type KeptUrl,
  type ListStoreOptions,
  listStore,
  type ModelStore,
  type StoreOptions,
} from "../files/store.ts";
export { type CachePage, exportPages, importPages } from "../layers/state/export.ts";
export type { LoadedModel, Model, ModelKind } from "../models/blocks/model.ts";
export {
  type ForwardAsyncOptions,
  type ForwardOptions,
  type ForwardResult,
  forward,
  forwardAsync,
} from "../models/decoder/forward.ts";
export {
  createSession,
  exportSession,
  importSession,
  type Session,
  type SessionOptions,
  type TokenIds,
} from "../models/decoder/session.ts";
export type { Batch, BatchOptions, Pooling, TextTokenizer } from "../models/encoder/encode.ts";
export {
  type EmbedOptions,
  embed,
  embedAsync,
  encode,
  encodeAsync,
  type MaskedLogits,
  type MaskedLogitsOptions,
  maskedLogits,
} from "../models/encoder/encode.ts";
export {
  type Encoder,
  type EncoderPlan,
  type EncoderPlanSizes,
  type LoadEncoderOptions,
  type LoadSeq2SeqOptions,
  loadEncoder,
  loadSeq2Seq,
  planEncoder,
  type Seq2Seq,
} from "../models/encoder/load.ts";
export { type LogMelOptions, logMel, logMelAsync } from "../models/encoder/log-mel.ts";
export { type ReadSourceOptions, readSource } from "../models/encoder/read-source.ts";
export {
  type DraftOptions,
  type GeneratedToken,
  type GenerateOptions,
  type GenerationEnd,
  generate,
  type TokenGeneration,
} from "../models/generate/generate.ts";
export {
  type GenerateManyOptions,
  type GenerationEvent,
  type GenerationFailure,
  type GenerationJob,
  generateMany,
} from "../models/generate/generate-many.ts";
export type { LogitsProcessor, LogitsTensor, SamplingOptions } from "../models/generate/sampling.ts";
// First, so that in a bundle what reads files stands before what runs layers: it compresses to 1 % less.
export { type FilesPlanOptions, type LoadModelOptions, loadModel, planModelFiles } from "../models/load/load-model.ts";
export { type ModelFormats, type ModelPlan, type ModelPlanSizes, planModel } from "../models/load/plan-model.ts";
export { type GgufReader, gguf } from "../models/spec/read-gguf.ts";
export { type ModelSelfTest, selfTestModels } from "../tools/diagnostics/self-test-models.ts";
export type { DecoderModules, ModelKernels } from "../wasm/modules.ts";

/**
 * Kernels for whole models, for both builds.
 * @example
 * import { loadKernels } from "headwise";
 * import { models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * console.log(kernels.models); // true
 * kernels.release();
 */
export const models: ModelKernels = { simd: { decoders: decodersSimd }, relaxed: { decoders: decodersRelaxed } };
