// The views of a head besides its map: why, stages, lines, statistics; and that each fits.

import { loadKernels } from "../../../dist/index.js";
import { captureRun, explainScore, forwardWith, statistics, traceAttention } from "../../../dist/inspect.js";
import { createSession, gguf, loadModel, models } from "../../../dist/models.js";
import { quantized } from "../../../dist/quantized.js";
import { loadTokenizer } from "../../../dist/text.js";
import { expect } from "../../examples/given.mjs";
import { textOf } from "../../examples/pages.mjs";
import { drawn, expectAccessible, expectNoOverflow, ready } from "../every-page.mjs";
import { ONLY_CHROME } from "../tasks.mjs";
import { cell, expected, FILE, open, press, setText, TEXT, textIs, VIEW } from "./given.mjs";

const shownTexts = (all) => all.map((each) => each.textContent).join();

export const scenarios = {
  "every view fits, and axe finds nothing": (given) =>
    open(given, async (page) => {
      for (const view of ["Map", "Difference", "Lines", "Stages", "Lens", "Statistics"]) {
        await press(page, view);
        if (view === "Stages") await page.waitForSelector(".stage p");
        if (view === "Lens") await page.waitForSelector(".lens tbody tr");
        if (view === "Statistics") {
          await press(page, "Measure");
          await page.waitForSelector(".statistics tbody tr");
        }
        for (const width of [360, 768, 1440]) {
          await page.setViewport({ width, height: 900 });
          await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
          await expectNoOverflow(page, width);
        }
        await expectAccessible(page, view);
      }
    }),
  "why, in parts, and the stages of the same cell": (given) =>
    open(
      given,
      async (page) => {
        const kernels = await loadKernels({ models, quantized, deterministic: true });
        const model = await loadModel(kernels, FILE, { gguf });
        const ids = (await loadTokenizer(FILE)).encode(TEXT);
        using run = captureRun(createSession(model), ids);
        const { score, byKey } = explainScore(run, { layer: 1, head: 6, query: 16, key: 6 });
        const { captured } = forwardWith(createSession(model), ids, { capture: [{ at: "attnIn", layer: 1 }] });
        const stages = traceAttention({ model, layer: 1 }, captured[0].data);
        kernels.release();
        expect(
          "the score",
          await textOf(page, "#why p"),
          `The score before the softmax is ${score.toFixed(2)}. It is a sum, split in two ways:`,
        );
        const largest = byKey.reduce((a, b) => (Math.abs(b) > Math.abs(a) ? b : a));
        expect("the largest part", await textOf(page, "#why li .value"), largest.toFixed(2));
        await press(page, "Stages");
        await page.waitForSelector(".stage p");
        const named = await page.$$eval(".steps button", (all) => all.map((each) => each.textContent));
        expect("stages", named.join(), stages.map(({ name }, i) => `${i + 1} ${name}`).join());
        expect("stages that all layers have", named.length >= 9, true);
        // Each stage by the arrow keys: its formula, its shapes, and a row of its last tensor.
        const row = (data, at, width) =>
          Array.from(data.subarray(at * width, (at + 1) * width), (value) =>
            Number.isFinite(value) ? value.toFixed(4).replace("-", "−") : "−∞",
          ).join(" ");
        await page.focus(".steps button");
        for (const [i, { formula, tensors }] of stages.entries()) {
          if (i > 0) await page.keyboard.press("ArrowRight");
          await textIs(page, ".stage .formula", formula);
          const shapes = Object.entries(tensors).map(([letter, { shape }]) => `${letter} [${shape.join(", ")}]`);
          expect("shapes", await page.$$eval(".stage .shapes code", shownTexts), shapes.join());
          const [letter, { data, shape }] = Object.entries(tensors).at(-1);
          const token = letter === "k" || letter === "v" ? 6 : 16;
          const own = shape.length < 3 ? 0 : Math.floor((6 * shape[0]) / 8); // head 6 of 8
          await page.$$eval(".stage summary", (all) => all.at(-1).click());
          await page.waitForSelector(".stage .numbers");
          expect(
            `values of stage ${i + 1}`,
            await page.$$eval(".stage .numbers", (all) => all.at(-1).textContent),
            row(data, own * ids.length + token, shape.at(-1)),
          );
        }
        await page.waitForFunction((last) => location.hash.includes(`stage=${last}`), {}, stages.length - 1);
        // Tokens have their words, and the buttons go on where the keys ended.
        await press(page, "← Back");
        await page.waitForFunction((last) => location.hash.includes(`stage=${last}`), {}, stages.length - 2);
        await page.evaluate(() =>
          [...document.querySelectorAll(".steps button")].find((each) => / softmax$/.test(each.textContent)).click(),
        );
        await page.waitForFunction(() => document.querySelectorAll(".stage .guesses li").length === 17);
        expect("a word beside its weight", await textOf(page, ".stage .guesses li:nth-child(7) .label"), "rug");
        expect("the step at hand", await page.$$eval('.steps [aria-pressed="true"]', (all) => all.length), 1);
        return named.join(", ");
      },
      `${VIEW}&layer=1&head=6&query=16&key=6`,
    ),
  "opens on the question and a head of the first page, in words": (given) =>
    open(
      given,
      async (page) => {
        const recorded = "the cat sat on the mat because it was soft. what was soft? the";
        expect("the text", await page.$eval("#text", ({ value }) => value), recorded);
        expect("the head", await textOf(page, "#one-title"), "Layer 1, head 6");
        expect(
          "the row in words",
          await textOf(page, "#sum"),
          "The last “the” gives 98.6\u00a0% of its attention to “mat”. Its row sums to 100\u00a0%.",
        );
        expect("the sides", await textOf(page, ".sides-named"), "is looked at →looks ↓");
        expect("numbers in cells of 17 tokens", (await page.$$(".cells span")).length, 0);
        await page.focus(".heatmap .plot");
        await page.keyboard.press("ArrowRight");
        expect(
          "another cell",
          await textOf(page, "#sum"),
          /^The last “the” gives \d\.\d\u00a0% .*, and the most, 98\.6\u00a0% to “mat”\. /,
        );
        await setText(page, "the cat sat on the");
        await page.waitForFunction(() => document.querySelectorAll(".cells span").length === 36);
        const [first, later] = await page.$$eval(".cells span", (all) => [all[0].textContent, all[5].textContent]);
        expect("the first cell, and one of a later token", `${first}, ${later}`, "1.00, ");
      },
      "",
    ),
  "all heads are beside the map, and a strip on phones": (given) =>
    open(given, async (page) => {
      const boxes = async (width) => {
        await page.setViewport({ width, height: 900 });
        await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
        return page.evaluate(() => {
          const of = (selector) => document.querySelector(selector).getBoundingClientRect();
          const [all, one, title, beside, chosen] = [
            ".all",
            ".one",
            "#one-title",
            ".beside",
            ".heads [aria-pressed=true]",
          ].map(of);
          return {
            columns: all.right <= one.left && one.right <= beside.left && Math.abs(all.top - one.top) < 2,
            strip: all.bottom <= title.top && all.height < 260,
            isInSight: chosen.left >= all.left && chosen.right <= all.right,
          };
        });
      };
      const wide = await boxes(1440);
      expect("three columns at 1440 pixels", wide.columns, true);
      await press(page, "By what they do");
      await press(page, "By layer");
      const narrow = await boxes(390);
      expect("a strip at 390 pixels", narrow.strip, true);
      await page.reload();
      await ready(page);
      expect("the chosen head is in sight", (await boxes(390)).isInSight, true);
    }),
  "what a token cannot see is ground, and no colour": (given) =>
    open(
      given,
      async (page) => {
        /** Red, green, blue and alpha of a cell of the large map, and the sum of its colours. */
        const pixel = (query, key) =>
          page.$eval(
            ".heatmap canvas",
            (canvas, query, key) => Array.from(canvas.getContext("2d").getImageData(key, query, 1, 1).data),
            query,
            key,
          );
        const [masked, one] = [await pixel(0, 5), await pixel(0, 0)];
        expect("a later token", masked.join(), "0,0,0,0");
        expect("the first token's look at itself is opaque", one[3], 255);
        if (given.kind !== "chrome") return ONLY_CHROME;
        const light = async (scheme) => {
          await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
          await page.waitForFunction((wanted) => matchMedia(`(prefers-color-scheme: ${wanted})`).matches, {}, scheme);
          await drawn(page); // the page hears of it before its next frame
          const sum = async (...at) => (await pixel(...at)).slice(0, 3).reduce((a, b) => a + b);
          return [await sum(0, 0), await sum(1, 0)];
        };
        const [paper, dark] = [await light("light"), await light("dark")];
        expect(`all weight on paper is dark, ${paper[0]}`, paper[0] < 200, true);
        expect(`all weight in the dark is light, ${dark[0]}`, dark[0] > 550, true);
      },
      `${VIEW}&layer=1&head=6`,
    ),
  "lines have the cursor of the map": (given) =>
    open(
      given,
      async (page) => {
        const node = await expected(TEXT);
        await page.focus(".token-lines .plot");
        for (const key of ["ArrowUp", "Home", "ArrowRight"]) await page.keyboard.press(key);
        await textIs(page, ".token-lines output", cell(node, 1, 6, 15, 1));
        const shades = await page.$eval(".token-lines canvas", (canvas) => {
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          return new Set(new Uint32Array(data.buffer)).size;
        });
        expect("lines of many strengths", shades > 10, true);
        await page.waitForFunction(() => location.hash.includes("query=15"));
        await press(page, "Map");
        await textIs(page, ".heatmap output", cell(node, 1, 6, 15, 1));
      },
      `${VIEW}&layer=1&head=6&view=lines`,
    ),
  "a link opens its view where another one is": (given) =>
    open(given, async (page) => {
      await page.evaluate(() => {
        location.hash = "#text=the+dog&layer=2&head=3";
      });
      await textIs(page, "#one-title", "Layer 2, head 3");
      expect("the text", await page.$eval("#text", ({ value }) => value), "the dog");
    }),
  "statistics of a long text": (given) =>
    open(
      given,
      async (page) => {
        const kernels = await loadKernels({ models, quantized, statistics, deterministic: true });
        const model = await loadModel(kernels, FILE, { gguf });
        const own = (await loadTokenizer(FILE)).encode(TEXT);
        const ids = Array.from({ length: 1024 }, (_, i) => own[i % own.length]);
        const session = createSession(model, { maxSeqLen: 1024 });
        const rows = [0, 1, 2, 3].flatMap((i) => {
          const slice = ids.slice(256 * i, 256 * (i + 1));
          const measured = forwardWith(session, slice, { statistics: { layers: [1], first: 1 } }).statistics[0];
          return Array.from(measured.effectiveKeys.data.subarray(6 * 256, 7 * 256));
        });
        kernels.release();
        await press(page, "Measure");
        await page.waitForSelector(".statistics tbody tr");
        const mean = rows.reduce((sum, keys) => sum + keys) / rows.length;
        const shown = await page.$$eval(".statistics tbody tr", (all) =>
          [...all[14].children].map((each) => each.textContent),
        );
        expect("the head", shown[0], "1.6");
        expect("its effective keys", shown[1], mean.toFixed(1));
        expect("charts", await page.$$eval(".charts svg", (all) => all.length), 4);
        await press(page, "Lines");
        await page.waitForSelector(".token-lines:not([hidden])");
        return textOf(page, ".statistics [role=status]");
      },
      `${VIEW}&layer=1&head=6&view=statistics`,
    ),
  "statistics of many tokens, without the matrix": (given) =>
    open(
      given,
      async (page) => {
        // The same script runs in all engines: in one of them at its full length, which is 16 times the work.
        const [length, matrix, session] = given.kind === "chrome" ? [16_384, 34.4, 16.8] : [4096, 2.1, 4.2];
        const status = ".statistics [role=status]";
        await page.select("#length", String(length));
        await press(page, "Measure");
        await press(page, "Stop measuring");
        await textIs(page, status, "Stopped.");
        await press(page, "Measure");
        await page.waitForFunction(
          (where, begin) => document.querySelector(where).textContent.startsWith(begin),
          { timeout: 110_000 },
          status,
          `${length.toLocaleString("en")} tokens in `,
        );
        // 32 heads · tokens² weights · 4 bytes; the session has keys and values of 4 layers of 2 heads of 16 floats.
        const sentence = await textOf(page, status);
        const bytes = `The weights of all heads would take ${matrix} GB; the session took ${session} MB.`;
        expect(`bytes in “${sentence}”`, sentence.includes(bytes), true);
        expect("a row for each head", await page.$$eval(".statistics tbody tr", (all) => all.length), 32);
        return sentence;
      },
      "#view=statistics",
    ),
};
