// Texts, pairs, queries and documents as the tokens that a model's files ask for, and what labels of tokens say of a text.

import { describe } from "../base/util/errors.ts";
import type { SliceOptions } from "../layers/pass/forward.ts";
import { renderChat } from "../text/chat.ts";
import type { JinjaLibrary } from "../text/libraries.ts";
import {
  continuationOf,
  type FramePart,
  firstTokens,
  frameOf,
  type PlacedToken,
  placeIds,
  unknownOf,
  writeTokens,
} from "../text/token-places.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import type { Recipe } from "./recipe.ts";
import type { RunTexts, TextTokens } from "./run.ts";
import { softmax } from "./scores.ts";

/** Which text is shorter if both have too many tokens: the longer one, the first or the second alone. */
export type Cut = "longest" | "first" | "second";

/** Tokens of a text or a pair, and which of them belong to which text. */
interface FramedTokens extends TextTokens {
  readonly ids: number[];
  readonly types: number[];
  /** Which text a token belongs to; undefined for special tokens around them. */
  readonly texts: readonly (0 | 1 | undefined)[];
}

/** The prompt of texts of a task; undefined for none. Throws unless it is "query", "document" or the name of a prompt. */
export function promptOf(where: string, { texts, queryLookup }: Recipe, task: string | undefined): string | undefined {
  const { prompts, defaultPrompt } = texts;
  if (task === undefined) return defaultPrompt === undefined ? undefined : prompts[defaultPrompt];
  const own = Object.hasOwn(prompts, task) ? prompts[task] : undefined;
  if (own !== undefined || task === "query" || task === "document" || queryLookup) return own || undefined;
  const names = [...new Set(["query", "document", ...Object.keys(prompts)])].map((name) => describe(name)).join(", ");
  throw new RangeError(`${where}: options.task expected one of ${names}, got ${describe(task)}`);
}

/** The first `most` tokens; some tokenizers leave the beginning of a text out. */
function cutTo({ made }: Tokenizer, ids: readonly number[], most: number): readonly number[] {
  return made?.keepsEnd ? ids.slice(Math.max(0, ids.length - most)) : ids.slice(0, most);
}

/** Puts special tokens around the tokens of one text or two, of which at most `most` are left. */
export function frame(
  tokenizer: Tokenizer,
  first: readonly number[],
  second: readonly number[] | undefined,
  most: number,
  cut: Cut = "longest",
): FramedTokens {
  const parts = framePartsOf(tokenizer, second === undefined ? 1 : 2);
  const special = parts.filter(({ id }) => id !== undefined).length;
  const room = Math.max(0, most - special);
  const [a, b] =
    second === undefined ? [Math.min(first.length, room), 0] : cutPair(first.length, second.length, room, cut);
  const all = [cutTo(tokenizer, first, a), cutTo(tokenizer, second ?? [], b)] as const;
  const [ids, types, texts]: [number[], number[], (0 | 1 | undefined)[]] = [[], [], []];
  for (const { id, text, type } of parts)
    for (const own of text === undefined ? [id as number] : all[text]) {
      ids.push(own);
      types.push(type);
      texts.push(text);
    }
  return { ids, types, texts };
}

type FirstTokens = ReturnType<typeof firstTokens>;

/** Reads one text or two, of which no more is encoded than is left of them, and puts special tokens around them. */
export function frameTexts(
  tokenizer: Tokenizer,
  first: string,
  second: string | undefined,
  most: number,
  cut: Cut = "longest",
): FramedTokens {
  const [own, other] = [first, second ?? ""].map((text) => firstTokens(tokenizer, text, most)) as [
    FirstTokens,
    FirstTokens,
  ];
  if (second === undefined) return frame(tokenizer, own.ids, undefined, most, cut);
  // Which text is the longer one counts where both are too long.
  const isUnknown = (a: FirstTokens, text: string, b: FirstTokens) => a.text !== text && a.ids.length <= b.ids.length;
  const isWhole = isUnknown(own, first, other) || isUnknown(other, second, own);
  const [a, b] = isWhole ? [tokensOf(tokenizer, first), tokensOf(tokenizer, second)] : [own.ids, other.ids];
  return frame(tokenizer, a, b, most, cut);
}

/** Tokens without those of padding at their end, but the first. */
export function withoutPadding(tokens: FramedTokens, padding: number | undefined): FramedTokens {
  let { length } = tokens.ids;
  while (length > 1 && padding !== undefined && tokens.ids[length - 1] === padding) length--;
  return {
    ids: tokens.ids.slice(0, length),
    types: tokens.types.slice(0, length),
    texts: tokens.texts.slice(0, length),
  };
}

const FRAMES = new WeakMap<object, Map<1 | 2, FramePart[]>>();

