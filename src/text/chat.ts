// Conversations: messages, rendered by the model's template.

import { expectFlag, expectRecord, readFields } from "../base/util/arguments.ts";
import { describe, HeadwiseError } from "../base/util/errors.ts";
import { readOptions } from "../base/util/other-names.ts";
import { reasonOf } from "../base/util/strings.ts";
import type { Model } from "../models/blocks/model.ts";
import type { Session } from "../models/decoder/session.ts";
import {
  type GenerateTextOptions,
  prepareText,
  TEXT_OPTIONS,
  type TextGeneration,
  writeText,
} from "./generate-text.ts";
import { findJinja, type Jinja, type JinjaInterpreter, type JinjaLibrary } from "./libraries.ts";
import { createMarks, type MarkedText } from "./special-tokens.ts";
import { evaluateMeasured, type Node, type Size, type Value } from "./template-sizes.ts";
import { expectTokenizer, type Tokenizer } from "./tokenizer.ts";

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
 * exceeds 4 million characters, a list 65,536 elements, or what a list holds half a million values. A search for a long text in a
 * long one is a single step, which may take longer: render templates that are not trusted in a Worker, which can be ended.
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
    { messages, ...(tools ? { tools } : {}), ...Object.fromEntries(more.filter((each) => !isToken(each))) },
    specials,
  );
}

/**
 * Limits of a template, which comes with a model and is a program: its characters, those of any text that it makes, the elements of
 * any list, what a list holds in all, and its work. That of a thousand messages is some hundred thousand.
 */
const LONGEST_TEMPLATE = 2 ** 18;
/** Spaces and line ends in a row: the time to parse them grows with the square of their number. */
const MOST_SPACES = 1024;
const LONGEST_TEXT = 2 ** 22;
const LONGEST_LIST = 2 ** 16;
/** Values within a list or a record, each counted wherever it stands: as text, those that share a part have it again and again. */
const MOST_HELD = 2 ** 19;
/** Characters that count as one more of these values. */
const VALUE_LENGTH = 16;
const MOST_WORK = 2 ** 20;
/** How much is one unit of work: characters of a text, elements of a known list, values of a list or record that is new. */
const WORK_TEXT = 64;
const WORK_KNOWN = 256;
const WORK_NEW = 8;

/** The reason for which the template refuses the messages. */
class Refusal {
  readonly reason: string;
  constructor(reason: string) {
    this.reason = reason;
  }
}

/** Renders a chat template with variables, `given` among them, in which the texts of `specials` are to be told from the template's. */
function renderTemplate(
  where: string,
  library: Jinja,
  template: string,
  variables: Readonly<Record<string, unknown>>,
  given: Readonly<Record<string, unknown>>,
  specials: readonly string[],
): MarkedText {
  const { length } = template;
  if (length > LONGEST_TEMPLATE)
    throw badTemplate(`${where}: chat template expected at most ${LONGEST_TEMPLATE} characters, got ${length}`);
  if (new RegExp(`\\s{${MOST_SPACES + 1}}`).test(template))
    throw badTemplate(`${where}: chat template expected at most ${MOST_SPACES} spaces in a row, got more`);
  const limits = limit(where);
  const globals = {
    ...{ true: true, True: true, false: false, False: false, none: null, None: null },
    raise_exception(reason: unknown) {
      throw new Refusal(String(reason));
    },
    range: (...bounds: unknown[]) => rangeOf(limits, bounds),
    strftime_now: (format: unknown) => formatTime(new Date(), String(format)),
    ...variables,
  };
  try {
    const { parsed } = new library.Template(template);
    const marks = specials.length > 0 ? createMarks(where, specials, literalsOf(parsed), given) : undefined;
    const marked = Object.entries(given).map(([key, value]) => [key, marks ? marks.mark(value) : value]);
    const environment = new library.Environment();
    const all = { ...globals, ...Object.fromEntries(marked) };
    for (const [key, value] of Object.entries(all)) environment.set(key, value);
    const interpreter = new library.Interpreter(environment);
    limits.watch(interpreter);
    const text = String(interpreter.run(parsed).value);
    return marks ? marks.restore(text) : { text, plain: [] };
  } catch (cause) {
    if (cause instanceof HeadwiseError) throw cause;
    if (cause instanceof Refusal)
      throw new RangeError(`${where}: messages expected what the chat template allows, got ${describe(cause.reason)}`);
    throw badTemplate(
      `${where}: chat template expected one that renders these messages, got ${reasonOf(cause)}`,
      cause,
    );
  }
}

const badTemplate = (text: string, cause?: unknown) => new HeadwiseError("BAD_FILE", text, { cause });

