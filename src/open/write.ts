// Text and conversations of an opened model.

import { PAGE } from "../../assembly/layout.ts";
import { randomSeed } from "../base/platform/host.ts";
import { copyFields, expectFlag, expectOneOf, expectSignal, readFields, readOptions } from "../base/util/arguments.ts";
import { describe, HeadwiseError } from "../base/util/errors.ts";
import { expectAlive } from "../base/util/lifetime.ts";
import { checkGeneration, type GeneratedToken, type GenerationEnd } from "../models/generate/generate.ts";
import type { GenerationFailure } from "../models/generate/generate-many.ts";
import { SAMPLING_OPTIONS } from "../models/generate/sampling.ts";
import { type ChatMessage, encodeChat } from "../text/chat.ts";
import {
  findStops,
  readPrompt,
  readStops,
  type StopFinder,
  streamText,
  type TextStream,
} from "../text/generate-text.ts";
import type { JinjaLibrary } from "../text/libraries.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { type Answer, type AnswerEnd, AnswerWriter } from "./answer.ts";
import type { Engine, EngineJob } from "./engine.ts";
import type { AnswerOptions, ChatAnswerOptions, ChatMessages, ModelMethods } from "./model.ts";

/** What text is written with. */
interface WritingParts {
  readonly engine: Engine;
  readonly tokenizer: Tokenizer;
  /** A template instead of the tokenizer's own. */
  readonly template: string | undefined;
  readonly jinja: JinjaLibrary | undefined;
}

const ANSWER_OPTIONS = [...SAMPLING_OPTIONS, "signal", "maxTokens", "stopIds", "stop", "keepSpecial", "draft"] as const;
const WRITING_OPTIONS = ["template", "tools", "variables", "parseSpecial"] as const;
type WritingOptions = Pick<ChatAnswerOptions, (typeof WRITING_OPTIONS)[number]>;

/** A prompt whose tokens are known. */
interface Prompt extends Pick<EngineJob, "ids" | "length"> {
  /** Tokens before the answer whose text it continues: a space at its beginning depends on them. */
  readonly context: readonly number[];
  readonly forgotten?: number;
}

/** An answer that is being written. */
class Writing {
  readonly #where: string;
  readonly #parts: WritingParts;
  readonly #signal: AnswerOptions["signal"];
  readonly #stops: StopFinder;
  readonly #keepSpecial: boolean;
  readonly #seed: Pick<AnswerEnd, "seed">;
  readonly #began = performance.now();
  readonly #counts = { read: 0, reused: 0, written: 0 };
  readonly #writer = new AnswerWriter(() => this.#finish({ reason: "left" }));
  readonly #abort = () => this.#finish({ reason: "aborted" });
  #first: number | undefined;
  #forgotten: Pick<AnswerEnd, "forgotten"> = {};
  #stopWork = () => {};

