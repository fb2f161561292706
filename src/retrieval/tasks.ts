// What is asked of a model that reads texts: vectors, ranks, labels, entities, answers, words for masks.

import { yieldToEventLoop } from "../base/platform/host.ts";
import { expectFlag, expectInt, expectOneOf, readFields } from "../base/util/arguments.ts";
import { describe } from "../base/util/errors.ts";
import { expectAlive } from "../base/util/lifetime.ts";
import { chunksOf } from "../base/util/rows.ts";
import { checkSlices, SLICE_OPTIONS, type SliceOptions } from "../layers/pass/forward.ts";
import { POOLINGS, type Pooling } from "../models/encoder/encode.ts";
import type { JinjaLibrary } from "../text/libraries.ts";
import { firstTokens } from "../text/token-places.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import type { Recipe } from "./recipe.ts";
import type { RunOptions, RunTexts, TextTokens } from "./run.ts";
import {
  bestOf,
  maxSim,
  type Ranked,
  SCORES,
  type SparseVector,
  scoresOf,
  softmax,
  sparseDot,
  sparseOf,
} from "./scores.ts";
import {
  type Aggregation,
  askedTokens,
  type Cut,
  type Entity,
  embedTokens,
  findSpans,
  frame,
  frameTexts,
  groupEntities,
  lateTokens,
  promptOf,
  withoutPadding,
} from "./texts.ts";

/** A text or several: what is asked of one gives one result, of a list a list. */
export type Texts = string | readonly string[];

/** What a text gives, or a list of them. */
export type Each<Given, One> = Given extends string ? One : One[];

/** Two texts that belong together, such as a sentence and what follows from it. */
export type TextPair = readonly [string, string];

/** How texts become vectors. */
export interface EmbedTextOptions extends SliceOptions {
  /**
   * What the texts are for, which models that were trained for search ask for: "query" and "document" take the prompt of that name
   * where the model's files have one, another name takes that prompt. Default the files' default prompt, mostly none.
   */
  readonly task?: string | undefined;
  /** Floats of each vector that are kept, the first ones, of models that were trained for it. Default what the files say, else all. */
  readonly dimensions?: number | undefined;
  /** How a text's states become one vector. Default what the model's files say, else "mean". */
  readonly pooling?: Pooling | undefined;
  /** Whether vectors are divided by their length. Default what modules.json says; of GGUF files true, else false. */
  readonly normalize?: boolean | undefined;
}

/** Vectors of tokens, and what the texts are for. */
export interface TaskOptions extends SliceOptions {
  /** Whether texts are queries or documents. Default "document". */
  readonly task?: "query" | "document" | undefined;
}

/** How documents are ranked. */
export interface RankOptions extends SliceOptions {
  /** How many of the best are given. Default all. */
  readonly topK?: number | undefined;
  /** What a reranker that is asked in words should judge by. Default what it was trained with. */
  readonly instruction?: string | undefined;
}

/** How texts are labelled. */
export interface ClassifyOptions extends SliceOptions {
  /** Labels of one's own, for a model that tells whether a sentence follows from another (NLI). Default the labels of the model. */
  readonly labels?: readonly string[] | undefined;
  /** The sentence that says that a text has a label, "{}" in its place. Default "This example is {}." */
  readonly hypothesis?: string | undefined;
  /** Whether each label of one's own holds or not by itself, as a single one does. Default false: their scores sum to 1. */
  readonly multiple?: boolean | undefined;
  /** How many labels are given. Default all. */
  readonly topK?: number | undefined;
}

/** A label of a text. */
export interface Labelled {
  /** The name that the files, or the caller, have for it. */
  readonly label: string;
  /** By the model's own rule: of one label among several a share, of labels that hold by themselves 0 to 1. */
  readonly score: number;
}

/** How entities are found. */
export interface EntityOptions extends SliceOptions {
  /**
   * How the labels of a word's tokens become one: by the first, the largest or the mean of their scores. "simple", the default, joins
   * tokens of one label instead of words.
   */
  readonly aggregation?: Aggregation | undefined;
}

/** Where an answer is sought. */
export interface FindOptions extends SliceOptions {
  /** How many answers are given. Default 1. */
  readonly topK?: number | undefined;
  /** Tokens of the longest answer. Default 15. */
  readonly maxAnswerTokens?: number | undefined;
}

