// Options that may be undefined, as under `exactOptionalPropertyTypes`: what a program has not, it passes on as undefined.

import type {
  BatchOptions,
  DraftOptions,
  EmbedOptions,
  EncoderPlanSizes,
  ForwardAsyncOptions,
  ForwardOptions,
  GenerateManyOptions,
  GenerateOptions,
  GenerationJob,
  LoadEncoderOptions,
  LoadModelOptions,
  LoadSeq2SeqOptions,
  LogMelOptions,
  MaskedLogitsOptions,
  ModelFormats,
  ModelPlanSizes,
  ReadSourceOptions,
  SamplingOptions,
  Session,
  SessionOptions,
  StoreOptions,
  UrlSourceOptions,
} from "headwise/models";
import {
  type ChatOptions,
  type ChatTemplateOptions,
  type GenerateTextOptions,
  generateText,
  type LoadTokenizerOptions,
  type RenderChatOptions,
  type TextGeneration,
  type Tokenizer,
  type TokenizerOptions,
} from "headwise/text";

/** The optional fields of `T` that do not take undefined. */
type Refusing<T> = T extends unknown
  ? {
      [K in keyof T]-?: object extends Pick<T, K> ? ({ [P in K]: undefined } extends Pick<T, K> ? never : K) : never;
    }[keyof T]
  : never;

type OfEncoders =
  | BatchOptions
  | EmbedOptions
  | EncoderPlanSizes
  | LoadEncoderOptions
  | LoadSeq2SeqOptions
  | LogMelOptions
  | MaskedLogitsOptions
  | ReadSourceOptions;
type OfModels =
  | DraftOptions
  | ForwardAsyncOptions
  | ForwardOptions
  | GenerateManyOptions
  | GenerateOptions
  | GenerationJob
  | LoadModelOptions
  | ModelFormats
  | ModelPlanSizes
  | SamplingOptions
  | SessionOptions
  | StoreOptions
  | UrlSourceOptions;
type OfText =
  | ChatOptions
  | ChatTemplateOptions
  | GenerateTextOptions
  | LoadTokenizerOptions
  | RenderChatOptions
  | Tokenizer
  | TokenizerOptions;
type Wrong = Refusing<OfEncoders | OfModels | OfText>;

/** An error here names the first field that refuses undefined. */
export const taken: [Wrong] extends [never] ? true : Wrong = true;

export function withItsEnds(session: Session, tokenizer: Tokenizer): TextGeneration {
  return generateText(session, tokenizer, "a", { stopIds: tokenizer.endIds });
}
