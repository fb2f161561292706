// What is no model, or one that does not come: each leaves a sentence beside the choice of models.

import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect } from "../examples/given.mjs";
import { textOf } from "../examples/pages.mjs";
import { holdTask } from "./engine-tasks.mjs";

/** Of a file that is no model, a URL where nothing is, a page, and a server that does not answer. */
const REASONS = [
  /: This is a text, not a model\. \w+: /,
  /: The server has no model file at this address\. \w+: /,
  /: This is a web page, not a model\. \w+: /,
  /: The server could not be reached, or lets no other site read its files \(CORS\)\. \w+: /,
];

/** Chooses a file that is no model, and URLs where no model is. `errors` are those that the page reports. */
export async function expectSentences(page, errors, url) {
  const wrong = join(tmpdir(), "headwise-wrong.gguf");
  writeFileSync(wrong, "not a GGUF file");
  await page.select("#model", "file");
  await (await page.$("#model-file")).uploadFile(wrong);
  await page.waitForSelector(".picker .error");
  const sentences = [await textOf(page, ".picker .error")];
  await page.select("#model", "url");
  for (const address of [`${url}models/nothing.gguf`, `${url}index.html`, await closedServer()]) {
    await page.$eval("#model-url", (field) => Object.assign(field, { value: "" }));
    await page.focus("#model-url");
    await page.keyboard.type(address);
    await page.keyboard.press("Enter");
    await page.waitForFunction(
      (last) => ![last, undefined].includes(document.querySelector(".picker .error")?.textContent),
      {},
      sentences.at(-1),
    );
    sentences.push(await textOf(page, ".picker .error"));
  }
  for (const [i, sentence] of sentences.entries()) {
    expect("the sentence", sentence, /^The model could not be loaded: /);
    expect("its reason", sentence, REASONS[i]);
  }
  errors.length = 0; // browsers report the file that is not there
}

/** A URL of a server that has ended. */
async function closedServer() {
  const server = createServer();
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return `http://127.0.0.1:${port}/model.gguf`;
}

/** Stops the loading of a model that does not come, by the keyboard alone, and loads it again; `errors` are those of the page. */
export async function expectStops(page, errors) {
  const server = createServer((_, response) => {
    response.setHeader("Access-Control-Allow-Origin", "*");
    response.setHeader("Access-Control-Allow-Headers", "*");
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const focus = () => page.evaluate(() => document.activeElement.id);
  const buttonIs = (wanted) =>
    page.waitForFunction((text) => document.getElementById("model-load").textContent === text, {}, wanted);
  try {
    await page.select("#model", "url");
    await page.focus("#model-url");
    await page.keyboard.type(`http://127.0.0.1:${server.address().port}/model.gguf`);
    await page.keyboard.press("Enter");
    await buttonIs("Stop loading");
    await page.focus("#model-load");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => !document.getElementById("model-load").checkVisibility());
    expect("the sentence", await textOf(page, ".picker [role=status]"), "Loading was stopped.");
    expect("the focus", await focus(), "model-url");
    await page.evaluate(() => {
      const select = document.getElementById("model");
      select.value = "stories.gguf";
      select.dispatchEvent(new Event("change"));
      document.getElementById("model-load").click();
    });
    await buttonIs("Load again");
    await page.focus("#model-load");
    await holdTask(page, "load", 500);
    await page.keyboard.press("Enter");
    await buttonIs("Stop loading");
    errors.length = 0; // browsers report the request that was stopped
    // The button goes when the model is there, and the focus to what chose it.
    await page.waitForFunction(() => !document.getElementById("model-load").checkVisibility());
    expect("the focus after loading", await focus(), "model");
  } finally {
    server.closeAllConnections();
    server.close();
  }
  const isTaken = await page.evaluate(() => {
    const dataTransfer = new DataTransfer();
    dataTransfer.setData("text/plain", "a word");
    const over = new DragEvent("dragover", { dataTransfer, bubbles: true, cancelable: true });
    return !document.getElementById("text").dispatchEvent(over);
  });
  expect("whether the page takes text that is dragged into a field", isTaken, false);
}