/** A part of a text that answers a question. */
export interface FoundAnswer {
  /** The part, without spaces around it. */
  readonly text: string;
  /** Where it begins in the text (UTF-16 units). */
  readonly start: number;
  /** Where it ends: the unit behind it. */
  readonly end: number;
  /** The product of the shares of its first and its last token. */
  readonly score: number;
}

/** How masks are filled. */
export interface FillOptions extends SliceOptions {
  /** How many tokens are given for each mask. Default 5. */
  readonly topK?: number | undefined;
}

/** A token for a mask. */
export interface Filled {
  /** Its id. */
  readonly id: number;
  /** The token as the vocabulary has it. */
  readonly token: string;
  /** What it stands for in a text, without spaces around it. */
  readonly text: string;
  /** Its share of all tokens. */
  readonly score: number;
}

/** What can be asked of a model that reads texts. Longer texts than it reads are cut at their end. */
export interface TextTasks {
  /**
   * Makes a vector of each text, as the model's files ask for it.
   * @param texts A text, which gives one vector, or a list of texts.
   * @throws Rejects with TypeError or RangeError naming the argument, HeadwiseError `OUT_OF_MEMORY`, `RELEASED`, or the signal's reason.
   */
  embed<Given extends Texts>(texts: Given, options?: EmbedTextOptions): Promise<Each<Given, Float32Array>>;
  /** Makes weights of the vocabulary's tokens of each text (SPLADE), for indices of words. Throws as `embed`. */
  embedSparse<Given extends Texts>(texts: Given, options?: TaskOptions): Promise<Each<Given, SparseVector>>;
  /** Makes a vector of each token of each text (ColBERT). Throws as `embed`. */
  embedTokens<Given extends Texts>(texts: Given, options?: TaskOptions): Promise<Each<Given, Float32Array[]>>;
  /**
   * Orders documents by how well they fit a query, the best first, of equal ones the first: by a reranker's scores, or by the
   * similarity of vectors. Throws as `embed`.
   */
  rank(query: string, documents: readonly string[], options?: RankOptions): Promise<Ranked[]>;
  /** Gives the labels of each text, or of each pair of texts, the best first. Throws as `embed`. */
  classify<Given extends string | readonly (string | TextPair)[]>(
    texts: Given,
    options?: ClassifyOptions,
  ): Promise<Each<Given, Labelled[]>>;
  /** Finds the entities of each text, such as names and places. Throws as `embed`. */
  entities<Given extends Texts>(texts: Given, options?: EntityOptions): Promise<Each<Given, Entity[]>>;
  /** Finds the parts of a text that answer a question, the best first. Throws as `embed`. */
  answer(question: string, context: string, options?: FindOptions): Promise<FoundAnswer[]>;
  /** Gives tokens for each mask of each text, the likeliest first. Throws as `embed`. */
  fill<Given extends Texts>(texts: Given, options?: FillOptions): Promise<Each<Given, Filled[][]>>;
  /** Counts the tokens of a text, with the special ones around it. */
  countTokens(text: string): Promise<number>;
}

/** What tasks are made of. */
export interface TaskParts {
  readonly recipe: Recipe;
  readonly tokenizer: Tokenizer;
  /** Runs the model; undefined for a table of rows. */
  readonly run: RunTexts | undefined;
  /** A row of a text by a table, and that of a query where it differs. */
  readonly lookup?: ((text: string, isUnit: boolean) => Float32Array) | undefined;
  readonly queryLookup?: ((text: string, isUnit: boolean) => Float32Array) | undefined;
  /** Tokens that the model reads. */
  readonly maxTokens: number;
  readonly jinja: JinjaLibrary | undefined;
  /** A template of conversations instead of the tokenizer's own. */
  readonly template?: string | undefined;
  /** What was released or not. */
  readonly model: { readonly released: boolean };
}

const HYPOTHESIS = "This example is {}.";

