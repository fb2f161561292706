// The expected answers: computed here by the packed package in Node on one thread, which is itself checked against the
// logits in float64 that are shipped with the model.

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { createStories } from "./stories.mjs";

export const PROMPT = "qz7 mfk qz7 m";
export const CONTINUATION = "fk qz7 mfk qz7 mfk qz7 m";

/** Answers of the package installed in `root`, of its deterministic build or of the one that it selects on this machine. */
export async function createReference(root, deterministic) {
  const { loadKernels } = await import(pathToFileURL(join(root, "node_modules/headwise/dist/index.js")));
  const { createSession, forward, loadModel, models } = await import(
    pathToFileURL(join(root, "node_modules/headwise/dist/models.js"))
  );
  const { attentionMaps } = await import(pathToFileURL(join(root, "examples/induction/maps.ts")));
  const kernels = await loadKernels({ deterministic, models });
  const model = await loadModel(kernels, join(root, "model"));
  const json = await readFile(join(root, "model/config.json"), "utf8");
  const bytes = await readFile(join(root, "model/model.safetensors"));
  const { vocabulary } = JSON.parse(json);
  const encode = (text) => Array.from(text, (character) => vocabulary.indexOf(character));
  return {
    build: kernels.build,
    stories: await createStories(root, deterministic),
    /** The next `count` choices, `{ character, logit }` each. */
    choices(prompt, count) {
      const session = createSession(model, { maxSeqLen: prompt.length + count });
      const found = [];
      for (let next = encode(prompt); found.length < count; ) {
        const { logits, ids } = forward(session, next, { top: 1 });
        next = ids;
        found.push({ character: vocabulary[ids[0]], logit: logits[0] });
      }
      session.release();
      return found;
    },
    /** The attention weight of query `query` and key `key` in `text`. */
    weight: (text, layer, head, query, key) => {
      const { data, shape } = attentionMaps(kernels, bytes, json, encode(text))[layer];
      return data[(head * shape[1] + query) * shape[2] + key];
    },
  };
}

/** Throws unless `got` are the choices of the reference, with the same bits of their logits. */
export function expectChoices(got, reference, prompt, count) {
  expectEqual(got, reference.choices(prompt, count), prompt);
}

function expectEqual(got, wanted, prompt) {
  const [mine, theirs] = [wanted, got].map((choices) => JSON.stringify(choices));
  if (mine !== theirs) throw new Error(`${JSON.stringify(prompt)} expected\n  ${mine}, got\n  ${theirs}`);
}

export function expect(what, got, wanted) {
  const ok = wanted instanceof RegExp ? wanted.test(got) : Object.is(got, wanted);
  if (!ok)
    throw new Error(
      `${what} expected ${wanted instanceof RegExp ? wanted : JSON.stringify(wanted)}, got ${JSON.stringify(got)}`,
    );
}
