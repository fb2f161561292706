// The exports of every entry with kernels, wherever its modules come from.

export { attend, attendWithMaps } from "../api/attend.ts";
export { type AttendAsyncOptions, attendAsync } from "../api/attend-async.ts";
export { type AttendManyCall, attendMany } from "../api/attend-many.ts";
export { linear } from "../api/linear.ts";
export { type LinearAsyncOptions, linearAsync } from "../api/linear-async.ts";
export { type Plan, type PlanSizes, plan } from "../api/plan.ts";
export { type LinearPlan, type LinearPlanOptions, type LinearSizes, planLinear } from "../api/plan-linear.ts";
export { type SdpaOptions, type SdpaResult, scaledDotProductAttention } from "../api/sdpa.ts";
export { alibiSlopes } from "../attention/alibi.ts";
export { type Attention, createAttention } from "../attention/attention.ts";
export type {
  AttentionConfig,
  AttentionRules,
  CheckedConfig,
  QkNormConfig,
  Window,
} from "../attention/config.ts";
export type { Mask, MaskOptions } from "../attention/mask.ts";
export type { PlacementOptions } from "../attention/positions.ts";
export type { RopeConfig, RopeWithDim } from "../attention/rope.ts";
export type { RopeScaling } from "../attention/rope-frequencies.ts";
export type { LayerFormats, WeightOptions } from "../attention/weight-options.ts";
export type { AttentionWeights, CommonWeights, FusedWeights, SeparateWeights } from "../attention/weights.ts";
export { type Cache, createCache } from "../cache/cache.ts";
export type { CacheStage } from "../cache/formats.ts";
export { type CacheOptions, createKvCache, type KvCache, type KvCacheOptions } from "../cache/kv-cache.ts";
export type { CacheFormat, CacheFormats } from "../cache/page-layout.ts";
export { type SelfTest, selfTest } from "../diagnostics/self-test.ts";
export type { AttendOptions } from "../forward/call.ts";
export type { LinearOptions } from "../forward/linear.ts";
export type { SliceOptions } from "../forward/slices.ts";
export {
  createLinear,
  type Linear,
  type LinearWeightOptions,
  type LinearWeights,
} from "../linear/create-linear.ts";
export type { PackedFormat, WeightFormat } from "../linear/formats.ts";
export type { Dtype, StoredTensor } from "../tensor/dtypes.ts";
export type { HeadLayout } from "../tensor/head-layout.ts";
export type { MatrixLayout, WeightTensor } from "../tensor/matrix.ts";
export type { Tensor } from "../tensor/tensor.ts";
export { HeadwiseError, type HeadwiseErrorCode } from "../util/errors.ts";
export type { Handle, Releasable } from "../util/lifetime.ts";
export type { ModuleSource, WasmSource } from "../wasm/compile.ts";
export type { Kernels, LoadOptions, Threads } from "../wasm/kernels.ts";
export type { Build } from "../wasm/select-build.ts";