/** Makes the tasks of a model. Those that it cannot do are left to the caller. */
export function createTasks(parts: TaskParts): TextTasks {
  const { recipe, tokenizer, maxTokens } = parts;
  const begin = (where: string) => expectAlive(where, "model", parts.model);
  const runTexts: RunTexts = (...call) => (parts.run as RunTexts)(...call);
  /** Runs a group whose first text is that of index `first`. */
  const runNamed = (where: string, batch: readonly TextTokens[], slices: RunOptions, nameOf: NameOf, first: number) =>
    runTexts(
      where,
      batch.map((tokens, i) => ({ ...tokens, name: nameOf(first + i) })),
      slices,
    );

  async function vectors(
    where: string,
    texts: readonly string[],
    options: EmbedTextOptions,
    nameOf = nameOfText,
  ): Promise<Float32Array[]> {
    const { task, dimensions = recipe.dimensions, pooling, normalize, ...slices } = options;
    if (task !== undefined && typeof task !== "string")
      throw new TypeError(`${where}: options.task expected a string, got ${describe(task)}`);
    if (pooling !== undefined) expectOneOf(where, "options.pooling", pooling, POOLINGS);
    if (normalize !== undefined) expectFlag(where, "options.normalize", normalize);
    if (dimensions !== undefined) expectInt(where, "options.dimensions", dimensions);
    const { lookup } = parts;
    if (pooling !== undefined && (lookup || recipe.stages.some(({ kind }) => kind === "dense" || kind === "norm"))) {
      const rule = "none, since the rows of the model become a vector in one way alone";
      throw new RangeError(`${where}: options.pooling expected ${rule}, got ${describe(pooling)}`);
    }
    const rows = await inGroups(where, texts, slices, async (group, slices, first) => {
      if (lookup === undefined) {
        const encode = embedTokens(where, recipe, tokenizer, maxTokens, task);
        return runNamed(where, group.map(encode), { pooling, normalize, ...slices }, nameOf, first);
      }
      const prompt = promptOf(where, recipe, task) ?? "";
      const isUnit = normalize ?? recipe.stages.some(({ kind }) => kind === "unit");
      return group.map((text) => lookup(prompt + text, isUnit));
    });
    const { length = dimensions ?? 0 } = rows[0] ?? {};
    if (dimensions !== undefined && dimensions > length)
      throw new RangeError(`${where}: options.dimensions expected at most ${length}, got ${dimensions}`);
    return dimensions === undefined ? rows : rows.map((row) => row.slice(0, dimensions));
  }

  async function sparse(
    where: string,
    texts: readonly string[],
    task: "query" | "document",
    slices: SliceOptions,
    nameOf = nameOfText,
  ) {
    const { queryLookup } = parts;
    if (task === "query" && queryLookup) return texts.map((text) => sparseOf(queryLookup(text, false)));
    const encode = embedTokens(where, recipe, tokenizer, maxTokens, task);
    const run = (group: readonly string[], slices: SliceOptions, first: number) =>
      runNamed(where, group.map(encode), slices, nameOf, first);
    return (await inGroups(where, texts, slices, run)).map(sparseOf);
  }

  async function tokenVectors(
    where: string,
    texts: readonly string[],
    task: "query" | "document",
    slices: SliceOptions,
    nameOf = nameOfText,
  ) {
    const encode = lateTokens(where, recipe, tokenizer, maxTokens, task);
    return inGroups(where, texts, slices, async (group, slices, first) => {
      const batch = group.map(encode);
      const all = await runNamed(where, batch, slices, nameOf, first);
      return all.map((rows, i) => {
        const { ids, rows: kept } = batch[i] as (typeof batch)[number];
        const width = rows.length / ids.length;
        return kept.map((row) => rows.slice(row * width, (row + 1) * width));
      });
    });
  }

  /** The logits of pairs, or texts. */
  function labelRows(
    where: string,
    pairs: readonly (string | TextPair)[],
    slices: SliceOptions,
    { cut = "longest", nameOf = nameOfText }: { readonly cut?: Cut; readonly nameOf?: NameOf } = {},
  ) {
    const prompt = promptOf(where, recipe, undefined) ?? "";
    const encode = (pair: string | TextPair): TextTokens => {
      const [first, second] = typeof pair === "string" ? [pair] : pair;
      return withoutPadding(frameTexts(tokenizer, prompt + first, second, maxTokens, cut), recipe.padding);
    };
    return inGroups(where, pairs, slices, (group, slices, first) =>
      runNamed(where, group.map(encode), slices, nameOf, first),
    );
  }

  /** The scores of a reranker for documents. */
  async function pairScores(
    where: string,
    query: string,
    documents: readonly string[],
    options: RankOptions,
  ): Promise<number[]> {
    const { instruction, topK: _, ...slices } = options;
    if (recipe.asks === undefined) {
      const rows = await labelRows(
        where,
        documents.map((document) => [query, document] as const),
        slices,
        { nameOf: nameOfDocument },
      );
      return rows.map((row) => scoresOf(recipe.scores, row)[0] as number);
    }
    if (instruction !== undefined) expectText(where, "options.instruction", instruction);
    const rows = await inGroups(where, documents, slices, async (group, slices, first) => {
      const asked = group.map((document) => askedTokens(parts, query, document, instruction));
      return runNamed(where, await Promise.all(asked), slices, nameOfDocument, first);
    });
    return rows.map(
      (row) => (recipe.gives === "labels" ? scoresOf(recipe.scores, row)[0] : answerScore(recipe, row)) ?? 0,
    );
  }

  /** Labels of one's own, by a model that tells whether a sentence follows from another. */
  async function zeroShot(where: string, texts: readonly string[], options: ClassifyOptions): Promise<Labelled[][]> {
    const { labels = [], hypothesis = HYPOTHESIS, multiple = false, topK: _, ...slices } = options;
    const isEntailment = (label: string) => /^entail/i.test(label);
    const entailment = recipe.labels.findIndex(isEntailment);
    if (entailment < 0) {
      const rule = "none, since the model has no label that begins with entail";
      throw new RangeError(`${where}: options.labels expected ${rule}, got ${describe(labels)}`);
    }
    if (!Array.isArray(labels) || labels.length === 0 || !labels.every((label) => typeof label === "string"))
      throw new TypeError(`${where}: options.labels expected 1 or more labels, got ${describe(labels)}`);
    if (typeof hypothesis !== "string" || !hypothesis.includes("{}"))
      throw new RangeError(`${where}: options.hypothesis expected a sentence with {}, got ${describe(hypothesis)}`);
    const pairs = texts.flatMap((text) =>
      labels.map((label) => [text, hypothesis.replace("{}", () => label)] as const),
    );
    const nameOf = (i: number) => nameOfText(Math.floor(i / labels.length));
    const rows = await labelRows(where, pairs, slices, { cut: "first", nameOf });
    const other = entailment === 0 ? recipe.labels.length - 1 : 0;
    return texts.map((_, i) => {
      const own = rows.slice(i * labels.length, (i + 1) * labels.length);
      const logits = own.map((row) => row[entailment] as number);
      // A single label holds or not, too.
      const scores =
        multiple || labels.length === 1
          ? own.map((row) => softmax([row[other] as number, row[entailment] as number])[1] as number)
          : softmax(logits);
      return labels.map((label, at) => ({ label, score: scores[at] as number }));
    });
  }

  const tasks: TextTasks = {
    async embed(texts, options = {}) {
      const where = "embed";
      const known = [...SLICE_OPTIONS, "task", "dimensions", "pooling", "normalize"] as const;
      const given = readFields(where, "options", options, known);
      begin(where);
      return each(where, texts, (all) => vectors(where, all, given));
    },
    async embedSparse(texts, options = {}) {
      const where = "embedSparse";
      const { task, slices } = readTask(where, options);
      begin(where);
      return each(where, texts, (all) => sparse(where, all, task, slices));
    },
    async embedTokens(texts, options = {}) {
      const where = "embedTokens";
      const { task, slices } = readTask(where, options);
      begin(where);
      return each(where, texts, (all) => tokenVectors(where, all, task, slices));
    },
    async rank(query, documents, options = {}) {
      const where = "rank";
      const given = readFields(where, "options", options, [...SLICE_OPTIONS, "topK", "instruction"]);
      const { topK, ...slices } = given;
      begin(where);
      const wanted = expectText(where, "query", query);
      const all = expectTexts(where, "documents", documents);
      if (topK !== undefined) expectInt(where, "options.topK", topK);
      let scores: number[];
      if (recipe.gives === "vector" || recipe.gives === "fill") {
        const [own] = await vectors(where, [wanted], { task: "query", signal: slices.signal }, nameOfQuery);
        const others = await vectors(where, all, { task: "document", ...pickSlices(slices) }, nameOfDocument);
        scores = others.map((other) => SCORES[recipe.similarity](own as Float32Array, other));
      } else if (recipe.gives === "sparse") {
        const [own] = await sparse(where, [wanted], "query", { signal: slices.signal }, nameOfQuery);
        const others = await sparse(where, all, "document", pickSlices(slices), nameOfDocument);
        scores = others.map((other) => sparseDot(own as SparseVector, other));
      } else if (recipe.gives === "tokens") {
        const [own = []] = await tokenVectors(where, [wanted], "query", { signal: slices.signal }, nameOfQuery);
        const others = await tokenVectors(where, all, "document", pickSlices(slices), nameOfDocument);
        scores = others.map((other) => maxSim(own, other));
      } else scores = await pairScores(where, wanted, all, given);
      return bestOf(scores, topK);
    },
    async classify(texts, options = {}) {
      const where = "classify";
      const known = [...SLICE_OPTIONS, "labels", "hypothesis", "multiple", "topK"] as const;
      const given = readFields(where, "options", options, known);
      const { labels, topK, hypothesis: _h, multiple, ...slices } = given;
      begin(where);
      if (topK !== undefined) expectInt(where, "options.topK", topK);
      expectFlag(where, "options.multiple", multiple);
      const isOne = typeof texts === "string";
      const all = isOne ? [texts] : readPairs(where, texts);
      let found: Labelled[][];
      if (labels === undefined) {
        const rows = await labelRows(where, all, slices);
        // A cross encoder of several labels may have no function: shares tell more than logits.
        const rule = recipe.scores === "identity" && recipe.labels.length > 1 ? "softmax" : recipe.scores;
        found = rows.map((row) => {
          const scores = scoresOf(rule, row);
          return scores.map((score, i) => ({ label: recipe.labels[i] ?? `LABEL_${i}`, score }));
        });
      } else found = await zeroShot(where, expectTexts(where, "texts", all), given);
      for (const own of found) own.sort((a, b) => b.score - a.score);
      const cut = found.map((own) => own.slice(0, topK));
      return (isOne ? cut[0] : cut) as never;
    },
    async entities(texts, options = {}) {
      const where = "entities";
      const { aggregation = "simple", ...slices } = readFields(where, "options", options, [
        ...SLICE_OPTIONS,
        "aggregation",
      ]);
      begin(where);
      expectOneOf(where, "options.aggregation", aggregation, ["simple", "first", "average", "max"] as const);
      return each(where, texts, (all) =>
        inGroups(where, all, slices, async (group, slices, first) => {
          const read = group.map((text) => firstTokens(tokenizer, text, maxTokens));
          const batch = read.map(({ ids }) => frame(tokenizer, ids, undefined, maxTokens));
          const rows = await runNamed(where, batch, slices, nameOfText, first);
          return rows.map((logits, i) => {
            const [{ text }, tokens] = [read[i] as (typeof read)[number], batch[i] as (typeof batch)[number]];
            return groupEntities(tokenizer, text, tokens, logits, recipe.labels, aggregation);
          });
        }),
      );
    },
    async answer(question, context, options = {}) {
      const where = "answer";
      const known = [...SLICE_OPTIONS, "topK", "maxAnswerTokens"] as const;
      const { topK = 1, maxAnswerTokens = 15, ...slices } = readFields(where, "options", options, known);
      begin(where);
      expectInt(where, "options.topK", topK);
      expectInt(where, "options.maxAnswerTokens", maxAnswerTokens);
      const asked = expectText(where, "question", question);
      const text = expectText(where, "context", context);
      const spans = await findSpans(where, runTexts, tokenizer, asked, text, maxTokens, maxAnswerTokens, slices);
      const found = new Map<string, FoundAnswer>();
      for (const { start, end, score } of spans) {
        const own = text.slice(start, end);
        const [first, last] = [start + own.length - own.trimStart().length, end - own.length + own.trimEnd().length];
        const key = `${first} ${last}`;
        if (last > first && !found.has(key)) found.set(key, { text: own.trim(), start: first, end: last, score });
        if (found.size === topK) break;
      }
      return [...found.values()];
    },
    async fill(texts, options = {}) {
      const where = "fill";
      const { topK = 5, ...slices } = readFields(where, "options", options, [...SLICE_OPTIONS, "topK"]);
      begin(where);
      expectInt(where, "options.topK", topK);
      const mask = tokenizer.specialTokens?.mask_token;
      const maskId = mask === undefined ? undefined : tokenizer.made?.library.token_to_id(mask);
      return each(where, texts, (all) =>
        inGroups(where, all, slices, async (group, slices, first) => {
          const batch = group.map((text, i) => {
            const tokens = frameTexts(tokenizer, text, undefined, maxTokens);
            const places = Array.from(tokens.ids.keys()).filter((at) => tokens.ids[at] === maskId);
            if (places.length > 0) return { ...tokens, places };
            const rule = `a mask, ${describe(mask)}, within the first ${maxTokens} tokens`;
            throw new RangeError(`${where}: texts[${first + i}] expected ${rule}, got ${describe(text)}`);
          });
          const rows = await runNamed(where, batch, slices, nameOfText, first);
          return rows.map((logits, i) => {
            const { places } = batch[i] as (typeof batch)[number];
            const vocabulary = logits.length / places.length;
            return places.map((_, at) =>
              filledOf(tokenizer, softmax(logits.subarray(at * vocabulary, (at + 1) * vocabulary)), topK),
            );
          });
        }),
      );
    },
    async countTokens(text) {
      const where = "countTokens";
      begin(where);
      if (typeof text === "string") return tokenizer.encode(text).length;
      const rule = "a text, since the model answers no conversations";
      throw new TypeError(`${where}: input expected ${rule}, got ${describe(text)}`);
    },
  };
  return tasks;
}

