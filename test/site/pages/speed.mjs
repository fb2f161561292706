// The speed of a model: what is measured, a machine that is busy, a link with a result, a file of the visitor, and a model of the hub.

import { join } from "node:path";
import { expect } from "../../examples/given.mjs";
import { textOf, visit } from "../../examples/pages.mjs";
import { ready } from "../every-page.mjs";
import { expectHub } from "../hub.mjs";
import { expectSentences } from "../wrong-models.mjs";

const open = (given, look, query = "") =>
  visit(given.browser, `${given.url}speed.html${query}`, async (page, errors) => {
    await ready(page);
    const found = await look(page, errors);
    expect("errors of the page", errors.join("; "), "");
    return found;
  });

const statusIs = (page, wanted) =>
  page.waitForFunction((text) => document.getElementById("status").textContent === text, { timeout: 60_000 }, wanted);

export const scenarios = {
  "a model is measured, by the keyboard alone, and its result is a link": (given) =>
    open(given, async (page) => {
      await page.focus("#measure");
      await page.keyboard.press("Enter");
      await statusIs(page, "Measured.");
      expect("the focus", await page.evaluate(() => document.activeElement.id), "measure");
      const rate = await textOf(page, "#rate");
      expect(`tokens a second, ${rate}`, Number(rate.replaceAll(",", "")) > 1, true);
      expect("between which", await textOf(page, "#spread"), /^between [\d.,]+ and [\d.,]+, of \d+ samples$/);
      expect("the first token", await textOf(page, "#first"), /^[\d.]+ m?s after 64 tokens: [\d,.]+ a second$/);
      const memory = Number.parseFloat(await textOf(page, "#memory"));
      expect(`megabytes, ${memory}, from 1 to 4`, memory > 1 && memory < 4, true);
      expect("the model", await textOf(page, "#what"), /^llama, 4 layers, 0\.9 MB$/);
      await page.evaluate(() => {
        Object.defineProperty(navigator, "clipboard", {
          value: { writeText: async (text) => (globalThis.copied = text) },
        });
      });
      await page.click("#share");
      await page.waitForFunction(() => globalThis.copied);
      const link = await page.evaluate(() => copied);
      await page.goto("about:blank");
      await page.goto(link);
      await ready(page);
      expect(
        "the result of the link",
        await textOf(page, "#shared-text"),
        RegExp(`^${rate} tokens a second, the first `),
      );
      expect("what is measured here", await textOf(page, "#rate"), "–");
      return `${rate} tokens a second`;
    }),
  "measuring stops, and another model drops it": (given) =>
    open(given, async (page) => {
      await page.evaluate(() => {
        for (const id of ["measure", "stop"]) document.getElementById(id).click();
      });
      await statusIs(page, "Stopped.");
      expect("what is shown", await textOf(page, "#rate"), "–");
      await page.click("#measure");
      await statusIs(page, "Measured.");
      // A file of the visitor: the same model.
      await page.select("#model", "file");
      const file = join(import.meta.dirname, "../../../model/stories/stories.gguf");
      await (await page.$("#model-file")).uploadFile(file);
      await statusIs(page, "Ready.");
      expect("the number of another model", await textOf(page, "#rate"), "–");
      await page.click("#measure");
      await statusIs(page, "Measured.");
    }),
  "a busy machine is said": (given) =>
    open(given, async (page) => {
      // The engine's answer, with a spread that other programs make.
      await page.evaluate(() => {
        const { postMessage } = Worker.prototype;
        Worker.prototype.postMessage = function (data) {
          if (data.task !== "speed") return postMessage.call(this, data);
          const result = { promptTokens: 64, firstMs: 9, samples: 25, tokenMs: 2, range: [1, 4], memoryBytes: 2e6 };
          setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data: { id: data.id, result } })));
        };
      });
      await page.click("#measure");
      await statusIs(page, "Measured.");
      expect("the rate", await textOf(page, "#rate"), "500");
      expect(
        "that the machine was busy",
        await textOf(page, "#busy"),
        /^This machine was busy: four of five samples took between 1 ms and 4 ms a token\./,
      );
      expect("whether that is shown", await page.$eval("#busy", (line) => line.checkVisibility()), true);
    }),
  "what is no model, and models that do not come": (given) =>
    open(given, (page, errors) => expectSentences(page, errors, given.url)),
  "a model of the hub is asked for, read once and kept": (given) => expectHub(given, "speed"),
};
