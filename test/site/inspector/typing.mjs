// How the inspector answers while one types: tasks of the page by their time on the processor, which other programs do not lengthen,
// and the time from a key to the map.

import { expect } from "../../examples/given.mjs";
import { textOf } from "../../examples/pages.mjs";
import { expectShortTasks, ONLY_CHROME } from "../tasks.mjs";
import { open } from "./given.mjs";

/** 177 tokens of the 192 that the model reads: what is typed comes on top. */
const LONG = "the cat sat on the mat because it was soft . ".repeat(16);
const TYPED = " the cat sat .";
/**
 * Milliseconds from a key to the view that answers it: the pass of the model in the worker, and the next frame. The fastest answer is
 * taken, as other programs on the machine delay single ones. WebKitGTK draws on the processor here, as no graphics card is there.
 */
const MOST_ANSWER_MS = { chrome: 100, firefox: 100, webkit: 250 };

/** What has a pixel or an element for each token of the text, by view. */
const DRAWN = { map: ".heatmap canvas", lines: ".token-lines .tokens:last-child" };

/** Types, and gives the times from each key to the view that answers it, in ms; throws if a view then has other tokens. */
async function typeAndWait(page, text, view) {
  await page.focus("#text");
  const times = [];
  for (const key of text) {
    await page.evaluate((selector) => {
      globalThis.answer = new Promise((done) => {
        let begin;
        document.getElementById("text").addEventListener("input", () => (begin = performance.now()), { once: true });
        const answered = new MutationObserver(() => {
          if (begin === undefined) return; // the answer to an earlier key
          answered.disconnect();
          requestAnimationFrame(() => {
            const element = document.querySelector(selector);
            const tokens = Number.parseInt(document.getElementById("status").textContent, 10);
            done({ ms: performance.now() - begin, tokens, drawn: element.width ?? element.children.length });
          });
        });
        answered.observe(document.getElementById("status"), { childList: true, characterData: true, subtree: true });
      });
    }, DRAWN[view]);
    await page.keyboard.type(key);
    const { ms, tokens, drawn } = await page.evaluate(() => globalThis.answer);
    expect("the tokens that are drawn", drawn, tokens);
    times.push(ms);
  }
  return times.sort((a, b) => a - b);
}

const typing = (view) => (given) =>
  open(
    given,
    async (page) => {
      let times;
      const work = async () => {
        times = await typeAndWait(page, TYPED, view);
        return ONLY_CHROME;
      };
      const found = await (given.kind === "chrome" ? expectShortTasks(page, work) : work());
      const [fastest, median, slowest] = [times[0], times[times.length >> 1], times.at(-1)].map(Math.round);
      const most = MOST_ANSWER_MS[given.kind];
      expect(`${fastest} ms from key to map: at most ${most}`, fastest <= most, true);
      return `${await textOf(page, "#status")} from key to map ${fastest} to ${slowest} ms, median ${median}; ${found}`;
    },
    `#view=${view}&text=${encodeURIComponent(LONG)}`,
  );

export const timed = {
  "no task above 50 ms while one types at 180 tokens": typing("map"),
  "no task above 50 ms while one types beside lines": typing("lines"),
};
