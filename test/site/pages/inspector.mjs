// The inspector: the bits of Node, the keyboard alone, links, wrong files, changes of heads, and no long task while one types.

import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { loadKernels } from "../../../dist/index.js";
import { forwardWith } from "../../../dist/inspect.js";
import { createSession, gguf, loadModel, models } from "../../../dist/models.js";
import { quantized } from "../../../dist/quantized.js";
import { loadTokenizer } from "../../../dist/text.js";
import { expect } from "../../examples/given.mjs";
import { textOf, visit } from "../../examples/pages.mjs";
import { ready } from "../every-page.mjs";

const FILE = join(import.meta.dirname, "../../../model/stories/stories.gguf");
const TEXT = "the dog slept on the rug because it was soft . what was soft ? the";
/** The build that has the same bits in every engine. */
const QUERY = `?deterministic=yes&text=${encodeURIComponent(TEXT)}`;

/** A pass in Node: its words, the weights of all heads, the likeliest next token, and the digest of its bits. */
async function expected(text, edits = []) {
  const kernels = await loadKernels({ models, quantized, deterministic: true });
  const model = await loadModel(kernels, FILE, { gguf });
  const tokenizer = await loadTokenizer(FILE);
  const ids = tokenizer.encode(text);
  const layers = Array.from({ length: model.layers }, (_, layer) => layer);
  const { patterns, logits } = forwardWith(createSession(model), ids, { patterns: layers, edits });
  kernels.release();
  const hash = createHash("sha256");
  for (const { data } of [...patterns, { data: logits }]) hash.update(createHash("sha256").update(data).digest());
  const words = ids.map((id) => tokenizer.decode([id], { keepSpecial: true }));
  const weight = (layer, head, query, key) => patterns[layer].data[(head * ids.length + query) * ids.length + key];
  const next = tokenizer.decode([logits.indexOf(logits.reduce((a, b) => Math.max(a, b)))]);
  return { words, weight, next, digest: hash.digest("hex").slice(0, 16) };
}

const cell = ({ words, weight }, layer, head, query, key) =>
  `Layer ${layer}, head ${head}: “${words[query]}” at ${query} gives “${words[key]}” at ${key} ${weight(layer, head, query, key).toFixed(3)}`;

const digestIs = (page, digest) =>
  page.waitForFunction((wanted) => document.getElementById("digest").textContent === wanted, {}, digest);
const textIs = (page, selector, wanted) =>
  page.waitForFunction((where, text) => document.querySelector(where)?.textContent === text, {}, selector, wanted);

const open = (given, look, query = QUERY) =>
  visit(given.browser, `${given.url}inspector.html${query}`, async (page, errors) => {
    await ready(page);
    const found = await look(page);
    expect("errors of the page", errors.join("; "), "");
    return found;
  });

export const scenarios = {
  "the weights of Node, and of a text that goes on": (given) =>
    open(given, async (page) => {
      const node = await expected(TEXT);
      await digestIs(page, node.digest);
      await page.type("#text", " rug . kate");
      const longer = await expected(`${TEXT} rug . kate`);
      await digestIs(page, longer.digest);
      // A change in the middle, and back.
      const set = (text) =>
        page.$eval(
          "#text",
          (field, value) => {
            field.value = value;
            field.dispatchEvent(new Event("input"));
          },
          text,
        );
      await set(TEXT.replace("slept", "sat"));
      await digestIs(page, (await expected(TEXT.replace("slept", "sat"))).digest);
      await set(TEXT);
      await digestIs(page, node.digest);
      return node.digest;
    }),
  "a head that is changed, beside what it changes": (given) =>
    open(
      given,
      async (page) => {
        const [before, after] = [await expected(TEXT), await expected(TEXT, [{ at: "z", layer: 1, head: 6, set: 0 }])];
        const guess = () => textOf(page, "#guesses li .word");
        expect("the next token", await guess(), before.next);
        await page.evaluate(() =>
          [...document.querySelectorAll("button")].find((b) => b.textContent === "Ablate").click(),
        );
        await digestIs(page, after.digest);
        expect("the next token without the head", await guess(), after.next);
        expect("both probabilities", await textOf(page, "#guesses li .value"), /^[\d.]+ % → [\d.]+ %$/);
        // The other text has as many tokens; one that has not is refused with a sentence.
        await page.evaluate(() =>
          [...document.querySelectorAll("button")].find((b) => b.textContent === "Patch this head").click(),
        );
        await page.waitForFunction(() => location.search.includes("edits=1.6%3D"));
        await page.$eval("#from", (field) => {
          field.value = "the cat";
          field.dispatchEvent(new Event("change"));
        });
        await page.waitForFunction(() =>
          /^Patching needs texts of the same length/.test(document.getElementById("status").textContent),
        );
        await page.evaluate(() =>
          [...document.querySelectorAll("button")].find((b) => b.textContent === "Restore").click(),
        );
        await digestIs(page, before.digest);
      },
      `${QUERY}&layer=1&head=6`,
    ),
  "a view is a link, and the keyboard alone makes it": (given) =>
    open(given, async (page) => {
      const node = await expected(TEXT);
      await page.focus('.groups button[aria-pressed="true"]');
      for (const key of ["Home", "ArrowRight", "ArrowRight"]) await page.keyboard.press(key);
      await textIs(page, "#one-title", "Layer 0, head 2");
      await page.focus(".plot");
      for (const key of ["Home", "ArrowRight", "ArrowUp"]) await page.keyboard.press(key);
      const wanted = cell(node, 0, 2, node.words.length - 2, 1);
      await textIs(page, "output.cell", wanted);
      await page.waitForFunction(() => location.search.includes("key=1"));
      const link = page.url();
      return open(
        given,
        async (other) => {
          expect("the cell of the link", await textOf(other, "output.cell"), wanted);
          expect("the title of the link", await textOf(other, "#one-title"), "Layer 0, head 2");
          return link.slice(link.indexOf("?"));
        },
        link.slice(link.indexOf("?")),
      );
    }),
  "a wrong file and a wrong text leave a sentence": (given) =>
    open(given, async (page) => {
      const wrong = join(tmpdir(), "headwise-wrong-inspector.gguf");
      writeFileSync(wrong, "not a GGUF file");
      await page.select("#model", "file");
      await (await page.$("#model-file")).uploadFile(wrong);
      await page.waitForFunction(() => document.querySelector(".picker .error"));
      expect("the sentence", await textOf(page, ".picker .error"), /^The model could not be loaded: .*GGUF/);
      await page.select("#model", "stories.gguf");
      await page.waitForFunction(() => /tokens; \d+ read/.test(document.getElementById("status").textContent));
    }),
  "no task above 50 ms while one types at 190 tokens": (given) =>
    open(
      given,
      async (page) => {
        if (given.kind !== "chrome") return "Firefox measures no tasks: what is asserted in Chromium";
        await page.evaluate(() => {
          globalThis.long = [];
          new PerformanceObserver((list) =>
            globalThis.long.push(...list.getEntries().map(({ duration }) => duration)),
          ).observe({
            type: "longtask",
          });
        });
        await page.type("#text", " the cat sat on the mat .", { delay: 20 });
        await new Promise((done) => setTimeout(done, 1500));
        const long = await page.evaluate(() => globalThis.long);
        expect("tasks above 50 ms", long.join(" "), "");
        return textOf(page, "#status");
      },
      `?text=${encodeURIComponent("the cat sat on the mat because it was soft . ".repeat(17))}`,
    ),
};