/** The frame of a tokenizer, which is asked for once. Of a tokenizer of one's own, what it puts around a text is not known. */
function framePartsOf({ made }: Tokenizer, texts: 1 | 2): readonly FramePart[] {
  if (made === undefined)
    throw new TypeError("options.tokenizer expected one of loadTokenizer or readGgufTokenizer, got another one");
  const known = FRAMES.get(made) ?? new Map<1 | 2, FramePart[]>();
  FRAMES.set(made, known);
  const own = known.get(texts) ?? frameOf(made, texts);
  known.set(texts, own);
  return own;
}

/** How many tokens of two texts are left. Of both, the longer is cut first; if both are long, to halves. */
function cutPair(first: number, second: number, room: number, cut: Cut): readonly [number, number] {
  if (first + second <= room) return [first, second];
  if (cut === "first") return [Math.max(0, room - second), Math.min(second, room)];
  if (cut === "second") return [Math.min(first, room), Math.max(0, room - first)];
  const isSwapped = first > second;
  let shorter = Math.min(first, second);
  let longer = shorter > room ? shorter : Math.max(shorter, room - shorter);
  if (shorter + longer > room) {
    shorter = Math.floor(room / 2);
    longer = shorter + (room % 2);
  }
  return isSwapped ? [longer, shorter] : [shorter, longer];
}

/** The tokens of a text, without special ones around it. */
export const tokensOf = (tokenizer: Tokenizer, text: string): readonly number[] =>
  tokenizer.encode(text, { addSpecial: false });

/** What texts of a task become. `most` are the tokens that the model reads. */
export function embedTokens(
  where: string,
  recipe: Recipe,
  tokenizer: Tokenizer,
  most: number,
  task: string | undefined,
): (text: string) => TextTokens {
  const prompt = promptOf(where, recipe, task) ?? "";
  const { includePrompt } = recipe.texts;
  if (tokenizer.made === undefined) return (text) => ({ ids: cutWhole(tokenizer, prompt + text, most), skip: 0 });
  const skip = includePrompt || prompt === "" ? 0 : promptLength(tokenizer, prompt, most);
  return (text) => ({ ...frameTexts(tokenizer, prompt + text, undefined, most), skip });
}

/** Tokens of a prompt, which is cut as texts are, with the special tokens before it. */
function promptLength(tokenizer: Tokenizer, prompt: string, most: number): number {
  const { ids, texts } = frameTexts(tokenizer, prompt, undefined, most);
  // A special token behind it is counted by nobody.
  return texts.at(-1) === undefined ? ids.length - 1 : ids.length;
}

/** The ids of a text by a tokenizer of one's own: a longer text is cut at its end, before the tokens that the tokenizer puts there. */
function cutWhole(tokenizer: Tokenizer, text: string, most: number): readonly number[] {
  const whole = tokenizer.encode(text);
  if (whole.length <= most) return whole;
  const own = tokenizer.encode(text, { addSpecial: false });
  const isAt = (at: number) => own.every((id, i) => whole[at + i] === id);
  const before = whole.findIndex((_, at) => at <= whole.length - own.length && isAt(at));
  const behind = whole.length - own.length - Math.max(0, before);
  return [...whole.slice(0, Math.max(0, most - behind)), ...whole.slice(whole.length - behind)];
}

/** Queries or documents of a model that gives a vector of each token, and which of its rows count. */
export function lateTokens(
  where: string,
  recipe: Recipe,
  tokenizer: Tokenizer,
  most: number,
  task: "query" | "document",
): (text: string) => TextTokens & { readonly rows: readonly number[] } {
  const late = recipe.late as NonNullable<Recipe["late"]>;
  const prompt = promptOf(where, recipe, task) ?? "";
  const { query, documentLength = most } = late;
  const isQuery = task === "query";
  const longest = Math.min(most, (isQuery ? query.longest : documentLength) ?? most);
  const idOf = (token: string) => tokenizer.made?.library.token_to_id(token);
  const skipped = new Set(late.skipped[task].map(idOf));
  const kept = isQuery || late.kept === undefined ? undefined : new Set(late.kept);
  const mask = idOf(query.filler ?? tokenizer.specialTokens?.mask_token ?? "[MASK]");
  return (text) => {
    const { ids, types } = frameTexts(tokenizer, prompt + text, undefined, longest);
    const attended = ids.length;
    if (isQuery && query.fills && mask !== undefined)
      while (ids.length < Math.min(most, query.length ?? 0)) {
        ids.push(mask);
        types.push(0);
      }
    const rows = Array.from(ids.keys()).filter(
      (i) => !skipped.has(ids[i] as number) && (kept === undefined || kept.has(ids[i] as number)),
    );
    return { ids, types, rows, ...(query.attends ? {} : { attended }) };
  };
}

