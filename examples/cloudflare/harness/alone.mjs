// The answers of one process without interruptions: the same model and package, each answer in a session of its own.

import { readFileSync } from "node:fs";
import { loadKernels } from "headwise";
import { gguf, loadModel, models } from "headwise/models";
import { quantized } from "headwise/quantized";
import { generateText, loadTokenizer } from "headwise/text";
import { digestOf } from "../src/digest.ts";

const folder = new URL("../../../model/stories/", import.meta.url);

/** The shipped model in this process, on the build that the Worker uses. */
export async function loadAlone() {
  const file = new URL("stories.gguf", folder);
  const kernels = await loadKernels({ deterministic: true, models, quantized });
  return { model: await loadModel(kernels, file, { gguf }), tokenizer: await loadTokenizer(file) };
}

/** A prompt and the logits after it in float64, which are shipped with the model. */
export function readExpected() {
  return JSON.parse(readFileSync(new URL("logits.json", folder), "utf8"));
}

/**
 * Runs a conversation of turns { text, tokens, temperature, seed }. `text` is all of it, `answers` what the model said in each
 * turn, `ids` all tokens; `digest(from, to)` hashes the logits that the tokens from..to were chosen by.
 */
export async function converse({ model, tokenizer }, turns) {
  const ids = [];
  const answers = [];
  const logits = [];
  let text = "";
  for (const { text: added, tokens, ...sampling } of turns) {
    ids.push(...tokenizer.encode(added, { addSpecial: ids.length === 0 }));
    const begin = ids.length;
    const keep = (_, { data }) => chosen.push(data.slice());
    const chosen = [];
    const maxTokens = Math.min(tokens, model.maxSeqLen - begin);
    const answer = generateText(model, tokenizer, ids, { ...sampling, maxTokens, logitsProcessors: [keep] });
    let next = await answer.next();
    while (!next.done) next = await answer.next();
    const { value } = next;
    ids.push(...value.ids);
    value.ids.forEach((_, i) => {
      logits[begin + i] = chosen[i];
    });
    text += added + value.text;
    answers.push({ ...value, begin, end: ids.length });
  }
  return { text, ids, answers, digest: (from, to) => digestOf(logits.slice(from, to)) };
}
