// What heads carry and find: the effect map, the token that it is of, the cell that is an answer; the logit lens; and phones.

import { loadKernels } from "../../../dist/index.js";
import { captureRun, forwardWith, logitLens } from "../../../dist/inspect.js";
import { createSession, gguf, loadModel, models } from "../../../dist/models.js";
import { quantized } from "../../../dist/quantized.js";
import { loadTokenizer } from "../../../dist/text.js";
import { signed } from "../../../site/src/story/say.ts";
import { logOdds } from "../../../site/worker/story-run.ts";
import { expect } from "../../examples/given.mjs";
import { textOf } from "../../examples/pages.mjs";
import { ready } from "../every-page.mjs";
import { ONLY_CHROME } from "../tasks.mjs";
import { FILE, open, press, TEXT, textIs, VIEW } from "./given.mjs";

/** The model of the pages in Node, with the tokens of the text. */
async function inNode() {
  const kernels = await loadKernels({ models, quantized, deterministic: true });
  const model = await loadModel(kernels, FILE, { gguf });
  const tokenizer = await loadTokenizer(FILE);
  return { kernels, model, tokenizer, ids: tokenizer.encode(TEXT) };
}

const cellOf = (name) => `#effects button[aria-label^="Take ${name} away"]`;
const isMeasured = (page) =>
  page.waitForFunction(() => /^The log-odds of “/.test(document.querySelector("#effects .about").textContent));

