// Files that one saves, and models of one's own: files, folders and URLs, also wrong ones.

import { copyFileSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readSafetensors, writeSafetensors } from "../../../dist/weights.js";
import { expect } from "../../examples/given.mjs";
import { textOf } from "../../examples/pages.mjs";
import { digestIs, expected, FOLDER, open, press, setText, TEXT, textIs, VIEW } from "./given.mjs";

const inFolder = (name) => join(FOLDER, name);

/** The folder of the model without its GGUF files. */
function copyFolder() {
  const folder = mkdtempSync(join(tmpdir(), "headwise-folder-"));
  for (const name of ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"])
    copyFileSync(inFolder(name), join(folder, name));
  return folder;
}

/** The model's tensors in two files with their index: the index first. */
function writeShards() {
  const folder = mkdtempSync(join(tmpdir(), "headwise-shards-"));
  const tensors = [...readSafetensors(readFileSync(inFolder("model.safetensors"))).tensors];
  const half = tensors.length >> 1;
  const shards = { "model-00001-of-00002": tensors.slice(0, half), "model-00002-of-00002": tensors.slice(half) };
  const files = Object.entries(shards).map(([name, own]) => {
    writeFileSync(join(folder, `${name}.safetensors`), writeSafetensors(Object.fromEntries(own)));
    return { name: `${name}.safetensors`, own };
  });
  const map = files.flatMap(({ name, own }) => own.map(([tensor]) => [tensor, name]));
  const index = join(folder, "model.safetensors.index.json");
  writeFileSync(index, JSON.stringify({ metadata: {}, weight_map: Object.fromEntries(map) }));
  return [index, ...files.map(({ name }) => join(folder, name))];
}

/** Chooses files as a visitor does. */
async function choose(page, files) {
  await page.select("#model", "file");
  await (await page.$("#model-file")).uploadFile(...files);
}

export const scenarios = {
  "files of a head": (given) =>
    open(
      given,
      async (page) => {
        const node = await expected(TEXT);
        const saved = async (kind) => {
          await page.evaluate(() => {
            globalThis.saved = undefined;
            const { createObjectURL } = URL;
            URL.createObjectURL = (blob) => {
              globalThis.saved = blob;
              return createObjectURL(blob);
            };
          });
          await press(page, kind);
          await page.waitForFunction(() => globalThis.saved);
          return page.evaluate(async () => {
            const bytes = new Uint8Array(await globalThis.saved.arrayBuffer());
            return {
              type: globalThis.saved.type,
              text: new TextDecoder().decode(bytes),
              head: [...bytes.subarray(1, 4)],
              size: bytes.length,
            };
          });
        };
        const csv = (await saved("CSV")).text.trim().split("\r\n");
        expect("a row for each token, and the words", csv.length, node.words.length + 1);
        const last = csv.at(-1).split(",").slice(1).map(Number);
        const weights = node.words.map((_, key) => node.weight(1, 6, node.words.length - 1, key));
        expect("the weights of Node, all of their bits", last.join(" "), weights.join(" "));
        expect("SVG", (await saved("SVG")).text, /^<svg[\s\S]*<title>Layer 1, head 6<\/title>[\s\S]*<\/svg>$/);
        await textIs(page, "#exports p", "Saved as layer-1-head-6.svg.");
        const png = await saved("PNG");
        expect("PNG", String.fromCharCode(...png.head), "PNG");
        expect("bytes of PNG", png.size > 5000, true);
        const { text } = await saved("HTML");
        expect("a page", text, /^<!doctype html>[\s\S]*<svg[\s\S]*Next token/);
        expect("a page without other files", text, /^(?!.*(?:<script|<link|src=|url\())/s);
        await press(page, "Take this head away");
        await page.waitForFunction(() => / → /.test(document.querySelector("#guesses .value").textContent));
        expect("what is changed", (await saved("SVG")).text, /<title>Layer 1, head 6, with changes<\/title>/);
        await setText(page, "the cat sat on the mat . ".repeat(22));
        await page.waitForFunction(() => /^155 tokens/.test(document.getElementById("status").textContent));
        await press(page, "SVG");
        await textIs(
          page,
          "#exports p",
          "A figure has room for 128 tokens, and the text has 155. CSV has all of them.",
        );
      },
      `${VIEW}&layer=1&head=6`,
    ),
  "a folder of safetensors, in one file and in shards": (given) =>
    open(given, async (page) => {
      const { digest } = await expected(TEXT, [], { from: FOLDER });
      await choose(page, ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"].map(inFolder));
      await digestIs(page, digest);
      // Another model in between, so that the shards make the digest.
      await page.select("#model", "stories.gguf");
      await digestIs(page, (await expected(TEXT)).digest);
      const shards = writeShards();
      await choose(page, [...["config.json", "tokenizer.json", "tokenizer_config.json"].map(inFolder), ...shards]);
      await digestIs(page, digest);
      if (given.kind !== "chrome") return "the driver of this engine chooses no folders: files of one are chosen";
      await page.select("#model", "stories.gguf");
      await digestIs(page, (await expected(TEXT)).digest);
      await page.select("#model", "folder");
      await (await page.$("#model-folder")).uploadFile(copyFolder());
      await digestIs(page, digest);
      return digest;
    }),
  "files that are missing are named": (given) =>
    open(given, async (page) => {
      const missing = async (files, sentence) => {
        await choose(page, files);
        await page.waitForFunction(
          (text) => document.querySelector(".picker .error")?.textContent.includes(text),
          {},
          sentence,
        );
      };
      await missing(["model.safetensors"].map(inFolder), ": config.json, tokenizer.json are missing.");
      await missing(["config.json", "model.safetensors"].map(inFolder), ": tokenizer.json is missing.");
      await missing(["config.json", "tokenizer.json"].map(inFolder), ": model.safetensors is missing.");
      const [index, first, second] = writeShards();
      const rest = ["config.json", "tokenizer.json"].map(inFolder);
      await missing([...rest, first, second], ": model.safetensors.index.json is missing.");
      await missing([...rest, index, first], ": model-00002-of-00002.safetensors is missing.");
      await page.select("#model", "stories.gguf");
      await digestIs(page, (await expected(TEXT)).digest);
    }),
  "a folder by its URL, and a URL of nothing": (given) =>
    open(given, async (page, errors) => {
      const load = async (url) => {
        await page.select("#model", "url");
        await page.$eval(
          "#model-url",
          (field, value) => {
            field.value = value;
          },
          url,
        );
        await press(page, "Load");
      };
      await load(`${given.url}models/stories/`);
      await digestIs(page, (await expected(TEXT, [], { from: FOLDER })).digest);
      await page.waitForFunction(() => /model=http.*stories/.test(location.hash));
      await load(`${given.url}models/nothing/`);
      await page.waitForFunction(() => document.querySelector(".picker .error"));
      const sentence = await textOf(page, ".picker .error");
      expect("the sentence", sentence, /^The model could not be loaded: .*(?:404|tokenizer\.json)/);
      await page.select("#model", "stories.gguf");
      await digestIs(page, (await expected(TEXT)).digest);
      // The browser reports what a server does not have; a folder need not have all that is looked for.
      errors.splice(0, errors.length, ...errors.filter((error) => !/404|models\/(?:stories|nothing)\//.test(error)));
      return sentence;
    }),
  "a wrong file leaves a sentence, and the page goes on": (given) =>
    open(given, async (page) => {
      const wrong = join(tmpdir(), "headwise-wrong-inspector.gguf");
      writeFileSync(wrong, "not a GGUF file");
      await page.select("#model", "file");
      await (await page.$("#model-file")).uploadFile(wrong);
      await page.waitForFunction(() => document.querySelector(".picker .error"));
      expect("the sentence", await textOf(page, ".picker .error"), /^The model could not be loaded: .*GGUF/);
      await page.select("#model", "stories.gguf");
      await page.waitForFunction(() => /tokens; \d+ read/.test(document.getElementById("status").textContent));
      await setText(page, "the zyzzyva sat");
      await digestIs(page, (await expected("the zyzzyva sat")).digest);
      await setText(page, TEXT);
      await digestIs(page, (await expected(TEXT)).digest);
    }),
};
