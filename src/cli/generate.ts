// `headwise generate`: text or tokens behind a prompt.

import type { AnswerEnd } from "../entries/index.ts";
import { readArguments, readCount, UsageError } from "./args.ts";
import { readText } from "./files.ts";
import { findLibraries, NUMBERS, openSource, readIds } from "./load.ts";
import { FORMAT_OPTIONS, helpOf, KERNEL_OPTIONS, LOAD_OPTIONS, OUTPUT_OPTIONS, readCommon } from "./options.ts";
import { print, readPrompt, sizeText, write } from "./terminal.ts";

const HELP = `headwise generate SOURCE PROMPT [options]
headwise generate SOURCE --ids LIST [options]

Opens the model SOURCE, a GGUF file or a folder, its URL, or "owner/name" of a model on a hub, with ":Q8_0" behind it for
one of its quantisations, and writes the text that follows PROMPT, or the tokens that follow LIST. PROMPT "-" is standard
input. Prints them as they come, and on stderr what was opened and the tokens a second. Text needs the package
@huggingface/tokenizers.

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
  --max-seq-len N     tokens of prompt and answer (default the model's, at most 4096; with --ids what is needed)
${helpOf("weights", "activations", "chosen-cache", "chosen-threads", "deterministic", "no-store", "quiet", "json")}`;

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
  const [source, given, ...more] = positionals;
  if (source === undefined) throw new UsageError("generate: expected a model and a prompt, got neither");
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
  const ids = values.ids === undefined ? undefined : readIds("generate", "--ids", values.ids);
  const maxTokens = readCount("generate", "--tokens", values.tokens, 0, MOST_TOKENS);
  const number = (name: keyof typeof values) => {
    const text = values[name] as string | undefined;
    if (text === undefined) return undefined;
    if (text.trim() !== "" && Number.isFinite(Number(text))) return Number(text);
    throw new UsageError(`generate: --${name} expected a number, got ${text}`);
  };
  const ngram = number("ngram");
  const { stop } = values;
  const options = {
    ...{ temperature: number("temperature"), topK: number("top-k"), topP: number("top-p"), minP: number("min-p") },
    ...{ repetitionPenalty: number("repetition-penalty"), seed: number("seed"), maxTokens },
    ...(ngram !== undefined && { draft: { ngram } }),
    ...(stop !== undefined && (ids ? { stopIds: readIds("generate", "--stop", stop) } : { stop })),
  };
  const longest = values["max-seq-len"];
  const maxSeqLen =
    longest === undefined
      ? ids && ids.length + maxTokens
      : readCount("generate", "--max-seq-len", longest, 1, MOST_TOKENS);
  const common = readCommon("generate", values);
  const template =
    values.template === undefined ? undefined : await readText("generate", "--template", values.template);
  const prompt = given === undefined ? "" : await readPrompt(given);

  const { model, loadMs } = await openSource("generate", source, values, {
    ...{ ...common, deterministic: values.deterministic, maxSeqLen, keptBytes: 0 },
    ...(ids ? { tokenizer: NUMBERS } : { libraries: findLibraries("generate", values.chat) }),
    ...{ for: values.chat ? "chat" : "text", template },
  });
  try {
    const answer = values.chat
      ? model.chat([{ role: "user", content: prompt }], options)
      : model.text(ids ?? prompt, options);
    let isFirst = true;
    for await (const piece of answer) {
      // Each number is written behind a space.
      if (!values.json) write(ids && isFirst ? piece.trimStart() : piece);
      isFirst = false;
    }
    const end = await answer.end;
    const { type, layers, bytes } = model.parts.model;
    const { build, cache, threads, maxSeqLen: length } = model.choices;
    const tokensPerSecond = rateOf(end);
    if (values.json) {
      const facts = { type, layers, bytes, maxSeqLen: length.value, cache: cache?.value, loadMs };
      const kernels = { build: build.value, threads: threads.value };
      const [text, written, logprobs] = await Promise.all([answer.text, answer.ids, answer.logprobs]);
      const texts = ids ? {} : { text };
      return print(
        JSON.stringify({ ...facts, ...kernels, tokensPerSecond, ...end, ...texts, ids: written, logprobs }, null, 2),
      );
    }
    // What was written has no line break at its end yet.
    print("");
    if (values.quiet) return;
    const rate = tokensPerSecond === undefined ? "-" : `${tokensPerSecond.toFixed(1)} tokens/s`;
    console.error(`
model          ${type}, ${layers} layers, ${sizeText(bytes)}, opened in ${loadMs.toFixed(0)} ms
session        ${length.value} tokens, cache ${cache?.value}
first token    ${(1000 * end.firstSeconds).toFixed(1)} ms for ${end.read} tokens
decode         ${rate}, ${end.written} tokens, ended by ${end.reason}${end.seed === undefined ? "" : `\nseed           ${end.seed}`}
build          ${build.value}: ${build.reason}
threads        ${threads.value}: ${threads.reason}`);
  } catch (error) {
    throw error instanceof RangeError || error instanceof TypeError
      ? new UsageError(error.message.replace(/^\w+/, "generate"))
      : error;
  } finally {
    model.release();
  }
}

/** Tokens a second behind the first one. */
export function rateOf({ written, seconds, firstSeconds }: AnswerEnd): number | undefined {
  return written > 1 ? (written - 1) / Math.max(seconds - firstSeconds, 1e-6) : undefined;
}
