/**
 * Text: tokenizers of a model's folder or of a GGUF file, generation of text, and conversations.
 * @packageDocumentation
 */

export type { TokenIds } from "../decoder/forward.ts";
export type { GenerateOptions, GenerationEnd } from "../decoder/generate.ts";
export type { Model } from "../decoder/model.ts";
export type { LogitsProcessor, LogitsTensor, SamplingOptions } from "../decoder/sampling.ts";
export type { Session } from "../decoder/session.ts";
export type { DraftOptions } from "../decoder/speculate.ts";
export type { GgufFile } from "../files/gguf/gguf.ts";
export type { ModelSource } from "../files/model-files.ts";
export type { ModelStore } from "../files/model-store.ts";
export {
  type ChatMessage,
  type ChatOptions,
  type ChatTemplateOptions,
  chat,
  type RenderChatOptions,
  renderChat,
} from "../text/chat.ts";
export { type GenerateTextOptions, generateText, type TextEnd, type TextGeneration } from "../text/generate-text.ts";
export type { JinjaLibrary, TokenizersLibrary } from "../text/libraries.ts";
export {
  type LoadTokenizerOptions,
  loadTokenizer,
  readGgufTokenizer,
  type TokenizerOptions,
} from "../text/load-tokenizer.ts";
export { createTextStream, type TextStream } from "../text/text-stream.ts";
export type { Tokenizer } from "../text/tokenizer.ts";
export { HeadwiseError, type HeadwiseErrorCode } from "../util/errors.ts";
