// Conversations: messages, rendered by the model's template.

import { expectFlag, expectRecord, readFields, readOptions } from "../base/util/arguments.ts";
import { describe, HeadwiseError } from "../base/util/errors.ts";
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
import { createMarks, expectTokenizer, type MarkedText, type Tokenizer } from "./tokenizer.ts";

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

// How large what an operation of a template makes would be, before it runs: those that can make much more than they are given.

/** A value of the interpreter: lists hold others in an array, records and namespaces in a map. Only namespaces change. */
interface Value {
  readonly type?: unknown;
  readonly value?: unknown;
}

/** A part of a parsed template, as far as it is looked at. */
interface Node {
  readonly type?: unknown;
  readonly value?: unknown;
  readonly computed?: boolean;
  readonly iterable?: Node & { readonly lhs?: Node };
  readonly object?: Node;
  readonly property?: Node;
  readonly operand?: Node;
  readonly filter?: Node & { readonly callee?: Node; readonly args?: readonly Node[] };
  readonly body?: unknown;
  readonly key?: Node;
  readonly argument?: Node;
  /** A value that stands for itself: what a part was evaluated to. */
  readonly known?: Value;
}

/** Of what an operation makes, at most: characters of text, and elements of a list. */
interface Size {
  readonly text: number;
  readonly list: number;
}

type Sizes = (operand: unknown, args: readonly unknown[], named: ReadonlyMap<unknown, unknown>) => Size;

const ofText = (text: number): Size => ({ text, list: 0 });
const lengthOf = (value: unknown) => (typeof value === "string" ? value.length : String(value ?? "").length);

/** How often a text has another. */
function countOf(text: string, part: string): number {
  if (part === "") return text.length + 1;
  let count = 0;
  for (let at = text.indexOf(part); at >= 0; at = text.indexOf(part, at + part.length)) count++;
  return count;
}

/** The number of values within one, itself among them, and how deeply they lie in each other. */
function nestingOf(value: unknown): readonly [values: number, depth: number] {
  if (!(Array.isArray(value) || value instanceof Map)) return [1, 1];
  let [values, depth] = [1, 0];
  for (const each of value.values()) {
    const [within, below] = nestingOf(Object(each).value);
    values += within;
    depth = Math.max(depth, below);
  }
  return [values, depth + 1];
}

const SIZES: Readonly<Record<string, Sizes>> = {
  replace(operand, [old, by]) {
    if (typeof operand !== "string" || typeof old !== "string") return ofText(0);
    return ofText(operand.length + countOf(operand, old) * Math.max(0, lengthOf(by) - old.length));
  },
  split(operand, [separator]) {
    if (typeof operand !== "string") return ofText(0);
    if (typeof separator === "string") return { text: 0, list: countOf(operand, separator) + 1 };
    let list = 0;
    for (const _ of operand.matchAll(/\S+/g)) list++;
    return { text: 0, list };
  },
  join(operand, args, named) {
    const separator = lengthOf(args[0] ?? named.get("separator"));
    if (typeof operand === "string") return ofText(operand.length * (1 + separator));
    const items = Array.isArray(operand) ? operand : [];
    return ofText(items.reduce((sum: number, item) => sum + separator + lengthOf(Object(item).value), 0));
  },
  indent(operand, args, named) {
    const width = Number(args[0] ?? named.get("width") ?? 4);
    return ofText(typeof operand === "string" ? operand.length + countOf(operand, "\n") * width + width : 0);
  },
  tojson(operand, _, named) {
    const [values, depth] = nestingOf(operand);
    const separators = named.get("separators");
    const between = Array.isArray(separators) ? separators.map((each) => lengthOf(Object(each).value)) : [];
    const added = Number(named.get("indent") ?? 0) * depth + between.reduce((sum, length) => sum + length, 0);
    return ofText(values * added);
  },
};

/**
 * Evaluates a part of a template, of which the operations that can make much are measured when what they are given is known: `expect`
 * throws if they make too much.
 */
function evaluateMeasured(
  node: Node,
  evaluate: (node: Node) => Value,
  evaluateInner: (node: Node) => Value,
  expect: (size: Size) => void,
): Value {
  const known = (part: Node): Node => ({ type: "Known", known: evaluate(part) });
  const { type, filter } = node;
  if (type === "FilterStatement")
    return evaluate({
      type: "FilterExpression",
      operand: { type: "Program", body: node.body },
      ...(filter && { filter }),
    });
  const sizes = SIZES[String(filter?.callee?.value)];
  if (type === "FilterExpression" && filter?.args && sizes && node.operand) {
    const operand = known(node.operand);
    const args = filter.args.map((arg): Node => {
      if (arg.type === "KeywordArgumentExpression") return { ...arg, value: known(arg.value as Node) };
      if (arg.type === "SpreadExpression" || arg.type === "KeywordSpreadExpression")
        return { ...arg, argument: known(arg.argument as Node) };
      return known(arg);
    });
    const [listed, named] = readArguments(args);
    expect(sizes(operand.known?.value, listed, named));
    return evaluateInner({ ...node, operand, filter: { ...filter, args } });
  }
  if (type !== "MemberExpression" || !node.object || !node.property) return evaluateInner(node);
  const object = known(node.object);
  const isName = node.computed === true && node.property.type !== "SliceExpression";
  const property = isName ? known(node.property) : node.property;
  const method = evaluateInner({ ...node, object, property });
  const name = String(isName ? property.known?.value : property.value);
  const ofMethod = ["replace", "split"].includes(name) ? SIZES[name] : undefined;
  if (method.type !== "FunctionValue" || !ofMethod) return method;
  const call = (args: readonly Value[], scope: unknown): Value => {
    const values = args.map(({ value }) => value);
    expect(ofMethod(object.known?.value, values, new Map()));
    return (method.value as typeof call)(args, scope);
  };
  return Object.assign(Object.create(Object.getPrototypeOf(method)), method, { value: call });
}

/** The values of arguments that are known, by place and by name. */
function readArguments(args: readonly Node[]): readonly [unknown[], Map<unknown, unknown>] {
  const listed: unknown[] = [];
  const named = new Map<unknown, unknown>();
  for (const { type, key, value, argument, known } of args) {
    const inner = argument?.known?.value;
    if (type === "KeywordArgumentExpression") named.set(key?.value, (value as Node).known?.value);
    else if (inner instanceof Map) for (const [name, each] of inner) named.set(name, Object(each).value);
    else if (Array.isArray(inner)) listed.push(...inner.map((each) => Object(each).value));
    else listed.push(known?.value);
  }
  return [listed, named];
}