/** The likeliest tokens; a vocabulary may be padded with some that the tokenizer lacks. */
function filledOf(tokenizer: Tokenizer, shares: readonly number[], count: number): Filled[] {
  const { library } = tokenizer.made ?? {};
  const known = shares.map((share, id) => (library?.id_to_token(id) === undefined ? -1 : share));
  return bestOf(known, count).map(({ index: id, score }) => ({
    ...{ id, token: library?.id_to_token(id) ?? "", text: tokenizer.decode([id]).trim(), score },
  }));
}

/** What messages call the text of an index. */
type NameOf = (i: number) => string;
const nameOfText: NameOf = (i) => `texts[${i}]`;
const nameOfDocument: NameOf = (i) => `documents[${i}]`;
const nameOfQuery: NameOf = () => "query";

/** Items that are encoded and run together: no more tokens and rows lie in memory, and between them others have their turn. */
const GROUP = 256;

/** Runs a list in groups. */
async function inGroups<Given, One>(
  where: string,
  all: readonly Given[],
  options: SliceOptions,
  run: (group: readonly Given[], slices: SliceOptions, first: number) => Promise<One[]>,
): Promise<One[]> {
  const { onProgress, ...slices } = checkSlices(where, pickSlices(options));
  const results: One[] = [];
  for (const [begin, end] of chunksOf(all.length, GROUP)) {
    slices.signal?.throwIfAborted();
    const report = (done: number) => onProgress?.((begin + done * (end - begin)) / all.length);
    const own = { ...slices, ...(onProgress && { onProgress: report }) };
    results.push(...(await run(all.slice(begin, end), own, begin)));
    if (end < all.length) await yieldToEventLoop();
  }
  return results;
}