/** The strings that a parsed template has in its expressions. */
function literalsOf(node: unknown): string[] {
  if (typeof node !== "object" || node === null) return [];
  const { type, value } = node as Value;
  if (type === "StringLiteral" && typeof value === "string") return [value];
  const parts = node instanceof Map ? [...node].flat() : Object.values(node);
  return [...new Set(parts.flatMap(literalsOf))];
}

/** Limits of one rendering. */
interface Limits {
  /** Counts the work of whatever the interpreter evaluates. */
  watch(interpreter: JinjaInterpreter): void;
  expectList(length: number): void;
}

function limit(where: string): Limits {
  let work = 0;
  const expect = (value: number, most: number, what: string) => {
    if (!(value <= most)) throw badTemplate(`${where}: chat template expected at most ${most} ${what}, got more`);
  };
  const expectList = (length: number) => expect(length, LONGEST_LIST, "elements of a list");
  const expectText = (length: number) => expect(length, LONGEST_TEXT, "characters of text");
  const expectSize = ({ text, list }: Size) => {
    expectText(text);
    expectList(list);
  };
  const known = new WeakMap<object, number>();
  /** Values that one holds, itself among them, and whether that cannot change. */
  const measure = (given: unknown): readonly [held: number, isFixed: boolean] => {
    const { type, value } = Object(given) as Value;
    if (typeof value === "string") return [1 + value.length / VALUE_LENGTH, true];
    if (!(Array.isArray(value) || value instanceof Map)) return [1, true];
    const before = known.get(Object(given));
    if (before !== undefined) return [before, true];
    let [held, isFixed] = [1, type !== "NamespaceValue"];
    for (const each of value.values()) {
      const [own, isOwnFixed] = measure(each);
      held += own;
      isFixed &&= isOwnFixed;
      work += 1 / WORK_NEW;
      expect(held, MOST_HELD, "values within a list or record");
    }
    if (isFixed) known.set(Object(given), held);
    return [held, isFixed];
  };
  /** Counts the work of a value that was evaluated. */
  const count = (given: Value | undefined, isLooped: boolean): void => {
    const { value } = Object(given) as Value;
    work++;
    if (typeof value === "string") {
      expectText(value.length);
      work += value.length / WORK_TEXT;
    } else if (Array.isArray(value)) {
      expectList(value.length);
      work += isLooped ? value.length : value.length / WORK_KNOWN;
    }
    measure(given);
    expect(work, MOST_WORK, "steps");
  };
  return {
    expectList,
    watch(interpreter) {
      const evaluate = interpreter.evaluate;
      // A loop takes time for each element, also where its body is empty.
      const looped = new WeakSet<object>();
      interpreter.evaluate = function (node, environment) {
        // What a slice does not have.
        if (node === undefined) return evaluate.call(this, node, environment);
        const part = node as Node;
        if (part.known) return part.known as ReturnType<typeof evaluate>;
        const { type, iterable } = part;
        if (type === "For" && iterable) looped.add(iterable.lhs ?? iterable);
        const inner = (own: Node) => evaluate.call(this, own, environment);
        const result = evaluateMeasured(part, (own) => this.evaluate(own, environment), inner, expectSize);
        count(result, looped.has(part));
        return result as ReturnType<typeof evaluate>;
      };
    },
  };
}

/** Python's `range`, of at most as many numbers as a list may have. */
function rangeOf(limits: Limits, bounds: readonly unknown[]): number[] {
  const numbers = bounds.filter((bound) => typeof bound === "number");
  const [start = 0, stop = 0, step = 1] = numbers.length === 1 ? [0, ...numbers] : numbers;
  const length = Math.max(0, Math.ceil((stop - start) / step));
  limits.expectList(length);
  return Array.from({ length }, (_, i) => start + i * step);
}

const MONTHS = "January February March April May June July August September October November December".split(" ");
const DAYS = "Sunday Monday Tuesday Wednesday Thursday Friday Saturday".split(" ");

/** Python's `strftime` with the directives that templates have, in English and local time. */
function formatTime(date: Date, format: string): string {
  const two = (value: number) => String(value).padStart(2, "0");
  const [month, day] = [MONTHS[date.getMonth()] as string, DAYS[date.getDay()] as string];
  const hours = date.getHours();
  const values: Readonly<Record<string, string>> = {
    ...{
      Y: String(date.getFullYear()),
      y: two(date.getFullYear() % 100),
      m: two(date.getMonth() + 1),
      d: two(date.getDate()),
    },
    ...{ B: month, b: month.slice(0, 3), A: day, a: day.slice(0, 3), H: two(hours), I: two(((hours + 11) % 12) + 1) },
    ...{ M: two(date.getMinutes()), S: two(date.getSeconds()), p: hours < 12 ? "AM" : "PM", "%": "%" },
  };
  return format.replace(/%([A-Za-z%])/g, (directive, letter: string) => values[letter] ?? directive);
}