const [BEGIN, END] = ["<|im_start|>", "<|im_end|>\n"] as const;
/** How Qwen3-Reranker is asked, as it is published. */
const QWEN = {
  prefix: [
    `${BEGIN}system\n`,
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. ",
    'Note that the answer can only be "yes" or "no".',
    `${END}${BEGIN}user\n`,
  ].join(""),
  suffix: `${END}${BEGIN}assistant\n<think>\n\n</think>\n\n`,
  instruction: "Given a web search query, retrieve relevant passages that answer the query",
};

/** The tokens by which Qwen3-Reranker is asked about a document, which is cut if it is too long. */
function questionTokens(
  tokenizer: Tokenizer,
  query: string,
  document: string,
  instruction: string | undefined,
  most: number,
): TextTokens {
  const { prefix, suffix } = QWEN;
  const text = `<Instruct>: ${instruction ?? QWEN.instruction}\n<Query>: ${query}\n<Document>: ${document}`;
  const own = firstTokens(tokenizer, text, most);
  const whole = own.text === text ? tokensOf(tokenizer, prefix + text + suffix) : undefined;
  if (whole && whole.length <= most) return { ids: whole };
  const [before, behind] = [tokensOf(tokenizer, prefix), tokensOf(tokenizer, suffix)];
  return { ids: [...before, ...own.ids.slice(0, Math.max(0, most - before.length - behind.length)), ...behind] };
}

/** What a reranker is asked with. */
interface AskParts {
  readonly recipe: Recipe;
  readonly tokenizer: Tokenizer;
  readonly maxTokens: number;
  readonly jinja: JinjaLibrary | undefined;
  readonly template?: string | undefined;
}

/** How a reranker is asked about a document. */
export async function askedTokens(
  { recipe, tokenizer, maxTokens, jinja, template }: AskParts,
  query: string,
  document: string,
  instruction: string | undefined,
): Promise<TextTokens> {
  if (recipe.asks?.template !== "chat") return questionTokens(tokenizer, query, document, instruction, maxTokens);
  const { prompts, defaultPrompt } = recipe.texts;
  const system = instruction ?? (defaultPrompt === undefined ? undefined : prompts[defaultPrompt]);
  const messages = [
    ...(system === undefined ? [] : [{ role: "system", content: system }]),
    { role: "query", content: query },
    { role: "document", content: document },
  ];
  const text = await renderChat(tokenizer, messages, { library: jinja, template, addGenerationPrompt: false });
  return { ids: cutTo(tokenizer, firstTokens(tokenizer, text, maxTokens).ids, maxTokens) };
}

// Entities of a text: the labels of its tokens, joined to words and groups.

/** How labels of tokens become one: those of tokens alone, or of whole words by the first, the largest or the mean of scores. */
export type Aggregation = "simple" | "first" | "average" | "max";

/** A part of a text that a label was found for. */
export interface Entity {
  /** The label, without what says where in an entity a token is ("B-", "I-"). */
  readonly entity: string;
  /** The mean share of the label over its tokens, or words. */
  readonly score: number;
  /** The text as the tokens write it. */
  readonly word: string;
  /** Where it begins in the text (UTF-16 units). */
  readonly start: number;
  /** Where it ends: the unit behind it. */
  readonly end: number;
}

/** A token or a word, and the shares of all labels. */
interface Part {
  readonly words: readonly string[];
  readonly shares: readonly number[];
  readonly start: number;
  readonly end: number;
  readonly continues: boolean;
}

/** The label of tokens outside of entities. */
const OUTSIDE = "O";

/** Joins the labels of a text's tokens, of which `logits` are [tokens, labels]. */
export function groupEntities(
  tokenizer: Tokenizer,
  text: string,
  { ids, texts }: FramedTokens,
  logits: Float32Array,
  labels: readonly string[],
  aggregation: Aggregation,
): Entity[] {
  const { made } = tokenizer;
  if (made === undefined) return [];
  const [prefix, unknown] = [continuationOf(made), made.library.token_to_id(unknownOf(made) ?? "")];
  const width = logits.length / ids.length;
  const write = (words: readonly string[]) => writeTokens(made, words);
  const own = Array.from(texts.keys()).filter((at) => texts[at] !== undefined);
  const ownIds = own.map((at) => ids[at] as number);
  const placed = placeIds("entities", made, text, ownIds);
  const parts = own.map((at, i): Part => {
    const place = placed[i] as PlacedToken;
    const shares = softmax(logits.subarray(at * width, (at + 1) * width));
    const written = text.slice(place.begin, place.end);
    const isUnknown = ids[at] === unknown;
    // With a prefix for continuations a token that is longer than its text has it; else a word begins with a space.
    const continues = prefix
      ? place.token.length !== written.length
      : place.begin > 0 && !text.slice(place.begin - 1, place.begin + 1).includes(" ");
    return {
      ...{ words: [isUnknown ? written : place.token], shares, start: place.begin, end: place.end },
      continues: continues && !isUnknown,
    };
  });
  const units = aggregation === "simple" ? parts : wordsOf(parts).map((word) => joined(word, aggregation, write));
  return groupsOf(units, labels, write);
}

