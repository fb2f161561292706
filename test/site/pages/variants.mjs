// The page of variants: bytes of Node, pictures by keyboard and button, and times that are stopped, dropped with their layer, and measured to the end.

import { join } from "node:path";
import { plan } from "../../../dist/index.js";
import { planLatent } from "../../../dist/latent.js";
import { expect } from "../../examples/given.mjs";
import { textOf, visit } from "../../examples/pages.mjs";
import { ready } from "../every-page.mjs";

const open = (given, query, look) =>
  visit(given.browser, `${given.url}variants.html${query}`, async (page, errors) => {
    await ready(page);
    const found = await look(page);
    expect("errors of the page", errors.join("; "), "");
    return found;
  });

const fact = (page, variant, i) => textOf(page, `[data-variant=${variant}] dl > div:nth-child(${i}) dd`);
const status = (page) => textOf(page, "#status");
const megabytes = (bytes) => `${(bytes / 1e6).toLocaleString("en", { maximumSignificantDigits: 3 })} MB`;

/** The cells of the table. */
async function tableOf(page) {
  await page.$eval("#numbers", (details) => Object.assign(details, { open: true }));
  await page.waitForSelector("#numbers td");
  return page.$$eval("#numbers tbody tr", (rows) =>
    rows.map((row) => [...row.children].map(({ textContent }) => textContent)),
  );
}

