// The positional lab: its weights and scores are those of Node by another way through the package, its digest that of Node bit by bit;
// sliders, the arrow keys and the address.

import { attendWithMaps, createAttention, loadKernels } from "../../../dist/index.js";
import { digest, runScheme, SCALINGS, SCHEMES, scalingOf } from "../../../site/src/position-schemes.ts";
import { expect } from "../../examples/given.mjs";
import { textOf, visit } from "../../examples/pages.mjs";
import { drawn, ready } from "../every-page.mjs";

const SETTING = {
  ...{ content: "same", seed: 1, trained: 48, context: 96, base: 10_000 },
  ...{ scaling: "yarn", factor: 2, head: 3, query: 80, key: 60 },
};
const kernels = await loadKernels({ deterministic: true });
const schemes = Object.keys(SCHEMES);

const open = (given, query, look) =>
  visit(given.browser, `${given.url}positions.html${query}`, async (page, errors) => {
    await ready(page);
    const found = await look(page);
    expect("errors of the page", errors.join("; "), "");
    return found;
  });

const cellOf = (page, scheme) => textOf(page, `[data-scheme=${scheme}] .cell`);
const digestHere = (setting) => digest(schemes.map((scheme) => runScheme(kernels, scheme, setting)));

const dModel = 64;
const ones = ({ context }) => new Float32Array(context * dModel).fill(1);
const waves = ({ context, base }) =>
  Float32Array.from({ length: context * dModel }, (_, i) => {
    const pair = (i % dModel) >> 1;
    const angle = Math.floor(i / dModel) * base ** ((-2 * pair) / dModel);
    return i % 2 === 0 ? Math.sin(angle) : Math.cos(angle);
  });

/** The weight of a head that reads rows of x, by a layer of the package whose projections change nothing. */
function byLayer(rules, { query, key, context }, x) {
  const eye = { data: new Float32Array(dModel * dModel), shape: [dModel, dModel] };
  for (let i = 0; i < dModel; i++) eye.data[i * (dModel + 1)] = 1;
  const weights = { wq: eye, wk: eye, wv: eye, wo: eye };
  const attention = createAttention(kernels, { dModel, numHeads: 1, causal: true, ...rules }, weights);
  const { maps } = attendWithMaps(attention, x);
  attention.release();
  return maps.data[query * context + key];
}

/** Milliseconds of a step of the slider, by engine. WebKitGTK draws on the processor here, as no graphics card is there. */
const MOST_MS = { chrome: 50, firefox: 50, webkit: 100 };

/** Sets a slider as the pointer does. */
const slide = (page, id, value) =>
  page.$eval(
    `#${id}`,
    (input, given) => {
      input.value = given;
      input.dispatchEvent(new Event("input", { bubbles: true }));
    },
    String(value),
  );

