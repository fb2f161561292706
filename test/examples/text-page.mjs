// The page that writes text by a model: a chosen file, or a URL; its progress, its stop button, and its errors.

import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { expect } from "./given.mjs";
import { expectNarrow, textOf, visit } from "./pages.mjs";
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

const setValue = (page, id, value) =>
  page.evaluate((id, value) => Object.assign(document.getElementById(id), { value }), id, value);

const choose = async (page, path) => (await page.$("#file")).uploadFile(path);

async function open(page, name) {
  await setValue(page, "name", name);
  await setValue(page, "progress", 0);
  await page.click("#load");
}

/** Has the page write to the end. */
async function expectText(page, wanted) {
  await page.click("#generate");
  await expectStatus(page, /^Ended: stop, \d+\.\d tokens\/s\.$/);
  expect("the text", await textOf(page, "#text"), wanted);
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
  const reason = isolated ? "passes of a model this small .*" : "this page is not cross-origin isolated";
  const ready = RegExp(`^Ready: llama, threads 1: ${reason}\\.$`);
  try {
    return await visit(browser, `${url}?deterministic`, async (page, errors) => {
      await expectNarrow(page);
      await page.click("#generate");
      await expectStatus(page, /^No model yet\.$/);
      // The values of the bar, in their order.
      await page.evaluate(() => {
        globalThis.seen = [];
        const bar = document.getElementById("progress");
        new MutationObserver(() => globalThis.seen.push(bar.value)).observe(bar, { attributes: true });
      });
      await choose(page, path);
      await expectStatus(page, ready);
      const seen = await page.evaluate(() => globalThis.seen);
      expect("several steps of progress", new Set(seen).size > 3, true);
      expect("progress that grows to the end", seen.join(), [...seen].sort((a, b) => a - b).join());
      expect("the bar at the end", seen.at(-1), 1);

      await setValue(page, "temperature", "0");
      await setValue(page, "prompt", BEGINNING);
      await expectText(page, story);
      const status = await statusOf(page);
      await page.evaluate(() => {
        document.getElementById("generate").click();
        document.getElementById("stop").click();
      });
      await expectStatus(page, /^Ended: aborted/);
      const part = await textOf(page, "#text");
      expect("a part of the text", story.startsWith(part) && part.length < story.length, true);
      await expectText(page, story);
      expect("errors of the page", errors.join("; "), "");

      const wrong = { "notes.gguf": "hello", "page.gguf": "<!doctype html><title>moved</title>" };
      for (const [name, text] of Object.entries(wrong)) writeFileSync(temporary(name), text);
      await choose(page, temporary("notes.gguf"));
      await expectStatus(page, /^openModel: .*expected to begin with GGUF, got "hell"/);
      await choose(page, temporary("page.gguf"));
      await expectStatus(page, /^openModel: .*expected a GGUF file, got a web page/);
      await open(page, other.url.replace("some", "no"));
      await expectStatus(page, /^openModel: .*404/);
      await open(page, `http://127.0.0.1:${await freePort()}/some.gguf`);
      await expectStatus(page, /^openModel: .*expected an answer/);
      await page.click("#generate");
      await expectStatus(page, /^No model yet\.$/);
      errors.length = 0; // requests that failed, as they should
      await page.evaluate(() => {
        document.getElementById("load").click();
        document.getElementById("stop").click();
      });
      await expectStatus(page, /^Stopped\.$/);

      await choose(page, path);
      await expectStatus(page, ready);
      await setValue(page, "temperature", "-1");
      await page.click("#generate");
      await expectStatus(page, /^text: temperature expected/);
      await setValue(page, "temperature", "0");
      await choose(page, chatPath);
      await expectStatus(page, ready);
      await expectText(page, await stories.ofFile(chat, BEGINNING, { asChat: true }));

      // The second time, requests of 64 KB compare the versions: one of the page, for the tokenizer, and one of the worker.
      for (const [most, what] of [
        [1.5 * plain.length, "the first"],
        [2 ** 17 + 2 ** 10, "the next"],
      ]) {
        other.sent = 0;
        await open(page, other.url);
        await expectStatus(page, ready);
        expect(`bytes of ${what} download: ${other.sent}, at most ${most}`, other.sent > 0 && other.sent <= most, true);
        await expectText(page, story);
      }
      await open(page, "model/stories/stories.gguf");
      await expectStatus(page, ready);
      expect("errors of the page later", errors.join("; "), "");
      return `the text of Node; ${status}`;
    });
  } finally {
    other.close();
    end(child);
  }
}