// Arguments.

async function each<Given extends Texts, One>(
  where: string,
  texts: Given,
  run: (texts: readonly string[]) => Promise<One[]>,
): Promise<Each<Given, One>> {
  const isOne = typeof texts === "string";
  const results = await run(isOne ? [texts] : expectTexts(where, "texts", texts));
  return (isOne ? results[0] : results) as Each<Given, One>;
}

function expectText(where: string, name: string, text: unknown): string {
  if (typeof text === "string") return text;
  throw new TypeError(`${where}: ${name} expected a string, got ${describe(text)}`);
}

function expectTexts(where: string, name: string, texts: unknown): readonly string[] {
  if (Array.isArray(texts)) return Array.from(texts, (text, i) => expectText(where, `${name}[${i}]`, text));
  throw new TypeError(`${where}: ${name} expected a text or a list of texts, got ${describe(texts)}`);
}

function readPairs(where: string, texts: unknown): readonly (string | TextPair)[] {
  if (!Array.isArray(texts)) return expectTexts(where, "texts", texts);
  return Array.from(texts, (text: unknown, i) => {
    if (!Array.isArray(text)) return expectText(where, `texts[${i}]`, text);
    const pair = expectTexts(where, `texts[${i}]`, text);
    if (pair.length === 2) return pair as unknown as TextPair;
    throw new RangeError(`${where}: texts[${i}] expected a text, or two that belong together, got ${pair.length}`);
  });
}

function readTask(where: string, options: TaskOptions) {
  const { task = "document", ...slices } = readFields(where, "options", options, [...SLICE_OPTIONS, "task"]);
  expectOneOf(where, "options.task", task, ["query", "document"] as const);
  return { task, slices };
}

const pickSlices = ({ signal, onProgress, sliceMs }: SliceOptions): SliceOptions => ({ signal, onProgress, sliceMs });

/** How much likelier "yes" is than "no". */
const answerScore = (recipe: Recipe, row: Float32Array): number =>
  scoresOf(recipe.scores, Float32Array.of(answerLogit(recipe, row)))[0] as number;

/** The logit of "yes" less that of "no"; without tokens for them, the row of "yes" is the first. */
export function answerLogit({ asks }: Recipe, [first = 0, second]: Float32Array): number {
  if (second === undefined) return first;
  return asks?.answers === undefined ? first - second : second - first;
}