export const scenarios = {
  "charts side by side have one scale": (given) =>
    open(given, "", async (page) => {
      const scales = await page.$$eval(".scheme figure svg, .scheme svg", (all) =>
        all
          .filter((svg) => svg.querySelector(".axis"))
          .map((svg) =>
            [...svg.querySelectorAll('text[text-anchor="end"]:not(.axis)')]
              .filter((each) => Number(each.getAttribute("x")) < 80)
              .map((each) => each.textContent)
              .join(),
          ),
      );
      expect("charts", scales.length, 6);
      expect("their scales", [...new Set(scales)].join(" / "), scales[0]);
      return scales[0];
    }),
  "the weights of Node": (given) =>
    open(given, "", async (page) => {
      const rope = { theta: SETTING.base, pairing: "half" };
      const expectWeight = async (scheme, rules, x = ones(SETTING)) => {
        const [, shown] = /^weight ([\d.]+), score -?[\d.]+$/.exec(await cellOf(page, scheme));
        expect(`the weight of ${scheme}`, shown, byLayer(rules, SETTING, x).toFixed(4));
      };
      await expectWeight("sinusoidal", {}, waves(SETTING));
      await expectWeight("rope", { rope });
      await expectWeight("alibi", { alibi: Float32Array.of(1 / 8) });
      await expectWeight("nope", {});
      expect("NoPE at position 80", await cellOf(page, "nope"), `weight ${(1 / 81).toFixed(4)}, score 8.00`);
      expect("ALiBi 20 tokens back", await cellOf(page, "alibi"), /, score 5\.50$/);
      expect("the row that the table lacks", await cellOf(page, "learned"), "no vector for position 80");
      for (const scaling of SCALINGS) {
        await page.select("#scaling", scaling);
        await drawn(page);
        await expectWeight("scaled", { rope: { ...rope, scaling: scalingOf({ ...SETTING, scaling }) } });
        const says = (await textOf(page, "[data-scheme=scaled]")).includes("The factors are made up for this page");
        expect(`made-up factors of ${scaling}`, says, scaling === "longrope");
      }
      return `${SCALINGS.length} scalings, to four decimals`;
    }),
  "the bits of Node": (given) =>
    open(given, "#content=random&seed=7&trained=32&scaling=linear", async (page) => {
      const setting = { ...SETTING, content: "random", seed: 7, trained: 32, scaling: "linear" };
      expect("the digest", await textOf(page, "#digest"), digestHere(setting));
      await slide(page, "context", 64);
      await drawn(page);
      await page.focus("#seed");
      await page.keyboard.press("Backspace");
      await drawn(page);
      expect("the seed in the address, while the field is empty", await page.evaluate(() => location.hash), /seed=7/);
      expect("the digest of a shorter context", await textOf(page, "#digest"), digestHere({ ...setting, context: 64 }));
      return `digest ${digestHere(setting)}`;
    }),
  "the keyboard reads cells": (given) =>
    open(given, "#query=20&key=10", async (page) => {
      await page.focus("[data-scheme=nope] .pattern");
      const press = async (...keys) => {
        for (const key of keys) await page.keyboard.press(key);
        await drawn(page);
        return textOf(page, "#cell");
      };
      const weight = (1 / 22).toFixed(4);
      expect(
        "down",
        await press("ArrowDown"),
        `NoPE, token 21 looks at token 10, 11 back: weight ${weight}, score 8.00.`,
      );
      expect("end", await press("End"), `NoPE, token 21 looks at itself: weight ${weight}, score 8.00.`);
      expect(
        "no later key",
        await press("ArrowRight"),
        `NoPE, token 21 looks at itself: weight ${weight}, score 8.00.`,
      );
      expect("home", await press("Home"), `NoPE, token 21 looks at token 0, 21 back: weight ${weight}, score 8.00.`);
      await page.waitForFunction(() => {
        const given = new URLSearchParams(location.hash.slice(1));
        return given.get("query") === "21" && given.get("key") === "0" && given.get("panel") === "nope";
      });
      await page.focus("#trained");
      await page.keyboard.press("ArrowRight");
      await drawn(page);
      expect("a slider by its keys", await textOf(page, "#trained-value"), "49");
      const table = "[data-scheme=nope] details";
      await page.focus(`${table} summary`);
      await page.keyboard.press("Enter");
      await page.waitForSelector(`${table} tbody tr:nth-child(96)`);
      expect("a row of the table", await textOf(page, `${table} tbody tr:last-child`), "958");
    }),
  "an address that makes no sense": (given) =>
    open(given, "#context=999&content=none&base=x&factor=-1", async (page) => {
      expect("the digest", await textOf(page, "#digest"), digestHere(SETTING));
    }),
};

export const timed = {
  "sliders draw at once, and are in the address": (given) =>
    open(given, "#query=20&key=10", async (page) => {
      // The address is written now and then, and last of all with the last value.
      const times = await page.evaluate(async () => {
        const input = document.getElementById("context");
        const found = [];
        for (let value = 24; value <= 192; value += 4) {
          input.value = String(value);
          input.dispatchEvent(new Event("input", { bubbles: true }));
          await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
          found.push(Number.parseFloat(document.getElementById("time").textContent));
        }
        return found.sort((a, b) => a - b);
      });
      const median = times[times.length >> 1];
      const most = MOST_MS[given.kind];
      expect(`a median of ${median} ms, of at most ${most}`, median <= most, true);
      expect("the words of RoPE", await textOf(page, "[data-scheme=rope]"), /on those 48 or more back/);
      await page.waitForFunction(() => location.hash.includes("context=192"));
      const address = await page.evaluate(() => location.hash);
      const shown = await textOf(page, "#digest");
      expect("the digest", shown, digestHere({ ...SETTING, context: 192 }));
      await page.reload();
      await ready(page);
      expect("the address after a reload", await page.evaluate(() => location.hash), address);
      expect("the digest after a reload", await textOf(page, "#digest"), shown);
      expect("the slider after a reload", await page.$eval("#context", ({ value }) => value), "192");
      return `${times.length} steps: median ${median} ms, the slowest ${times.at(-1)} ms`;
    }),
};
