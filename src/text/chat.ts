// Conversations: messages, rendered by the model's template.

import { expectFlag, expectRecord, readFields, readOptions } from "../base/util/arguments.ts";
import { describe } from "../base/util/errors.ts";
import type { Model } from "../models/blocks/model.ts";
import type { Session } from "../models/decoder/session.ts";
import {
  type GenerateTextOptions,
  prepareText,
  TEXT_OPTIONS,
  type TextGeneration,
  writeText,
} from "./generate-text.ts";
import { findJinja, type JinjaLibrary } from "./libraries.ts";
import { renderTemplate } from "./render-template.ts";
import { expectTokenizer, type MarkedText, type Tokenizer } from "./tokenizer.ts";

/**
 * A message of a conversation. Templates may read other fields too, such as `tool_calls`. Objects of interfaces of your own with
 * these two fields, or more, are taken as messages too.
 */
export interface ChatMessage {
  /** Who says it: "system", "user", "assistant", or what else the template knows. */
  readonly role: string;
  /** The content: text, or the parts that the template takes. Messages of "user" and "system" have it. */
  readonly content?: unknown;
  readonly [field: string]: unknown;
}

/** How a conversation is written. */
export interface ChatTemplateOptions {
  /** A Jinja template instead of the tokenizer's own. */
  readonly template?: string | undefined;
  /** Functions that the model may call, as the template expects them. */
  readonly tools?: readonly unknown[] | undefined;
  /** Further variables of the template, such as `enable_thinking`; they replace those of the same name. */
  readonly variables?: Readonly<Record<string, unknown>> | undefined;
  /**
   * The exports of `@huggingface/jinja`, where it cannot be imported by its name, such as in a page without a bundler. Default that
   * package.
   */
  readonly library?: JinjaLibrary | undefined;
}

/** Options of `renderChat`. */
export interface RenderChatOptions extends ChatTemplateOptions {
  /** Whether the text ends with what begins an answer. Default true. */
  readonly addGenerationPrompt?: boolean | undefined;
}

/** Options of `chat`. */
export interface ChatOptions extends GenerateTextOptions, ChatTemplateOptions {
  /**
   * Whether the texts of special tokens stand for these tokens also where they come from messages, tools or variables. Default false:
   * there they are text, as far as the tokenizer has `specialTexts`.
   */
  readonly parseSpecial?: boolean | undefined;
}

const TEMPLATE_OPTIONS = ["template", "tools", "variables", "library"] as const;

/**
 * Writes a conversation as the text that the model was trained on, by its own template. It needs the package `@huggingface/jinja`.
 * The template is a program from the model's files: it is stopped after a million steps, which take seconds, and where a text
 * exceeds 4 million characters or a list 65,536 elements. A search for a long text in a long one is a single step, which may take
 * longer: render templates that are not trusted in a Worker, which can be ended.
 * @throws TypeError or RangeError naming the argument; RangeError also for messages that the template refuses, with its reason.
 * HeadwiseError `NO_LIBRARY` without the package, `BAD_FILE` for a template that fails or does not end.
 * @example
 * import { renderChat } from "headwise/text";
 * const chatTemplate = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>";
 * const tokenizer = { encode: () => [], decode: () => "", chatTemplate };
 * console.log(await renderChat(tokenizer, [{ role: "user", content: "Hi" }])); // <user>Hi<assistant>
 */
export async function renderChat(
  tokenizer: Tokenizer,
  messages: readonly (ChatMessage | Pick<ChatMessage, "role" | "content">)[],
  options: RenderChatOptions = {},
): Promise<string> {
  const known = [...TEMPLATE_OPTIONS, "addGenerationPrompt"] as const;
  const read = readFields("renderChat", "options", options, known);
  return (await render("renderChat", tokenizer, messages, read, [])).text;
}

/**
 * Answers a conversation: writes it by the model's own template, and gives the answer in pieces of whole characters as they come.
 * The promise `end` of the result has the whole answer: to go on, push it and the next question to the messages, as below; with a
 * session, only what is new is read, as with `generateText`. It needs the package `@huggingface/jinja`.
 *
 * Special tokens are those that the template writes, and those of the variables that have names such as `bos_token`. Their texts
 * within messages, tools and other variables are text, also where several of these together make one, and also for a template that
 * looks for them. `parseSpecial: true` makes them tokens. So they are with a tokenizer that has no `specialTexts`.
 * @param on A session, or a model: then a session is made for the call.
 * @throws What `generateText` and `renderChat` throw.
 * @example
 * import { loadKernels } from "headwise";
 * import { loadModel, models } from "headwise/models";
 * import { chat } from "headwise/text";
 * const kernels = await loadKernels({ models });
 * const model = await loadModel(kernels, "model");
 * const words = {
 *   encode: (text: string) => text.trim().split(/\s+/).map(Number),
 *   decode: (ids: readonly number[]) => ids.map((id) => ` ${id}`).join(""),
 *   chatTemplate: "{% for message in messages %}{{ message.content }} {% endfor %}",
 * };
 * const messages = [{ role: "user", content: "81 90 23 0 81 90" }];
 * const answer = chat(model, words, messages, { maxTokens: 4 });
 * let shown = "";
 * for await (const piece of answer) shown += piece;
 * const { text, reason } = await answer.end;
 * messages.push({ role: "assistant", content: text }, { role: "user", content: "23 0" });
 * console.log(shown.trim(), reason, messages.length); // 23 0 81 90 length 3
 * kernels.release();
 */
