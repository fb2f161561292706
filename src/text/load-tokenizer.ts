import {
  expectFlag,
  expectFunction,
  expectSignal,
  type Global,
  readFields,
  readOptions,
} from "../base/util/arguments.ts";
import { describe, HeadwiseError, tagOf } from "../base/util/errors.ts";
import { parseJson } from "../base/util/strings.ts";
import { type GgufFile, readGgufMetadata } from "../files/gguf.ts";
import { hubHint, type ModelSource, readTexts } from "../files/model-files.ts";
import type { ModelStore } from "../files/store.ts";
import { GENERATION } from "../models/families/facts.ts";
import { readTokenizerFiles } from "./gguf-tokenizer.ts";
import { findTokenizers, type TokenizersLibrary } from "./libraries.ts";
import { makeTokenizer, type Tokenizer } from "./tokenizer.ts";

/** Options of `readGgufTokenizer`. */
export interface TokenizerOptions {
  /**
   * The exports of `@huggingface/tokenizers`, where it cannot be imported by its name, such as in a page without a bundler.
   * Default that package.
   */
  readonly library?: TokenizersLibrary | undefined;
}

/** Options of `loadTokenizer`. */
export interface LoadTokenizerOptions extends TokenizerOptions {
  /** Ends loading: it rejects with the signal's reason. */
  readonly signal?: Global<"AbortSignal"> | undefined;
  /**
   * Keeps what is read of URLs, and which files a folder does not have, so that the next start works without a network: as of
   * `loadModel`, and the same store if you like. Default none.
   */
  readonly store?: ModelStore | undefined;
  /**
   * SHA-256 of the files, as of `loadModel`: of each file that is read, by its name, or of a GGUF file alone, all of which is read
   * then. Default none.
   */
  readonly integrity?: string | Readonly<Record<string, string>> | undefined;
  /** Whether texts are written in lower case first, where the tokenizer's own rules do not. Default false. */
  readonly lowercase?: boolean | undefined;
}

type Fields = Readonly<Record<string, unknown>>;

const [TOKENIZER, CONFIG, TEMPLATE] = ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"] as const;
/** Like generation_config.json, it has ids that end a generation. */
const MODEL = "config.json";

/**
 * Loads the tokenizer of a model's folder: tokenizer.json, and what there is of tokenizer_config.json, chat_template.jinja,
 * generation_config.json and config.json, which say what ends a generation and how a conversation is written; or that of a GGUF file,
 * as `readGgufTokenizer` makes it. It needs the package `@huggingface/tokenizers`.
 * @param source As of `loadModel`.
 * @throws TypeError naming the argument. HeadwiseError `NO_LIBRARY` without the package, `BAD_FILE` for files that are missing or
 * not understood. The signal's reason.
 * @example
 * import { loadTokenizer } from "headwise/text";
 * const vocab = { "<unk>": 0, the: 1, cat: 2 };
 * const files = new Map([["tokenizer.json", JSON.stringify({
 *   model: { type: "WordPiece", unk_token: "<unk>", continuing_subword_prefix: "##", max_input_chars_per_word: 100, vocab },
 *   added_tokens: [], normalizer: null, pre_tokenizer: { type: "Whitespace" }, post_processor: null,
 *   decoder: { type: "WordPiece", prefix: "##", cleanup: false },
 * })]]);
 * const tokenizer = await loadTokenizer((name) => files.has(name) ? new TextEncoder().encode(files.get(name)) : undefined);
 * console.log(tokenizer.encode("the cat"), tokenizer.decode([1, 2])); // [ 1, 2 ] the cat
 */
export async function loadTokenizer(source: ModelSource, options: LoadTokenizerOptions = {}): Promise<Tokenizer> {
  const where = "loadTokenizer";
  const known = ["library", "signal", "store", "integrity", "lowercase"] as const;
  const { library: given, signal, store, integrity, lowercase } = readOptions(where, options, known);
  expectFlag(where, "options.lowercase", lowercase);
  if (signal !== undefined) expectSignal(where, signal);
  if (store !== undefined) expectFunction(where, "options.store.open", Object(store).open);
  signal?.throwIfAborted();
  const library = await findTokenizers(where, given);
  const found = await readTexts(
    where,
    source,
    [TOKENIZER, CONFIG, TEMPLATE, GENERATION, MODEL],
    readGgufMetadata,
    signal,
    store,
    integrity,
  );
  if ("metadata" in found) return ofVocabulary(where, "source", library, found.metadata);
  const texts = found;
  const text = texts.get(TOKENIZER);
  if (text === undefined) {
    const hub = texts.size === 0 && typeof source === "string" ? await hubHint(source) : "";
    const hint =
      hub || "; a model without it, such as one with tokenizer.model alone, is read from its GGUF by readGgufTokenizer";
    throw new HeadwiseError("BAD_FILE", `${where}: source expected a file "${TOKENIZER}", got none${hint}`);
  }
  const stored = readObject(where, TOKENIZER, text);
  const json = lowercase ? loweringCase(stored) : stored;
  const [config, generation, model] = [CONFIG, GENERATION, MODEL].map((name) =>
    readObject(where, name, texts.get(name) ?? "{}"),
  ) as [Fields, Fields, Fields];
  const specialTokens = specialTokensOf(config);
  const eos = specialTokens.eos_token;
  return makeTokenizer(where, TOKENIZER, library, {
    ...{ json, config, specialTokens, vocabSize: vocabSizeOf(where, json) },
    ends: [...(eos === undefined ? [] : [eos]), ...idsOf(generation.eos_token_id), ...idsOf(model.eos_token_id)],
    chatTemplate: texts.get(TEMPLATE) ?? templateOf(config.chat_template),
  });
}

