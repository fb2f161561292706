// What the scenarios of the inspector need: the numbers of Node, and steps on the page.

import { createHash } from "node:crypto";
import { join } from "node:path";
import { loadKernels } from "../../../dist/index.js";
import { forwardWith } from "../../../dist/inspect.js";
import { createSession, gguf, loadModel, models } from "../../../dist/models.js";
import { quantized } from "../../../dist/quantized.js";
import { loadTokenizer } from "../../../dist/text.js";
import { expect } from "../../examples/given.mjs";
import { visit } from "../../examples/pages.mjs";
import { ready } from "../every-page.mjs";

export const FOLDER = join(import.meta.dirname, "../../../model/stories");
export const FILE = join(FOLDER, "stories.gguf");
export const TEXT = "the dog slept on the rug because it was soft . what was soft ? the";
/** The build that has the same bits in every engine. */
export const VIEW = `#deterministic=yes&text=${encodeURIComponent(TEXT)}`;

const known = new Map();

/** A pass in Node: its words, the weights of all heads, the likeliest next token, and the digest of its bits. */
export function expected(...given) {
  const key = JSON.stringify(given);
  if (!known.has(key)) known.set(key, compute(...given));
  return known.get(key);
}

async function compute(text, edits = [], { weights, cache = "f32", from = FILE } = {}) {
  const kernels = await loadKernels({ models, quantized, deterministic: true });
  const model = await loadModel(kernels, from, { gguf, weights });
  const tokenizer = await loadTokenizer(from);
  const ids = tokenizer.encode(text);
  const layers = Array.from({ length: model.layers }, (_, layer) => layer);
  const { patterns, logits } = forwardWith(createSession(model, { format: cache }), ids, { patterns: layers, edits });
  kernels.release();
  const hash = createHash("sha256");
  for (const { data } of [...patterns, { data: logits }]) hash.update(createHash("sha256").update(data).digest());
  const words = ids.map((id) => tokenizer.decode([id], { keepSpecial: true }));
  const weight = (layer, head, query, key) => patterns[layer].data[(head * ids.length + query) * ids.length + key];
  const next = tokenizer.decode([logits.indexOf(logits.reduce((a, b) => Math.max(a, b)))]);
  return { words, weight, next, digest: hash.digest("hex").slice(0, 16) };
}

export const cell = ({ words, weight }, layer, head, query, key) =>
  `Layer ${layer}, head ${head}: “${words[query]}” at ${query} looks at “${words[key]}” at ${key}: ${weight(layer, head, query, key).toFixed(3)}`;

export const digestIs = (page, digest) =>
  page.waitForFunction((wanted) => document.getElementById("digest").textContent === wanted, {}, digest);
export const textIs = (page, selector, wanted) =>
  page.waitForFunction((where, text) => document.querySelector(where)?.textContent === text, {}, selector, wanted);

export const setText = (page, text) =>
  page.$eval(
    "#text",
    (field, value) => {
      field.value = value;
      field.dispatchEvent(new Event("input"));
    },
    text,
  );

/** Presses the button with this text. */
export const press = (page, text) =>
  page.evaluate((wanted) => {
    const button = [...document.querySelectorAll("main button")].find(({ textContent }) => textContent === wanted);
    button.click();
  }, text);

export const open = (given, look, query = VIEW) =>
  visit(given.browser, `${given.url}inspector.html${query}`, async (page, errors) => {
    await ready(page);
    const found = await look(page, errors);
    expect("errors of the page", errors.join("; "), "");
    return found;
  });
