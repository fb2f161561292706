/**
 * Whole encoders: vectors of texts, states of tokens, and logits of masked tokens.
 * @packageDocumentation
 */

export type { TokenIds } from "../decoder/forward.ts";
export type { Model } from "../decoder/model.ts";
export type { ModelFormats } from "../decoder/model-formats.ts";
export type { Session, SessionOptions } from "../decoder/session.ts";
export { type EmbedOptions, embed, embedAsync, type Pooling } from "../encoder/embed.ts";
export { encode, encodeAsync } from "../encoder/encode.ts";
export { type Encoder, type LoadEncoderOptions, loadEncoder } from "../encoder/load-encoder.ts";
export { type LoadSeq2SeqOptions, loadSeq2Seq, type Seq2Seq } from "../encoder/load-seq2seq.ts";
export { type LogMelOptions, logMel, logMelAsync } from "../encoder/log-mel.ts";
export { type MaskedLogits, type MaskedLogitsOptions, maskedLogits } from "../encoder/masked-logits.ts";
export { type EncoderPlan, type EncoderPlanSizes, planEncoder } from "../encoder/plan-encoder.ts";
export type { Batch, BatchOptions, TextTokenizer } from "../encoder/read-batch.ts";
export { type ReadSourceOptions, readSource } from "../encoder/read-source.ts";
export type { ModelSource } from "../files/model-files.ts";
export type { ModelStore } from "../files/model-store.ts";
export type { Tensor } from "../tensor/tensor.ts";
export { HeadwiseError, type HeadwiseErrorCode } from "../util/errors.ts";