export const scenarios = {
  "what each head carries, and all of a layer": (given) =>
    open(given, async (page) => {
      const { kernels, model, tokenizer, ids } = await inNode();
      const oddsOf = (heads, id) => {
        const edits = heads.map((head) => ({ at: "z", layer: 1, head, set: 0 }));
        const { logits } = forwardWith(createSession(model), ids, { edits });
        return logOdds(logits, id);
      };
      const [rug] = tokenizer.encode("rug", { addSpecial: false });
      const change = (heads, id = rug) => oddsOf(heads, id) - oddsOf([], id);
      await isMeasured(page);
      expect("cells", (await page.$$("#effects button[aria-pressed]")).length, 36);
      const labelOf = (name) => page.$eval(cellOf(name), (cell) => cell.getAttribute("aria-label"));
      expect("a head", await labelOf("head 1.4"), `Take head 1.4 away: ${signed(change([4]))}`);
      const layer = [0, 1, 2, 3, 4, 5, 6, 7];
      expect(
        "a layer",
        await labelOf("all heads of layer 1"),
        `Take all heads of layer 1 away: ${signed(change(layer))}`,
      );
      const about = await textOf(page, "#effects .about");
      expect("the token in words", about.startsWith(`The log-odds of “rug” are ${signed(oddsOf([], rug))}. `), true);
      // A click takes a layer away; the bars follow, and another click brings one head of it back.
      await page.click(cellOf("all heads of layer 1"));
      await page.waitForFunction(() => / → /.test(document.querySelector("#guesses .value").textContent));
      expect("heads that are away", (await page.$$('#effects button[aria-pressed="true"]')).length, 9);
      expect("their text", await textOf(page, cellOf("head 1.3")), "off");
      const changed = `; with your changes, ${signed(oddsOf(layer, rug))}.`;
      await page.waitForFunction(
        (text) => document.querySelector("#effects .about").textContent.includes(text),
        {},
        changed,
      );
      await page.click(cellOf("head 1.7"));
      await page.waitForFunction(() => document.querySelectorAll('#effects button[aria-pressed="true"]').length === 7);
      await page.waitForFunction(() => !location.hash.includes("1.7"));
      await press(page, "Restore all");
      await page.waitForFunction(() => !/ → /.test(document.querySelector("#guesses .value").textContent));
      // Another word is chosen in the list, and stays so in the address.
      const word = await textOf(page, "#guesses li:nth-child(2) .label");
      await page.click("#guesses li:nth-child(2) button");
      await page.waitForFunction(
        (wanted) => document.querySelector("#effects .about").textContent.includes(`“${wanted}”`),
        {},
        word,
      );
      const [id] = tokenizer.encode(word, { addSpecial: false });
      expect("the address", await page.evaluate(() => location.hash), RegExp(`token=${id}(&|$)`));
      expect("a head on that word", await labelOf("head 1.4"), `Take head 1.4 away: ${signed(change([4], id))}`);
      kernels.release();
      return about;
    }),
  "the effect map by the keyboard": (given) =>
    open(given, async (page) => {
      await isMeasured(page);
      const here = () => page.evaluate(() => document.activeElement.getAttribute("aria-label").replace(/:.*/, ""));
      await page.focus('#effects button[tabindex="0"]');
      for (const [key, place] of [
        ["ArrowRight", "head 0.1"],
        ["ArrowDown", "head 1.1"],
        ["End", "all heads of layer 3"],
        ["ArrowUp", "all heads of layer 2"],
        ["ArrowLeft", "head 2.7"],
      ]) {
        await page.keyboard.press(key);
        expect(key, await here(), `Take ${place} away`);
      }
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => location.hash.includes("edits=2.7*0"));
    }),
  "a cell that is called an answer names the heads that find it": (given) =>
    open(
      given,
      async (page) => {
        await textIs(page, "#answer span", "Heads that look from “the” at 16 to “rug” at 6 find the model’s answer.");
        await page.focus(".heatmap .plot");
        await page.keyboard.press("ArrowUp");
        await press(page, "This cell is an answer");
        await page.waitForFunction(() => /answer=15\.\d+/.test(location.hash));
        await page.waitForFunction(() =>
          / find your answer\.$/.test(document.querySelector("#answer span").textContent),
        );
        await press(page, "Forget it");
        await page.waitForFunction(() => !location.hash.includes("answer="));
        await textIs(page, "#answer span", "Heads that look from “the” at 16 to “rug” at 6 find the model’s answer.");
        expect(
          "what a head is called",
          await textOf(page, "#does"),
          /looks from the place before an answer at the word/,
        );
      },
      `${VIEW}&layer=1&head=6`,
    ),
  "what the model would say at each layer": (given) =>
    open(
      given,
      async (page) => {
        const { kernels, model, tokenizer, ids } = await inNode();
        using run = captureRun(createSession(model), ids);
        const likeliest = logitLens(run, { tokens: [16], top: 1 }).ids;
        const words = Array.from(likeliest, (id) => tokenizer.decode([id]).trim());
        kernels.release();
        await page.waitForSelector(".lens tbody tr");
        const shown = await page.$$eval(".lens tbody tr td:nth-child(2)", (all) =>
          all.map((each) => each.textContent.split("\u00a0")[0]),
        );
        expect("the first word of each layer", shown.join(), words.join());
        expect("since when", await textOf(page, ".lens p"), /^After “the” the model settles on “rug” in layer \d\.$/);
        return shown.join(", ");
      },
      `${VIEW}&view=lens`,
    ),
  "the map stays in sight on phones": (given) =>
    open(given, async (page) => {
      if (given.kind !== "chrome") return ONLY_CHROME;
      await page.setViewport({ width: 390, height: 844 });
      await page.$eval("#effects", (each) => each.scrollIntoView({ block: "end" }));
      const [map, cells] = await page.evaluate(() =>
        [".heatmap .plot", "#effects"].map((each) => {
          const { top, bottom } = document.querySelector(each).getBoundingClientRect();
          return { top, bottom };
        }),
      );
      expect(`the map from ${map.top} to ${map.bottom}`, map.top >= 0 && map.bottom < 500, true);
      expect(`the effects from ${cells.top} to ${cells.bottom}`, cells.bottom <= 845, true);
      await page.reload();
      await ready(page);
    }),
};
