// The configurator: what Node's configure gives, a layer that is measured, and what files of models cost.

import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { configure, describeFiles, describeModel } from "../../../dist/configure.js";
import { expect } from "../../examples/given.mjs";
import { textOf, visit } from "../../examples/pages.mjs";
import { ready } from "../every-page.mjs";

const open = (given, look, query = "") =>
  visit(given.browser, `${given.url}configure.html${query}`, async (page, errors) => {
    await ready(page);
    const found = await look(page, errors);
    expect("errors of the page", errors.join("; "), "");
    return found;
  });

/** The value of a fact in a list. */
const factOf = (page, list, name) =>
  page.$$eval(
    `#${list} > div`,
    (rows, name) => rows.find((row) => row.firstElementChild.textContent === name)?.lastElementChild.textContent,
    name,
  );

/** Reads the header at a URL, by the keyboard. */
async function setUrl(page, url) {
  await page.$eval("#url", (field, value) => Object.assign(field, { value }), url);
  await page.focus("#url");
  await page.keyboard.press("Enter");
}

const GEMMA = {
  ...{ model_type: "gemma3_text", hidden_size: 1152, intermediate_size: 6912, num_hidden_layers: 26 },
  ...{ num_attention_heads: 4, num_key_value_heads: 1, head_dim: 256, vocab_size: 262144, sliding_window: 512 },
  ...{ sliding_window_pattern: 6, query_pre_attn_scalar: 256 },
};

const LLAMA = JSON.stringify({
  ...{ model_type: "llama", hidden_size: 64, intermediate_size: 128, num_hidden_layers: 2 },
  ...{ num_attention_heads: 4, vocab_size: 1000 },
});

