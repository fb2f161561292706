// The answers of one process without interruptions: the same model and package, and caches that are never released early.

import { readFileSync } from "node:fs";
import { loadKernels } from "headwise";
import { argmax, createDecoder } from "../src/decoder.ts";
import { digestOf } from "../src/digest.ts";

const model = new URL("../../../model/", import.meta.url);

/** The shipped model in this process, on the build that the Worker uses. */
export async function loadAlone() {
  const kernels = await loadKernels({ deterministic: true });
  const weights = readFileSync(new URL("model.safetensors", model));
  return createDecoder(kernels, weights, readFileSync(new URL("config.json", model), "utf8"));
}

/** The logits in float64 that are shipped with the model. */
export function readLogits() {
  return JSON.parse(readFileSync(new URL("logits.json", model), "utf8"));
}

/**
 * Runs a conversation of turns [prompt, count] token by token. `text` is all of it, `digest(from, to)` hashes the logits
 * that the tokens from..to were chosen by.
 */
export function converse(model, turns) {
  const length = turns.reduce((sum, [prompt, count]) => sum + prompt.length + count, 0);
  // A conversation may end before its first token.
  const caches = model.createCaches(Math.max(1, length));
  const logits = [];
  let text = "";
  let next;
  const feed = (character) => {
    next = model.next({ tokens: model.encode(character), caches });
    text += character;
  };
  for (const [prompt, count] of turns) {
    for (const character of prompt) feed(character);
    for (let i = 0; i < count; i++) {
      logits[text.length] = next;
      feed(model.vocabulary[argmax(next)]);
    }
  }
  for (const cache of caches) cache.release();
  return { text, digest: (from, to) => digestOf(logits.slice(from, to)) };
}
