/**
 * Whole decoders: from config.json and safetensors, or a GGUF file, to tokens.
 * @packageDocumentation
 */

import decodersRelaxed from "../../build/decoders-relaxed.wasm";
import decodersSimd from "../../build/decoders-simd.wasm";
import type { ModelKernels } from "../wasm/select-build.ts";

export {
  type ForwardAsyncOptions,
  type ForwardOptions,
  type ForwardResult,
  forward,
  forwardAsync,
  type TokenIds,
} from "../decoder/forward.ts";
export {
  type GeneratedToken,
  type GenerateOptions,
  type GenerationEnd,
  generate,
  type TokenGeneration,
} from "../decoder/generate.ts";
export {
  type GenerateManyOptions,
  type GenerationEvent,
  type GenerationFailure,
  type GenerationJob,
  generateMany,
} from "../decoder/generate-many.ts";
export { type GgufReader, gguf } from "../decoder/gguf.ts";
export { type LoadModelOptions, loadModel } from "../decoder/load-model.ts";
export type { Model } from "../decoder/model.ts";
export type { ModelFormats } from "../decoder/model-formats.ts";
export { type FilesPlanOptions, planModelFiles } from "../decoder/plan-files.ts";
export { type ModelPlan, type ModelPlanSizes, planModel } from "../decoder/plan-model.ts";
export type { LogitsProcessor, LogitsTensor, SamplingOptions } from "../decoder/sampling.ts";
export { type ModelSelfTest, selfTestModels } from "../decoder/self-test.ts";
export { createSession, type Session, type SessionOptions } from "../decoder/session.ts";
export type { DraftOptions } from "../decoder/speculate.ts";
export type { ModelSource } from "../files/model-files.ts";
export {
  createBrowserStore,
  createFolderStore,
  createStore,
  type ModelStore,
  type StoreOptions,
} from "../files/model-store.ts";
export type { UrlSourceOptions } from "../files/url-source.ts";
export type { PieceStore } from "../platform/piece-stores.ts";
export { HeadwiseError, type HeadwiseErrorCode } from "../util/errors.ts";
export type { DecoderModules, ModelKernels } from "../wasm/select-build.ts";

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
