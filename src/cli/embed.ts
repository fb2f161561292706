// `headwise embed`: vectors of texts.

import type { Pooling } from "../entries/models.ts";
import { readArguments, readChoice, UsageError } from "./args.ts";
import { findLibraries, openSource } from "./load.ts";
import { helpOf, KERNEL_OPTIONS, LOAD_OPTIONS, OUTPUT_OPTIONS, readCommon } from "./options.ts";
import { print, readPrompt, sizeText } from "./terminal.ts";

const HELP = `headwise embed SOURCE TEXT... [options]

Opens the encoder or decoder SOURCE, a GGUF file or a folder, its URL, or "owner/name" of a model on a hub, and prints a
vector of length 1 for each TEXT; for several, the cosine of each pair. TEXT "-" is standard input. Needs the package
@huggingface/tokenizers. What was opened, and how long it took, is on stderr.

  --task NAME         query, document, or the name of a prompt of the model's (default the model's default prompt)
  --pooling KIND      mean, cls or last: how a text's states become one vector (default what the model's files say, or
                      mean)
${helpOf("weights", "activations", "chosen-threads", "deterministic", "no-store", "quiet", "json")}, with whole vectors`;

const OPTIONS = {
  task: { type: "string" },
  pooling: { type: "string" },
  weights: { type: "string" },
  activations: { type: "string" },
  ...KERNEL_OPTIONS,
  ...LOAD_OPTIONS,
  ...OUTPUT_OPTIONS,
} as const;

const POOLINGS: readonly Pooling[] = ["mean", "cls", "last"];
/** Components of a vector that are printed, and characters of a text. */
const [SHOWN, WIDTH] = [6, 32];

/** `headwise embed`. */
export async function embed(args: string[]): Promise<void> {
  const { values, positionals } = readArguments("embed", args, OPTIONS);
  if (values.help) return print(HELP);
  const [source, ...given] = positionals;
  if (source === undefined || given.length === 0)
    throw new UsageError(`embed: expected a model and a text, got ${positionals.length} arguments`);
  const pooling = readChoice("embed", "--pooling", values.pooling, POOLINGS);
  const { weights, activations, threads } = readCommon("embed", values);
  const fromInput = given.filter((text) => text === "-").length;
  if (fromInput > 1) throw new UsageError(`embed: expected "-" once, for standard input, got it ${fromInput} times`);
  const texts = await Promise.all(given.map(readPrompt));
  const { model, loadMs } = await openSource("embed", source, values, {
    ...{ for: "embed", weights, activations, threads, deterministic: values.deterministic },
    libraries: findLibraries("embed"),
  });
  try {
    const began = performance.now();
    const vectors = await model.embed(texts, { task: values.task, pooling, normalize: true });
    const ms = performance.now() - began;
    const { build, threads: run } = model.choices;
    // A table of rows has no layers.
    const { layers, bytes } = run.value === 0 ? { layers: 0, bytes: 0 } : model.parts.model;
    const { type } = model;
    const dModel = vectors[0]?.length ?? 0;
    if (values.json) {
      const facts = { type, layers, bytes, dModel, pooling, build: build.value, loadMs, ms };
      const found = texts.map((text, i) => ({ text, vector: Array.from(vectors[i] as Float32Array) }));
      return print(JSON.stringify({ ...facts, texts: found }, null, 2));
    }
    for (const [i, text] of texts.entries()) print(`${shortened(text)}  ${shownOf(vectors[i] as Float32Array)}`);
    for (const [i, a] of vectors.entries())
      for (const [j, b] of vectors.entries())
        if (i < j) print(`cosine ${i + 1}, ${j + 1}  ${cosineOf(a, b).toFixed(4)}`);
    if (values.quiet) return;
    console.error(`
model          ${type}, ${layers === 0 ? "a table" : `${layers} layers, ${sizeText(bytes)}`}, opened in ${loadMs.toFixed(0)} ms
vectors        ${texts.length} of ${dModel} in ${ms.toFixed(1)} ms
build          ${build.value}: ${build.reason}`);
  } finally {
    model.release();
  }
}

/** A text in a column of its own. */
function shortened(text: string): string {
  const line = text.replace(/\s+/g, " ");
  return (line.length > WIDTH ? `${line.slice(0, WIDTH - 1)}…` : line).padEnd(WIDTH);
}

function shownOf(vector: Float32Array): string {
  const shown = Array.from(vector.subarray(0, SHOWN), (x) => x.toFixed(4).padStart(7)).join(" ");
  return vector.length > SHOWN ? `${shown} …` : shown;
}

/** Of vectors of length 1. */
function cosineOf(a: Float32Array, b: Float32Array): number {
  return a.reduce((sum, x, i) => sum + x * (b[i] as number), 0);
}
