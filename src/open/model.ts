// An opened model: what it can do, and what is asked of it.

import type { Releasable } from "../base/util/lifetime.ts";
import type { Model } from "../models/blocks/model.ts";
import type { Session, TokenIds } from "../models/decoder/session.ts";
import type { Encoder, Seq2Seq } from "../models/encoder/load.ts";
import type { TextTask } from "../retrieval/recipe.ts";
import type { TextTasks } from "../retrieval/tasks.ts";
import type { ChatMessage, ChatTemplateOptions } from "../text/chat.ts";
import type { GenerateTextOptions } from "../text/generate-text.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import type { Kernels } from "../wasm/kernels.ts";
import type { Answer } from "./answer.ts";
import type { Choices } from "./choose.ts";
import type { NgramDraft } from "./engine.ts";

/**
 * What models can do: "text" goes on with a text (or, with two halves, writes another one of it), "chat" answers a conversation by
 * the model's template; others are the methods of those names, of models that read texts.
 */
export type ModelTask = "text" | "chat" | TextTask;

/** How an answer is written: as `generateText` takes it. */
export interface AnswerOptions extends Omit<GenerateTextOptions, "draft" | "sliceMs"> {
  /** As of `generate`, guesses by what followed the last tokens before. Such an answer shares no passes with others. Default none. */
  readonly draft?: NgramDraft | undefined;
}

/** How a conversation is answered. */
export interface ChatAnswerOptions extends AnswerOptions, Omit<ChatTemplateOptions, "library"> {
  /** As of `chat`: whether special tokens in messages stand for these tokens. Default false: they are text. */
  readonly parseSpecial?: boolean | undefined;
  /**
   * What happens when a conversation has more tokens than there is room for (`model.choices.maxSeqLen`). "refuse", the default:
   * HeadwiseError `CACHE_FULL`. "forget": the oldest turns behind the messages of the system are left out, whole ones, so that at
   * least `maxTokens`, or a quarter of the room, is free for the answer.
   */
  readonly whenFull?: "refuse" | "forget" | undefined;
}

/** Messages of a conversation. */
export type ChatMessages = readonly (ChatMessage | Pick<ChatMessage, "role" | "content">)[];

/** What can be asked of opened models, each where `can` has its name. */
export interface ModelMethods extends Omit<TextTasks, "countTokens"> {
  /**
   * Goes on with a text. Answers that are written at the same time share passes, and have the bits of each alone. A model with two
   * halves reads the text as its source instead, and writes another one.
   * @param prompt Text, or ids.
   * @throws TypeError or RangeError naming the argument, HeadwiseError `RELEASED`. What fails later, the answer rejects with:
   * `CACHE_FULL`, `OUT_OF_MEMORY`.
   */
  text(prompt: string | TokenIds, options?: AnswerOptions): Answer;
  /**
   * Answers a conversation, by the model's own template. What an earlier answer has read of the same conversation, or of one that
   * begins in the same way, is not read again; the bits are those of a new start. Special tokens in messages are text.
   * @throws As `text`; the answer also rejects with `NO_LIBRARY` without the package `@huggingface/jinja`.
   */
  chat(messages: ChatMessages, options?: ChatAnswerOptions): Answer;
  /** Counts the tokens of a text, or of a conversation as `chat` writes it, with what begins the answer. */
  countTokens(
    input: string | ChatMessages,
    options?: Pick<ChatAnswerOptions, "template" | "tools" | "variables" | "parseSpecial">,
  ): Promise<number>;
}

/** What an opened model consists of: for the functions of the other entries. */
export interface ModelParts {
  /**
   * The kernels, on which further models and sessions may be made. `release()` of the opened model releases them, unless they were
   * given as the option `kernels`.
   */
  readonly kernels: Kernels;
  /** The model: of `loadModel`, `loadEncoder` or `loadSeq2Seq`. */
  readonly model: Model | Encoder | Seq2Seq;
  /** The tokenizer. */
  readonly tokenizer: Tokenizer;
  /** The sessions that are kept for answers that go on with them, the last one first. */
  readonly sessions: readonly Session[];
}

/** What every opened model has. */
export interface OpenedModelBase extends Releasable {
  /** What it can do. */
  readonly can: readonly ModelTask[];
  /** `model_type` of config.json, or the architecture of a GGUF file. */
  readonly type: string;
  /** What was chosen for this host, and why. */
  readonly choices: Choices;
  /** What it consists of. */
  readonly parts: ModelParts;
  /** Whether `release()` was called. */
  readonly released: boolean;
  /** `release()`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * A model as `openModel` gives it: what it can do, what was chosen for it, and its methods. Without `for`, the type has the methods of
 * all tasks, and one that the model cannot do throws a TypeError that names what it can; with `for`, those of that task alone.
 */
export type OpenedModel<Task extends ModelTask = ModelTask> = OpenedModelBase &
  Pick<ModelMethods, "countTokens" | (Task extends "chat" ? "chat" | "text" : Task)>;
