/**
 * Weights: reading and writing model files, and converting what is in them. It works without kernels.
 * @packageDocumentation
 */

export { type Dtype, quantizeTensor, type StoredFormat, type StoredTensor, toFloats } from "../base/tensor/dtypes.ts";
export type { WeightTensor } from "../base/tensor/matrix.ts";
export type { Tensor } from "../base/tensor/tensor.ts";
export { HeadwiseError, type HeadwiseErrorCode } from "../base/util/errors.ts";
export {
  type ByteSource,
  type BytesOrSource,
  blobSource,
  fileSource,
  type ReadableFile,
} from "../files/byte-source.ts";
export { type GgufArray, type GgufFile, type GgufValue, openGguf } from "../files/gguf.ts";
export { type UrlSourceOptions, urlSource } from "../files/http-source.ts";
export {
  type QuantizedSafetensors,
  type QuantizedTensor,
  type QuantizeSafetensorsOptions,
  quantizeSafetensors,
} from "../files/safetensors/quantize-file.ts";
export {
  openSafetensors,
  openSafetensorsIndex,
  readSafetensors,
  readSafetensorsIndex,
  type SafetensorsFile,
  type SafetensorsIndex,
  type WritableTensor,
  writeSafetensors,
} from "../files/safetensors/safetensors.ts";
export type { TensorEntry, TensorFile } from "../files/tensor-file.ts";
export type { AttentionConfig } from "../layers/attention/config.ts";
export type { AttentionWeights } from "../layers/attention/weights.ts";
export type { LatentConfig, LatentWeights } from "../layers/latent/config.ts";
export type { HfAttentionConfig } from "../models/families/attention-rules.ts";
export type { HfPart } from "../models/families/facts.ts";
export {
  type ConvertedToGqa,
  type ConvertibleConfig,
  type ConvertToGqaOptions,
  convertToGqa,
} from "../models/weights/convert-gqa.ts";
export {
  type ConvertedToMla,
  type ConvertToMlaOptions,
  convertToMla,
  type LatentError,
  type PreparedMla,
  prepareMla,
} from "../models/weights/convert-mla.ts";
export {
  type BiasName,
  type CountParametersOptions,
  countParameters,
  type ParameterCounts,
} from "../models/weights/count-parameters.ts";
export { type GgufLatentLayer, type GgufLatentWeights, readGgufLatentLayer } from "../models/weights/gguf-latent.ts";
export {
  type GgufLayer,
  type GgufLayerOptions,
  type GgufWeights,
  readGgufLayer,
} from "../models/weights/gguf-layer.ts";
export { fromHfConfig, type HfConfigOptions } from "../models/weights/hf-config.ts";
export {
  fromHfLatentConfig,
  type HfLatentOptions,
  hfAttentionKind,
  readLatentWeights,
} from "../models/weights/hf-latent.ts";
export { readAttentionWeights, type WeightsConfig } from "../models/weights/hf-weights.ts";
export { type LayerPlace, listLayers, readLayerTensors, readPrefix } from "../models/weights/layers.ts";
export { permuteRope } from "../models/weights/permute-rope.ts";
