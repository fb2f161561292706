// Texts, pairs, queries and documents as the tokens that a model's files ask for.

import { describe } from "../base/util/errors.ts";
import { renderChat } from "../text/chat.ts";
import type { JinjaLibrary } from "../text/libraries.ts";
import { type FramePart, frameOf } from "../text/token-places.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import type { Recipe } from "./recipe.ts";
import type { TextTokens } from "./run.ts";

/** Which text is shorter if both have too many tokens: the longer one, the first or the second alone. */
export type Cut = "longest" | "first" | "second";

/** Tokens of a text or a pair, and which of them belong to which text. */
export interface FramedTokens extends TextTokens {
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
  const all = [first.slice(0, a), (second ?? []).slice(0, b)] as const;
  const [ids, types, texts]: [number[], number[], (0 | 1 | undefined)[]] = [[], [], []];
  for (const { id, text, type } of parts)
    for (const own of text === undefined ? [id as number] : all[text]) {
      ids.push(own);
      types.push(type);
      texts.push(text);
    }
  return { ids, types, texts };
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
  const skip = includePrompt || prompt === "" ? 0 : promptLength(tokenizer, prompt);
  return (text) => ({ ...frame(tokenizer, tokensOf(tokenizer, prompt + text), undefined, most), skip });
}

/** Tokens of a prompt with the special tokens before it. */
function promptLength(tokenizer: Tokenizer, prompt: string): number {
  const { ids, texts } = frame(tokenizer, tokensOf(tokenizer, prompt), undefined, Number.POSITIVE_INFINITY);
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
  const skipped = new Set(isQuery ? [] : late.skipped.map(idOf));
  const kept = isQuery || late.kept === undefined ? undefined : new Set(late.kept);
  const mask = idOf(tokenizer.specialTokens?.mask_token ?? "[MASK]");
  return (text) => {
    const { ids, types } = frame(tokenizer, tokensOf(tokenizer, prompt + text), undefined, longest);
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
  const whole = tokensOf(tokenizer, prefix + text + suffix);
  if (whole.length <= most) return { ids: whole };
  const [before, own, behind] = [prefix, text, suffix].map((part) => tokensOf(tokenizer, part)) as [
    readonly number[],
    readonly number[],
    readonly number[],
  ];
  return { ids: [...before, ...own.slice(0, Math.max(0, most - before.length - behind.length)), ...behind] };
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
  return { ids: tokensOf(tokenizer, text).slice(0, maxTokens) };
}
