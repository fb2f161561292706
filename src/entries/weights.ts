/**
 * Weights: reading and writing model files, and converting what is in them. It works without kernels.
 * @packageDocumentation
 */

export type { AttentionConfig } from "../attention/config.ts";
export type { AttentionWeights } from "../attention/weights.ts";
export {
  type ByteSource,
  type BytesOrSource,
  blobSource,
  fileSource,
  type ReadableFile,
} from "../files/byte-source.ts";
export { type GgufFile, openGguf } from "../files/gguf/gguf.ts";
export type { GgufArray, GgufValue } from "../files/gguf/header.ts";
export {
  openSafetensorsIndex,
  readSafetensorsIndex,
  type SafetensorsIndex,
} from "../files/safetensors/model-index.ts";
export {
  openSafetensors,
  readSafetensors,
  type SafetensorsFile,
  type WritableTensor,
  writeSafetensors,
} from "../files/safetensors/safetensors.ts";
export type { TensorEntry, TensorFile } from "../files/tensor-file.ts";
export { type UrlSourceOptions, urlSource } from "../files/url-source.ts";
export type { LatentConfig } from "../latent/config.ts";
export type { LatentWeights } from "../latent/weights.ts";
export {
  type ConvertedToGqa,
  type ConvertibleConfig,
  type ConvertToGqaOptions,
  convertToGqa,
} from "../models/convert-gqa.ts";
export { type ConvertedToMla, type ConvertToMlaOptions, convertToMla } from "../models/convert-mla.ts";
export {
  type BiasName,
  type CountParametersOptions,
  countParameters,
  type ParameterCounts,
} from "../models/count-parameters.ts";
export type { LatentError } from "../models/factor-latent.ts";
export { type GgufLatentLayer, type GgufLatentWeights, readGgufLatentLayer } from "../models/gguf/latent-layer.ts";
export { type GgufLayer, type GgufLayerOptions, type GgufWeights, readGgufLayer } from "../models/gguf/layer.ts";
export { fromHfConfig, type HfConfigOptions } from "../models/hf/config.ts";
export { fromHfLatentConfig, type HfLatentOptions } from "../models/hf/latent-config.ts";
export { readLatentWeights } from "../models/hf/latent-weights.ts";
export type { HfPart } from "../models/hf/part.ts";
export type { HfAttentionConfig } from "../models/hf/rules.ts";
export { readAttentionWeights, type WeightsConfig } from "../models/hf/weights.ts";
export { permuteRope } from "../models/permute-rope.ts";
export type { Dtype, StoredTensor } from "../tensor/dtypes.ts";
export type { WeightTensor } from "../tensor/matrix.ts";
export { quantizeTensor, type StoredFormat } from "../tensor/quantize.ts";
export type { Tensor } from "../tensor/tensor.ts";
export { toFloats } from "../tensor/to-floats.ts";
export { HeadwiseError, type HeadwiseErrorCode } from "../util/errors.ts";
