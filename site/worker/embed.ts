// Vectors of texts by the model that is loaded, kept for as long as it is, so that a changed line is the only one that is read.

import type { Encoder } from "headwise/models";
import { FloatDigest } from "../../src/tools/diagnostics/self-test.ts";
import type { Call } from "./call.ts";
import { type Join, joinLines } from "./clusters.ts";
import { loadedModel, onRelease } from "./load.ts";

export type Pooling = "mean" | "cls" | "last";

export interface EmbedGiven {
  /** How the states of tokens become a vector. */
  readonly pooling: Pooling;
  /** What stands before each text, as some models were trained with. */
  readonly prefix: string;
}

export interface Embedded {
  /** [lines, dimensions], each of length 1. */
  readonly vectors: Float32Array;
  readonly dimensions: number;
  /** [lines, lines] */
  readonly cosines: Float32Array;
  readonly joins: readonly Join[];
  /** Of the vectors' bits. */
  readonly digest: string;
}

/** Texts that are read between two reports. */
const AT_ONCE = 8;
const MOST_KEPT = 4000;

let kept = new Map<string, Float32Array>();
onRelease(() => {
  kept = new Map();
});

export async function embedTask(
  { lines, ...given }: EmbedGiven & { readonly lines: readonly string[] },
  call: Call,
): Promise<Embedded> {
  const rows = await embedTexts(lines, given, call);
  const dimensions = rows[0]?.length ?? 0;
  const vectors = new Float32Array(rows.length * dimensions);
  const digest = new FloatDigest();
  for (const [i, row] of rows.entries()) {
    vectors.set(row, i * dimensions);
    digest.add(row);
  }
  const cosines = new Float32Array(rows.length ** 2);
  for (let i = 0; i < rows.length; i++)
    for (let j = i; j < rows.length; j++)
      cosines[i * rows.length + j] = cosines[j * rows.length + i] = dot(
        rows[i] as Float32Array,
        rows[j] as Float32Array,
      );
  return { vectors, dimensions, cosines, joins: joinLines(cosines, rows.length), digest: digest.toString() };
}

export async function embedOneTask(
  { text, ...given }: EmbedGiven & { readonly text: string },
  call: Call,
): Promise<Float32Array> {
  const [vector] = await embedTexts([text], given, call);
  return (vector as Float32Array).slice(); // the page takes its buffer
}

const dot = (a: Float32Array, b: Float32Array): number => a.reduce((sum, x, i) => sum + x * (b[i] as number), 0);

async function embedTexts(
  texts: readonly string[],
  { pooling, prefix }: EmbedGiven,
  { report, signal }: Call,
): Promise<Float32Array[]> {
  const { model, tokenizer } = loadedModel<Encoder>();
  if (kept.size > MOST_KEPT) kept = new Map();
  const own = kept;
  const nameOf = (text: string) => JSON.stringify([pooling, prefix + text]);
  const missing = [...new Set(texts)].filter((text) => !own.has(nameOf(text)));
  const ids = missing.map((text) => {
    const read = tokenizer.encode(prefix + text);
    const most = model.maxSeqLen ?? Number.POSITIVE_INFINITY;
    if (read.length >= 1 && read.length <= most) return read;
    throw new Error(`“${text.slice(0, 40)}” has ${read.length} tokens; the model reads from 1 to ${most}.`);
  });
  const { embedAsync } = await import("headwise/models");
  for (let at = 0; at < missing.length; at += AT_ONCE) {
    signal.throwIfAborted();
    const vectors = await embedAsync(model, ids.slice(at, at + AT_ONCE), { pooling, normalize: true, signal });
    for (const [i, vector] of vectors.entries()) own.set(nameOf(missing[at + i] as string), vector);
    report({ kind: "progress", done: Math.min(at + AT_ONCE, missing.length), all: missing.length });
  }
  return texts.map((text) => own.get(nameOf(text)) as Float32Array);
}
