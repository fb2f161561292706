// `headwise chat`: a conversation in the terminal.

import { writeFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import type { AnswerEnd, OpenedModel } from "../entries/index.ts";
import type { ChatMessage } from "../entries/text.ts";
import { readArguments, readCount, suggestionOf, UsageError } from "./args.ts";
import { readText } from "./files.ts";
import { rateOf } from "./generate.ts";
import { findLibraries, openSource } from "./load.ts";
import { FORMAT_OPTIONS, helpOf, LOAD_OPTIONS, readCommon } from "./options.ts";
import { print, sizeText, write } from "./terminal.ts";

const HELP = `headwise chat SOURCE [options]

A conversation with the model SOURCE: a GGUF file or a folder, its URL, or "owner/name" of a model on a hub, with
":Q8_0" behind it for one of its quantisations. It is downloaded once. Each line is a question. Needs the packages
@huggingface/tokenizers and @huggingface/jinja. Ctrl-C stops an answer, or ends the conversation.

  --system TEXT       the system message
  --template FILE     a Jinja template instead of the model's
  --tokens N          tokens of an answer at most (default 1024)
  --temperature X     0 takes the most probable token (default 0)
  --top-p X           only the most probable tokens that together have this probability
  --seed N            the same seed gives the same answers
  --max-seq-len N     tokens of the conversation; the oldest turns behind are left out (default the model's, at most 4096)
  --memory N          bytes that the model may take
${helpOf("weights", "activations", "chosen-cache", "chosen-threads", "no-store", "quiet")}

Lines that begin with / are commands: ${"/stop, /retry, /new, /save FILE, /help, /quit"}.`;

const OPTIONS = {
  system: { type: "string" },
  template: { type: "string" },
  tokens: { type: "string", default: "1024" },
  temperature: { type: "string" },
  "top-p": { type: "string" },
  seed: { type: "string" },
  "max-seq-len": { type: "string" },
  memory: { type: "string" },
  threads: { type: "string" },
  ...FORMAT_OPTIONS,
  ...LOAD_OPTIONS,
  help: { type: "boolean", short: "h", default: false },
} as const;

const MOST_TOKENS = 2 ** 20;

/** `headwise chat`. */
export async function chat(args: string[]): Promise<void> {
  const { values, positionals } = readArguments("chat", args, OPTIONS);
  if (values.help) return print(HELP);
  const [source, ...more] = positionals;
  if (source === undefined || more.length > 0)
    throw new UsageError(`chat: expected one model, got ${positionals.length} arguments`);
  const count = (name: "tokens" | "max-seq-len" | "memory", most: number) => {
    const text = values[name];
    return text === undefined ? undefined : readCount("chat", `--${name}`, text, 1, most);
  };
  const number = (name: "temperature" | "top-p" | "seed") => {
    const text = values[name];
    if (text === undefined) return {};
    if (text.trim() === "" || !Number.isFinite(Number(text)))
      throw new UsageError(`chat: --${name} expected a number, got ${text}`);
    return { [name === "top-p" ? "topP" : name]: Number(text) };
  };
  const sampling = { ...number("temperature"), ...number("top-p"), ...number("seed") };
  const maxTokens = count("tokens", MOST_TOKENS);
  const common = readCommon("chat", values);
  const template = values.template === undefined ? undefined : await readText("chat", "--template", values.template);
  const { model } = await openSource("chat", source, values, {
    ...{ for: "chat", ...common, template, libraries: findLibraries("chat", true) },
    ...{ maxSeqLen: count("max-seq-len", MOST_TOKENS), memory: count("memory", Number.MAX_SAFE_INTEGER) },
  });
  try {
    if (!values.quiet) console.error(aboutModel(model));
    const system = values.system === undefined ? [] : [{ role: "system", content: values.system }];
    await converse(model, system, { ...sampling, maxTokens, whenFull: "forget" }, values.quiet);
  } finally {
    model.release();
  }
}

function aboutModel({ type, parts, choices }: OpenedModel): string {
  const { weights, cache, threads, maxSeqLen, build } = choices;
  return `${type}, ${sizeText(parts.model.bytes)}, weights ${typeof weights.value === "string" ? weights.value : "mixed"}, cache ${cache?.value}, ${maxSeqLen.value} tokens, threads ${threads.value}, build ${build.value}; /help for commands`;
}

type Options = NonNullable<Parameters<OpenedModel["chat"]>[1]>;

/** What a command of the conversation does. Returns whether an answer to the messages follows; undefined ends it. */
type Command = (argument: string) => boolean | undefined | Promise<boolean>;

/** Asks for questions, and answers them, until there are no more. */
async function converse(
  model: OpenedModel,
  system: readonly ChatMessage[],
  options: Options,
  quiet: boolean,
): Promise<void> {
  let messages: ChatMessage[] = [...system];
  let abort: AbortController | undefined;
  const commands: Readonly<Record<string, Command>> = {
    stop: () => false,
    retry() {
      while (messages.at(-1)?.role === "assistant") messages.pop();
      return messages.at(-1)?.role === "user";
    },
    new() {
      messages = [...system];
      return false;
    },
    async save(file) {
      const path = file || "chat.json";
      await writeFile(path, `${JSON.stringify(messages, null, 2)}\n`);
      console.error(`saved ${messages.length} messages in ${path}`);
      return false;
    },
    help() {
      print(
        "/stop ends an answer, /retry answers again, /new forgets all, /save FILE writes the messages as JSON, /quit ends",
      );
      return false;
    },
    quit: () => undefined,
  };

  const isTerminal = Boolean(process.stdin.isTTY && process.stdout.isTTY);
  const input = createInterface({
    input: process.stdin,
    output: isTerminal ? process.stdout : undefined,
    prompt: "> ",
  });
  const lines = linesOf(input, (line) => {
    const isStop = line.trim() === "/stop";
    if (isStop) abort?.abort();
    return isStop && abort !== undefined;
  });
  input.on("SIGINT", () => (abort ? abort.abort() : input.close()));
  const ask = () => isTerminal && input.prompt();
  ask();
  for await (const line of lines) {
    const [, name, argument = ""] = /^\/(\S*)\s*(.*)$/.exec(line) ?? [];
    let isAsked: boolean | undefined = line.trim() !== "";
    if (name === undefined) {
      if (isAsked) messages.push({ role: "user", content: line });
    } else {
      const command = Object.hasOwn(commands, name) ? commands[name] : undefined;
      const names = Object.keys(commands);
      if (!command)
        console.error(
          `/${name} is no command: ${names.map((each) => `/${each}`).join(", ")}${suggestionOf(name, names, "/")}`,
        );
      isAsked = command ? await attempt(() => command(argument)) : false;
    }
    if (isAsked === undefined) break;
    if (isAsked) {
      abort = new AbortController();
      await attempt(() => answerTo(model, messages, { ...options, signal: abort?.signal }, quiet));
      abort = undefined;
    }
    ask();
  }
  input.close();
}

/** Writes the answer to the messages, and adds it to them. */
async function answerTo(
  model: OpenedModel,
  messages: ChatMessage[],
  options: Options,
  quiet: boolean,
): Promise<boolean> {
  const answer = model.chat(messages, options);
  for await (const piece of answer) write(piece);
  print("");
  messages.push({ role: "assistant", content: await answer.text });
  if (!quiet) console.error(aboutAnswer(await answer.end));
  return false;
}

function aboutAnswer(end: AnswerEnd): string {
  const { reason, read, reused, written, forgotten, seed } = end;
  const rate = written > 1 ? `, ${rateOf(end)?.toFixed(1)} a second` : "";
  const left = forgotten ? `, ${forgotten} messages left out` : "";
  const drawn = seed === undefined ? "" : `, seed ${seed}`;
  return `(${written} tokens${rate}; ${read} read, ${reused} known; ${reason}${left}${drawn})`;
}

/** What a failure of a command says, without ending the conversation. */
async function attempt<T>(work: () => T | Promise<T>): Promise<T | false> {
  try {
    return await work();
  } catch (error) {
    console.error(error instanceof Error ? error.message : String(error));
    return false;
  }
}

/** Lines as they come; `taken` has those at once that it returns true for. */
async function* linesOf(
  input: ReturnType<typeof createInterface>,
  taken: (line: string) => boolean,
): AsyncGenerator<string> {
  const waiting: string[] = [];
  let isClosed = false;
  let wake = () => {};
  input.on("line", (line) => {
    if (!taken(line)) waiting.push(line);
    wake();
  });
  input.on("close", () => {
    isClosed = true;
    wake();
  });
  for (;;) {
    const line = waiting.shift();
    if (line !== undefined) yield line;
    else if (isClosed) return;
    else
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
  }
}
