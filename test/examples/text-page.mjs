// The page that generates text by a GGUF file: chosen, dropped, by URL; its progress, its stop button, and its errors.

import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { expect } from "./given.mjs";
import { expectNarrow, textOf, threadsHere, visit } from "./pages.mjs";
import { end, serve } from "./processes.mjs";
import { BEGINNING, readFiles } from "./stories.mjs";

/** Serves bytes by range to pages of any origin, and counts those that it sent. */
async function serveFile(bytes) {
  const found = { sent: 0 };
  const server = createServer((request, response) => {
    response.setHeader("Access-Control-Allow-Origin", "*");
    response.setHeader("Access-Control-Allow-Headers", "Range");
    response.setHeader("Access-Control-Expose-Headers", "Content-Range, ETag");
    response.setHeader("ETag", '"1"');
    if (request.method === "OPTIONS") return response.writeHead(204).end();
    const [, begin, last] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "") ?? [];
    if (begin === undefined || request.url !== "/some.gguf") return response.writeHead(404).end();
    const part = bytes.subarray(Number(begin), Number(last) + 1);
    found.sent += part.length;
    const range = `bytes ${begin}-${Number(begin) + part.length - 1}/${bytes.length}`;
    return response.writeHead(206, { "Content-Range": range }).end(part);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  return Object.assign(found, { url: `http://127.0.0.1:${server.address().port}/some.gguf`, close });
}

const statusOf = (page) => textOf(page, "#status");

/** Waits until the status is of the form `wanted`, and fails if it is not. */
async function expectStatus(page, wanted) {
  for (const until = Date.now() + 30_000; !wanted.test(await statusOf(page)) && Date.now() < until; )
    await new Promise((resolve) => setTimeout(resolve, 20));
  expect("the status", await statusOf(page), wanted);
}

/** From now on, every text of an element, in the order in which they come. */
const watch = (page, id) =>
  page.evaluate((id) => {
    const seen = [];
    globalThis[`seen of ${id}`] = seen;
    const element = document.getElementById(id);
    new MutationObserver(() => seen.push(element.textContent)).observe(element, { childList: true, subtree: true });
  }, id);
const seenOf = (page, id) => page.evaluate((id) => globalThis[`seen of ${id}`], id);

const setValue = (page, id, value) =>
  page.evaluate((id, value) => Object.assign(document.getElementById(id), { value }), id, value);

/** Drops a file of this text on the page. */
const drop = (page, name, text) =>
  page.evaluate(
    (name, text) => {
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File([text], name));
      document.body.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
    },
    name,
    text,
  );

async function choose(page, path) {
  await (await page.$("#file")).uploadFile(path);
  await expectStatus(page, /^Ready\.$/);
}

/** Loads a URL as a user of the keyboard does. */
async function open(page, url) {
  await setValue(page, "url", url);
  await page.focus("#url");
  await page.keyboard.press("Enter");
}

const isActive = (page, id) => page.evaluate((id) => document.activeElement.id === id, id);

/** Generates to the end, with the keyboard. */
async function expectText(page, prompt, answer) {
  await page.focus("#generate");
  await page.keyboard.press("Enter");
  await expectStatus(page, /^Ended: (?!stopped)/);
  expect("the text", await textOf(page, "#text"), prompt + answer);
  expect("the focus is on the button again", await isActive(page, "generate"), true);
}

