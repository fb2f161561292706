// The weights that the inspector shows are those of Node, whatever the way to them: typing, links, keys, the pointer, the grid.

import { loadKernels } from "../../../dist/index.js";
import { detectHeads } from "../../../dist/inspect.js";
import { gguf, loadModel, models } from "../../../dist/models.js";
import { quantized } from "../../../dist/quantized.js";
import { loadTokenizer } from "../../../dist/text.js";
import { HEAD_KINDS } from "../../../site/src/head-kinds.ts";
import { expect } from "../../examples/given.mjs";
import { textOf } from "../../examples/pages.mjs";
import { drawn } from "../every-page.mjs";
import { cell, digestIs, expected, FILE, open, press, setText, TEXT, textIs, VIEW } from "./given.mjs";

export const scenarios = {
  "the weights of Node, and of a text that goes on": (given) =>
    open(given, async (page) => {
      const node = await expected(TEXT);
      await digestIs(page, node.digest);
      await page.type("#text", " rug . kate");
      const longer = await expected(`${TEXT} rug . kate`);
      await digestIs(page, longer.digest);
      // A change in the middle, and back.
      await setText(page, TEXT.replace("slept", "sat"));
      await digestIs(page, (await expected(TEXT.replace("slept", "sat"))).digest);
      await setText(page, TEXT);
      await digestIs(page, node.digest);
      return node.digest;
    }),
  "a view is a link, and the keyboard alone makes it": (given) =>
    open(given, async (page) => {
      const node = await expected(TEXT);
      await page.focus('.groups button[aria-pressed="true"]');
      for (const key of ["Home", "ArrowRight", "ArrowRight"]) await page.keyboard.press(key);
      await textIs(page, "#one-title", "Layer 0, head 2");
      await page.focus(".plot");
      for (const key of ["Home", "ArrowRight", "ArrowUp"]) await page.keyboard.press(key);
      const wanted = cell(node, 0, 2, node.words.length - 2, 1);
      await textIs(page, "output.cell", wanted);
      // Also where the keys come slowly, and the cells on the way are in the address for a moment.
      const place = `query=${node.words.length - 2}&key=1`;
      await page.waitForFunction((wanted) => location.hash.includes(wanted), {}, place);
      const link = page.url();
      return open(
        given,
        async (other) => {
          expect("the cell of the link", await textOf(other, "output.cell"), wanted);
          expect("the title of the link", await textOf(other, "#one-title"), "Layer 0, head 2");
          return link.slice(link.indexOf("#"));
        },
        link.slice(link.indexOf("#")),
      );
    }),
  "the pointer reads weights": (given) =>
    open(
      given,
      async (page) => {
        const node = await expected(TEXT);
        // Not higher than a screen, beyond which WebKitGTK's pointer does not go.
        await page.setViewport({ width: 1280, height: 900 });
        const plot = await page.$(".heatmap .plot");
        await plot.scrollIntoView();
        await drawn(page);
        const { x, y, width, height } = await plot.boundingBox();
        const n = node.words.length;
        await page.mouse.move(x + (width * 6.5) / n, y + (height * 16.5) / n);
        await textIs(page, ".heatmap output", cell(node, 1, 6, 16, 6));
        await page.waitForFunction(() => /query=16&key=6/.test(location.hash));
        // In the lines, a word on the left is a query, and one on the right a key.
        await press(page, "Lines");
        // Once for both words: a page that scrolls under the pointer moves the cursor.
        await (await page.$(".token-lines .plot")).scrollIntoView();
        /** Moves to a word, and again where the page was drawn anew meanwhile. */
        const hover = async (column, i, pattern) => {
          const word = await page.$(`.token-lines .tokens:${column} span:nth-child(${i + 1})`);
          for (let tries = 0; tries < 8; tries++) {
            await drawn(page);
            const box = await word.boundingBox();
            await page.mouse.move(box.x + box.width / 2 + tries, box.y + box.height / 2);
            await drawn(page);
            if (pattern.test(await textOf(page, ".token-lines output"))) return;
          }
        };
        await hover("first-child", 13, / at 13 looks /);
        await hover("last-child", 3, / at 3: /);
        await textIs(page, ".token-lines output", cell(node, 1, 6, 13, 3));
      },
      `${VIEW}&layer=1&head=6`,
    ),
  "heads by what they do": (given) =>
    open(given, async (page) => {
      const kernels = await loadKernels({ models, quantized, deterministic: true });
      const model = await loadModel(kernels, FILE, { gguf });
      const text = (await loadTokenizer(FILE)).encode(TEXT);
      // The model answers “rug”, which is at 6: heads that find it have the name that the gallery gives them.
      const found = detectHeads(model, [{ tokens: text, pairs: [{ query: 16, key: 6 }] }], { copying: false });
      kernels.release();
      await press(page, "By what they do");
      await page.waitForFunction(() => location.hash.includes("sort=kind"));
      const shown = await page.$$eval(".groups section", (all) =>
        all.map((group) => {
          const heads = [...group.querySelectorAll("button")].map(({ textContent }) => textContent.split(" ")[0]);
          return { title: group.querySelector("h3").firstChild.textContent, heads };
        }),
      );
      const nameOf = (title) => Object.entries(HEAD_KINDS).find(([, kind]) => kind.title === title)[0];
      for (const { title, heads } of shown) {
        const kind = nameOf(title);
        const name = kind === "name mover" ? "reference" : kind;
        const score = (each) => (kind === "offset" ? each.offset.score : (each.scores[name]?.score ?? 0));
        const wanted = found.filter((each) => each.kind === kind).sort((a, b) => score(b) - score(a));
        expect(kind, heads.join(" "), wanted.map(({ layer, head }) => `${layer}.${head}`).join(" "));
      }
      expect("all heads", shown.flatMap(({ heads }) => heads).length, found.length);
      expect("more than two kinds", shown.length > 2, true);
      expect("the first kind", shown[0].title, "Name mover");
      const { layer, head, kind, scores } = found.find((each) => each.kind === "local");
      await page.evaluate((place) => {
        [...document.querySelectorAll(".groups button")]
          .find(({ textContent }) => textContent.startsWith(place))
          .click();
      }, `${layer}.${head} `);
      await textIs(page, "#one-title", `Layer ${layer}, head ${head}`);
      const { score, tokens } = scores[kind];
      expect(
        "what the head does",
        await textOf(page, "#does"),
        RegExp(`the last four tokens: ${(100 * score).toFixed(0)}\u00a0% of the attention of ${tokens} tokens\\.`),
      );
      return shown.map(({ title, heads }) => `${title} ${heads.length}`).join(", ");
    }),
  "words that the vocabulary lacks are named": (given) =>
    open(given, async (page) => {
      const status = (wanted) =>
        page.waitForFunction((text) => document.getElementById("status").textContent.includes(text), {}, wanted);
      await setText(page, "the zyzzyva sat on the quokka.");
      await status("The vocabulary lacks “zyzzyva”, “quokka”: the model reads <unk> instead.");
      await digestIs(page, (await expected("the zyzzyva sat on the quokka.")).digest);
      await setText(page, TEXT);
      await page.waitForFunction(() => !/vocabulary/.test(document.getElementById("status").textContent));
      await setText(page, "");
      await status("1 token;");
    }),
};