/** Tokens that belong to one word. */
function wordsOf(parts: readonly Part[]): Part[][] {
  const words: Part[][] = [];
  for (const part of parts) {
    const last = words.at(-1);
    if (part.continues && last) last.push(part);
    else words.push([part]);
  }
  return words;
}

const largestOf = (shares: readonly number[]) => shares.reduce((most, x) => Math.max(most, x), 0);

/** A word as a part. */
function joined(word: readonly Part[], aggregation: Aggregation, write: (words: readonly string[]) => string): Part {
  const [first] = word as readonly [Part];
  const largest = word.reduce((best, part) => (largestOf(part.shares) > largestOf(best.shares) ? part : best), first);
  const mean = () =>
    first.shares.map((_, i) => word.reduce((sum, { shares }) => sum + (shares[i] as number), 0) / word.length);
  const shares = aggregation === "first" ? first.shares : aggregation === "max" ? largest.shares : mean();
  const words = [write(word.flatMap(({ words }) => words))];
  return { words, shares, start: first.start, end: (word.at(-1) as Part).end, continues: false };
}

/** Neighbours of one label. A label that begins with "B-" begins another entity. */
function groupsOf(
  parts: readonly Part[],
  labels: readonly string[],
  write: (words: readonly string[]) => string,
): Entity[] {
  const groups: { tag: string; parts: { part: Part; score: number }[] }[] = [];
  for (const part of parts) {
    const score = largestOf(part.shares);
    const label = labels[part.shares.indexOf(score)] ?? `LABEL_${part.shares.indexOf(score)}`;
    const [, place = "I", tag = label] = /^([BI])-(.*)$/s.exec(label) ?? [];
    const last = groups.at(-1);
    if (last && last.tag === tag && place !== "B") last.parts.push({ part, score });
    else groups.push({ tag, parts: [{ part, score }] });
  }
  return groups
    .filter(({ tag }) => tag !== OUTSIDE)
    .map(({ tag, parts }) => ({
      entity: tag,
      score: parts.reduce((sum, { score }) => sum + score, 0) / parts.length,
      word: write(parts.flatMap(({ part }) => part.words)),
      start: (parts[0] as (typeof parts)[number]).part.start,
      end: (parts.at(-1) as (typeof parts)[number]).part.end,
    }));
}

// Answers in a text.

/** What question answering reads of a question and of a part of a text at a time, and what two parts have in common. */
const QUESTION = { question: 64, window: 384, overlap: 128 };

/** A part of a text, and how likely it answers. */
interface Span {
  readonly start: number;
  readonly end: number;
  readonly score: number;
}

/** All parts that may answer a question, the best first. A long text is read in parts that overlap. */
export async function findSpans(
  where: string,
  run: RunTexts,
  tokenizer: Tokenizer,
  question: string,
  context: string,
  maxTokens: number,
  longest: number,
  slices: SliceOptions,
): Promise<Span[]> {
  const asked = firstTokens(tokenizer, question, QUESTION.question).ids.slice(0, QUESTION.question);
  const ids = tokensOf(tokenizer, context);
  const places = placeIds(where, tokenizer.made as NonNullable<Tokenizer["made"]>, context, ids);
  const most = Math.min(maxTokens, QUESTION.window);
  const around = frame(tokenizer, asked, [], Infinity).ids.length;
  const room = Math.max(1, most - around);
  const step = Math.max(1, room - Math.min(QUESTION.overlap, most >> 1));
  const starts = [0];
  while ((starts.at(-1) as number) + room < ids.length) starts.push((starts.at(-1) as number) + step);
  const windows = starts.map((start) => ({
    ...frame(tokenizer, asked, ids.slice(start, start + room), Infinity),
    name: "context",
  }));
  const rows = await run(where, windows, slices);
  const spans = rows.flatMap((logits, w) => {
    const { texts } = windows[w] as (typeof windows)[number];
    const own = Array.from(texts.keys()).filter((at) => texts[at] === 1);
    const [begins, ends] = [0, 1].map((column) => softmax(own.map((at) => logits[2 * at + column] as number))) as [
      number[],
      number[],
    ];
    return own.flatMap((_, i) =>
      Array.from({ length: Math.min(longest, own.length - i) }, (_, length): Span => {
        const [from, to] = [(starts[w] as number) + i, (starts[w] as number) + i + length];
        const score = (begins[i] as number) * (ends[i + length] as number);
        return { start: places[from]?.begin ?? 0, end: places[to]?.end ?? 0, score };
      }),
    );
  });
  return spans.sort((a, b) => b.score - a.score);
}
