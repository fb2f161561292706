// The start page: the text of Node with the looks of its head, soon, by the keyboard alone, and code that runs as it is shown.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { loadKernels } from "../../../dist/index.js";
import { forwardWith } from "../../../dist/inspect.js";
import { createSession, gguf, loadModel, models } from "../../../dist/models.js";
import { quantized } from "../../../dist/quantized.js";
import { loadTokenizer } from "../../../dist/text.js";
import { PAGES } from "../../../site/pages.ts";
import { expect } from "../../examples/given.mjs";
import { textOf, visit } from "../../examples/pages.mjs";
import { run } from "../../examples/processes.mjs";
import { ready } from "../every-page.mjs";

const root = join(import.meta.dirname, "../../..");
const FILE = join(root, "model/stories/stories.gguf");
const PROMPT = "the cat sat on the mat because it was";
const TOKENS = 21;
const HEAD = { layer: 1, head: 6 };

/** What Node writes, as the page's words, and the weights of the head from each of them. */
async function expected(prompt) {
  const kernels = await loadKernels({ models, quantized });
  const model = await loadModel(kernels, FILE, { gguf });
  const tokenizer = await loadTokenizer(FILE);
  const all = [...tokenizer.encode(prompt)];
  const writer = createSession(model);
  let next = all;
  for (let i = 0; i < TOKENS; i++) {
    next = forwardWith(writer, next, { top: 1 }).ids;
    all.push(next[0]);
  }
  const { patterns } = forwardWith(createSession(model), all, { patterns: [HEAD.layer] });
  const { data } = patterns[0];
  const weight = (query, key) => data[(HEAD.head * all.length + query) * all.length + key];
  const words = all.map((id) => tokenizer.decode([id], { keepSpecial: true }));
  kernels.release();
  return { words, weight };
}

const wordsIn = (page) => page.$$eval("#words .word", (all) => all.map(({ textContent }) => textContent).join(" "));
const rested = (page) => page.waitForFunction(() => !document.getElementById("write").disabled);

const open = (given, look, query = "") =>
  visit(given.browser, `${given.url}index.html${query}`, async (page, errors) => {
    await ready(page);
    const found = await look(page);
    expect("errors of the page", errors.join("; "), "");
    return found;
  });

