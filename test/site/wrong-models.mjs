// What is no model: each leaves a sentence beside the choice of models.

import { writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect } from "../examples/given.mjs";
import { textOf } from "../examples/pages.mjs";

const SENTENCE = /^The model could not be loaded: \w+: /;

/** Chooses a file that is no model, a URL where nothing is, and one of another page. `errors` are those that the page reports. */
export async function expectSentences(page, errors, url) {
  const wrong = join(tmpdir(), "headwise-wrong.gguf");
  writeFileSync(wrong, "not a GGUF file");
  await page.select("#model", "file");
  await (await page.$("#model-file")).uploadFile(wrong);
  await page.waitForSelector(".picker .error");
  const sentences = [await textOf(page, ".picker .error")];
  await page.select("#model", "url");
  for (const name of ["models/nothing.gguf", "index.html"]) {
    await page.$eval("#model-url", (field) => Object.assign(field, { value: "" }));
    await page.focus("#model-url");
    await page.keyboard.type(url + name);
    await page.keyboard.press("Enter");
    await page.waitForFunction(
      (last) => ![last, undefined].includes(document.querySelector(".picker .error")?.textContent),
      {},
      sentences.at(-1),
    );
    sentences.push(await textOf(page, ".picker .error"));
  }
  for (const sentence of sentences) expect("the sentence", sentence, SENTENCE);
  errors.length = 0; // browsers report the file that is not there
}
