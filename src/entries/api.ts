// The exports of every entry with kernels, wherever its modules come from.

export type { Dtype, StoredTensor } from "../base/tensor/dtypes.ts";
export type { MatrixLayout, WeightTensor } from "../base/tensor/matrix.ts";
export type { HeadLayout, Tensor } from "../base/tensor/tensor.ts";
export { HeadwiseError, type HeadwiseErrorCode } from "../base/util/errors.ts";
export type { Handle, Releasable } from "../base/util/lifetime.ts";
export {
  type AttendAsyncOptions,
  type AttendManyCall,
  attend,
  attendAsync,
  attendMany,
  attendWithMaps,
  type Plan,
  type PlanSizes,
  plan,
} from "../layers/api/attend.ts";
export { type ApplyRopeOptions, applyRope, mergeHeads, splitHeads } from "../layers/api/heads.ts";
export {
  createLinear,
  type Linear,
  type LinearAsyncOptions,
  type LinearOptions,
  type LinearPlan,
  type LinearPlanOptions,
  type LinearSizes,
  type LinearWeightOptions,
  type LinearWeights,
  linear,
  linearAsync,
  planLinear,
} from "../layers/api/linear.ts";
export { type SdpaOptions, type SdpaResult, scaledDotProductAttention } from "../layers/api/sdpa.ts";
export { type Attention, type Cache, createAttention, createCache } from "../layers/attention/attention.ts";
export {
  type AttentionConfig,
  type AttentionRules,
  alibiSlopes,
  type CheckedConfig,
  type QkNormConfig,
  type Window,
} from "../layers/attention/config.ts";
export type { Mask, MaskOptions, PlacementOptions } from "../layers/attention/mask.ts";
export { type RopeConfig, type RopeScaling, type RopeWithDim, ropeTables } from "../layers/attention/rope.ts";
export type {
  AttentionWeights,
  CommonWeights,
  FusedWeights,
  LayerFormats,
  SeparateWeights,
  WeightOptions,
} from "../layers/attention/weights.ts";
export type { PackedFormat, WeightFormat } from "../layers/linear/formats.ts";
export type { AttendOptions } from "../layers/pass/call.ts";
export type { SliceOptions } from "../layers/pass/forward.ts";
export { type CacheOptions, createKvCache, type KvCache, type KvCacheOptions } from "../layers/state/kv-cache.ts";
export type { CacheFormat, CacheFormats, CacheStage } from "../layers/state/pages.ts";
export type { SelfTest } from "../tools/diagnostics/self-test.ts";
export type { Kernels, Threads } from "../wasm/kernels.ts";
export type { MemoryPlan } from "../wasm/memory.ts";
export type { Build, LoadOptions, ModuleSource, WasmSource } from "../wasm/modules.ts";
export { selfTest } from "./old-names.ts";
