// What every door offers, whatever it knows about wasm bytes.

export { attend, attendWithMaps } from "./attend.ts";
export { type AttendAsyncOptions, attendAsync } from "./attendasync.ts";
export { type AttendManyCall, attendMany } from "./attendmany.ts";
export { type Attention, createAttention } from "./attention.ts";
export { type Cache, type CacheOptions, createCache } from "./cache.ts";
export type { CacheFormat, CacheFormats, CacheStage } from "./cacheformats.ts";
export type { AttendOptions } from "./call.ts";
export {
  type AttentionConfig,
  type AttentionRules,
  alibiSlopes,
  type CheckedConfig,
  type QkNormConfig,
  type Window,
} from "./config.ts";
export { type ConvertedToGqa, type ConvertibleConfig, convertToGqa } from "./convert.ts";
export type { Deviation } from "./deviation.ts";
export { HeadwiseError, type HeadwiseErrorCode } from "./errors.ts";
export type { LayerFormats, WeightOptions } from "./formats.ts";
export { type GgufArray, type GgufFile, type GgufValue, openGguf } from "./gguf.ts";
export { type GgufLayer, type GgufLayerOptions, type GgufWeights, readGgufLayer } from "./gguflayer.ts";
export { type ApplyRopeOptions, applyRope, mergeHeads, splitHeads } from "./heads.ts";
export { fromHfConfig, type HfAttentionConfig, type HfPart } from "./hf.ts";
export type { Build, Kernels, LoadOptions, WasmSource } from "./kernels.ts";
export type { Releasable } from "./lifetime.ts";
export type { Mask, MaskOptions } from "./mask.ts";
export type { WeightTensor } from "./matrix.ts";
export type { MatrixLayout, WeightFormat } from "./pack.ts";
export { permuteRope } from "./permute.ts";
export { type Plan, type PlanSizes, plan } from "./plan.ts";
export type { PlacementOptions } from "./positions.ts";
export { quantizeTensor, type StoredFormat } from "./quantize.ts";
export {
  type QuantizeReportOptions,
  type QuantizeResult,
  type QuantizeTrial,
  quantizeReport,
} from "./quantizereport.ts";
export {
  type ByteSource,
  type BytesOrSource,
  blobSource,
  fileSource,
  type ReadableFile,
} from "./ranges.ts";
export { type RopeConfig, type RopeScaling, type RopeWithDim, ropeTables } from "./rotary.ts";
export {
  type Dtype,
  openSafetensors,
  readSafetensors,
  readSafetensorsIndex,
  type SafetensorsFile,
  type StoredTensor,
  toFloats,
  type WritableTensor,
  writeSafetensors,
} from "./safetensors.ts";
export { type SdpaOptions, type SdpaResult, scaledDotProductAttention } from "./sdpa.ts";
export { type SelfTest, selfTest } from "./selftest.ts";
export type { HeadLayout } from "./strided.ts";
export type { Tensor } from "./tensor.ts";
export type { TensorEntry, TensorFile } from "./tensorfile.ts";
export { type UrlSourceOptions, urlSource } from "./urlsource.ts";
export { type AttentionWeights, readAttentionWeights, type WeightsConfig } from "./weights.ts";
