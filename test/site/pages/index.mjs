// The start page: its story is a run of the model that Node repeats, shows before the model is there, and is that of any words and
// without any heads; and code that runs as it is shown.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { loadKernels } from "../../../dist/index.js";
import { gguf, loadModel, models } from "../../../dist/models.js";
import { quantized } from "../../../dist/quantized.js";
import { generateText, loadTokenizer } from "../../../dist/text.js";
import { PAGES } from "../../../site/pages.ts";
import { readStory, SEVEN, tellStory } from "../../../site/worker/story-run.ts";
import { expect } from "../../examples/given.mjs";
import { textOf, visit } from "../../examples/pages.mjs";
import { run } from "../../examples/processes.mjs";
import { drawn, ready } from "../every-page.mjs";
import { layoutShift } from "../layout-shift.mjs";
import { ONLY_CHROME } from "../tasks.mjs";

const ROOT = join(import.meta.dirname, "../../..");
const FILE = join(ROOT, "model/stories/stories.gguf");
const TEXT = "the cat sat on the mat because it was soft. what was soft? the";
const DRAGON = "The dragon sat on the mat because it was soft. What was soft? the";

/** What Node does with the model of the page. */
async function withModel(work) {
  const kernels = await loadKernels({ deterministic: true, models, quantized });
  try {
    return await work(await loadModel(kernels, FILE, { gguf }), await loadTokenizer(FILE));
  } finally {
    kernels.release();
  }
}

const expected = (text, off = []) =>
  withModel((model, tokenizer) => tellStory(model, tokenizer, readStory(model, tokenizer, text), off));

const percent = (share) => (share < 0.001 ? "<\u00a00.1\u00a0%" : `${(100 * share).toFixed(1)}\u00a0%`);
const rowsOf = ({ next, off }) =>
  next.map(({ word, all, without }) => `${word} ${percent(off.length > 0 ? without : all)}`).join("; ");
const cellsOf = ({ effects }) =>
  effects
    .flat()
    .map((effect) => (effect < 0 ? "−" : effect > 0 ? "+" : "") + Math.abs(effect).toFixed(1))
    .join(" ");

/** What the page shows of a story. */
const shown = (page) =>
  page.evaluate(() => ({
    words: [...document.querySelectorAll(".token:not(.guess)")].map((token) => token.textContent).join(" "),
    unknown: [...document.querySelectorAll(".token.unknown")].map((token) => token.textContent).join(" "),
    guess: document.querySelector(".token.guess").textContent,
    rows: [...document.querySelectorAll("#next li")]
      .map((row) => `${row.firstElementChild.textContent} ${row.lastElementChild.textContent}`)
      .join("; "),
    cells: [...document.querySelectorAll("#effects button")].map((each) => each.ariaLabel.split(": ")[1]).join(" "),
    arcs: [...document.querySelectorAll(".arc")].map((arc) => (arc.classList.contains("off") ? "off" : "on")).join(" "),
    say: document.getElementById("say").textContent,
  }));

const saysOf = (page, pattern) =>
  page.waitForFunction((source) => new RegExp(source).test(document.getElementById("say").textContent), {}, pattern);
const fieldsOf = (page) => String(new URLSearchParams(new URL(page.url()).hash.slice(1)));

async function expectStory(page, story) {
  const { words, unknown, guess, rows, cells } = await shown(page);
  expect("the words", words, story.words.map(({ word }) => word).join(" "));
  const lacking = story.words.filter(({ isKnown }) => !isKnown);
  expect("the unknown words", unknown, lacking.map(({ word }) => word).join(" "));
  expect("what comes next", rows, rowsOf(story));
  const [best] = [...story.next].sort((a, b) => (story.off.length > 0 ? b.without - a.without : b.all - a.all));
  expect("the word that it says", guess, best.word);
  expect("what each head carries", cells, cellsOf(story));
}

const open = (given, look, query = "") =>
  visit(given.browser, `${given.url}index.html${query}`, async (page, errors) => {
    await ready(page);
    const found = await look(page);
    expect("errors of the page", errors.join("; "), "");
    return found;
  });

