// Embeddings: the bits and the order of Node, with the model of the site and with an encoder by files and by URL; clusters, exports,
// long lines, wrong files, and the keyboard alone.

import { mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { loadKernels } from "../../../dist/index.js";
import { embed, gguf, loadEncoder, models } from "../../../dist/models.js";
import { quantized } from "../../../dist/quantized.js";
import { loadTokenizer } from "../../../dist/text.js";
import { writeSafetensors } from "../../../dist/weights.js";
import { clustersAt, joinLines } from "../../../site/worker/clusters.ts";
import { FloatDigest } from "../../../src/tools/diagnostics/self-test.ts";
import { expect } from "../../examples/given.mjs";
import { textOf, visit } from "../../examples/pages.mjs";
import { drawn, ready } from "../every-page.mjs";
import { expectShortTasks, ONLY_CHROME } from "../tasks.mjs";

const FILE = join(import.meta.dirname, "../../../model/stories/stories.gguf");
const LINES = ["w1 w2 w3", "w9 w8", "w1 w2 w4", "w8 w9 w8", "w20 w21 w22 w23"];

/** A folder with an encoder of random weights, whose words are w0 to w31. */
function writeEncoder() {
  const folder = mkdtempSync(join(tmpdir(), "headwise-encoder-"));
  let seed = 1;
  const next = () => {
    seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0;
    return seed / 2 ** 32 - 0.5;
  };
  const tensor = (...shape) => ({ data: Float32Array.from({ length: shape.reduce((a, b) => a * b) }, next), shape });
  const at = "transformer.layer.0";
  const norms = ["embeddings.LayerNorm", `${at}.sa_layer_norm`, `${at}.output_layer_norm`];
  const bytes = writeSafetensors({
    "embeddings.word_embeddings.weight": tensor(32, 8),
    "embeddings.position_embeddings.weight": tensor(16, 8),
    ...Object.fromEntries(norms.map((name) => [`${name}.weight`, { data: new Float32Array(8).fill(1), shape: [8] }])),
    ...Object.fromEntries(["q", "k", "v", "out"].map((name) => [`${at}.attention.${name}_lin.weight`, tensor(8, 8)])),
    [`${at}.ffn.lin1.weight`]: tensor(16, 8),
    [`${at}.ffn.lin2.weight`]: tensor(8, 16),
  });
  const sizes = { dim: 8, hidden_dim: 16, n_heads: 2, n_layers: 1, vocab_size: 32, max_position_embeddings: 16 };
  const vocab = Object.fromEntries(Array.from({ length: 32 }, (_, id) => [`w${id}`, id]));
  const tokenizer = {
    model: { type: "WordLevel", vocab, unk_token: "w0" },
    ...{ added_tokens: [], normalizer: null, post_processor: null, decoder: null },
    pre_tokenizer: { type: "WhitespaceSplit" },
  };
  writeFileSync(join(folder, "config.json"), JSON.stringify({ model_type: "distilbert", ...sizes }));
  writeFileSync(join(folder, "tokenizer.json"), JSON.stringify(tokenizer));
  writeFileSync(join(folder, "model.safetensors"), bytes);
  return folder;
}

/** What Node finds: the digest of the lines' vectors, and the lines by their cosine with `target`. */
async function expected(place, lines, target, pooling = "mean") {
  const kernels = await loadKernels({ models, quantized, deterministic: true });
  const model = await loadEncoder(kernels, place, { gguf });
  const options = { tokenizer: await loadTokenizer(place), pooling, normalize: true };
  const vectors = embed(model, lines, options);
  const [wanted] = embed(model, [target], options);
  const digest = new FloatDigest();
  for (const vector of vectors) digest.add(vector);
  const cosines = vectors.map((vector) => vector.reduce((sum, x, i) => sum + x * wanted[i], 0));
  kernels.release();
  const order = [...lines.keys()].sort((a, b) => cosines[b] - cosines[a]);
  return { digest: digest.toString(), sorted: order.map((i) => `${cosines[i].toFixed(3)}${lines[i]}`).join("\n") };
}

const sortedIn = (page) => page.$$eval("#sorted .ranked", (all) => all.map((line) => line.textContent).join("\n"));
const clustersIn = (page) =>
  page.$$eval(".cluster", (all) =>
    all.map((each) => [...each.querySelectorAll("li")].map((li) => li.textContent).join("|")).join("\n"),
  );
const setText = (page, selector, text) =>
  page.$eval(
    selector,
    (field, value) => {
      field.value = value;
      field.dispatchEvent(new Event("input", { bubbles: true }));
    },
    text,
  );
/** Waits until a text of the page is not the one that it was. */
const changed = (page, selector, before) =>
  page.waitForFunction(
    (selector, before) => document.querySelector(selector).textContent !== before,
    {},
    selector,
    before,
  );
const areRead = (page) => page.waitForFunction(() => /lines, \d/.test(document.getElementById("status").textContent));

/** Waits until a field of the state has this value in the address, which follows with a delay. */
const inAddress = (page, name, value) =>
  page.waitForFunction(
    (name, value) => new URLSearchParams(location.hash.slice(1)).get(name) === value,
    {},
    name,
    value,
  );

const VIEW = "#deterministic=yes";
const open = (given, look, query = VIEW) =>
  visit(given.browser, `${given.url}embeddings.html${query}`, async (page, errors) => {
    await ready(page);
    const found = await look(page, errors);
    expect("errors of the page", errors.join("; "), "");
    return found;
  });

/** The page's vectors and order, compared with Node's. */
async function expectNode(page, place, lines, target, pooling) {
  const wanted = await expected(place, lines, target, pooling);
  expect("the digest of the vectors", await textOf(page, "#digest"), wanted.digest);
  expect("the lines by similarity", await sortedIn(page), wanted.sorted);
  return wanted.digest;
}

export const scenarios = {
  "words that the model does not know are named": (given) =>
    open(given, async (page) => {
      await setText(page, "#lines", "the dragon sat on the sofa\nthe dog sat");
      await page.waitForFunction(() => /lacks “dragon”: .*<unk>/.test(document.getElementById("status").textContent));
    }),
  "the vectors and the order of Node": (given) =>
    open(given, async (page) => {
      const lines = (await page.$eval("#lines", ({ value }) => value)).split("\n");
      const digest = await expectNode(page, FILE, lines, lines[0]);
      const before = await textOf(page, "#sorted");
      await setText(page, "#query", "tom walked to the park.");
      await changed(page, "#sorted", before);
      await expectNode(page, FILE, lines, "tom walked to the park.");
      await page.select("#pooling", "last");
      await changed(page, "#digest", digest);
      await expectNode(page, FILE, lines, "tom walked to the park.", "last");
      await drawn(page);
      // Another visit of the address shows the same.
      const [sorted, clusters] = [await sortedIn(page), await clustersIn(page)];
      await page.reload();
      await ready(page);
      expect("the lines of the same address", await sortedIn(page), sorted);
      expect("the clusters of the same address", await clustersIn(page), clusters);
      return digest;
    }),
  clusters: (given) =>
    open(given, async (page) => {
      // By hand: 0 and 1 join at 0.9, 2 and 3 at 0.8, both pairs at the mean of the four cosines between them, 0.3.
      const cosines = Float32Array.of(1, 0.9, 0.5, 0.1, 0.9, 1, 0.4, 0.2, 0.5, 0.4, 1, 0.8, 0.1, 0.2, 0.8, 1);
      const joins = joinLines(cosines, 4);
      expect(
        "the joins",
        joins.map(({ first, second, cosine }) => `${first}${second} ${cosine.toFixed(2)}`).join(),
        "01 0.90,23 0.80,02 0.30",
      );
      expect("clusters at 0.85", JSON.stringify(clustersAt(joins, 4, 0.85)), "[[0,1],[2],[3]]");
      const apart = [
        { first: 1, second: 2, cosine: 0.5 },
        { first: 0, second: 1, cosine: 0.1 },
      ];
      expect("one alone is the last", JSON.stringify(clustersAt(apart, 3, 0.3)), "[[1,2],[0]]");
      expect("clusters at 0.2", JSON.stringify(clustersAt(joins, 4, 0.2)), "[[0,1,2,3]]");
      expect("clusters on the page", (await clustersIn(page)).split("\n").length, 5);
      const before = await clustersIn(page);
      await page.focus("#threshold");
      await page.keyboard.press("Home");
      await page.waitForFunction(() => document.querySelectorAll(".cluster").length === 1);
      await inAddress(page, "threshold", "0");
      await page.keyboard.press("End");
      await changed(page, "#clusters h3", "Cluster 1: 11 lines");
      expect("nothing joins at 1", await textOf(page, "#clusters h3"), "Alone: 11");
      return before.split("\n")[0];
    }),
  "by the keyboard alone": (given) =>
    open(given, async (page) => {
      const before = await textOf(page, "#sorted");
      const second = await page.$eval("#sorted .ranked:nth-child(2) > span:last-child", (span) => span.textContent);
      await page.focus("#sorted");
      await page.keyboard.press("ArrowDown");
      await page.keyboard.press("Enter");
      await changed(page, "#sorted", before);
      expect("the first of the list", (await sortedIn(page)).split("\n")[0], `1.000${second}`);
      expect("the chosen line", await textOf(page, '.ranked[aria-selected="true"] > span:last-child'), second);
      await inAddress(page, "line", "4");
      await page.focus("#map .plot");
      await page.keyboard.press("Home");
      const cell = await textOf(page, "#map .cell");
      await page.keyboard.press("ArrowUp");
      await changed(page, "#map .cell", cell);
      expect("a cell", await textOf(page, "#map .cell"), /^-?\d\.\d{3}: “.*” and “.*”$/);
    }),
  "an encoder by its files, and by URL": async (given) => {
    const folder = writeEncoder();
    const lines = encodeURIComponent(LINES.join("\n"));
    const digest = await open(
      given,
      async (page) => {
        await page.select("#model", "file");
        const files = readdirSync(folder).map((name) => join(folder, name));
        const before = await textOf(page, "#digest");
        await (await page.$("#model-file")).uploadFile(...files);
        await changed(page, "#digest", before);
        return expectNode(page, folder, LINES, LINES[0]);
      },
      `${VIEW}&lines=${lines}`,
    );
    const server = createServer((request, response) => {
      response.setHeader("Access-Control-Allow-Origin", "*");
      response.setHeader("Access-Control-Allow-Headers", "*");
      response.setHeader("Access-Control-Expose-Headers", "*");
      const name = request.url.slice(1);
      if (request.method === "OPTIONS") return void response.writeHead(204).end();
      if (!readdirSync(folder).includes(name)) return void response.writeHead(404).end();
      const bytes = readFileSync(join(folder, name));
      const range = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "");
      if (!range) return void response.writeHead(200, { "Content-Length": bytes.length }).end(bytes);
      const part = bytes.subarray(Number(range[1]), Number(range[2]) + 1);
      const at = `bytes ${range[1]}-${Number(range[1]) + part.length - 1}/${bytes.length}`;
      response.writeHead(206, { "Content-Range": at }).end(part);
    });
    await new Promise((done) => server.listen(0, "127.0.0.1", done));
    const model = `http://127.0.0.1:${server.address().port}/`;
    try {
      await visit(
        given.browser,
        `${given.url}embeddings.html${VIEW}&lines=${lines}&model=${encodeURIComponent(model)}`,
        async (page) => {
          await ready(page);
          expect("the button", await textOf(page, ".picker form button"), `Load from ${new URL(model).host}`);
          await page.click(".picker form button");
          // A browser reports files that the folder does not have, such as a template.
          await changed(page, "#digest", "–");
          expect("the digest by URL", await textOf(page, "#digest"), digest);
          expect("the sentence on the site's model", await page.$eval("#untrained", ({ hidden }) => hidden), true);
        },
      );
    } finally {
      server.closeAllConnections();
      server.close();
    }
    return digest;
  },
  "saves as CSV and JSON": (given) =>
    open(
      given,
      async (page) => {
        await page.evaluate(() => {
          globalThis.saved = [];
          const { createObjectURL } = URL;
          URL.createObjectURL = (blob) => {
            saved.push(blob.text());
            return createObjectURL.call(URL, blob);
          };
          HTMLAnchorElement.prototype.click = () => {}; // the file itself is not kept
        });
        await page.click("#csv");
        await page.click("#json");
        const [csv, json] = await page.evaluate(() => Promise.all(globalThis.saved));
        const rows = csv.trim().split("\r\n");
        expect("the head of the CSV", rows[0], "cosine,cluster,line");
        expect(
          "a line with quotes",
          rows.some((row) => row.endsWith(',"the ""cat"", and a comma"')),
          true,
        );
        const { lines, digest, to, threshold } = JSON.parse(json);
        expect("the digest", digest, await textOf(page, "#digest"));
        expect("what they are compared with", to, 'the "cat", and a comma');
        expect("the threshold", threshold, 0.8);
        const { vector } = lines.find(({ line }) => line === "the dog");
        expect("a vector of length 1", Math.abs(vector.reduce((sum, x) => sum + x * x, 0) - 1) < 1e-6, true);
        expect("lines in both", rows.length - 1, lines.length);
      },
      `${VIEW}&lines=${encodeURIComponent('the "cat", and a comma\nthe dog\n\nthe mat')}`,
    ),
  "lines that are too long for an address": (given) =>
    open(given, async (page) => {
      const digest = await textOf(page, "#digest");
      const long = Array.from(
        { length: 80 },
        (_, i) => `the cat sat on the mat because it was ${i % 2 ? "soft" : "warm"}.`,
      );
      await setText(page, "#lines", long.join("\n"));
      expect("the sentence", await textOf(page, "#lines-about"), /^More than 1500 characters .* kept on this device/);
      await changed(page, "#digest", digest);
      await inAddress(page, "place", "device");
      expect("the address", page.url().length < 300, true);
      await page.reload();
      await ready(page);
      expect("the lines of the next visit", await page.$eval("#lines", ({ value }) => value), long.join("\n"));
      await page.evaluate(() => localStorage.clear());
      await page.reload();
      await ready(page);
      expect(
        "a link to lines of another device",
        await textOf(page, "#lines-about"),
        /^The lines of this link are on the device/,
      );
    }),
  "goes back to other lines": (given) =>
    open(given, async (page) => {
      const digest = await textOf(page, "#digest");
      await page.evaluate(() => history.pushState(null, "", location.href));
      await setText(page, "#lines", "the cat\nthe dog");
      await changed(page, "#digest", digest);
      await page.evaluate(() => history.back());
      await page.waitForFunction((wanted) => document.getElementById("digest").textContent === wanted, {}, digest);
      expect(
        "the first line",
        await page.$eval("#lines", ({ value }) => value.split("\n")[0]),
        "the cat sat on the mat because it was soft.",
      );
    }),
  stops: (given) =>
    open(given, async (page) => {
      // Each line is another one, and long: the engine reads for seconds, unless it is stopped.
      const many = Array.from(
        { length: 500 },
        (_, i) =>
          `${"the cat sat on the mat. ".repeat(20)}${i.toString(2).replaceAll("0", "a ").replaceAll("1", "the ")}`,
      );
      await setText(page, "#lines", many.join("\n"));
      await page.waitForFunction(() => /^Reading \d/.test(document.getElementById("status").textContent));
      await page.focus("#stop");
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => document.getElementById("stop").disabled);
      expect("the status", await textOf(page, "#status"), "Stopped.");
      expect("the focus", await page.evaluate(() => document.activeElement.id), "lines");
      await setText(page, "#lines", "the cat\nthe dog");
      await areRead(page);
      await page.evaluate(() => localStorage.clear());
    }),
  "a wrong file, a wrong URL and a line that is too long leave a sentence": (given) =>
    open(given, async (page, errors) => {
      const folder = join(tmpdir(), "headwise-wrong");
      mkdirSync(folder, { recursive: true });
      const wrong = { "config.json": '{ "model_type": "none" }', "tokenizer.json": "{}", "model.safetensors": "none" };
      for (const [name, text] of Object.entries(wrong)) writeFileSync(join(folder, name), text);
      await page.select("#model", "file");
      await (await page.$("#model-file")).uploadFile(...Object.keys(wrong).map((name) => join(folder, name)));
      await page.waitForFunction(() => document.querySelector(".picker .error"));
      expect(
        "the sentence",
        await textOf(page, ".picker .error"),
        /^The model could not be loaded: This is no model that the page can read\. \w+: /,
      );
      await page.select("#model", "url");
      await page.focus("#model-url");
      await page.keyboard.type(`${given.url}models/nothing/`);
      await page.keyboard.press("Enter");
      await page.waitForFunction(() =>
        /got none|404/.test(document.querySelector(".picker .error")?.textContent ?? ""),
      );
      errors.length = 0; // browsers report the files that are not there
      await page.select("#model", "stories.gguf");
      await areRead(page);
      await setText(page, "#lines", `the cat\n${"the cat ".repeat(100)}`);
      await page.waitForFunction(() => document.querySelector("#status.error"));
      expect(
        "the sentence",
        await textOf(page, "#status"),
        /^“the cat the cat .*” has 201 tokens; the model reads from 1 to 192\.$/,
      );
      await setText(page, "#lines", "the cat\nthe dog");
      await areRead(page);
      expect("lines", (await sortedIn(page)).split("\n").length, 2);
    }),
  "a task while one types is short": (given) =>
    open(given, async (page) => {
      if (given.kind !== "chrome") return ONLY_CHROME;
      const many = Array.from(
        { length: 200 },
        (_, i) => `the cat sat on the mat ${"because it was soft ".repeat(i % 5)}.`,
      );
      await setText(page, "#lines", many.join("\n"));
      await page.waitForFunction(() => document.querySelectorAll("#sorted .ranked").length === 200);
      await areRead(page);
      const figures = await expectShortTasks(page, async () => {
        await page.type("#query", "the dog slept on the rug", { delay: 30 });
        await areRead(page);
      });
      await page.evaluate(() => localStorage.clear());
      return figures;
    }),
};