export const scenarios = {
  "the text of Node, and where its head looks": (given) =>
    open(given, async (page) => {
      const { words, weight } = await expected(PROMPT);
      expect("the words", await wordsIn(page), words.join(" "));
      expect("the speed", await textOf(page, "#speed"), /^\d+ tokens\/s on this device$/);
      const at = await page.$$eval("#words .word", (all) => all.findIndex((each) => each.classList.contains("here")));
      expect("the word with the largest weight", words[at], "mat");
      const heights = await page.$$eval("#words .weight", (all) =>
        all.map(({ style }) => Number.parseFloat(style.height)),
      );
      for (const [i, height] of heights.entries()) {
        const wanted = i < at ? 100 * weight(at - 1, i) : 0;
        if (!(Math.abs(height - wanted) < 0.05)) throw new Error(`bar ${i} expected ${wanted} %, got ${height} %`);
      }
      return JSON.stringify(words.slice(10).join(" ").slice(0, 60));
    }),
  "another text, by the keyboard alone, and its address": (given) =>
    open(given, async (page) => {
      const begin = "anna put the apple in the box. where was the";
      await page.focus("#prompt");
      await page.$eval("#prompt", (input) => input.select());
      await page.keyboard.type(begin);
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => document.getElementById("write").disabled);
      await rested(page);
      const { words } = await expected(begin);
      expect("the words", await wordsIn(page), words.join(" "));
      expect("the address", new URLSearchParams(new URL(page.url()).hash.slice(1)).get("text"), begin);
      await page.focus("#words");
      await page.keyboard.press("Home");
      expect("the first word", await textOf(page, "#look"), /^Before “anna”, the head looked at the beginning/);
      await page.keyboard.press("ArrowRight");
      expect("the second word", await textOf(page, "#look"), /^Before “put”, the head looked at /);
      const link = await page.$eval("#inspect", ({ href }) => href);
      expect("the link", link.slice(link.lastIndexOf("/") + 1), "inspector.html#text=anna&layer=1&head=6");
      await page.keyboard.press("End");
      expect(
        "the last word",
        await textOf(page, "#look"),
        RegExp(`^“${words.at(-1).replace(/\W/, "\\$&")}” was written`),
      );
      // Tab leaves the text for the link and the form: no trap.
      await page.keyboard.press("Tab");
      expect("the focus after the text", await page.evaluate(() => document.activeElement.id), "inspect");
    }),
  "a word that the model does not know leaves a sentence": (given) =>
    open(
      given,
      async (page) => {
        expect("the sentence", await textOf(page, "#speed"), /<unk> is a word that the model does not know$/);
        await page.focus("#more");
        await page.keyboard.press("Enter");
        await page.waitForFunction(() => document.getElementById("write").disabled);
        await rested(page);
        expect("the focus", await page.evaluate(() => document.activeElement.id), "more");
        expect("the words that stay", await wordsIn(page), /^<s> the <unk> sat/);
      },
      "#text=the%20dragon%20sat",
    ),
  "a model that does not come at first": (given) =>
    open(given, async (page) => {
      if (!page.evaluateOnNewDocument) return "not in WebKitGTK, whose driver runs nothing before the page does";
      await page.evaluateOnNewDocument(() => {
        const { postMessage } = Worker.prototype;
        Worker.prototype.postMessage = function (message, ...rest) {
          Worker.prototype.postMessage = postMessage;
          postMessage.call(this, { ...message, task: "nothing" }, ...rest);
        };
      });
      await page.reload();
      await ready(page);
      expect("the sentence", await textOf(page, "#look"), /^The model could not be loaded: .* “Write” tries again\.$/);
      await page.focus("#write");
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => !document.getElementById("more").disabled);
      expect("the words", await wordsIn(page), (await expected(PROMPT)).words.join(" "));
      expect("the focus", await page.evaluate(() => document.activeElement.id), "write");
    }),
  "copies, also without the clipboard": (given) =>
    open(given, async (page) => {
      await page.evaluate(() => void Object.defineProperty(navigator, "clipboard", { value: undefined }));
      await page.click("#copy-install");
      await page.waitForSelector("#manual:focus");
      expect("the text", await page.$eval("#manual", ({ value }) => value), "npm install headwise");
      expect("the status", await textOf(page, "#copied"), "Selected: copy it with the keyboard.");
    }),
  "cards lead to all pages, and the code runs": (given) =>
    open(given, async (page) => {
      const links = await page.$$eval(".cards a", (all) => all.map((link) => link.getAttribute("href")).join());
      const wanted = PAGES.filter(({ name }) => name !== "index").map(({ name }) => `./${name}.html`);
      expect("the cards", links, wanted.join());
      const file = join(root, "build/site-example.mjs");
      writeFileSync(file, await textOf(page, "#code"));
      const printed = await run(process.execPath, [file], { cwd: root });
      // Each query is its own key: the softmax of 1/√2 and 0.
      const own = 1 / (1 + Math.exp(-Math.SQRT1_2));
      const values = printed.match(/\d+(\.\d+)?(?=[,\s])/g).map(Number);
      for (const [i, value] of [own, 1 - own, 1 - own, own].entries())
        expect(`value ${i} of ${values.join()}`, Math.abs(values[i] - value) < 1e-6, true);
      expect("the command", await textOf(page, "#install"), "npm install headwise");
    }),
};

export const timed = {
  "something to see within a second": (given) =>
    open(given, async (page) => {
      const { paint, word } = await page.evaluate(() => ({
        paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime,
        word: performance.getEntriesByName("first word")[0]?.startTime,
      }));
      expect(`the first paint, ${paint} ms, before 1000`, paint < 1000, true);
      expect(`the first written word, ${word} ms, before 5000`, word < 5000, true);
      return `paint ${paint.toFixed(0)} ms, the first written word ${word.toFixed(0)} ms`;
    }),
};
