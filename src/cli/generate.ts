// `headwise generate`: tokens or text behind a prompt.

import {
  createSession,
  type GenerateOptions,
  type GenerationEnd,
  generate as generateTokens,
  type Session,
} from "../entries/models.ts";
import { type ChatOptions, chat, generateText, loadTokenizer, type TextEnd, type Tokenizer } from "../entries/text.ts";
import { findJinja, findTokenizers } from "../text/libraries.ts";
import { FileError, readArguments, readCount, UsageError } from "./args.ts";
import { aboutFile, readText } from "./files.ts";
import {
  expectModelPath,
  findLibrary,
  type Loading,
  loadDecoder,
  readIds,
  readLoading,
  refuseEncoder,
  startDecoderKernels,
} from "./load.ts";
import { FORMAT_OPTIONS, helpOf, KERNEL_OPTIONS, LOAD_OPTIONS, OUTPUT_OPTIONS, readCommon } from "./options.ts";
import { print, readPrompt, sizeText, write } from "./terminal.ts";

// Text that follows a prompt, or the answer to it, for `headwise generate`.

/** Loads the tokenizer of a model's folder or GGUF file. Errors of the library get its path. */
export async function openTokenizer(
  command: string,
  model: string,
  { store }: Pick<Loading, "store">,
): Promise<Tokenizer> {
  const library = await findLibrary(command, "@huggingface/tokenizers", findTokenizers);
  try {
    return await loadTokenizer(model, { library, store });
  } catch (error) {
    throw aboutFile(command, model, error);
  }
}

/** What a conversation is written by. */
type ChatWriter = Required<Pick<ChatOptions, "template" | "library">>;

/** The template in a file, or else that of the model, and what renders it. */
async function openChat(
  command: string,
  model: string,
  { chatTemplate }: Tokenizer,
  file: string | undefined,
): Promise<ChatWriter> {
  const template = file === undefined ? chatTemplate : await readText(command, "--template", file);
  if (template === undefined) {
    const rule = "a model with a chat template, or --template with one";
    throw new FileError(`${command}: --chat expected ${rule}, got ${model} without one`);
  }
  return { template, library: await findLibrary(command, "@huggingface/jinja", findJinja) };
}

/** Generates text that follows a prompt, or as a `conversation` the answer to it, and passes each piece to `write`. */
async function writeText(
  session: Session,
  tokenizer: Tokenizer,
  prompt: string,
  conversation: ChatWriter | undefined,
  options: GenerateOptions & { readonly stop?: string },
  write: (piece: string) => void,
): Promise<TextEnd> {
  const pieces = conversation
    ? chat(session, tokenizer, [{ role: "user", content: prompt }], { ...options, ...conversation })
    : generateText(session, tokenizer, prompt, options);
  let next = await pieces.next().catch((error: unknown) => {
    throw error instanceof RangeError || error instanceof TypeError ? new UsageError(error.message) : error;
  });
  for (; !next.done; next = await pieces.next()) write(next.value);
  return next.value;
}

const HELP = `headwise generate MODEL PROMPT [options]
headwise generate MODEL --ids LIST [options]

Loads the decoder MODEL, a folder (config.json, and model.safetensors or its index) or a GGUF file, or at
a URL, and generates the text that follows PROMPT, or the tokens that follow LIST. PROMPT "-" is standard input.
Prints them as they come, and on stderr what was loaded and the tokens a second. Text needs the model's
tokenizer, and the package @huggingface/tokenizers.

  --chat              answer PROMPT, by the model's template (package @huggingface/jinja)
  --template FILE     with --chat, a Jinja template instead of the model's
  --ids LIST          token ids, separated by commas
  --tokens N          tokens to generate at most (default 32)
  --stop TEXT         what ends it: a text, or with --ids a list of ids
  --temperature X     0 takes the most probable token (default 0)
  --top-k N           only the N most probable tokens
  --top-p X           only the most probable tokens that together have this probability
  --min-p X           only tokens with this share of the largest probability
  --repetition-penalty X
                      divides the logits of tokens that occurred (default 1)
  --seed N            the same seed gives the same tokens (default a random one, which is printed)
  --ngram N           speculative decoding: guess what followed the last N tokens before
  --max-seq-len N     tokens of the session (default what is needed)
${helpOf("weights", "activations", "cache", "threads", "deterministic", "no-store", "quiet", "json")}`;

const OPTIONS = {
  ids: { type: "string" },
  chat: { type: "boolean", default: false },
  template: { type: "string" },
  tokens: { type: "string", default: "32" },
  stop: { type: "string" },
  temperature: { type: "string" },
  "top-k": { type: "string" },
  "top-p": { type: "string" },
  "min-p": { type: "string" },
  "repetition-penalty": { type: "string" },
  seed: { type: "string" },
  ngram: { type: "string" },
  "max-seq-len": { type: "string" },
  ...FORMAT_OPTIONS,
  ...KERNEL_OPTIONS,
  ...LOAD_OPTIONS,
  ...OUTPUT_OPTIONS,
} as const;

const MOST_TOKENS = 2 ** 20;

