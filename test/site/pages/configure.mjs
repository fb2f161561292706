// The configurator: what Node's configure gives, a layer that is measured, and what files of models cost.

import { writeFileSync } from "node:fs";
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
          new RegExp(`\\(${first.parameters.toLocaleString("en")}\\)$`),
        );
        await page.focus("#length");
        await page.keyboard.press("ArrowRight");
        const next = expected(1e9, 8192, "phone");
        await page.waitForFunction(
          (text) => document.getElementById("facts").textContent.includes(text),
          {},
          "for 8,192 tokens",
        );
        expect("the shape", await textOf(page, "#shape"), new RegExp(`^${next.layers} layers of ${next.dModel}, `));
        await page.waitForFunction(() => location.search.includes("length=13"));
        return textOf(page, "#shape");
      },
      "?budget=9&length=12&target=phone",
    ),
  "a layer is built and timed": (given) =>
    open(
      given,
      async (page) => {
        await page.focus("#measure");
        await page.keyboard.press("Enter");
        await page.waitForSelector("#measured table");
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
      "?budget=6.5&length=8",
    ),
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

      for (const [name, wanted] of [
        ["models/nothing.gguf", /404/],
        ["index.html", /^\w+: /],
      ]) {
        await setUrl(page, `${given.url}${name}`);
        await page.waitForSelector("#cost-status.error");
        expect(`the sentence of ${name}`, await textOf(page, "#cost-status"), wanted);
      }
      errors.length = 0; // browsers report the file that is not there
      await setUrl(page, `${given.url}models/stories/stories.gguf`);
      await page.waitForFunction(() => document.getElementById("cost").textContent.includes("llama"));
      return sentence;
    }),
};
