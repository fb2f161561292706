/**
 * Text: tokenizers of a model's folder or of a GGUF file, generation of text, and conversations.
 * @packageDocumentation
 */

export { HeadwiseError, type HeadwiseErrorCode } from "../base/util/errors.ts";
export type { GgufFile } from "../files/gguf.ts";
export type { ModelSource } from "../files/model-files.ts";
export type { ModelStore } from "../files/store.ts";
export type { Model } from "../models/blocks/model.ts";
export type { Session, TokenIds } from "../models/decoder/session.ts";
export type { DraftOptions, GenerateOptions, GenerationEnd } from "../models/generate/generate.ts";
export type { LogitsProcessor, LogitsTensor, SamplingOptions } from "../models/generate/sampling.ts";
export {
  type ChatMessage,
  type ChatOptions,
  type ChatTemplateOptions,
  chat,
  type RenderChatOptions,
  renderChat,
} from "../text/chat.ts";
export {
  createTextStream,
  type GenerateTextOptions,
  generateText,
  type TextEnd,
  type TextGeneration,
  type TextStream,
} from "../text/generate-text.ts";
export type { JinjaLibrary, TokenizersLibrary } from "../text/libraries.ts";
export {
  type LoadTokenizerOptions,
  loadTokenizer,
  readGgufTokenizer,
  type TokenizerOptions,
} from "../text/load-tokenizer.ts";
export type { Tokenizer } from "../text/tokenizer.ts";
