// Vectors, scores, labels and spans, by the folders that models are published as: texts together and each alone, with the same bits.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Kernels } from "../../src/entries/core.ts";
import { folderOf } from "../../src/files/model-files.ts";
import { loadEncoder } from "../../src/models/encoder/load.ts";
import { gguf } from "../../src/models/spec/read-gguf.ts";
import { recognise } from "../../src/open/recognise.ts";
import { createUrlOpener, readHub } from "../../src/open/source.ts";
import { type Recipe, recipeFor } from "../../src/retrieval/recipe.ts";
import { createRunner, type RunTexts, type TextRunner } from "../../src/retrieval/run.ts";
import { maxSim, scoresOf, softmax } from "../../src/retrieval/scores.ts";
import { createLookup, loadLookup } from "../../src/retrieval/static.ts";
import { answerLogit, createTasks, type TaskParts, type TextTasks } from "../../src/retrieval/tasks.ts";
import {
  askedTokens,
  findSpans,
  frameTexts,
  groupEntities,
  promptOf,
  withoutPadding,
} from "../../src/retrieval/texts.ts";
import { loadTokenizer } from "../../src/text/load-tokenizer.ts";
import type { Tokenizer } from "../../src/text/tokenizer.ts";
import type { Case, Outcome, Values } from "./case.ts";
import { rowsOf } from "./encoders.ts";

type Data = Readonly<Record<string, unknown>>;

/** A model of a case with what it is asked by. */
interface Reader {
  readonly recipe: Recipe;
  readonly tokenizer: Tokenizer;
  readonly tasks: TextTasks;
  readonly maxTokens: number;
  /** Runs texts together and each alone; what differs is a problem. */
  readonly run: RunTexts;
  readonly problems: string[];
  readonly data: Data;
}

async function open(kernels: Kernels, c: Case, task?: string): Promise<Reader & Disposable> {
  const where = "openModel";
  const source = join(c.folder, c.entry.folder ?? "");
  const opener = createUrlOpener(undefined, readHub(where, undefined, undefined), fetch);
  const description = await recognise(where, { source, name: source, others: [] }, undefined, opener);
  const base = folderOf(source, description.recipe.base ?? description.recipe.lookup?.folder ?? "");
  const tokenizer = await loadTokenizer(base, { lowercase: description.recipe.texts.lowercase });
  const idOf = (word: string) => tokenizer.encode(word, { addSpecial: false }).at(-1) as number;
  const recipe = recipeFor(description, task, () => [idOf("no"), idOf("yes")]);
  const model = recipe.base === undefined ? undefined : await loadEncoder(kernels, base, { weights: "f32" });
  const problems: string[] = [];
  const runner = model && (await createRunner(where, model, recipe, { source, gguf }));
  const run: RunTexts = async (where, batch, options) => {
    const { run } = runner as TextRunner;
    const together = await run(where, batch, options);
    const alone = await Promise.all(batch.map(async (one) => (await run(where, [one], options))[0]));
    if (together.some((row, i) => row.some((x, at) => !Object.is(x, alone[i]?.[at]))))
      problems.push("texts have other bits together than alone");
    return together;
  };
  const table = async (rules: Recipe["lookup"]) =>
    rules &&
    createLookup(
      await loadLookup(where, source, rules),
      rules === recipe.lookup ? tokenizer : await loadTokenizer(folderOf(source, rules.folder)),
    );
  const lengths = [recipe.texts.maxTokens, model?.maxSeqLen].filter((length) => length !== undefined);
  const maxTokens = Math.min(Number.POSITIVE_INFINITY, ...lengths);
  const parts: TaskParts = {
    ...{ recipe, tokenizer, run, maxTokens, jinja: undefined, model: kernels },
    ...{ lookup: await table(recipe.lookup), queryLookup: await table(recipe.queryLookup) },
  };
  const data = JSON.parse(readFileSync(join(source, "case.json"), "utf8")) as Data;
  const tasks = createTasks(parts);
  const release = () => {
    runner?.release();
    model?.release();
  };
  return { recipe, tokenizer, tasks, maxTokens, run, problems, data, [Symbol.dispose]: release };
}

