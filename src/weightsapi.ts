/**
 * The entry about weights: the files they come from and the forms they take. It needs no kernels and carries none.
 */

export type { AttentionConfig } from "./config.ts";
export { type ConvertedToGqa, type ConvertibleConfig, convertToGqa } from "./convert.ts";
export { HeadwiseError, type HeadwiseErrorCode } from "./errors.ts";
export { type GgufArray, type GgufFile, type GgufValue, openGguf } from "./gguf.ts";
export { type GgufLayer, type GgufLayerOptions, type GgufWeights, readGgufLayer } from "./gguflayer.ts";
export { fromHfConfig, type HfAttentionConfig, type HfPart } from "./hf.ts";
export type { WeightTensor } from "./matrix.ts";
export { permuteRope } from "./permute.ts";
export { quantizeTensor, type StoredFormat } from "./quantize.ts";
export {
  type ByteSource,
  type BytesOrSource,
  blobSource,
  fileSource,
  type ReadableFile,
} from "./ranges.ts";
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
export type { Tensor } from "./tensor.ts";
export type { TensorEntry, TensorFile } from "./tensorfile.ts";
export { type UrlSourceOptions, urlSource } from "./urlsource.ts";
export { type AttentionWeights, readAttentionWeights, type WeightsConfig } from "./weights.ts";
