// The gallery: scores and maps of Node, heads that are chosen, the inspector behind each, the numbers of the tutorial, and what is
// left without the models.

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { loadKernels } from "../../../dist/index.js";
import { detectHeads, forwardWith, HEAD_KINDS } from "../../../dist/inspect.js";
import { createSession, gguf, loadModel, models } from "../../../dist/models.js";
import { quantized } from "../../../dist/quantized.js";
import { loadTokenizer } from "../../../dist/text.js";
import { answerPairs } from "../../../examples/heads/labels.ts";
import { expect } from "../../examples/given.mjs";
import { textOf, visit } from "../../examples/pages.mjs";
import { ready } from "../every-page.mjs";

const MODEL = join(import.meta.dirname, "../../../model");
const json = (file) => JSON.parse(readFileSync(join(MODEL, file), "utf8"));
const kernels = await loadKernels({ models, quantized, deterministic: true });

/** The heads of a model by Node, and the weights of one of them in a text. */
async function readModel(path, makeTexts) {
  const model = await loadModel(kernels, join(MODEL, path), { gguf });
  const tokenizer = await loadTokenizer(join(MODEL, path));
  const weights = (text, layer, head) => {
    const ids = tokenizer.encode(text);
    const { patterns } = forwardWith(createSession(model), ids, { patterns: [layer] });
    return (query, key) => patterns[0].data[(head * ids.length + query) * ids.length + key];
  };
  return { heads: detectHeads(model, makeTexts(tokenizer), { kinds: HEAD_KINDS }), weights, layers: model.layers };
}

let known;
/** Both models, read when the first scenario needs them. */
const node = () => {
  known ??= Promise.all([
    readModel("", ({ encode }) => json("heldout.json").sequences.map(({ text }) => encode(text))),
    readModel("stories/stories.gguf", ({ encode, decode }) => {
      const { probes: names, stories } = json("stories/heldout.json");
      return stories.slice(0, 100).map(({ text, probes }) => {
        const tokens = encode(text);
        const words = tokens.map((token) => decode([token]).trim());
        const pairs = answerPairs(
          words,
          probes,
          names.map(({ name }) => name),
        );
        return { tokens, pairs };
      });
    }),
  ]).then(([induction, stories]) => ({ induction, stories }));
  return known;
};

const open = (given, query, look) =>
  visit(given.browser, `${given.url}gallery.html${query}`, async (page, errors) => {
    await ready(page);
    const found = await look(page);
    expect("errors of the page", errors.join("; "), "");
    return found;
  });

const cellOf = (page, map) => textOf(page, `[data-kind="${map}"] .cell`);
const rowsOf = (page) =>
  page.$$eval("#looks tbody tr", (rows) =>
    rows.map((row) => [...row.cells].map(({ textContent }) => textContent).join(" | ")),
  );