const values = (rows: readonly ArrayLike<number>[], shape?: readonly number[]): Values => ({
  data: Float32Array.from(rows.flatMap((row) => Array.from(row))),
  shape: shape ?? [rows.length, rows[0]?.length ?? 0],
});
const flat = (rows: readonly ArrayLike<number>[]): Values => {
  const { data } = values(rows);
  return { data, shape: [data.length] };
};

const differ = (what: string, got: unknown, want: unknown): string[] =>
  JSON.stringify(got) === JSON.stringify(want)
    ? []
    : [`${what} expected ${JSON.stringify(want)}, got ${JSON.stringify(got)}`];

/** Characters, as Python counts them, before a place in UTF-16 units. */
const charactersBefore = (text: string, place: number): number => Array.from(text.slice(0, place)).length;

/** Vectors with and without prompts. */
export async function sentenceEmbedding(kernels: Kernels, c: Case): Promise<Outcome> {
  using reader = await open(kernels, c, "embed");
  const { tasks, data, problems, tokenizer, maxTokens } = reader;
  const texts = data.texts as string[];
  const outputs: Record<string, Values> = {};
  for (const name of Object.keys(c.entry.outputs ?? {})) {
    const [, task] = /^(?:embeddings|encode)_(.*)$/.exec(name) ?? [];
    outputs[name] = values(await tasks.embed(texts, task === undefined ? {} : { task }));
  }
  if (data.ids && tokenizer.made) {
    const ids = texts.map((text) => frameTexts(tokenizer, text, undefined, maxTokens).ids);
    problems.push(...differ("ids", ids, data.ids));
  }
  return { problems, outputs };
}

/** Scores of pairs, and the order of documents. */
export async function crossEncoder(kernels: Kernels, c: Case): Promise<Outcome> {
  using reader = await open(kernels, c);
  const { recipe, tokenizer, tasks, maxTokens, run, problems, data } = reader;
  const pairs = data.pairs as [string, string][];
  const outputs: Record<string, Values> = {};
  if (recipe.asks) {
    const asked = await askedRows(reader, pairs);
    if (data.ids) problems.push(...differ("ids", asked.ids, data.ids));
    const logits = recipe.gives === "labels" ? asked.rows : asked.rows.map((row) => [answerLogit(recipe, row)]);
    outputs.logits = values(logits, c.values("logits").shape);
    outputs.scores = values([asked.scores], c.values("scores").shape);
  } else {
    const prompt = promptOf("rank", recipe, undefined) ?? "";
    const asked = pairs.map(([a, b]) => frameTexts(tokenizer, prompt + a, b, maxTokens));
    const rows = await run(
      "rank",
      asked.map((tokens) => withoutPadding(tokens, recipe.padding)),
      {},
    );
    outputs.logits = values(rows, c.values("logits").shape);
    // Without a function that the files name, a cross encoder of several labels has none.
    const isNamed = existsSync(join(c.folder, c.entry.folder ?? "", "modules.json"));
    const rule = recipe.scores === "softmax" && !isNamed ? "identity" : recipe.scores;
    outputs.scores = values(
      rows.map((row) => scoresOf(rule, row)),
      c.values("scores").shape,
    );
  }
  if (data.query && data.documents) {
    const ranked = await tasks.rank(data.query as string, data.documents as string[]);
    if (c.has("rank")) outputs.rank = values([ranked.map(({ index }) => index)], c.values("rank").shape);
  }
  return { problems, outputs };
}

/** Rerankers that write "yes" or "no". */
export async function generativeReranker(kernels: Kernels, c: Case): Promise<Outcome> {
  using reader = await open(kernels, c, "rank");
  const { recipe, problems, data } = reader;
  problems.push(...differ("tokens of no and yes", recipe.asks?.answers, [data.no, data.yes]));
  const { ids, rows, scores } = await askedRows(reader, data.pairs as [string, string][]);
  problems.push(...differ("ids", ids, data.ids));
  return { problems, outputs: { logits_no_yes: values(rows), scores: values([scores], c.values("scores").shape) } };
}