/** `headwise generate`. */
export async function generate(args: string[]): Promise<void> {
  const { values, positionals } = readArguments("generate", args, OPTIONS);
  if (values.help) return print(HELP);
  const [folder, given, ...more] = positionals;
  if (folder === undefined) throw new UsageError("generate: expected a model and a prompt, got neither");
  if (more.length > 0)
    throw new UsageError(
      `generate: expected one prompt, got ${more.length + 1}: quote it, as in ${JSON.stringify([given, ...more].join(" "))}`,
    );
  if ((values.ids === undefined) === (given === undefined))
    throw new UsageError(
      `generate: expected a prompt, or --ids with token ids, got ${values.ids ? "both" : "neither"}`,
    );
  if (values.chat && given === undefined) throw new UsageError("generate: --chat expected a prompt, got none");
  if (values.template !== undefined && !values.chat)
    throw new UsageError("generate: --template expected --chat beside it, got none");
  const ids = values.ids === undefined ? [] : readIds("generate", "--ids", values.ids);
  const maxTokens = readCount("generate", "--tokens", values.tokens, 0, MOST_TOKENS);
  const number = (name: keyof typeof values) => {
    const text = values[name] as string | undefined;
    if (text === undefined) return undefined;
    if (text.trim() !== "" && Number.isFinite(Number(text))) return Number(text);
    throw new UsageError(`generate: --${name} expected a number, got ${text}`);
  };
  const sampling = {
    ...{ temperature: number("temperature"), topK: number("top-k"), topP: number("top-p"), minP: number("min-p") },
    ...{ repetitionPenalty: number("repetition-penalty"), seed: number("seed") },
  };
  const ngram = number("ngram");
  const { weights, activations, cache: format, threads } = readCommon("generate", values);
  const longest = values["max-seq-len"];
  // How many tokens a prompt has, only its tokenizer knows: then the session is as long as one is by default.
  const needed = given === undefined ? ids.length + maxTokens : undefined;
  const maxSeqLen = longest === undefined ? needed : readCount("generate", "--max-seq-len", longest, 1, MOST_TOKENS);
  const loading = readLoading(folder, values);
  await expectModelPath("generate", folder);
  await refuseEncoder("generate", folder, loading);
  const prompt = given === undefined ? undefined : await readPrompt(given);
  const tokenizer = prompt === undefined ? undefined : await openTokenizer("generate", folder, loading);
  const conversation =
    tokenizer && values.chat ? await openChat("generate", folder, tokenizer, values.template) : undefined;

  const kernels = await startDecoderKernels(threads, values.deterministic);
  try {
    const asked = { weights, activations, maxSeqLen };
    const { model, loadMs } = await loadDecoder("generate", kernels, folder, asked, loading);
    const session = createSession(model, { maxSeqLen, format });
    const options = { ...present(sampling), maxTokens, ...(ngram !== undefined && { draft: { ngram } }) };
    const { type, layers, bytes } = model;
    const facts = { type, layers, bytes, sessionBytes: session.bytes, build: kernels.build, loadMs };
    const report = (read: number, count: number, { promptMs, generationMs }: Times, end: GenerationEnd) => {
      // What was written has no line break at its end yet.
      print("");
      if (values.quiet) return;
      const rate = rateOf(count, generationMs);
      console.error(`
model          ${type}, ${layers} layers, ${sizeText(bytes)}, loaded in ${loadMs.toFixed(0)} ms
session        ${session.maxSeqLen} tokens, ${sizeText(session.bytes)}
first token    ${promptMs.toFixed(1)} ms for ${read} tokens
decode         ${rate === undefined ? "-" : `${rate.toFixed(1)} tokens/s`}, ${count} tokens, ended by ${end.reason}${end.seed === undefined ? "" : `\nseed           ${end.seed}`}
build          ${kernels.build}: ${kernels.reason}`);
    };
    if (tokenizer && prompt !== undefined) {
      const stop = values.stop === undefined ? {} : { stop: values.stop };
      const writePiece = (piece: string) => values.json || write(piece);
      const end = await writeText(session, tokenizer, prompt, conversation, { ...options, ...stop }, writePiece);
      if (!values.json) return report(end.promptTokens, end.ids.length, end, end);
      const tokensPerSecond = rateOf(end.ids.length, end.generationMs);
      return print(JSON.stringify({ ...facts, tokensPerSecond, ...end }, null, 2));
    }
    const tokens: { id: number; logprob: number }[] = [];
    const stopIds = values.stop ? readIds("generate", "--stop", values.stop) : [];
    const all = generateTokens(session, ids, { ...options, stopIds });
    const started = performance.now();
    let next = await all.next().catch((error: unknown) => {
      throw error instanceof RangeError || error instanceof TypeError ? new UsageError(error.message) : error;
    });
    const times = { promptMs: performance.now() - started, generationMs: 0 };
    while (!next.done) {
      tokens.push(next.value);
      if (!values.json) write(`${tokens.length === 1 ? "" : " "}${next.value.id}`);
      const began = performance.now();
      next = await all.next();
      if (!next.done) times.generationMs += performance.now() - began;
    }
    const end = next.value;
    if (!values.json) return report(ids.length, tokens.length, times, end);
    const tokensPerSecond = rateOf(tokens.length, times.generationMs);
    const { reason, seed } = end;
    print(JSON.stringify({ ...facts, tokensPerSecond, ...times, reason, seed, tokens }, null, 2));
  } finally {
    kernels.release();
  }
}

type Times = Pick<TextEnd, "promptMs" | "generationMs">;

/** Tokens a second of `count` tokens, of which those after the first took `ms`. */
function rateOf(count: number, ms: number): number | undefined {
  return count > 1 ? ((count - 1) * 1000) / ms : undefined;
}

/** The fields that were given. */
function present<T extends object>(fields: T): Partial<T> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Partial<T>;
}
