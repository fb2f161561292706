// Every page without what engines have only since the oldest ones that the site is built for (site/build.ts). Workers keep it: what
// runs before a page does not run in them.

import { PAGES } from "../../site/pages.ts";
import { expect } from "../examples/given.mjs";
import { visit } from "../examples/pages.mjs";
import { ready } from "./every-page.mjs";
import { ONLY_CHROME } from "./tasks.mjs";

/** Takes from a page what is newer than Chrome 103, Firefox 114 or Safari 16.4. */
function age() {
  const removed = [
    [Array.prototype, "with", "toReversed", "toSorted", "toSpliced"],
    [Element.prototype, ...Object.getOwnPropertyNames(Element.prototype).filter((name) => /^aria|^role$/.test(name))],
    [
      Iterator.prototype,
      "map",
      "filter",
      "take",
      "drop",
      "flatMap",
      "reduce",
      "toArray",
      "forEach",
      "some",
      "every",
      "find",
    ],
    [Set.prototype, "union", "intersection", "difference", "isSubsetOf", "isSupersetOf", "isDisjointFrom"],
    [URLSearchParams.prototype, "size"],
    [AbortSignal, "any"],
    [Array, "fromAsync"],
    [Map, "groupBy"],
    [Object, "groupBy"],
    [Promise, "withResolvers", "try"],
    [URL, "canParse", "parse"],
  ];
  for (const [from, ...names] of removed) for (const name of names) delete from[name];
}

/** Elements with a role or a property of ARIA that was assigned as a property, which older engines do not read. */
function lostAria() {
  return [...document.querySelectorAll("*")].flatMap((element) =>
    Object.keys(element)
      .filter((property) => /^aria[A-Z]|^role$/.test(property))
      .map((property) => `${element.outerHTML.slice(0, 80)} ${property}`),
  );
}

export async function expectOlder({ browser, kind, url }) {
  if (kind !== "chrome") return ONLY_CHROME;
  for (const { name } of PAGES)
    await visit(browser, `${url}${name}.html`, async (page, errors) => {
      await page.evaluateOnNewDocument(age);
      await page.reload();
      await ready(page);
      expect(`errors of ${name}`, errors.join("; "), "");
      expect(`roles and ARIA of ${name} that are no attributes`, (await page.evaluate(lostAria)).join("; "), "");
      if (name !== "inspector") return;
      const pressed = () => page.$eval("#views [aria-pressed=true]", ({ textContent }) => textContent);
      expect("the view", await pressed(), "Map");
      await page.evaluate(() => [...document.querySelectorAll("#views button")][2].click());
      await page.waitForFunction(() => location.hash === "#view=lines");
      expect("the other view", await pressed(), "Lines");
      await page.evaluate(() => document.querySelector("#views button").click());
      await page.waitForFunction(() => location.hash === "");
    });
  return `${PAGES.length} pages`;
}