export const scenarios = {
  "the bytes of Node": (given) =>
    open(given, "#shape=1024&most=16384&format=q8", async (page) => {
      const layer = { dModel: 1024, numHeads: 16, causal: true };
      const sizes = { maxSeqLen: 16_384, format: "q8" };
      const bytes = {
        mha: plan(layer, sizes).cache,
        gqa: plan({ ...layer, numKvHeads: 4 }, sizes).cache,
        mqa: plan({ ...layer, numKvHeads: 1 }, sizes).cache,
        window: plan({ ...layer, window: { left: 511 } }, sizes).cache,
        sinks: plan({ ...layer, window: { left: 511 } }, sizes).cache,
        mla: planLatent(
          {
            ...{ ...layer, kvLoraRank: 256, nopeDim: 64, ropeDim: 32 },
            rope: { theta: 10_000, pairing: "interleaved" },
          },
          sizes,
        ).cache,
      };
      for (const [variant, wanted] of Object.entries(bytes))
        expect(`the cache of ${variant}`, await fact(page, variant, 1), megabytes(wanted));
      const kept = bytes.window / (plan(layer, { ...sizes, maxSeqLen: 1024 }).cache / 1024);
      expect("tokens that the window keeps", Math.round(kept), 1024);
      expect("what the card says of it", await textOf(page, "[data-variant=window]"), /keeps up to 1,024 tokens\./);
      expect("GQA of MHA", await fact(page, "gqa", 2), "25 %");
      const table = await tableOf(page);
      expect("rows of the table", table.length, 6 * 4);
      expect("MHA in q8", table.find(([name]) => name === "MHA, 16,384")[3], megabytes(bytes.mha));
      expect(
        "no latents in q4",
        table
          .find(([name]) => name === "MLA, 16,384")
          .slice(5)
          .join(),
        "–,–",
      );
      await page.select("#format", "q4");
      expect("no latents in q4, on the card", await fact(page, "mla", 1), "no q4");
      return `MHA ${megabytes(bytes.mha)}, MLA ${megabytes(bytes.mla)}`;
    }),
  "pictures, by the keyboard and by the button": (given) =>
    open(given, "#step=3", async (page) => {
      const words = (variant) => textOf(page, `[data-variant=${variant}] p`);
      expect("MHA after 3", await words("mha"), "12 keys and 12 values are stored; each head reads 3 tokens.");
      await page.focus("#step");
      for (const key of ["End", "ArrowLeft", "ArrowLeft"]) await page.keyboard.press(key);
      expect("the window after 10", await words("window"), /^16 keys and 16 values .* 6 older are dropped\.$/);
      const cells = (variant, kind) => page.$$eval(`[data-variant=${variant}] svg .${kind}`, (all) => all.length);
      expect("keys of GQA after 10", await cells("gqa", "key-cell"), 20);
      expect("what the window dropped", await cells("window", "dropped"), 4 * 2 * 6);
      await page.waitForFunction(() => location.hash === "#step=10");
      await page.focus("#play");
      await page.keyboard.press("Enter");
      expect("the first token", await words("mqa"), /^1 key and 1 value are stored/);
      await page.waitForFunction(() => document.getElementById("step").value === "3");
      await page.keyboard.press("Enter");
      expect("the button", await textOf(page, "#play"), "Play");
      if (given.kind === "chrome") {
        await page.emulateMediaFeatures([{ name: "prefers-reduced-motion", value: "reduce" }]);
        await page.waitForFunction(() => document.getElementById("play").hidden);
        await page.emulateMediaFeatures([]);
      }
    }),
  "measuring stops, is dropped with its layer, and ends": (given) =>
    open(given, "#most=1024", async (page) => {
      expect("before", await fact(page, "mha", 3), "–");
      // By the keyboard alone: the focus goes to the button that stops, and back.
      await page.focus("#measure");
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => document.getElementById("bar").value > 0.03);
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => !document.getElementById("measure").disabled);
      expect("the status", await status(page), /^Stopped/);
      expect("the focus", await page.evaluate(() => document.activeElement.id), "measure");
      // Another layer meanwhile: nothing of the one before is shown, also not that it ended.
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => document.getElementById("bar").value > 0.03);
      await page.select("#most", "4096");
      await page.waitForFunction(() => !document.getElementById("measure").disabled);
      await new Promise((resolve) => setTimeout(resolve, 500));
      expect("the status of another layer", await status(page), /^Memory is exact/);
      expect("its times", await fact(page, "mha", 3), "–");
      expect("its bytes", await fact(page, "mha", 1), "16.8 MB");
      expect("what its figures are of", await textOf(page, "#figures"), /after 4,096 tokens, .* in f32\.$/);
      await page.select("#most", "1024");
      await page.waitForFunction(() => !document.getElementById("measure").disabled);
      await page.focus("#measure");
      await page.keyboard.press("Enter");
      if (given.kind === "chrome")
        await page.waitForFunction(() => /^Measured/.test(document.getElementById("status").textContent), {
          timeout: 100_000,
        });
      else {
        // The first of three passes measures every length.
        await page.waitForFunction(() => document.getElementById("bar").value > 1 / 3, { timeout: 100_000 });
        await page.keyboard.press("Enter");
        await page.waitForFunction(() => !document.getElementById("measure").disabled);
      }
      const table = await tableOf(page);
      expect("rows of the table", table.length, 6 * 2);
      for (const [name, ...cells] of table)
        for (const i of [1, 3, 5]) {
          const isMissing = name.startsWith("MLA") && i === 5;
          const wanted = isMissing ? /^–$/ : /^[\d.]+ ms \([\d.]+ to [\d.]+\)$/;
          expect(`${name}, ${["f32", "q8", "q4"][i >> 1]}`, cells[i], wanted);
          if (!isMissing) expect(`${cells[i]} above 0`, Number.parseFloat(cells[i]) > 0, true);
        }
      expect("charts of time", (await page.$$("#time path.line")).length, 6 + 6 + 5);
      if (given.kind === "chrome")
        expect("what was measured", await textOf(page, "#what"), /512 wide.* median of nine .* Measured with the /);
      await page.setViewport({ width: 1440, height: 900 });
      await page.screenshot({ path: join(given.shots, `variants-${given.kind}-measured.png`), fullPage: true });
      return `MHA at 1,024: ${table.find(([name]) => name === "MHA, 1,024")[2]}`;
    }),
};