/** How a reranker is asked about pairs, and what it answers. */
async function askedRows(reader: Reader, pairs: readonly (readonly [string, string])[]) {
  const { recipe, tokenizer, maxTokens, run, tasks } = reader;
  const parts = { recipe, tokenizer, maxTokens, jinja: undefined };
  const asked = await Promise.all(pairs.map(([query, document]) => askedTokens(parts, query, document, undefined)));
  const rows = await run("rank", asked, {});
  const ranked = await Promise.all(pairs.map(([query, document]) => tasks.rank(query, [document])));
  return { ids: asked.map(({ ids }) => ids), rows, scores: ranked.map(([first]) => first?.score as number) };
}

/** Labels of texts. */
export async function sequenceClassification(kernels: Kernels, c: Case): Promise<Outcome> {
  using reader = await open(kernels, c, "classify");
  const { recipe, tokenizer, tasks, maxTokens, run, problems, data } = reader;
  const texts = data.texts as string[];
  const rows = await run(
    "classify",
    texts.map((text) => withoutPadding(frameTexts(tokenizer, text, undefined, maxTokens), recipe.padding)),
    {},
  );
  const scores = rows.map((row) => scoresOf(recipe.scores, row));
  const found = await tasks.classify(texts);
  const labels = Object.values(data.id2label as object);
  for (const [i, own] of found.entries())
    problems.push(
      ...differ("label", own[0]?.label, labels[(scores[i] as number[]).indexOf(Math.max(...(scores[i] as number[])))]),
    );
  return {
    problems,
    outputs: { logits: values(rows, c.values("logits").shape), scores: values(scores, c.values("scores").shape) },
  };
}

/** Entities of texts, by the four rules that join tokens. */
export async function tokenClassification(kernels: Kernels, c: Case): Promise<Outcome> {
  using reader = await open(kernels, c, "entities");
  const { recipe, tokenizer, maxTokens, run, problems, data } = reader;
  const texts = data.texts as string[];
  const batch = texts.map((text) => frameTexts(tokenizer, text, undefined, maxTokens));
  const rows = await run("embed", batch, {});
  const outputs: Record<string, Values> = { logits: values(rows, c.values("logits").shape) };
  for (const [strategy, want] of Object.entries(data.groups as Record<string, unknown[]>)) {
    const found = texts.map((text, i) =>
      groupEntities(
        tokenizer,
        text,
        batch[i] as (typeof batch)[number],
        rows[i] as Float32Array,
        recipe.labels,
        strategy as "simple",
      ),
    );
    const told = found.map((own, i) =>
      own.map(({ entity, word, ...at }) => {
        const [start, end] = [at.start, at.end].map((place) => charactersBefore(texts[i] as string, place));
        return { end, entity, start, word };
      }),
    );
    for (const [i, own] of told.entries()) problems.push(...differ(`groups ${strategy} ${i}`, own, want[i]));
    outputs[`scores_${strategy}`] = flat([found.flat().map(({ score }) => score)]);
  }
  return { problems, outputs };
}

/** Parts of texts that answer questions. */
export async function questionAnswering(kernels: Kernels, c: Case): Promise<Outcome> {
  using reader = await open(kernels, c, "answer");
  const { tokenizer, maxTokens, run, problems, data } = reader;
  const pairs = data.pairs as [string, string][];
  const rows = await run(
    "rank",
    pairs.map(([a, b]) => frameTexts(tokenizer, a, b, maxTokens)),
    {},
  );
  const column = (at: 0 | 1) => flat(rows.map((row) => row.filter((_, i) => i % 2 === at)));
  const spans = await Promise.all(
    pairs.map(async ([question, context]) => {
      const [best] = await findSpans(
        "answer",
        run,
        tokenizer,
        question,
        context,
        maxTokens,
        data.max_answer_tokens as number,
        {},
      );
      return best as NonNullable<typeof best>;
    }),
  );
  problems.push(
    ...differ(
      "spans",
      spans.map((span, i) => [span.start, span.end].map((place) => charactersBefore(pairs[i]?.[1] as string, place))),
      data.spans,
    ),
  );
  const scores = values([spans.map(({ score }) => score)], c.values("scores").shape);
  return { problems, outputs: { start_logits: column(0), end_logits: column(1), scores } };
}

