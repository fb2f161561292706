// What the heads of a trained model of this repository do, as the table of its model card.

import { readFile } from "node:fs/promises";
import type { Kernels } from "headwise/core";
import { type DetectedHead, detectHeads, HEAD_KINDS } from "headwise/inspect";
import { loadModel, type Model } from "headwise/models";
import { inductionByHand, VOCABULARY } from "../induction/by-hand.ts";
import { readWords } from "../stories/text.ts";
import { pronounPairs } from "./labels.ts";
import { type HeldOutSequences, patternOf, storyTexts } from "./texts.ts";

interface Described {
  /** What `loadModel` reads. */
  readonly source: URL | ReturnType<typeof inductionByHand>;
  /** The columns of the table: kinds. */
  readonly columns: readonly string[];
  detect(model: Model): Promise<DetectedHead[]> | DetectedHead[];
}

const at = (path: string) => new URL(`../../model/${path}`, import.meta.url);
const read = (file: string) => readFile(at(file), "utf8");

const COLUMNS = ["previous", "current", "first", "induction", "local", "uniform"];

/** The models by name. */
export const MODELS: Readonly<Record<string, Described>> = {
  induction: { source: at("."), columns: COLUMNS, detect: inductionHeads },
  stories: {
    source: at("stories"),
    columns: ["previous", "current", "first", "duplicate", "induction", "local", "uniform", "pronoun", "reference"],
    detect: storyHeads,
  },
  "by-hand": { source: inductionByHand(), columns: COLUMNS, detect: handHeads },
};

/** A table in Markdown: a row for each head, and one of baselines, or several where layers have others because of their windows. */
export async function headTable(kernels: Kernels, { source, columns, detect }: Described): Promise<string> {
  using model = await loadModel(kernels, source);
  const heads = await detect(model);
  const copies = heads.some((head) => head.copies !== undefined);
  const row = (cells: readonly string[]) => `| ${cells.join(" | ")} |`;
  const titles = ["head", "kind", ...columns, "copying", ...(copies ? ["copies"] : [])];
  const digits = (value: number | undefined) => (value === undefined ? "" : value.toFixed(2));
  const baselines = new Map<string, number[]>();
  for (const { layer, head, scores } of heads) {
    if (head > 0) continue;
    const cells = columns.map((column) => digits(scores[column]?.baseline)).join(" | ");
    baselines.set(cells, [...(baselines.get(cells) ?? []), layer]);
  }
  return [
    row(titles),
    row(titles.map(() => "---")),
    ...heads.map(({ layer, head, kind, scores, copying, copies: share }) =>
      row([
        ...[`${layer}.${head}`, kind, ...columns.map((column) => digits(scores[column]?.score)), digits(copying)],
        ...(copies ? [digits(share)] : []),
      ]),
    ),
    ...Array.from(baselines, ([cells, layers]) =>
      row([
        ...[baselines.size > 1 ? `baseline, layer ${layers.join(", ")}` : "baseline", "", cells, digits(0)],
        ...(copies ? [digits(5 / model.vocabSize)] : []),
      ]),
    ),
  ].join("\n");
}

/** Twenty tokens behind token 0, twice. */
function handHeads(model: Model): DetectedHead[] {
  const segment = Array.from({ length: VOCABULARY - 1 }, (_, i) => i + 1);
  return detectHeads(model, [[0, ...segment, ...segment]]);
}

async function inductionHeads(model: Model): Promise<DetectedHead[]> {
  const { vocabulary } = JSON.parse(await read("config.json")) as { vocabulary: string };
  const { sequences } = JSON.parse(await read("heldout.json")) as HeldOutSequences;
  const texts = sequences.map(({ text }) => Array.from(text, (character) => vocabulary.indexOf(character)));
  return detectHeads(model, texts);
}

async function storyHeads(model: Model): Promise<DetectedHead[]> {
  const words = readWords(await read("stories/tokenizer.json"));
  const codec = { encode: words.encode, decode: (ids: readonly number[]) => ids.map(words.decode).join("") };
  const texts = storyTexts(codec, JSON.parse(await read("stories/heldout.json")));
  return detectHeads(model, texts, { kinds: { ...HEAD_KINDS, pronoun: patternOf(codec, pronounPairs) } });
}