/**
 * Makes the tokenizer of the vocabulary in a GGUF file: byte-level BPE ("gpt2"), SentencePiece's BPE ("llama") and unigrams ("t5"),
 * and WordPiece ("bert"). It needs the package `@huggingface/tokenizers`. Byte-level BPE whose `tokenizer.ggml.pre` is not known is
 * refused by name.
 * @param file What `openGguf` gives; only its metadata is read.
 * @throws TypeError naming the argument. HeadwiseError `NO_LIBRARY` without the package, `BAD_FILE` naming the key that is missing,
 * contradicts another or is not supported.
 * @example
 * import { readGgufTokenizer } from "headwise/text";
 * const bytes = Array.from({ length: 256 }, (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`);
 * const metadata = new Map<string, string | string[] | Float32Array | Int32Array>([
 *   ["tokenizer.ggml.model", "llama"], ["tokenizer.ggml.tokens", [...bytes, "\u2581", "a", "\u2581a"]],
 *   ["tokenizer.ggml.scores", Float32Array.from({ length: 259 }, (_, id) => -id)],
 *   ["tokenizer.ggml.token_type", Int32Array.from({ length: 259 }, (_, id) => (id < 256 ? 6 : 1))],
 * ]);
 * const tokenizer = await readGgufTokenizer({ metadata }); // openGguf(...) of a file
 * console.log(tokenizer.encode("a é"), tokenizer.decode([258, 256, 195, 169])); // [ 258, 256, 195, 169 ] a é
 */
export async function readGgufTokenizer(
  file: Pick<GgufFile, "metadata">,
  options: TokenizerOptions = {},
): Promise<Tokenizer> {
  const where = "readGgufTokenizer";
  const { library: given } = readFields(where, "options", options, ["library"]);
  const { metadata } = Object(file) as Partial<GgufFile>;
  if (metadata === undefined || tagOf(metadata) !== "Map")
    throw new TypeError(`${where}: file expected metadata, as openGguf gives it, got ${describe(file)}`);
  return ofVocabulary(where, "file", await findTokenizers(where, given), metadata);
}

/** The tokenizer of a GGUF file's metadata, which came as the argument `name`. */
function ofVocabulary(
  where: string,
  name: string,
  library: Awaited<ReturnType<typeof findTokenizers>>,
  metadata: GgufFile["metadata"],
): Tokenizer {
  const files = readTokenizerFiles(where, metadata);
  const key = "tokenizer.chat_template";
  const chatTemplate = metadata.get(key);
  if (chatTemplate !== undefined && typeof chatTemplate !== "string")
    throw new HeadwiseError("BAD_FILE", `${where}: key "${key}" expected text, got ${describe(chatTemplate)}`);
  return makeTokenizer(where, name, library, { ...files, chatTemplate });
}

function readObject(where: string, name: string, text: string): Fields {
  const value = parseJson(where, name, text);
  if (tagOf(value) === "Object") return value as Fields;
  throw new HeadwiseError("BAD_FILE", `${where}: ${name} expected a JSON object, got ${describe(value)}`);
}

/** A tokenizer whose normalizer writes texts in lower case, as it is if it does so already. */
function loweringCase(json: Fields): Fields {
  const { normalizer } = json;
  const isLowering = (step: unknown): boolean => {
    const { type, lowercase, normalizers } = Object(step) as Fields;
    return type === "Lowercase" || lowercase === true || (Array.isArray(normalizers) && normalizers.some(isLowering));
  };
  if (isLowering(normalizer)) return json;
  return {
    ...json,
    normalizer: { type: "Sequence", normalizers: [{ type: "Lowercase" }, ...(normalizer ? [normalizer] : [])] },
  };
}

function vocabSizeOf(where: string, { model }: Fields): number {
  const { vocab } = Object(model) as { vocab?: unknown };
  if (typeof vocab === "object" && vocab !== null) return Object.keys(vocab).length;
  const text = `${where}: ${TOKENIZER} expected model.vocab with the tokens, got ${describe(vocab)}`;
  throw new HeadwiseError("BAD_FILE", text);
}

/** The texts of `bos_token` and the like, which are strings or records of added tokens. */
function specialTokensOf(config: Fields): Record<string, string> {
  const found: Record<string, string> = {};
  for (const [name, value] of Object.entries(config)) {
    const text = typeof value === "string" ? value : Object(value).content;
    if (/^[a-z]+_token$/.test(name) && typeof text === "string") found[name] = text;
  }
  return found;
}

/** Ids, of which there may be one, several, or none, which some files say by -1. */
const idsOf = (value: unknown) =>
  [value].flat().filter((id): id is number => Number.isSafeInteger(id) && (id as number) >= 0);

/** The template of a conversation: the only one, or of several the one called "default". */
function templateOf(value: unknown): string | undefined {
  const named = Array.isArray(value) ? value.find((each) => Object(each).name === "default") : { template: value };
  const { template } = Object(named);
  return typeof template === "string" ? template : undefined;
}