export async function textPage(
  { folder, temporary, browser, freePort, root, exact: { stories } },
  { isolated = false } = {},
) {
  const { plain, chat } = readFiles(root);
  const [path, chatPath] = ["plain.gguf", "chat.gguf"].map(temporary);
  writeFileSync(path, plain);
  writeFileSync(chatPath, chat);
  const story = await stories.ofFile(plain, BEGINNING);
  const options = isolated ? ["--isolated"] : [];
  const { child, url } = await serve(process.execPath, ["serve.mjs", "0", ...options], { cwd: folder("browser") });
  const other = await serveFile(plain);
  try {
    return await visit(browser, `${url}?deterministic`, async (page, errors) => {
      await expectNarrow(page);
      await watch(page, "loaded");
      await watch(page, "text");
      await choose(page, path);
      await expectProgress(page, plain.length);
      const kernels = await textOf(page, "#kernels");
      const reason = isolated ? threadsHere().toLowerCase() : "one thread: this page is not cross-origin isolated";
      expect("the kernels", kernels, RegExp(`^simd, ${reason}`));
      expect("the model", await textOf(page, "#model"), /^llama, 4 layers, \d+ tokens in its vocabulary, \d\.\d MB$/);

      await setValue(page, "temperature", "0");
      await setValue(page, "prompt", BEGINNING);
      await expectText(page, BEGINNING, story);
      expect("texts on the way", new Set(await seenOf(page, "text")).size > 10, true);
      const speed = await textOf(page, "#speed");
      expect("the speed", speed, /^\d+\.\d tokens\/s$/);

      await expectStop(page, story);
      await expectText(page, BEGINNING, story);
      expect("errors of the page", errors.join("; "), "");
      await expectErrors(page, other.url, `http://127.0.0.1:${await freePort()}/some.gguf`, path);
      errors.length = 0; // requests that failed, as they should

      await choose(page, chatPath);
      expect("a template is used", await page.$eval("#chat", ({ checked }) => checked), true);
      await expectText(page, "", await stories.ofFile(chat, BEGINNING, { asChat: true }));

      // The second time, a request of 64 KB compares the versions.
      for (const [most, what] of [
        [1.5 * plain.length, "the first"],
        [2 ** 17, "the next"],
      ]) {
        other.sent = 0;
        await open(page, other.url);
        await expectStatus(page, /^Ready\.$/);
        expect(`bytes of ${what} download: ${other.sent}, at most ${most}`, other.sent > 0 && other.sent <= most, true);
        await expectText(page, BEGINNING, story);
      }
      await open(page, `${url}model/stories/stories.gguf`);
      await expectStatus(page, /^Ready\.$/);
      expect("errors of the page later", errors.join("; "), "");
      return `the text of Node; ${speed}; ${kernels.slice(0, 60)}`;
    });
  } finally {
    other.close();
    end(child);
  }
}

/** The progress that was shown: more and more, and in the end all. */
async function expectProgress(page, bytes) {
  const seen = (await seenOf(page, "loaded")).filter((text) => text !== "");
  const done = seen.map((text) => Number(/^([\d.]+) of /.exec(text)?.[1]));
  const all = Number(/ of ([\d.]+) MB$/.exec(seen.at(-1))?.[1]);
  expect("several steps of progress", new Set(seen).size > 3, true);
  expect("progress that grows", done.join(), done.toSorted((a, b) => a - b).join());
  expect("all at the end", done.at(-1), all);
  expect("about the bytes of the file", Math.abs(all - bytes / 1e6) < 0.1, true);
  expect("the bar", await page.$eval("#progress", ({ value }) => value), 1);
}

/** Stops in the task in which a text is begun, so that the worker knows of it when it first looks, however fast it is. */
async function expectStop(page, story) {
  await page.evaluate(() => {
    document.getElementById("generate").click();
    document.getElementById("stop").click();
  });
  await expectStatus(page, /^Ended: stopped\.$/);
  const text = await textOf(page, "#text");
  expect("a part of the text", (BEGINNING + story).startsWith(text) && text.length < (BEGINNING + story).length, true);
}

/** Wrong files and URLs leave a sentence and a page that goes on. */
async function expectErrors(page, url, silent, path) {
  const expectError = async (sentence) => {
    await expectStatus(page, sentence);
    expect("a sentence", await statusOf(page), /^The model could not be loaded: /);
    expect("an error", await page.$eval("#status", ({ className }) => className), "panel error");
    expect("no model", await page.$eval("#generate", ({ disabled }) => disabled), true);
    expect("no text", await textOf(page, "#text"), "");
  };
  await drop(page, "notes.txt", "hello");
  await expectError(/header expected to begin with GGUF, got "hell"/);
  await drop(page, "page.gguf", "<!doctype html><title>moved</title>");
  await expectError(/expected a GGUF file, got a web page/);
  await open(page, url.replace("some", "no"));
  await expectError(/404/);
  await open(page, silent);
  await expectError(/expected an answer/);

  await page.evaluate(() => {
    document.querySelector("#source button").click();
    document.getElementById("stop").click();
  });
  await expectStatus(page, /^Loading was stopped\.$/);
  await choose(page, path);
  await setValue(page, "temperature", "-1");
  await page.click("#generate");
  await expectStatus(page, /temperature expected/);
  expect("the model is still there", await page.$eval("#generate", ({ disabled }) => disabled), false);
  await setValue(page, "temperature", "0");
}