  /** Checks the options of an answer, and writes it behind what `prepare` gives. */
  constructor(
    where: string,
    parts: WritingParts,
    { signal, stop, keepSpecial, ...rest }: AnswerOptions,
    prepare: (maxTokens: number) => Promise<Prompt>,
  ) {
    const { engine } = parts;
    expectAlive(where, "model", engine);
    if (signal !== undefined) expectSignal(where, signal);
    this.#where = where;
    this.#parts = parts;
    this.#signal = signal;
    this.#stops = findStops(readStops(where, stop));
    this.#keepSpecial = expectFlag(where, "options.keepSpecial", keepSpecial);
    const { sampling, maxTokens, seeded } = checkGeneration(where, rest, engine.vocabSize);
    this.#seed = sampling.temperature > 0 ? { seed: seeded.seed ?? randomSeed() } : {};
    signal?.addEventListener("abort", this.#abort);
    if (signal?.aborted) this.#abort();
    else this.#run(rest, () => prepare(maxTokens)).catch((error) => this.#fail(error));
  }

  get answer(): Answer {
    return this.#writer.answer;
  }

  async #run(options: Omit<AnswerOptions, "signal" | "stop" | "keepSpecial">, prepare: () => Promise<Prompt>) {
    const { engine, tokenizer } = this.#parts;
    const { ids, context, length, ...prompt } = await prepare();
    const stream = streamText(this.#where, tokenizer, context, this.#keepSpecial);
    this.#forgotten = prompt;
    if (this.#writer.ended) return;
    // Tokens beyond those of the model, which was made for fewer, cannot come.
    const stopIds = Array.from(tokenizer.endIds ?? []).filter((id) => id < engine.vocabSize);
    this.#stopWork = engine.generate(
      { stopIds, ...options, ...this.#seed, ids, length },
      {
        begin: (read, reused) => void Object.assign(this.#counts, { read, reused }),
        token: (token) => this.#token(stream, token),
        end: (end) => this.#end(stream, end),
      },
    );
  }

  #token(stream: TextStream, token: GeneratedToken): void {
    if (this.#writer.ended) return;
    this.#first ??= performance.now();
    this.#counts.written++;
    try {
      const found = this.#stops.push(stream.push(token.id));
      this.#writer.push(found.text, token);
      if (found.stop !== undefined) this.#finish({ reason: "stop", stop: found.stop });
    } catch (error) {
      this.#fail(error);
    }
  }

  #end(stream: TextStream, end: GenerationEnd | GenerationFailure): void {
    if (this.#writer.ended) return;
    if (end.reason === "error") {
      this.#fail(end.error);
      return;
    }
    const { text, stop } = this.#stops.push(stream.end());
    this.#writer.push(stop === undefined ? text + this.#stops.end() : text);
    if (stop !== undefined) this.#finish({ reason: "stop", stop });
    else this.#finish({ reason: end.reason, ...(end.stopId !== undefined && { stopId: end.stopId }) });
  }

  #finish(end: Pick<AnswerEnd, "reason" | "stop" | "stopId">): void {
    const seconds = (performance.now() - this.#began) / 1000;
    const firstSeconds = this.#first === undefined ? seconds : (this.#first - this.#began) / 1000;
    this.#writer.finish({ ...end, ...this.#counts, ...this.#seed, seconds, firstSeconds, ...this.#forgotten });
    this.#settle();
  }

  #fail(error: unknown): void {
    this.#writer.fail(named(this.#where, error));
    this.#settle();
  }

  #settle(): void {
    this.#signal?.removeEventListener("abort", this.#abort);
    this.#stopWork();
  }
}

/** Makes the methods of a model that writes. */
export function createWriting(parts: WritingParts): Pick<ModelMethods, "text" | "chat" | "countTokens"> {
  const { engine, tokenizer, template, jinja } = parts;
  const { vocabSize, sessionLength } = engine;

  const encode = (where: string, messages: ChatMessages, options: WritingOptions) => {
    const { parseSpecial, ...rest } = options;
    const isParsed = expectFlag(where, "options.parseSpecial", parseSpecial);
    return encodeChat(where, tokenizer, messages, { template, ...rest, library: jinja }, isParsed);
  };

  return {
    text(prompt, options = {}) {
      const where = "text";
      const given = readOptions(where, options, ANSWER_OPTIONS);
      if (typeof prompt !== "string" && (typeof prompt !== "object" || typeof Object(prompt).length !== "number"))
        throw new TypeError(`${where}: prompt expected text or ids, got ${describe(prompt)}`);
      const writing = new Writing(where, parts, given, async (maxTokens) => {
        const all = typeof prompt === "string" ? tokenizer.encode(prompt) : prompt;
        if (engine.isHalves) return { ids: Array.from(all), context: [], length: sessionLength };
        const ids = readPrompt(where, tokenizer, all, vocabSize, sessionLength, []);
        const length = Math.ceil((ids.length + maxTokens) / PAGE) * PAGE;
        return { ids, context: ids, length: Math.min(length, sessionLength) };
      });
      return writing.answer;
    },
    chat(messages, options = {}) {
      const where = "chat";
      const given = readOptions(where, options, [...ANSWER_OPTIONS, ...WRITING_OPTIONS, "whenFull"]);
      const { template: _, tools: _tools, variables: _variables, parseSpecial: _parse, whenFull, ...rest } = given;
      if (whenFull !== undefined) expectOneOf(where, "options.whenFull", whenFull, ["refuse", "forget"]);
      if (!Array.isArray(messages))
        throw new TypeError(`${where}: messages expected a list of 1 or more messages, got ${describe(messages)}`);
      if ((given.template ?? template ?? tokenizer.chatTemplate) === undefined) {
        const rule = "one with a chat template, or options.template";
        throw new TypeError(
          `${where}: model expected ${rule}, got ${engine.type} without one: text goes on with a text`,
        );
      }
      // The caller may add the answer to the list before it is read.
      const all: ChatMessages = [...messages];
      const rendering = copyFields(given, WRITING_OPTIONS) as WritingOptions;
      const writing = new Writing(where, parts, rest, async (maxTokens) => {
        const toIds = (list: ChatMessages) => encode(where, list, rendering);
        const room = Math.max(1, Math.min(maxTokens, sessionLength >> 2));
        const fitted = whenFull === "forget" ? await forgetTurns(where, all, sessionLength, room, toIds) : undefined;
        const written = fitted?.ids ?? (await toIds(all));
        if (written.length > sessionLength) {
          const text = `${where}: messages expected at most ${sessionLength} tokens, got ${written.length}`;
          throw new HeadwiseError("CACHE_FULL", `${text}: whenFull: "forget" leaves out the oldest turns`);
        }
        const ids = readPrompt(where, tokenizer, written, vocabSize, sessionLength, []);
        // A conversation goes on: its session has room for all that the model may read.
        return { ids, context: [], length: sessionLength, ...(fitted && { forgotten: fitted.forgotten }) };
      });
      return writing.answer;
    },
    async countTokens(input, options = {}) {
      const where = "countTokens";
      const given = readFields(where, "options", options, WRITING_OPTIONS);
      expectAlive(where, "model", engine);
      return (typeof input === "string" ? tokenizer.encode(input) : await encode(where, input, given)).length;
    },
  };
}

/** An error of a generation under the name of the method that was called; those of processors stay as they are. */
function named(where: string, error: unknown): unknown {
  const inner = /^(?:generate(?:Many(?:: jobs\[\d+\])?)?|readSource|createSession|openModel)\b/;
  const { message } = Object(error) as { readonly message?: unknown };
  if (typeof message !== "string" || !inner.test(message)) return error;
  const text = message.replace(inner, where);
  if (error instanceof HeadwiseError) return new HeadwiseError(error.code, text, { cause: error });
  if (error instanceof RangeError) return new RangeError(text, { cause: error });
  return error instanceof TypeError ? new TypeError(text, { cause: error }) : error;
}

// Conversations that are longer than a model's room: which of their oldest turns are left out.

/** The ids of a conversation, and how many of its messages were left out. */
interface Fitted {
  readonly ids: readonly number[];
  readonly forgotten: number;
}

/** Where the turns behind the messages of the system begin: at its first message, and at each question. */
function turnsOf(messages: readonly ChatMessage[]): { readonly head: number; readonly starts: readonly number[] } {
  const isHead = ({ role }: ChatMessage) => role === "system" || role === "developer";
  const first = messages.findIndex((message) => !isHead(message));
  const head = first < 0 ? messages.length : first;
  const starts = messages.flatMap(({ role }, i) => (i === head || (i > head && role === "user") ? [i] : []));
  return { head, starts };
}

/**
 * Leaves out the oldest turns, whole ones, behind those of the system, until at most `most` tokens remain, of which `room` stay free
 * for the answer. Turns go in blocks of a quarter of that: so the next answers begin with the same messages, and do not read them
 * again.
 */
async function forgetTurns(
  where: string,
  messages: readonly ChatMessage[],
  most: number,
  room: number,
  encode: (messages: readonly ChatMessage[]) => Promise<readonly number[]>,
): Promise<Fitted> {
  const limit = most - room;
  const whole = await encode(messages);
  if (whole.length <= limit) return { ids: whole, forgotten: 0 };
  const { head, starts } = turnsOf(messages);
  const block = Math.max(1, limit >> 2);
  const excess = Math.ceil((whole.length - limit) / block) * block;
  const from = (start: number) => encode([...messages.slice(0, head), ...messages.slice(start)]);
  // The first turn that is kept, by halves: each count of tokens is a rendering of the whole.
  let [low, high] = [1, starts.length - 1];
  let last: Fitted | undefined;
  while (low <= high) {
    const middle = (low + high) >> 1;
    const start = starts[middle] as number;
    const ids = await from(start);
    const isEnough = ids.length <= limit && whole.length - ids.length >= excess;
    // The last turn stays, even if no whole block can be left out.
    if (isEnough || (middle === starts.length - 1 && ids.length <= limit)) last = { ids, forgotten: start - head };
    if (isEnough) high = middle - 1;
    else low = middle + 1;
  }
  if (last) return last;
  const rule = `a last turn of at most ${limit} tokens beside the messages of the system`;
  throw new HeadwiseError("CACHE_FULL", `${where}: messages expected ${rule}, got more`);
}