export const scenarios = {
  "the recorded run and the one of this device are Node's": (given) =>
    open(given, async (page) => {
      const story = await expected(TEXT);
      const recording = JSON.parse(await textOf(page, "#recording"));
      expect("the recorded run", JSON.stringify(recording.story), JSON.stringify(story));
      expect("the heads", JSON.stringify(recording.seven), JSON.stringify(SEVEN));
      expect("bytes of the recording, at most 2500", (await textOf(page, "#recording")).length <= 2500, true);
      expect("who runs it", await textOf(page, "#state"), "The model of stories runs on this device now.");
      await expectStory(page, story);
      expect("the share of mat", percent(story.next[0].all), "99.9\u00a0%");
      expect("the sentence", (await shown(page)).say, /seven heads of layer 1 look back at “mat”/);
      const named = await page.$eval(".sentence svg", (picture) => picture.getAttribute("aria-label"));
      expect("the arcs in words", named, /^From “the”: head 1\.0 gives 89\.4\u00a0% to “mat”; .*head 1\.6 gives/);
    }),
  "one switch takes the seven heads away, and gives them back": (given) =>
    open(given, async (page) => {
      const story = await expected(TEXT, SEVEN);
      await page.focus("#switch");
      await page.keyboard.press("Enter");
      await saysOf(page, "forgotten");
      await page.waitForFunction(() => location.hash === "#off=seven");
      await expectStory(page, story);
      const { arcs, say } = await shown(page);
      expect("the arcs", arcs, Array(7).fill("off").join(" "));
      expect("the sentence", say, /it guesses “rug”, with 62\.3\u00a0%\. Each of the seven alone can go/);
      const link = await page.$eval("#send", ({ href }) => href);
      expect("the link", link.slice(link.lastIndexOf("/") + 1), "index.html#off=seven");
      expect("the button", await textOf(page, "#switch"), "Give them back");
      await page.keyboard.press("Enter");
      await saysOf(page, "99.9");
      await expectStory(page, await expected(TEXT));
    }),
  "a link with heads that are off shows them": (given) =>
    open(
      given,
      async (page) => expectStory(page, await expected(DRAGON, [{ layer: 0, head: 4 }])),
      `#text=${encodeURIComponent(DRAGON)}&off=0.4`,
    ),
  "what a link says of heads is read as far as there are such": (given) =>
    open(
      given,
      async (page) => {
        await page.waitForFunction(() => document.getElementById("state").textContent.endsWith("now."));
        await saysOf(page, "Without head 0.4 ");
        expect("the link", await page.$eval("#send", (link) => link.href.split("#")[1]), "off=0.4");
      },
      "#off=0.4,0.4,9.9,junk",
    ),
  "a cell takes its head away, also by the keyboard": (given) =>
    open(given, async (page) => {
      await page.focus("#effects button");
      for (let i = 0; i < 4; i++) await page.keyboard.press("ArrowRight");
      await page.keyboard.press("Enter");
      await saysOf(page, "Without head 0.4 ");
      await expectStory(page, await expected(TEXT, [{ layer: 0, head: 4 }]));
      await page.waitForFunction(() => location.hash === "#off=0.4");
      await page.keyboard.press("ArrowDown");
      await page.keyboard.press("Enter");
      await saysOf(page, "Without heads 0.4, 1.4 ");
      await expectStory(
        page,
        await expected(TEXT, [
          { layer: 0, head: 4 },
          { layer: 1, head: 4 },
        ]),
      );
      expect("the button", await textOf(page, "#switch"), "Give all heads back");
      await page.click("#switch");
      await saysOf(page, "99.9");
    }),
  "own words stay readable, and those that the model lacks are underlined": (given) =>
    open(given, async (page) => {
      await page.$eval("#prompt", (field) => field.select());
      await page.type("#prompt", DRAGON);
      await page.waitForFunction(() => document.querySelector(".token.unknown")?.textContent === "dragon");
      await expectStory(page, await expected(DRAGON));
      const sentence = await textOf(page, "#unknown");
      expect("the sentence", sentence, /^“dragon” is not among the 290 words and marks of this model/);
      await page.waitForFunction(() => location.hash !== "");
      expect("the address", fieldsOf(page), String(new URLSearchParams({ text: DRAGON })));
      await page.$eval("#prompt", (field) => field.select());
      await page.keyboard.type("Der Hund schläft. Собака спит. 犬が寝る");
      await page.waitForFunction(() => document.querySelectorAll(".token.unknown").length > 5);
      const { unknown } = await shown(page);
      expect("words of other languages", unknown, /^Der Hund schläft Собака спит /);
      await page.$eval("#prompt", (field) => field.select());
      await page.keyboard.type("it costs 5€ 😀😀 <unk>");
      await page.waitForFunction(() => document.querySelectorAll(".token.unknown").length === 4);
      expect("other signs", (await shown(page)).unknown, "costs 5€ 😀😀 <unk>");
      await page.$eval("#prompt", (field) => field.select());
      await page.keyboard.press("Backspace");
      await saysOf(page, "^Type a sentence\\.$");
      expect("the rest is of another text", await page.$eval(".story", (all) => all.classList.contains("stale")), true);
      await page.$eval("#examples button", (button) => button.click());
      await saysOf(page, "“tin”");
      expect("no word is unknown", (await shown(page)).unknown, "");
      expect("the rest is of this text", await page.$eval(".story", (all) => all.classList.contains("stale")), false);
    }),
  "arcs cross no word, at any width": (given) =>
    open(given, async (page) => {
      const crossings = () =>
        page.evaluate(() => {
          const { left, top } = document.querySelector(".sentence").getBoundingClientRect();
          const boxes = [...document.querySelectorAll(".token")].map((token) => token.getBoundingClientRect());
          const arcs = [...document.querySelectorAll(".arc")].filter((arc) => arc.getAttribute("d"));
          const found = arcs.filter((arc) => {
            const length = arc.getTotalLength();
            for (let at = 0; at <= length; at += 2) {
              const { x, y } = arc.getPointAtLength(at);
              const [px, py] = [x + left, y + top];
              if (boxes.some((box) => px > box.left && px < box.right && py > box.top && py < box.bottom)) return true;
            }
            return false;
          });
          const width = document.documentElement.clientWidth;
          const beyond = arcs.filter((arc) => arc.getBoundingClientRect().right > width);
          return { arcs: arcs.length, crossed: found.length, beyond: beyond.length };
        });
      const found = [];
      for (const width of [360, 390, 768, 1440]) {
        await page.setViewport({ width, height: 900 });
        await drawn(page);
        await drawn(page);
        const { arcs, crossed, beyond } = await crossings();
        expect(`arcs at ${width} pixels`, arcs, 7);
        expect(`arcs that cross a word at ${width} pixels`, crossed, 0);
        expect(`arcs beyond the window at ${width} pixels`, beyond, 0);
        const isOne = await page.$eval(".sentence", (sentence) => sentence.classList.contains("one"));
        found.push(`${width}: ${isOne ? "one line" : "lines"}`);
      }
      return found.join(", ");
    }),
  "a model that does not come: the recorded run is there, and the model takes over without a jump": (given) =>
    open(given, async (page) => {
      if (!page.evaluateOnNewDocument) return "not in WebKitGTK, whose driver runs nothing before the page does";
      await page.evaluateOnNewDocument(() => {
        const { postMessage } = Worker.prototype;
        Worker.prototype.postMessage = function (message, ...rest) {
          Worker.prototype.postMessage = postMessage;
          postMessage.call(this, { ...message, task: "nothing" }, ...rest);
        };
      });
      await page.reload();
      await ready(page);
      expect("the sentence", await textOf(page, "#state"), /^The model could not be loaded: .*Load again$/);
      await expectStory(page, await expected(TEXT));
      await page.click("#switch");
      await saysOf(page, "forgotten");
      await page.click("#switch");
      const places = () =>
        page.evaluate(() => {
          const { left, top } = document.querySelector(".sentence").getBoundingClientRect();
          const all = [...document.querySelectorAll(".token, .arc")].map((each) => each.getBoundingClientRect());
          const widths = [...document.querySelectorAll(".fill")].map(({ style }) => style.width);
          return [...all.map(({ x, y, width }) => [x - left, y - top, width].map(Math.round)), ...widths].join();
        });
      await page.waitForFunction(() => document.getAnimations().length === 0);
      const before = [JSON.stringify(await shown(page)), await places()];
      await page.click("#state button");
      await page.waitForFunction(() => /runs on this device/.test(document.getElementById("state").textContent));
      await drawn(page);
      await page.waitForFunction(() => document.getAnimations().length === 0);
      expect("what the model shows in place of the recording", JSON.stringify(await shown(page)), before[0]);
      expect("where", await places(), before[1]);
    }),
  "copies, also without the clipboard": (given) =>
    open(given, async (page) => {
      await page.evaluate(() => void Object.defineProperty(navigator, "clipboard", { value: undefined }));
      await page.click("#copy-install");
      await page.waitForSelector("#manual:focus");
      expect("the text", await page.$eval("#manual", ({ value }) => value), "npm install headwise");
      expect("the status", await textOf(page, "#copied"), "Selected: copy it with the keyboard.");
      await page.click("#send");
      await page.waitForFunction(() => document.getElementById("manual").value.endsWith("/index.html"));
    }),
  "doors lead to all pages, the figures are measured, and the code runs": (given) =>
    open(given, async (page) => {
      const links = await page.$$eval(".doors a, footer a", (all) => all.map((link) => link.getAttribute("href")));
      for (const { name } of PAGES)
        if (name !== "index") expect(`a link to ${name}`, links.includes(`./${name}.html`), true);
      const figures = await page.$$eval(".figures div", (all) =>
        all.map((each) => `${each.querySelector("dd").textContent} ${each.querySelector("dt").textContent}`),
      );
      expect("the size", figures[0], /^\d\d KB gzip, kernels inside$/);
      expect("the dependencies", figures[1], "0 dependencies");
      expect(
        "the ratio",
        figures[2],
        /^\d\.\d× as fast as onnxruntime-web: 512 tokens of a GPT-2 layer, Zen 4, \w+ 20\d\d$/,
      );
      expect("the runtimes", figures[3], "7 runtimes and browsers tested");
      await page.$eval("[data-example] .actions button", (button) => button.click());
      await page.waitForFunction(
        () => document.querySelector("[data-example] .actions button").textContent === "Run again",
      );
      const written = await withModel(async (model, tokenizer) => {
        const pieces = [];
        for await (const piece of generateText(model, tokenizer, "the cat sat on the mat", { maxTokens: 40 }))
          pieces.push(piece);
        return pieces.join("");
      });
      // As it is copied, in Node, too.
      const file = join(ROOT, "build/site-example.mjs");
      writeFileSync(file, await textOf(page, "#code"));
      const inNode = (await run(process.execPath, [file], { cwd: ROOT })).trim();
      expect(`what it prints in Node, “${inNode.slice(0, 60)}…”, begins so`, inNode.startsWith(written.trim()), true);
      const printed = (await textOf(page, "[data-example] output")).trim();
      expect(`what it printed, “${printed.slice(0, 60)}…”, begins as Node's`, printed.startsWith(written.trim()), true);
      expect("the command", await textOf(page, "#install"), "npm install headwise");
    }),
  "nothing moves without its cause": (given) =>
    open(given, async (page) => {
      if (given.kind !== "chrome") return ONLY_CHROME;
      await page.emulateMediaFeatures([{ name: "prefers-reduced-motion", value: "reduce" }]);
      const seconds = await page.$$eval(".arc, .fill", (all) =>
        all.map((each) => getComputedStyle(each).transitionDuration),
      );
      expect("transitions", [...new Set(seconds)].join(), "0s");
    }),
  "colours that one has chosen show arcs, bars and the page": (given) =>
    open(given, async (page) => {
      if (given.kind !== "chrome") return "in Chromium alone, whose driver sets them";
      const session = await page.createCDPSession();
      await session.send("Emulation.setEmulatedMedia", { features: [{ name: "forced-colors", value: "active" }] });
      const { ground, arcs, bar } = await page.evaluate(() => ({
        ground: getComputedStyle(document.body).backgroundColor,
        arcs: getComputedStyle(document.querySelector(".arc")).stroke,
        bar: getComputedStyle(document.querySelector(".fill.answer")).backgroundColor,
      }));
      expect("arcs differ from the ground", arcs !== ground, true);
      expect("bars differ from the ground", bar !== ground, true);
    }),
};