export const scenarios = {
  "the scores of Node": (given) =>
    open(given, "", async (page) => {
      const { induction, stories } = await node();
      const all = [
        ...induction.heads.map((head) => ({ ...head, of: "induction" })),
        ...stories.heads.map((head) => ({ ...head, of: "stories" })),
      ];
      const most = (heads, score) => heads.reduce((best, each) => (score(each) > score(best) ? each : best));
      for (const name of ["previous", "current", "local", "uniform", "first", "duplicate", "induction", "reference"]) {
        const kind = name === "reference" ? "name mover" : name;
        const ofKind = all.filter((head) => head.kind === kind);
        const isKind = ofKind.length > 0;
        const score = ({ scores }) => scores[name]?.score ?? -1;
        const head = most(isKind ? ofKind : all, score);
        const { baseline, tokens } = head.scores[name];
        const words = await textOf(page, `[data-kind="${name}"] p`);
        expect(name, words.includes(`ayer ${head.layer}, head ${head.head} of ${head.of}`), true);
        expect(`whether heads are ${kind}`, words.startsWith("None of the 40 heads"), !isKind);
        const measure = await textOf(page, `[data-kind="${name}"] .measure`);
        const rests = `${baseline.toFixed(2)}, ${tokens.toLocaleString("en")} tokens`;
        expect(`the score of ${name}`, measure.startsWith(score(head).toFixed(2)) && measure.endsWith(rests), true);
        const offered = await page.$$eval(`[data-kind="${name}"] option`, ({ length }) => length);
        expect(`the heads of ${name}`, offered, isKind ? ofKind.length : 3);
      }
      const copying = most(all, (head) => head.copying);
      const shown = await textOf(page, '[data-kind="copying"] .measure');
      expect("copying", shown.startsWith(copying.copying.toFixed(2)), true);
      return textOf(page, "#status");
    }),
  "what is measured here is what was stored": (given) =>
    open(given, "", async (page) => {
      const measures = () => page.$$eval(".measure", (all) => all.map((each) => each.textContent).join("; "));
      const stored = await measures();
      expect("where", await textOf(page, "#status"), /^Measured when these pages were made: 8 heads of induction in /);
      await page.click("#again");
      await page.waitForFunction(() => /^Measured here in /.test(document.getElementById("status").textContent), {
        timeout: 100_000, // every head of both models
      });
      expect("the scores", await measures(), stored);
      return textOf(page, "#status");
    }),
  "a head that is chosen is in the address, and the inspector shows it": (given) =>
    open(given, "", async (page) => {
      const { induction } = await node();
      const text = "qz7 mfk qz7 mfk qz7 m";
      await page.select('[data-kind="induction"] select', "induction.1.3");
      const weight = induction.weights(text, 1, 3);
      await page.focus('[data-kind="induction"] .plot');
      for (const key of ["End", "ArrowUp", "Home", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight"])
        await page.keyboard.press(key);
      const wanted = `“·” looks at “m”: ${weight(19, 4).toFixed(2)}`;
      expect("the cell", await cellOf(page, "induction"), wanted);
      await page.waitForFunction(() => location.hash.includes("key=4") && location.hash.includes("induction.1.3"));
      await page.reload();
      await ready(page);
      expect("the cell after a reload", await cellOf(page, "induction"), wanted);
      const link = await page.$eval('[data-kind="induction"] a', ({ href }) => href);
      return visit(given.browser, link, async (inspector, errors) => {
        await ready(inspector);
        expect("the title", await textOf(inspector, "#one-title"), "Layer 1, head 3");
        const cell = await textOf(inspector, ".heatmap .cell");
        expect("the weight", cell.endsWith(` at 19 looks at “m” at 4: ${weight(19, 4).toFixed(3)}`), true);
        expect("errors of the inspector", errors.join("; "), "");
        return cell;
      });
    }),
  "heads built by hand, and learned ones": (given) =>
    open(given, "", async (page) => {
      const { stories } = await node();
      const sentence = "The cat sat on the mat because it was soft";
      const places = { cat: 2, sat: 3, mat: 6, it: 8, soft: 10 };
      const exact = (score) => (Math.exp(score) / (Math.exp(score) + 9)).toFixed(2);
      const row = (from, to, byHand) => {
        const [query, key] = [places[from], places[to]];
        const found = Array.from({ length: stories.layers }, (_, layer) =>
          Array.from({ length: 8 }, (_, head) => ({ layer, head })),
        ).flat();
        const of = ({ layer, head }) => stories.weights(sentence, layer, head)(query, key);
        const best = found.reduce((most, each) => (of(each) > of(most) ? each : most));
        const learned = [of(best).toFixed(2), `${best.layer}.${best.head}`, (1 / (query + 1)).toFixed(2)];
        return [`“${from}” at “${to}”`, byHand, ...learned].join(" | ");
      };
      expect(
        "the table",
        (await rowsOf(page)).join("\n"),
        [
          row("it", "mat", exact(8)),
          row("it", "cat", (1 / (Math.exp(8) + 9)).toFixed(2)),
          row("soft", "mat", exact(6)),
          row("sat", "cat", exact(8)),
          `“cat” at “sat” | ${exact(6)} | 0.00 | none | 0.00`,
        ].join("\n"),
      );
      // Both maps of a pair have one cursor.
      await page.focus("#pairs .plot");
      await page.keyboard.press("ArrowDown");
      const cells = await page.$$eval("#pairs .cell", (list) => list.map(({ textContent }) => textContent));
      expect("by hand", cells[0], `“was” looks at “mat”: ${(1 / (Math.exp(5) + 9)).toFixed(2)}`);
      expect("learned", cells[1], `“was” looks at “mat”: ${stories.weights(sentence, 0, 7)(9, 6).toFixed(2)}`);
      await page.waitForFunction(() => location.hash.includes("map=meaning"));
      // Agreement, by weights of Node instead of a detector: from the word before a verb of this kind to the noun four before it.
      const { probes, stories: texts } = json("stories/heldout.json");
      const isVerb = ([, probe]) => /^was or were, nouns/.test(probes[probe].name);
      const looks = texts
        .slice(0, 100)
        .flatMap(({ text, probes: places }) =>
          places.filter(isVerb).map(([at]) => stories.weights(text, 0, 6)(at - 1, at - 4)),
        );
      const mean = (looks.reduce((sum, weight) => sum + weight, 0) / looks.length).toFixed(2);
      const said = `layer 0, head 6 looks past “box” at “keys”: over ${looks.length} such verbs it gives that noun ${mean} `;
      expect("agreement", (await textOf(page, "#findings p:last-child")).includes(said), true);
      return cells[1];
    }),
  "the numbers of the tutorial": (given) =>
    open(given, "#map=mixing&query=6&key=3", async (page) => {
      const figure = (name, rest = "") => textOf(page, `[data-figure=${name}] ${rest}`);
      expect("a product", await figure("mixing", ".cell"), /^x\[6\] · W\[6, 3\] = −1\.5228 · −?[\d.]+ = 1\.53/);
      expect("a column", await figure("mixing", ".sum"), /^q\[3\] = .* = 1\.1985, for head 0$/);
      await page.focus("[data-figure=small] .plot");
      for (const key of ["ArrowUp", "ArrowUp", "ArrowUp", "Home"]) await page.keyboard.press(key);
      expect("the first weight", await figure("small", ".cell"), "Head 0: 0 looks at 0: 4.7919e-1");
      await page.keyboard.press("ArrowRight");
      expect("the second weight", await figure("small", ".cell"), "Head 0: 0 looks at 1: 1.1970e-3");
      expect("the weights of projections", await figure("projections", "p"), / 786,432 weights/);
      const shapes = await figure("shapes", "svg.wide");
      for (const shape of [
        "x[2, 10, 512]",
        "view[2, 10, 8, 64]",
        "transpose[2, 8, 10, 64]",
        "one head slice[2, 10, 64]",
      ])
        expect(shape, shapes.replace(/\n/g, "").includes(shape), true);
      for (const [width, shown, hidden] of [
        [360, "narrow-figure", "wide"],
        [1440, "wide", "narrow-figure"],
      ]) {
        await page.setViewport({ width, height: 900 });
        const visible = (name) => page.$eval(`[data-figure=shapes] svg.${name}`, (svg) => svg.checkVisibility());
        expect(`at ${width} pixels`, [await visible(shown), await visible(hidden)].join(), "true,false");
      }
    }),
  "without the models": async ({ browser, url }) => {
    const { origin } = new URL(url);
    const server = createServer(async (request, response) => {
      if (request.url.includes("/models/")) return response.writeHead(404).end();
      const answer = await fetch(`${origin}${request.url}`);
      const type = answer.headers.get("content-type");
      response.writeHead(answer.status, { "Content-Type": type }).end(Buffer.from(await answer.arrayBuffer()));
    });
    await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
    try {
      const { pathname } = new URL(url);
      return await visit(browser, `http://127.0.0.1:${server.address().port}${pathname}gallery.html`, async (page) => {
        await ready(page);
        const message = await textOf(page, "#error");
        expect("the sentence", message, /^The gallery could not be finished: .*\(status 404\)/);
        expect("the figures", (await page.$$("[data-figure]")).length, 4);
        return message;
      });
    } finally {
      server.close();
      server.closeAllConnections();
    }
  },
};
