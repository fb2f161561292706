// The recorded run of the story: what the start page shows before its own model has run.

import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { loadKernels } from "headwise";
import { gguf, loadModel, models } from "headwise/models";
import { quantized } from "headwise/quantized";
import { loadTokenizer } from "headwise/text";
import { type Recording, readStory, SEVEN, tellStory } from "./worker/story-run.ts";

const TEXT = "the cat sat on the mat because it was soft. what was soft? the";

/** Runs the model, with the kernels that have the same bits in every engine: those that the page has. */
export async function recordStory(file: string): Promise<Recording> {
  const kernels = await loadKernels({ deterministic: true, models, quantized });
  try {
    const model = await loadModel(kernels, file, { gguf });
    const tokenizer = await loadTokenizer(file);
    const story = tellStory(model, tokenizer, readStory(model, tokenizer, TEXT), []);
    return { story, seven: SEVEN, words: countWords(file) };
  } finally {
    kernels.release();
  }
}

function countWords(file: string): number {
  const { model } = JSON.parse(readFileSync(join(dirname(file), "tokenizer.json"), "utf8"));
  return Object.keys(model.vocab).filter((token) => !/^<.+>$/.test(token)).length;
}
