/**
 * Whole encoders: vectors of texts, states of tokens, and logits of masked tokens.
 * @packageDocumentation
 */

export type { Tensor } from "../base/tensor/tensor.ts";
export { HeadwiseError, type HeadwiseErrorCode } from "../base/util/errors.ts";
export type { ModelSource } from "../files/model-files.ts";
export type { ModelStore } from "../files/store.ts";
export type { Model } from "../models/blocks/model.ts";
export type { TokenIds } from "../models/decoder/forward.ts";
export type { Session, SessionOptions } from "../models/decoder/session.ts";
export type { Batch, BatchOptions, TextTokenizer } from "../models/encoder/encode.ts";
export {
  type EmbedOptions,
  embed,
  embedAsync,
  encode,
  encodeAsync,
  type MaskedLogits,
  type MaskedLogitsOptions,
  maskedLogits,
  type Pooling,
} from "../models/encoder/encode.ts";
export {
  type Encoder,
  type EncoderPlan,
  type EncoderPlanSizes,
  type LoadEncoderOptions,
  type LoadSeq2SeqOptions,
  loadEncoder,
  loadSeq2Seq,
  planEncoder,
  type Seq2Seq,
} from "../models/encoder/load.ts";
export { type LogMelOptions, logMel, logMelAsync } from "../models/encoder/log-mel.ts";
export { type ReadSourceOptions, readSource } from "../models/encoder/read-source.ts";
export type { ModelFormats } from "../models/load/plan-model.ts";