export const scenarios = {
  "what configure gives, by sliders and by link": (given) =>
    open(
      given,
      async (page) => {
        const expected = (parameterBudget, seqLen, target) => configure({ parameterBudget, seqLen, target });
        const first = expected(1e9, 4096, "phone");
        expect(
          "parameters",
          await factOf(page, "facts", "parameters"),
          new RegExp(`\\(${first.parameters.toLocaleString("en")}\\); \\d\\.\\d % (more|less) than asked for`),
        );
        await page.focus("#length");
        await page.keyboard.press("ArrowRight");
        const next = expected(1e9, 8192, "phone");
        await page.waitForFunction(
          (text) => document.getElementById("facts").textContent.includes(text),
          {},
          "for 8,192 tokens",
        );
        expect(
          "the shape",
          await textOf(page, "#shape"),
          new RegExp(`^${next.layers} layers, ${next.dModel} wide, with `),
        );
        await page.waitForFunction(() => location.hash.includes("length=13"));
        await page.focus("#code");
        await page.keyboard.press("Enter");
        await page.waitForFunction(() => /^(Copied|Selected)/.test(document.getElementById("status").textContent));
        expect(
          "the code",
          await page.$eval("#copied", ({ value }) => value),
          /parameterBudget: 1000000000, seqLen: 8192, target: "phone" }/,
        );
        return textOf(page, "#shape");
      },
      "#budget=9&length=12&target=phone",
    ),
  "a layer is built and timed": (given) =>
    open(
      given,
      async (page) => {
        await page.focus("#measure");
        await page.keyboard.press("Enter");
        // The visitor goes on meanwhile: the focus stays where it is.
        await page.focus("#url");
        await page.waitForSelector("#measured table");
        expect("the focus", await page.evaluate(() => document.activeElement.id), "url");
        const rows = await page.$$eval("#measured tbody tr", (all) =>
          all.map((row) => [...row.children].map(({ textContent }) => textContent)),
        );
        expect("rows", rows.length, 4);
        for (const [name, predicted, measured, difference] of rows.slice(2))
          expect(`the bytes of ${name}: ${predicted}, ${measured}`, difference, "equal");
        return rows
          .slice(0, 2)
          .map((row) => row.join(" "))
          .join("; ");
      },
      "#budget=6.5&length=8",
    ),
  "a measurement says how long it has gone on, and stops": (given) =>
    open(
      given,
      async (page) => {
        await page.focus("#measure");
        await page.keyboard.press("Enter");
        await page.waitForFunction(() => !document.getElementById("stop").disabled);
        expect("the status", await textOf(page, "#status"), "Measuring …");
        expect("the bar", await page.$eval("#bar", (bar) => bar.checkVisibility()), true);
        await page.focus("#stop");
        await page.keyboard.press("Enter");
        await page.waitForFunction(() => document.getElementById("status").textContent === "Measuring was stopped.");
        expect("tables", (await page.$$("#measured table")).length, 0);
        expect("the focus", await page.evaluate(() => document.activeElement.id), "measure");
        // The sliders still have their engine.
        await page.select("#target", "phone");
        await page.waitForFunction(() => location.hash.includes("target=phone"));
      },
      "#budget=9&length=12",
    ),
  "the table of choices has its headers above its columns, and all of its rows": (given) =>
    open(given, async (page) => {
      await page.$eval("#choices", (choices) => {
        choices.closest("details").open = true;
      });
      const { starts, cut } = await page.evaluate(() => {
        const table = document.querySelector("#choices table");
        const textStart = (cell) => {
          const range = document.createRange();
          range.selectNodeContents(cell);
          return Math.round(range.getBoundingClientRect().left);
        };
        const row = table.querySelector("tbody tr");
        const starts = [...table.querySelectorAll("thead th")].map(
          (head, i) => textStart(head) - textStart(row.cells[i]),
        );
        const box = table.parentElement;
        return { starts: starts.join(), cut: box.scrollHeight - box.clientHeight };
      });
      expect("pixels between headers and their columns", starts, "0,0,0,0");
      expect("pixels of rows that are cut", cut, 0);
    }),
  "a layer that is measured while another model is chosen is not shown": (given) =>
    open(
      given,
      async (page) => {
        await page.focus("#measure");
        await page.keyboard.press("Enter");
        await page.select("#target", "worker");
        await page.waitForFunction(() => document.getElementById("status").textContent.includes("meanwhile"));
        expect("tables", (await page.$$("#measured table")).length, 0);
      },
      "#budget=6.5&length=8",
    ),
  "of two models, the one that was asked for last is shown, for the length of the slider": (given) =>
    open(given, async (page, errors) => {
      // The first is on a server that takes half a second; the second is a file, whose answer comes before that.
      const server = createServer((_, response) =>
        setTimeout(() => response.writeHead(200, { "Access-Control-Allow-Origin": "*" }).end(LLAMA), 500),
      ).listen(0, "127.0.0.1");
      await new Promise((resolve) => server.once("listening", resolve));
      await setUrl(page, `http://127.0.0.1:${server.address().port}/config.json`);
      await page.evaluate((config) => {
        const files = new DataTransfer();
        files.items.add(new File([config], "config.json"));
        const input = document.getElementById("file");
        input.files = files.files;
        input.dispatchEvent(new Event("change"));
      }, JSON.stringify(GEMMA));
      await page.waitForFunction(() => document.getElementById("cost").textContent.includes("gemma3_text"));
      await new Promise((resolve) => setTimeout(resolve, 1000));
      server.close();
      expect("the type", await factOf(page, "cost", "type"), "gemma3_text");
      expect("what was read", await textOf(page, "#cost-status"), /^Only config\.json/);
      errors.length = 0; // browsers report the request that was ended
      expect("the address has no file", await page.evaluate(() => location.hash.includes("url=")), false);
      await page.focus("#length");
      await page.keyboard.press("ArrowRight");
      await page.waitForFunction(() => document.getElementById("cost").textContent.includes("for 4,096 tokens"));
      await page.click("#example");
      await page.waitForFunction(() => document.getElementById("cost").textContent.includes("llama"));
      expect("the example", await page.$eval("#url", ({ value }) => value), `${given.url}models/stories/stories.gguf`);
      expect("its layers", await factOf(page, "cost", "layers"), "4 with keys and values, 64 numbers per token");
    }),
  "an address with no URL": (given) =>
    open(
      given,
      async (page) => {
        expect("the sentence", await textOf(page, "#cost-status"), /expected a URL of a model, got stories\.gguf$/);
        expect("the length", await textOf(page, "#length-text"), "2,048 tokens");
      },
      "#url=stories.gguf&length=99",
    ),
  "an engine that is missing": (given) => {
    if (given.kind === "webkit")
      return "in Chromium and Firefox only: the driver of WebKit runs no script before a page's own";
    return visit(given.browser, given.url, async (page) => {
      // Without the file of the engine, there is a sentence instead of figures.
      await page.evaluateOnNewDocument(() => {
        globalThis.Worker = class extends EventTarget {
          constructor() {
            super();
            setTimeout(() => this.dispatchEvent(new Event("error")), 100);
          }
          postMessage() {}
        };
      });
      await page.goto(`${given.url}configure.html`);
      await ready(page);
      const sentence = "the engine ended: a file of it could not be loaded";
      expect("the sentence", await textOf(page, "#status"), sentence);
      // What is asked for later is answered too.
      await page.$eval("#status", (status) => status.replaceChildren());
      await page.select("#target", "phone");
      await page.waitForFunction((wanted) => document.getElementById("status").textContent === wanted, {}, sentence);
    });
  },
  "what files cost; a wrong file and a wrong URL leave a sentence": (given) =>
    open(given, async (page, errors) => {
      const folder = tmpdir();
      const config = join(folder, "headwise-config.json");
      writeFileSync(config, JSON.stringify(GEMMA));
      const seqLen = 2048;
      const input = await page.$("#file");
      await input.uploadFile(config);
      await page.waitForFunction(() => document.getElementById("cost").children.length > 0);
      const gemma = describeModel(GEMMA, { seqLen, format: "f16" });
      expect("parameters", await factOf(page, "cost", "parameters"), new RegExp(gemma.parameters.toLocaleString("en")));

      await setUrl(page, `${given.url}models/stories/stories.gguf`);
      await page.waitForFunction(() => document.getElementById("cost").textContent.includes("llama"));
      const stories = await describeFiles(join(import.meta.dirname, "../../../model/stories/stories.gguf"), { seqLen });
      expect(
        "parameters",
        await factOf(page, "cost", "parameters"),
        new RegExp(stories.parameters.toLocaleString("en")),
      );

      const wrong = join(folder, "headwise-wrong.json");
      writeFileSync(wrong, "{");
      await input.uploadFile(wrong);
      await page.waitForSelector("#cost-status.error");
      const sentence = await textOf(page, "#cost-status");
      expect("the sentence", sentence, /^describeModel: config expected/);

      for (const name of ["models/nothing.gguf", "index.html"]) {
        await setUrl(page, `${given.url}${name}`);
        await page.waitForSelector("#cost-status.error");
        const wanted = RegExp(
          `^The server has no model file at this address\\. describeFiles: .*/${name}\\b.* 404 \\(not found\\)$`,
        );
        expect("the sentence", await textOf(page, "#cost-status"), wanted);
      }
      errors.length = 0; // browsers report the file that is not there
      await setUrl(page, `${given.url}models/stories/stories.gguf`);
      await page.waitForFunction(() => document.getElementById("cost").textContent.includes("llama"));
      return sentence;
    }),
};
