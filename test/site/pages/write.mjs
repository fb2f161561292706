// The page that writes: the text of Node, stop, a change, a reload, a wrong file, and the keyboard alone.

import { join } from "node:path";
import { loadKernels } from "../../../dist/index.js";
import { gguf, loadModel, models } from "../../../dist/models.js";
import { quantized } from "../../../dist/quantized.js";
import { generateText, loadTokenizer } from "../../../dist/text.js";
import { expect } from "../../examples/given.mjs";
import { textOf, visit } from "../../examples/pages.mjs";
import { ready } from "../every-page.mjs";
import { expectSentences } from "../wrong-models.mjs";

const PROMPT = "the dog slept on the rug because it was";
const FILE = join(import.meta.dirname, "../../../model/stories/stories.gguf");
/** The build that has the same bits in every engine, and the likeliest tokens. */
const QUERY = "?deterministic=yes&temperature=0&tokens=24";

/** What Node writes. */
async function expected(prompt, maxTokens) {
  const kernels = await loadKernels({ models, quantized, deterministic: true });
  const model = await loadModel(kernels, FILE, { gguf });
  const { createSession } = await import("../../../dist/models.js");
  const session = createSession(model, { format: "f16" });
  let text = prompt;
  for await (const piece of generateText(session, await loadTokenizer(FILE), prompt, { maxTokens, temperature: 0 }))
    text += piece;
  kernels.release();
  return text;
}

const textIn = (page) => page.$eval("#text", ({ value }) => value);
const setText = (page, text) => page.$eval("#text", (field, value) => Object.assign(field, { value }), text);
const idle = (page) => page.waitForFunction(() => !document.getElementById("go").disabled);

const open = (given, look, query = QUERY) =>
  visit(given.browser, `${given.url}write.html${query}`, async (page, errors) => {
    await ready(page);
    await page.evaluate(() => localStorage.clear());
    const found = await look(page, errors);
    expect("errors of the page", errors.join("; "), "");
    return found;
  });

export const scenarios = {
  "the text of Node": (given) =>
    open(given, async (page) => {
      await setText(page, PROMPT);
      await page.click("#go");
      await idle(page);
      const whole = await expected(PROMPT, 24);
      expect("the text", await textIn(page), whole);
      // A change in the middle: what is behind it is read again, with the text of a new session.
      const changed = `${whole.slice(0, 30)} the`;
      await setText(page, changed);
      await page.click("#go");
      await idle(page);
      expect("the text behind a change", await textIn(page), await expected(changed, 24));
      return JSON.stringify((await textIn(page)).slice(0, 60));
    }),
  "goes on after a reload": (given) =>
    open(given, async (page) => {
      await setText(page, PROMPT);
      await page.click("#go");
      await idle(page);
      const half = await textIn(page);
      await page.reload();
      await ready(page);
      expect("the text of the last visit", await textIn(page), half);
      expect("tokens that need not be read", await textOf(page, "#status"), /^Ready: \d+ tokens of the last visit/);
      await page.click("#go");
      await idle(page);
      expect("the text", await textIn(page), await expected(half, 24));
    }),
  "a text and its options, by the keyboard alone": (given) =>
    open(given, async (page) => {
      await page.focus("#tokens");
      await page.keyboard.press("ArrowUp");
      await page.keyboard.press("Tab");
      await page.waitForFunction(() => location.search.includes("tokens=25"));
      await setText(page, "");
      await page.type("#text", PROMPT);
      for (let back = 0; (await page.evaluate(() => document.activeElement.id)) !== "go"; back++) {
        if (back > 3) throw new Error("Tab does not lead from the text to the button");
        await page.keyboard.press("Tab");
      }
      await page.keyboard.press("Enter");
      await idle(page);
      expect("the text", await textIn(page), await expected(PROMPT, 25));
      expect("the digest", await textOf(page, "#digest"), /^[\da-f]{16}$/);
    }),
  "stops, by the keyboard alone": (given) =>
    open(
      given,
      async (page) => {
        // The focus goes from the button that starts to the one that stops, and back. A model that ends before the second key is
        // asked again.
        for (let round = 0; round < 5; round++) {
          await page.focus("#go");
          await page.keyboard.press("Enter");
          await page.keyboard.press("Enter");
          await idle(page);
          if ((await textOf(page, "#status")) === "Stopped.") break;
          await page.click("#new");
        }
        expect("the status", await textOf(page, "#status"), "Stopped.");
        expect("the focus", await page.evaluate(() => document.activeElement.id), "go");
      },
      "?tokens=4096&temperature=5",
    ),
  "a wrong file and a wrong URL leave a sentence": (given) =>
    open(given, async (page, errors) => {
      await expectSentences(page, errors, given.url);
      await page.select("#model", "stories.gguf");
      await idle(page);
    }),
};
