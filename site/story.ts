// The recorded run of the story: what the start page shows before its own model has run.

import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { loadKernels } from "headwise";
import { forwardWith } from "headwise/inspect";
import { createSession, gguf, loadModel, type Model, models } from "headwise/models";
import { quantized } from "headwise/quantized";
import { loadTokenizer } from "headwise/text";
import type { Maps } from "./card.ts";
import { type Recording, readStory, SEVEN, tellStory } from "./worker/story-run.ts";

const TEXT = "the cat sat on the mat because it was soft. what was soft? the";

/** Runs the model, with the kernels that have the same bits in every engine: those that the page has. */
export async function recordStory(file: string): Promise<{ readonly recording: Recording; readonly maps: Maps }> {
  const kernels = await loadKernels({ deterministic: true, models, quantized });
  try {
    const model = await loadModel(kernels, file, { gguf });
    const tokenizer = await loadTokenizer(file);
    const story = tellStory(model, tokenizer, readStory(model, tokenizer, TEXT), []);
    const recording = { story, seven: SEVEN, words: countWords(file) };
    return { recording, maps: mapsOf(model, [...tokenizer.encode(TEXT)]) };
  } finally {
    kernels.release();
  }
}

function mapsOf(model: Model, ids: readonly number[]): Maps {
  const layers = Array.from({ length: model.layers }, (_, layer) => layer);
  const size = ids.length ** 2;
  const { patterns } = forwardWith(createSession(model), ids, { patterns: layers });
  const heads = patterns.map(({ data, shape: [count = 0] }) =>
    Array.from({ length: count }, (_, head) => data.slice(head * size, (head + 1) * size)),
  );
  return { tokens: ids.length, heads };
}

function countWords(file: string): number {
  const { model } = JSON.parse(readFileSync(join(dirname(file), "tokenizer.json"), "utf8"));
  return Object.keys(model.vocab).filter((token) => !/^<.+>$/.test(token)).length;
}
