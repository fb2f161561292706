// Answers of the engine that come late: after another question, another text, or another model.

import { expect } from "../../examples/given.mjs";
import { textOf } from "../../examples/pages.mjs";
import { digestIs, expected, open, press, setText, TEXT, textIs, VIEW } from "./given.mjs";

/** Keeps the page's questions to the engine by the names of their tasks, until `release(name)`. */
const hold = (page, ...tasks) =>
  page.evaluate((names) => {
    const { postMessage } = Worker.prototype;
    const held = [];
    Worker.prototype.postMessage = function (data) {
      if (names.includes(data.task)) held.push([this, data]);
      else postMessage.call(this, data);
    };
    globalThis.held = held;
    globalThis.release = (name) => {
      for (const [worker, data] of held) if (data.task === name) postMessage.call(worker, data);
    };
  }, tasks);

const isHeld = (page, task) =>
  page.waitForFunction((name) => globalThis.held.some(([, data]) => data.task === name), {}, task);
const release = (page, task) => page.evaluate((name) => globalThis.release(name), task);

/** Until what was asked of the engine is answered, and longer than the page waits after a key. */
const answered = () => new Promise((done) => setTimeout(done, 600));

export const scenarios = {
  "an older “why” does not replace a newer one": (given) =>
    open(
      given,
      async (page) => {
        await hold(page, "why");
        await page.focus(".heatmap .plot");
        await page.keyboard.press("ArrowLeft");
        await isHeld(page, "why");
        for (const key of ["ArrowUp", "End", "ArrowRight"]) await page.keyboard.press(key);
        const later = "A token sees none that come later.";
        await textIs(page, "#why p", later);
        await release(page, "why");
        await answered();
        expect("what is said of the newer cell", await textOf(page, "#why"), later);
        // The stages of the older cell are gone, too.
        await press(page, "Stages");
        await textIs(page, ".stage", later);
        await press(page, "By what they do");
        expect("what is said instead of stages", await textOf(page, ".stage"), later);
      },
      `${VIEW}&layer=1&head=6&query=16&key=6`,
    ),
  "why a token is looked at is of the cell that is shown, or faint": (given) =>
    open(
      given,
      async (page) => {
        const isBusy = () => page.$eval("#why", (why) => why.getAttribute("aria-busy"));
        expect("at first", await isBusy(), "false");
        await hold(page, "why");
        await page.focus(".heatmap .plot");
        await page.keyboard.press("ArrowLeft");
        expect("while the cell has moved", await isBusy(), "true");
        await isHeld(page, "why");
        expect("while the answer is on its way", await isBusy(), "true");
        await release(page, "why");
        await page.waitForFunction(() => document.getElementById("why").getAttribute("aria-busy") === "false");
      },
      `${VIEW}&layer=1&head=6`,
    ),
  "a model that does not come leaves no waiting behind": (given) =>
    open(given, async (page, errors) => {
      await page.select("#model", "url");
      await page.$eval("#model-url", (field, value) => Object.assign(field, { value }), `${given.url}nothing.gguf`);
      await page.$eval(".picker form", (form) => form.requestSubmit());
      await page.waitForSelector(".picker .error");
      expect("the status", await textOf(page, "#status"), "There is no model: choose one, or load it again.");
      errors.length = 0; // browsers report the file that is not there
    }),
  "weights of a model that was unloaded are not shown": (given) =>
    open(given, async (page) => {
      await hold(page, "attend", "load");
      await setText(page, "the cat");
      await isHeld(page, "attend");
      await page.select("#model", "stories");
      await isHeld(page, "load");
      await release(page, "attend");
      await answered();
      expect("what is said of the text", await textOf(page, "#status"), "Waiting for the model.");
      await press(page, "CSV");
      expect("what is said instead of a file", await textOf(page, "#exports p"), "No head is shown yet.");
    }),
  "statistics are those of the model and of the text": (given) =>
    open(
      given,
      async (page) => {
        const isMeasured = () => page.$eval(".statistics > div:last-child", ({ hidden }) => !hidden);
        const measure = async (heads) => {
          await page.select("#length", "256");
          await press(page, "Measure");
          await page.waitForFunction(() => !document.querySelector(".statistics > div:last-child").hidden);
          expect("rows", (await page.$$(".statistics tbody tr")).length, heads);
        };
        await measure(8);
        await page.select("#model", "stories.gguf");
        await digestIs(page, (await expected(TEXT)).digest);
        expect("numbers of another model", await isMeasured(), false);
        await measure(32);
        await setText(page, "the cat");
        expect("numbers of another text", await isMeasured(), false);
        // What is being measured stops, and nothing comes of it.
        await page.select("#length", "16384");
        await press(page, "Measure");
        await setText(page, "the dog");
        await answered();
        expect("numbers of an earlier text", await isMeasured(), false);
        expect(
          "what is said of them",
          await textOf(page, ".statistics [role=status]"),
          /^How heads look as a text grows/,
        );
        await measure(32);
      },
      `${VIEW}&model=induction&view=statistics&length=256`,
    ),
};
