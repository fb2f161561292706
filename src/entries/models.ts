/**
 * Whole decoders: from config.json and safetensors, or a GGUF file, to tokens.
 * @packageDocumentation
 */

import decodersRelaxed from "../../build/decoders-relaxed.wasm";
import decodersSimd from "../../build/decoders-simd.wasm";
import type { ModelKernels } from "../wasm/modules.ts";

export type { PieceStore } from "../base/platform/piece-stores.ts";
export { HeadwiseError, type HeadwiseErrorCode } from "../base/util/errors.ts";
export type { UrlSourceOptions } from "../files/http-source.ts";
export type { ModelSource } from "../files/model-files.ts";
export {
  createBrowserStore,
  createFolderStore,
  createStore,
  type ModelStore,
  type StoreOptions,
} from "../files/store.ts";
export type { Model } from "../models/blocks/model.ts";
export {
  type ForwardAsyncOptions,
  type ForwardOptions,
  type ForwardResult,
  forward,
  forwardAsync,
  type TokenIds,
} from "../models/decoder/forward.ts";
export { createSession, type Session, type SessionOptions } from "../models/decoder/session.ts";
export {
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
export type { DraftOptions } from "../models/generate/speculate.ts";
export { type GgufReader, gguf } from "../models/load/gguf.ts";
export { type FilesPlanOptions, type LoadModelOptions, loadModel, planModelFiles } from "../models/load/load-model.ts";
export { type ModelFormats, type ModelPlan, type ModelPlanSizes, planModel } from "../models/load/plan-model.ts";
export { type ModelSelfTest, selfTestModels } from "../tools/diagnostics/self-test-models.ts";
export type { DecoderModules, ModelKernels } from "../wasm/modules.ts";

/**
 * Kernels for whole decoders, for both builds.
 * @example
 * import { loadKernels } from "headwise";
 * import { models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * console.log(kernels.models); // true
 * kernels.release();
 */
export const models: ModelKernels = { simd: { decoders: decodersSimd }, relaxed: { decoders: decodersRelaxed } };