export const timed = {
  "the story within a second, before the model and with few bytes": ({ browser, url, kind }) =>
    visit(browser, `${url}index.html`, async (page) => {
      await ready(page);
      const { story, live, before } = await page.evaluate(() => {
        const story = performance.getEntriesByName("story")[0].startTime;
        const all = performance.getEntriesByType("resource").filter(({ startTime }) => startTime < story);
        const live = performance.getEntriesByName("ready")[0].startTime;
        return { story, live, before: all.map(({ name }) => name) };
      });
      expect(`the story, after ${story} ms, before 1000`, story < 1000, true);
      expect(`the model, after ${live} ms, before 5000`, live < 5000, true);
      const files = await Promise.all([`${url}index.html`, ...before].map(async (name) => (await fetch(name)).bytes()));
      const bytes = files.reduce((sum, file) => sum + gzipSync(file).length, 0);
      expect(`requests before the story: ${before.length} of at most 12`, before.length <= 12, true);
      expect(`bytes before the story: ${bytes} of at most 100000`, bytes <= 100_000, true);
      const shift = kind === "chrome" ? `, shift ${(await layoutShift(page)).toFixed(3)}` : "";
      return `story ${story.toFixed(0)} ms, ${(bytes / 1000).toFixed(1)} kB gzip; the model ${live.toFixed(0)} ms${shift}`;
    }),
};
