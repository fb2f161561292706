// The documents: all of them lie within a phone's width, links between them lead somewhere, examples run, the search finds.

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "../../examples/given.mjs";
import { textOf, visit } from "../../examples/pages.mjs";
import { expectAccessible, expectNoOverflow, ready } from "../every-page.mjs";

const SITE = join(import.meta.dirname, "../../../build/site");
const documents = readdirSync(join(SITE, "docs"), { recursive: true })
  .filter((file) => file.endsWith(".html"))
  .map((file) => `docs/${file.replaceAll("\\", "/")}`);

/** Examples of a document that run at the same time. */
const AT_ONCE = 4;

/** Waits for the end of an example, which prints something and no error. */
async function expectPrinted(page, example, file) {
  await page.waitForFunction(
    (element) => element.querySelector(".actions button").textContent === "Run again",
    {},
    example,
  );
  const [output, error] = await example.evaluate((element) => [
    element.querySelector("output").textContent,
    element.querySelector(".error")?.textContent ?? null,
  ]);
  if (error !== null) throw new Error(`${file}: an example ended with ${error}`);
  if (output === "") throw new Error(`${file}: an example printed nothing`);
}

export const scenarios = {
  "links between documents": () => {
    let links = 0;
    for (const file of documents)
      for (const [, href] of readFileSync(join(SITE, file), "utf8").matchAll(/href="([^":]+)"/g)) {
        links++;
        const { pathname, hash } = new URL(href, `http://site/${file}`);
        const target = join(SITE, decodeURIComponent(pathname));
        if (!existsSync(target)) throw new Error(`${file}: ${href} leads nowhere`);
        if (hash && !readFileSync(target, "utf8").includes(`id="${decodeURIComponent(hash.slice(1))}"`))
          throw new Error(`${file}: ${href} has no such anchor`);
      }
    return `${links} links in ${documents.length} documents`;
  },
  "every document on a phone": (given) =>
    visit(given.browser, `${given.url}docs.html`, async (page, errors) => {
      await page.setViewport({ width: 360, height: 900 });
      for (const file of documents) {
        await page.goto(`${given.url}${file}`);
        await ready(page);
        try {
          await expectNoOverflow(page, 360);
          if (given.kind === "chrome") await expectAccessible(page, "light");
        } catch (error) {
          error.message = `${file}: ${error.message}`;
          throw error;
        }
      }
      expect("errors of the pages", errors.join("; "), "");
      return `${documents.length} documents`;
    }),
  "every example runs": async (given) => {
    if (given.kind !== "chrome") return "in Chromium only: they are the same scripts";
    return visit(given.browser, `${given.url}docs.html`, async (page) => {
      let count = 0;
      for (const file of documents.filter((each) => /data-example/.test(readFileSync(join(SITE, each), "utf8")))) {
        await page.goto(`${given.url}${file}`);
        await ready(page);
        const examples = await page.$$("[data-example]");
        for (let first = 0; first < examples.length; first += AT_ONCE) {
          const some = examples.slice(first, first + AT_ONCE);
          for (const example of some) await example.$eval(".actions button", (button) => button.click());
          for (const example of some) await expectPrinted(page, example, file);
        }
        count += examples.length;
      }
      return `${count} examples`;
    });
  },
  "documents in the order in which one learns, each with what is beside it": (given) =>
    visit(given.browser, `${given.url}docs/overview.html`, async (page, errors) => {
      await page.setViewport({ width: 1440, height: 900 });
      await ready(page);
      const groups = await page.$$eval(".documents nav h2", (all) => all.map((each) => each.textContent));
      expect("the first groups", groups.slice(0, 4).join(), "Start,Models,Text,Retrieval");
      const files = await page.$$eval(
        ".documents nav a",
        (all) => all.filter((each) => /\.md/.test(each.textContent)).length,
      );
      expect("names of files in the list", files, 0);
      expect("before the first", (await page.$$('[rel="prev"]')).length, 0);
      await page.click('[rel="next"]');
      await page.waitForFunction(() => location.pathname.endsWith("/docs/guide/start.html"));
      // Next leads through all documents, each once.
      let [path, read] = ["docs/overview.html", 0];
      for (; path; read++) {
        const [, next] = /rel="next" href="([^"]+)"/.exec(readFileSync(join(SITE, path), "utf8")) ?? [];
        path = next && new URL(next, `http://site/${path}`).pathname.slice(1);
        if (read > documents.length) throw new Error("next leads in a circle");
      }
      expect("documents that next leads to", read, documents.length);
      // The contents of a page, at its right.
      await page.goto(`${given.url}docs/guide/decode.html`);
      await ready(page);
      const [contents, article] = await page.evaluate(() =>
        [".contents", ".document"].map((each) => document.querySelector(each).getBoundingClientRect().left),
      );
      expect("contents at the right", contents > article + 400, true);
      await page.click(".contents li:nth-child(2) a");
      await page.waitForSelector(":target");
      expect("errors of the pages", errors.join("; "), "");
      return `${read} documents`;
    }),
  "code has colours and is copied": (given) =>
    visit(given.browser, `${given.url}docs/guide/start.html`, async (page, errors) => {
      await ready(page);
      const kinds = ["word", "string", "comment"];
      for (const kind of kinds) expect(`code-${kind}`, (await page.$$(`.code-${kind}`)).length > 0, true);
      await page.evaluate(() => {
        Object.defineProperty(navigator, "clipboard", {
          value: { writeText: async (text) => (globalThis.copied = text) },
        });
        document.querySelector(".code .copy").click();
      });
      await page.waitForFunction(() => document.querySelector(".code .copy").textContent === "Copied.");
      const [copied, code] = await page.evaluate(() => [copied, document.querySelector(".code code").textContent]);
      expect("what is copied", copied, code);
      await page.waitForFunction(() => document.querySelector(".code .copy").textContent === "Copy");
      expect("errors of the page", errors.join("; "), "");
    }),
  "the search knows other words, shows where, and follows keys": (given) =>
    visit(given.browser, `${given.url}docs.html`, async (page, errors) => {
      await ready(page);
      const first = async (question) => {
        await page.$eval("#search", (field) => Object.assign(field, { value: "" }));
        await page.keyboard.press("/");
        expect("the field by its key", await page.evaluate(() => document.activeElement.id), "search");
        await page.keyboard.type(question);
        await page.waitForFunction(
          (text) =>
            location.hash === `#${new URLSearchParams({ search: text })}` && document.querySelector("#results a"),
          {},
          question,
        );
        return page.$$eval("#results a", (all) => all.slice(0, 5).map((each) => each.getAttribute("href")));
      };
      for (const [question, place] of [
        ["get started", /guide\/start|overview/],
        ["quickstart", /guide\/start|overview/],
        ["int8", /quantisation/],
        ["rag", /retrieval|search/],
      ]) {
        const found = await first(question);
        expect(
          `“${question}” in ${found}`,
          found.some((href) => place.test(href)),
          true,
        );
        await page.evaluate(() => document.activeElement.blur());
      }
      expect("words that are marked", (await page.$$("#results mark")).length > 0, true);
      await page.evaluate(() => {
        document.activeElement.blur();
        document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "k", ctrlKey: true, bubbles: true }));
      });
      await page.keyboard.press("ArrowDown");
      await page.keyboard.press("ArrowDown");
      expect("the second result", await page.$$eval("#results a", (all) => all.indexOf(document.activeElement)), 1);
      await page.keyboard.press("Escape");
      expect("back in the field", await page.evaluate(() => document.activeElement.id), "search");
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => location.pathname.includes("/docs/"));
      expect("errors of the page", errors.join("; "), "");
      return page.evaluate(() => location.pathname);
    }),
  "the search": (given) =>
    visit(given.browser, `${given.url}docs.html`, async (page, errors) => {
      await ready(page);
      await page.type("#search", "sliding window");
      await page.waitForSelector("#results a");
      expect("the status", await textOf(page, "#found"), /^(12 of )?\d+ found$/);
      // By the keyboard alone: Tab leads from the field to what was found.
      await page.keyboard.press("Tab");
      expect(
        "the first that was found",
        await page.evaluate(() => document.activeElement.closest("#results") !== null),
        true,
      );
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => location.pathname.includes("/docs/"));
      await ready(page);
      expect("errors of the page", errors.join("; "), "");
      return page.title();
    }),
  "a heading and the way back from it leave what an example printed": (given) =>
    visit(given.browser, `${given.url}docs/guide/inspect.html`, async (page, errors) => {
      await ready(page);
      await page.evaluate(() => {
        document.querySelector("[data-example] output").textContent = "printed";
        location.hash = document.querySelector("main h2[id]").id;
      });
      await page.waitForFunction(() => document.querySelector(":target") !== null);
      await page.evaluate(() => history.back());
      await page.waitForFunction(() => location.hash === "");
      await new Promise((done) => setTimeout(done, 300)); // what a reload would take
      expect("what was printed", await textOf(page, "[data-example] output"), "printed");
      expect("errors of the page", errors.join("; "), "");
    }),
  "a search without its file leaves a sentence, and one that is a link": (given) =>
    visit(given.browser, `${given.url}docs.html`, async (page, errors) => {
      await ready(page);
      await page.evaluate(() => {
        const { fetch } = globalThis;
        globalThis.fetch = () => Promise.reject(new TypeError("no network"));
        globalThis.repair = () => {
          globalThis.fetch = fetch;
        };
      });
      await page.type("#search", "slidin");
      await page.waitForSelector("#found.error");
      expect(
        "the sentence",
        await textOf(page, "#found"),
        "The search could not be loaded (no network). Type on to try again.",
      );
      await page.evaluate(() => repair());
      await page.type("#search", "g");
      await page.waitForSelector("#results a");
      expect("the status", await textOf(page, "#found"), /^(12 of )?\d+ found$/);
      await page.waitForFunction(() => location.hash === "#search=sliding");
      await page.reload();
      await page.waitForSelector("#results a");
      expect("the search of the address", await page.$eval("#search", ({ value }) => value), "sliding");
      expect("errors of the page", errors.join("; "), "");
    }),
};
