// What holds for every page: no errors, no violation that axe finds, no overflow at three widths, light and dark; each control is
// reached by the keyboard; something is to be seen within a second, and no task is long while one types.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { expect } from "../examples/given.mjs";
import { visit } from "../examples/pages.mjs";
import { expectShortTasks, ONLY_CHROME } from "./tasks.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const WIDTHS = [360, 768, 1440];
/** Chromium takes a scheme at any time, Firefox at its start, and WebKit none: each scheme is tested in two engines. */
const SCHEMES = { chrome: ["light", "dark"], firefox: ["dark"], webkit: ["light"] };

/** A page says that it shows what it is there for by `data-ready` on its body. */
export const ready = (page) => page.waitForSelector("body[data-ready]", { timeout: 60_000 });

/** Waits until what was to be drawn in the next frame is drawn. */
export const drawn = (page) =>
  page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));

async function look(page, errors, { kind, name, title, shots }) {
  const shown = await page.title();
  if (!shown.startsWith(title)) throw new Error(`the title expected "${title}", got "${shown}"`);
  for (const scheme of SCHEMES[kind]) {
    if (kind === "chrome") await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
    const isDark = await page.evaluate(() => matchMedia("(prefers-color-scheme: dark)").matches);
    expect("the scheme", isDark ? "dark" : "light", scheme);
    for (const width of WIDTHS) {
      await page.setViewport({ width, height: 900 });
      await drawn(page);
      await expectNoOverflow(page, width);
      await page.screenshot({ path: join(shots, `${name}-${kind}-${scheme}-${width}.png`), fullPage: true });
    }
    await expectAccessible(page, scheme);
  }
  const primary = await page.$$eval(".primary", (all) => all.filter((each) => each.checkVisibility()).length);
  expect(`primary buttons, ${primary}, at most one`, primary <= 1, true);
  const menus = await page.$$eval(
    ".bar a",
    (all) => new Set(all.map((each) => each.offsetTop + each.offsetHeight / 2)).size,
  );
  expect("lines of the menu", menus <= 2, true);
  expect("errors of the page", errors.join("; "), "");
  return `three widths, ${SCHEMES[kind].join(" and ")}, axe`;
}

/** Tab leads to every control of a page, each of which shows that it has the focus, and from the last one on. */
async function reachable(page) {
  await page.setViewport({ width: 1024, height: 900 });
  const count = await page.evaluate(() => {
    const isThere = (element) => element.checkVisibility() && !element.matches(":disabled");
    const all = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")];
    globalThis.reached = new Set();
    globalThis.unseen = new Set();
    // Of radio buttons, Tab leads to the one that is chosen.
    globalThis.controls = all.filter(
      (each) => isThere(each) && each.tabIndex >= 0 && !(each.type === "radio" && !each.checked),
    );
    // The others of a group, to which arrow keys lead from the one that Tab leads to.
    globalThis.alone = all.filter(
      (each) =>
        isThere(each) &&
        each.tabIndex < 0 &&
        each.id !== "content" &&
        !(each.closest(".groups") ?? each.closest("[role]"))?.querySelector("[tabindex='0']"),
    );
    addEventListener("focusin", ({ target }) => {
      reached.add(target);
      const { outlineStyle, boxShadow } = getComputedStyle(target);
      if (outlineStyle === "none" && boxShadow === "none") unseen.add(target);
    });
    return controls.length;
  });
  // Engines have stops of their own too: what scrolls, and the browser's own controls behind the last one.
  for (let i = 0; i < count + 20; i++) {
    await page.keyboard.press("Tab");
    if (i % 10 === 9 && (await page.evaluate(() => controls.every((each) => reached.has(each))))) break;
  }
  const text = (from) =>
    page.evaluate(`[...${from}].map((each) => each.outerHTML.slice(0, 120)).slice(0, 5).join("; ")`);
  expect("controls that Tab does not lead to", await text("controls.filter((each) => !reached.has(each))"), "");
  expect("controls that only the pointer reaches", await text("alone"), "");
  expect("controls that do not show the focus", await text("unseen"), "");
  return `${count} controls`;
}

/** What a visitor of a page waits for. */
export function quickPage({ browser, url, name }) {
  return visit(browser, `${url}${name}.html`, async (page) => {
    await ready(page);
    const { paint, shown } = await page.evaluate(() => ({
      paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime,
      shown: performance.getEntriesByName("ready")[0]?.startTime,
    }));
    expect(`the first paint, ${paint} ms, before 1000`, paint < 1000, true);
    return `painted after ${paint.toFixed(0)} ms, ready after ${shown.toFixed(0)} ms`;
  });
}

/** No task of a page is long while one types into its first field, or moves its first slider. */
async function typing(page, _errors, { kind }) {
  if (kind !== "chrome") return ONLY_CHROME;
  const [id, type] = await page.evaluate(() => {
    const fields = "textarea, input:is(:not([type]), [type=text], [type=search], [type=url], [type=range])";
    const isThere = (field) =>
      field.checkVisibility() && !field.disabled && !(field.readOnly && field.type !== "range");
    const field = [...document.querySelectorAll(`main :is(${fields})`)].find(isThere);
    if (!field) return [];
    field.focus();
    return [field.id, field.type];
  });
  if (type === undefined) return "the page has no field to type into";
  const keys = type === "range" ? Array(12).fill("ArrowRight") : [..." the cat sat"];
  const figures = await expectShortTasks(page, async () => {
    for (const key of keys) {
      await page.keyboard.press(key);
      await new Promise((done) => setTimeout(done, 50));
    }
    await new Promise((done) => setTimeout(done, 500));
  });
  return `keys in “${id}”: ${figures}`;
}

/** What is tested of every page, one after the other, on one visit of it. */
export const EVERY_PAGE = { "every page": look, keyboard: reachable, typing };

/** Throws if the page is wider than the window, or an element that does not scroll is. */
export async function expectNoOverflow(page, width) {
  const wide = await page.evaluate(() => {
    const limit = document.documentElement.clientWidth + 0.5;
    const scrolls = (element) => {
      for (let each = element.parentElement; each; each = each.parentElement)
        if (/auto|scroll/.test(getComputedStyle(each).overflowX) && each !== document.body) return true;
      return false;
    };
    return [...document.body.querySelectorAll("*")]
      .filter((element) => element.checkVisibility() && !element.classList.contains("skip"))
      .filter((element) => element.getBoundingClientRect().right > limit && !scrolls(element))
      .slice(0, 5)
      .map(
        (element) => `${element.tagName.toLowerCase()}.${element.className}: ${element.getBoundingClientRect().right}`,
      );
  });
  if (wide.length > 0) throw new Error(`at ${width} pixels, beyond the right edge: ${wide.join("; ")}`);
}

/** Throws if axe finds a violation. It is handed to the page past its policy, which allows no foreign scripts. */
export async function expectAccessible(page, scheme) {
  const violations = await page.evaluate(`(async () => {
    const module = { exports: {} };
    ${"" /* a plain script: it is evaluated by the driver, not loaded by the page */}
    ${AXE}
    const { violations } = await (globalThis.axe ?? module.exports).run(document, { resultTypes: ["violations"] });
    return violations.map(({ id, nodes }) => id + ": " + nodes.slice(0, 3).map(({ html }) => html.slice(0, 120)).join(" | "));
  })()`);
  if (violations.length > 0) throw new Error(`axe, ${scheme}: ${violations.join("\n")}`);
}
