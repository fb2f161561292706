// What every door with kernels offers, whatever it knows about wasm bytes.

export { attend, attendWithMaps } from "./attend.ts";
export { type AttendAsyncOptions, attendAsync } from "./attendasync.ts";
export { type AttendManyCall, attendMany } from "./attendmany.ts";
export { type Attention, createAttention } from "./attention.ts";
export { type Cache, type CacheOptions, createCache } from "./cache.ts";
export type { CacheFormat, CacheFormats, CacheStage } from "./cacheformats.ts";
export { type CachePage, exportPages, importPages } from "./cachepages.ts";
export type { AttendOptions } from "./call.ts";
export {
  type AttentionConfig,
  type AttentionRules,
  alibiSlopes,
  type CheckedConfig,
  type QkNormConfig,
  type Window,
} from "./config.ts";
export { HeadwiseError, type HeadwiseErrorCode } from "./errors.ts";
export type { Dtype, StoredTensor } from "./floats.ts";
export type { LayerFormats, WeightOptions } from "./formats.ts";
export { type ApplyRopeOptions, applyRope, mergeHeads, splitHeads } from "./heads.ts";
export type { Build, Kernels, LoadOptions, ModuleSource, Threads, WasmSource } from "./kernels.ts";
export type { Releasable } from "./lifetime.ts";
export type { Mask, MaskOptions } from "./mask.ts";
export type { WeightTensor } from "./matrix.ts";
export type { MatrixLayout, WeightFormat } from "./pack.ts";
export { type Plan, type PlanSizes, plan } from "./plan.ts";
export type { PlacementOptions } from "./positions.ts";
export { type RopeConfig, type RopeScaling, type RopeWithDim, ropeTables } from "./rotary.ts";
export { type SdpaOptions, type SdpaResult, scaledDotProductAttention } from "./sdpa.ts";
export { type SelfTest, selfTest } from "./selftest.ts";
export type { HeadLayout } from "./strided.ts";
export type { Tensor } from "./tensor.ts";
export type { AttentionWeights } from "./weights.ts";