/** Labels of one's own, by a model of inference. */
export async function zeroShot(kernels: Kernels, c: Case): Promise<Outcome> {
  using reader = await open(kernels, c, "classify");
  const { tasks, problems, data } = reader;
  const labels = data.labels as string[];
  const scoresBy = async (multiple: boolean) => {
    const hypothesis = data.hypothesis_template as string;
    const found = await tasks.classify(data.texts as string[], { labels, hypothesis, multiple });
    return values(found.map((own) => labels.map((label) => own.find((each) => each.label === label)?.score as number)));
  };
  return { problems, outputs: { scores: await scoresBy(false), scores_multi: await scoresBy(true) } };
}

/** Tokens for masks. */
export async function fillMask(kernels: Kernels, c: Case): Promise<Outcome> {
  using reader = await open(kernels, c, "fill");
  const { tasks, problems, data } = reader;
  const found = (await tasks.fill(data.texts as string[])).map(([first]) => first ?? []);
  problems.push(
    ...differ(
      "tokens",
      found.map((own) => own.map(({ token }) => token)),
      data.tokens,
    ),
  );
  return {
    problems,
    outputs: {
      scores: values(
        found.map((own) => own.map(({ score }) => score)),
        c.values("scores").shape,
      ),
      ids: values(
        found.map((own) => own.map(({ id }) => id)),
        c.values("ids").shape,
      ),
    },
  };
}

/** Weights of the vocabulary. */
export async function sparseEmbedding(kernels: Kernels, c: Case): Promise<Outcome> {
  using reader = await open(kernels, c, "embedSparse");
  const { tasks, problems, data } = reader;
  const outputs: Record<string, Values> = {};
  for (const name of Object.keys(c.entry.outputs ?? {})) {
    const { shape } = c.values(name);
    const task = name === "encode_query" ? "query" : "document";
    const found = await tasks.embedSparse(data.texts as string[], { task });
    const rows = found.map(({ ids, weights }) => {
      const row = new Float32Array(shape.at(-1) ?? 0);
      for (const [i, id] of ids.entries()) row[id] = weights[i] as number;
      return row;
    });
    outputs[name] = values(rows);
  }
  return { problems, outputs };
}

/** Vectors of tokens, and how well documents fit queries. */
export async function lateInteraction(kernels: Kernels, c: Case): Promise<Outcome> {
  using reader = await open(kernels, c, "embedTokens");
  const { tasks, problems, data } = reader;
  const queries = await tasks.embedTokens(data.queries as string[], { task: "query" });
  const documents = await tasks.embedTokens(data.documents as string[], { task: "document" });
  problems.push(
    ...differ(
      "rows of queries",
      queries.map(({ length }) => length),
      data.query_rows,
    ),
  );
  problems.push(
    ...differ(
      "rows of documents",
      documents.map(({ length }) => length),
      data.document_rows,
    ),
  );
  return {
    problems,
    outputs: {
      queries: values(queries.flat()),
      documents: values(documents.flat()),
      scores: values(queries.map((query) => documents.map((document) => maxSim(query, document)))),
    },
  };
}

/** Scores or vectors of given tokens, by a GGUF file. */
export async function ggufTexts(kernels: Kernels, c: Case): Promise<Outcome> {
  const where = "openModel";
  const source = join(c.folder, c.entry.folder ?? "", "model.gguf");
  const opener = createUrlOpener(undefined, readHub(where, undefined, undefined), fetch);
  const { recipe } = await recognise(where, { source, name: source, others: [] }, undefined, opener);
  using model = await loadEncoder(kernels, source, { weights: "f32", gguf });
  const { run } = await createRunner(where, model, recipe, { source, gguf });
  const batch = rowsOf(c, "input_ids").map((ids) => ({ ids }));
  if (c.entry.op === "Embed") {
    const [raw, unit] = [await run("embed", batch, { normalize: false }), await run("embed", batch, {})];
    return { outputs: { embedding: values(raw), embedding_normalized: values(unit) } };
  }
  const rows = await run("embed", batch, {});
  // Two rows of the head say yes and no; one label has its logit.
  return { outputs: { scores: values(rows.map((row) => (recipe.asks ? softmax(row) : row))) } };
}
