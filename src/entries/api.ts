// The exports of every entry with kernels, wherever its modules come from.

export type { Dtype, StoredTensor } from "../base/tensor/dtypes.ts";
export type { HeadLayout } from "../base/tensor/head-layout.ts";
export type { MatrixLayout, WeightTensor } from "../base/tensor/matrix.ts";
export type { Tensor } from "../base/tensor/tensor.ts";
export { HeadwiseError, type HeadwiseErrorCode } from "../base/util/errors.ts";
export type { Handle, Releasable } from "../base/util/lifetime.ts";
export {
  type AttendAsyncOptions,
  type AttendManyCall,
  attend,
  attendAsync,
  attendMany,
  attendWithMaps,
} from "../layers/api/attend.ts";
export { type ApplyRopeOptions, applyRope, mergeHeads, splitHeads } from "../layers/api/heads.ts";
export {
  type LinearAsyncOptions,
  type LinearPlan,
  type LinearPlanOptions,
  type LinearSizes,
  linear,
  linearAsync,
  planLinear,
} from "../layers/api/linear.ts";
export { type Plan, type PlanSizes, plan } from "../layers/api/plan.ts";
export { type SdpaOptions, type SdpaResult, scaledDotProductAttention } from "../layers/api/sdpa.ts";
export { type Attention, createAttention } from "../layers/attention/attention.ts";
export type {
  AttentionConfig,
  AttentionRules,
  CheckedConfig,
  QkNormConfig,
  Window,
} from "../layers/attention/config.ts";
export { alibiSlopes } from "../layers/attention/config.ts";
export type { Mask, MaskOptions } from "../layers/attention/mask.ts";
export type { PlacementOptions } from "../layers/attention/positions.ts";
export { type RopeConfig, type RopeScaling, type RopeWithDim, ropeTables } from "../layers/attention/rope.ts";
export type {
  AttentionWeights,
  CommonWeights,
  FusedWeights,
  LayerFormats,
  SeparateWeights,
  WeightOptions,
} from "../layers/attention/weights.ts";
export {
  createLinear,
  type Linear,
  type LinearWeightOptions,
  type LinearWeights,
} from "../layers/linear/create-linear.ts";
export type { PackedFormat, WeightFormat } from "../layers/linear/formats/format.ts";
export { type Cache, createCache } from "../layers/pass/cache.ts";
export type { AttendOptions } from "../layers/pass/call.ts";
export type { LinearOptions } from "../layers/pass/linear.ts";
export type { SliceOptions } from "../layers/pass/slices.ts";
export type { CacheStage } from "../layers/state/formats.ts";
export { type CacheOptions, createKvCache, type KvCache, type KvCacheOptions } from "../layers/state/kv-cache.ts";
export type { CacheFormat, CacheFormats } from "../layers/state/pages.ts";
export type { SelfTest } from "../tools/diagnostics/self-test.ts";
export type { Kernels, LoadOptions, Threads } from "../wasm/kernels.ts";
export type { MemoryPlan } from "../wasm/memory.ts";
export type { Build, ModuleSource, WasmSource } from "../wasm/modules.ts";
export { selfTest } from "./old-names.ts";