export function chat(
  on: Model | Session,
  tokenizer: Tokenizer,
  messages: readonly (ChatMessage | Pick<ChatMessage, "role" | "content">)[],
  options: ChatOptions = {},
): TextGeneration {
  const where = "chat";
  return writeText(async (begun) => {
    const given = readOptions(where, options, [...TEXT_OPTIONS, ...TEMPLATE_OPTIONS, "parseSpecial"]);
    const { template, tools, variables, library, parseSpecial, ...rest } = given;
    const isParsed = expectFlag(where, "options.parseSpecial", parseSpecial);
    return prepareText(where, on, tokenizer, rest, begun, async () => {
      const ids = await encodeChat(where, tokenizer, messages, { template, tools, variables, library }, isParsed);
      return { ids, context: false, isText: true };
    });
  });
}

/** The ids of a conversation that an answer follows; `isParsed` is the option `parseSpecial`. The other options were read. */
export async function encodeChat(
  where: string,
  tokenizer: Tokenizer,
  messages: readonly ChatMessage[],
  options: ChatTemplateOptions,
  isParsed: boolean,
): Promise<readonly number[]> {
  const specials = isParsed ? [] : (tokenizer.specialTexts ?? []);
  const { text, plain } = await render(where, tokenizer, messages, options, specials);
  // The template writes all special tokens.
  return tokenizer.encode(text, { addSpecial: false, ...(specials.length > 0 ? { plain } : {}) });
}

async function render(
  where: string,
  tokenizer: Tokenizer,
  messages: readonly ChatMessage[],
  { template, tools, variables, library: given, addGenerationPrompt = true }: RenderChatOptions,
  specials: readonly string[],
): Promise<MarkedText> {
  expectTokenizer(where, tokenizer);
  if (!Array.isArray(messages))
    throw new TypeError(`${where}: messages expected a list of 1 or more messages, got ${describe(messages)}`);
  if (messages.length === 0) throw new RangeError(`${where}: messages expected 1 or more messages, got 0`);
  for (const [i, message] of messages.entries()) {
    expectRecord(where, `messages[${i}]`, message);
    const { role, content } = message;
    if (typeof role !== "string")
      throw new TypeError(`${where}: messages[${i}].role expected a string, got ${describe(role)}`);
    // Others may consist of fields that only the template knows, such as tool_calls.
    if ((role === "user" || role === "system") && (content === undefined || content === null)) {
      const rule = "text, or the parts that the template knows";
      throw new TypeError(`${where}: messages[${i}].content expected ${rule}, got ${describe(content)}`);
    }
  }
  expectFlag(where, "options.addGenerationPrompt", addGenerationPrompt);
  if (tools !== undefined && !Array.isArray(tools))
    throw new TypeError(`${where}: options.tools expected a list, got ${describe(tools)}`);
  if (variables !== undefined) expectRecord(where, "options.variables", variables);
  const text = template ?? tokenizer.chatTemplate;
  if (typeof text !== "string") {
    const rule = "a tokenizer with a chat template, or options.template";
    throw new TypeError(`${where}: tokenizer expected ${rule}, got ${describe(text)} as the template`);
  }
  const library = await findJinja(where, given);
  const isToken = ([name]: readonly [string, unknown]) => /_token$/.test(name);
  const more = Object.entries(variables ?? {});
  return renderTemplate(
    ...([where, library, text] as const),
    {
      ...{ ...tokenizer.specialTokens, add_generation_prompt: addGenerationPrompt },
      ...Object.fromEntries(more.filter(isToken)),
    },
    // As transformers does: what is not given is None.
    {
      ...{ messages: messages.map(withReasoning), tools: tools ?? null, documents: null },
      ...Object.fromEntries(more.filter((each) => !isToken(each))),
    },
    specials,
  );
}

/** The message with what it has as reasoning under the names that templates read. */
function withReasoning(message: ChatMessage): ChatMessage {
  const reasoning = message.reasoning_content ?? message.thinking ?? message.reasoning;
  return reasoning === undefined || reasoning === null
    ? message
    : { thinking: reasoning, ...message, reasoning_content: reasoning };
}
