// What holds for every page: no errors, no violation that axe finds, no overflow at three widths, light and dark; each control is
// reached by the keyboard; something is to be seen within a second, and no task is long while one types.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { expect } from "../examples/given.mjs";
import { visit } from "../examples/pages.mjs";
import { layoutShift, MOST_SHIFT } from "./layout-shift.mjs";
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

/** A finger that moves up over a map scrolls the page of a phone. */
async function swipe(page, _errors, { kind }) {
  if (kind !== "chrome") return "in Chromium alone, whose driver has fingers";
  if ((await page.$$(MAPS)).length === 0) return "the page has no map";
  // The page is loaded anew where fingers come or go.
  await page.setViewport({ width: 390, height: 700, hasTouch: true, isMobile: true });
  await ready(page);
  const trapped = await page.$$eval(
    MAPS,
    (all) => all.filter((each) => !/auto|pan-y/.test(getComputedStyle(each).touchAction)).length,
  );
  expect("maps that keep a finger from scrolling", trapped, 0);
  let swiped = 0;
  for (const map of (await page.$$(MAPS)).slice(0, 3)) {
    if (!(await map.evaluate((each) => each.checkVisibility()))) continue;
    await map.evaluate((each) => each.scrollIntoView({ block: "center" }));
    await drawn(page);
    const { x, y, width, height } = await map.boundingBox();
    const from = { x: x + width / 2, y: Math.min(600, Math.max(200, y + height / 2)) };
    const { before, room } = await page.evaluate(() => ({
      before: scrollY,
      room: document.documentElement.scrollHeight - innerHeight - scrollY,
    }));
    const way = room > 150 ? -150 : 150;
    await page.touchscreen.touchStart(from.x, from.y);
    for (let step = 1; step <= 10; step++) {
      await page.touchscreen.touchMove(from.x, from.y + (way * step) / 10);
      await drawn(page);
    }
    await page.touchscreen.touchEnd();
    const moved = Math.abs((await page.evaluate(() => scrollY)) - before);
    expect(`pixels that a swipe over map ${swiped} scrolls: ${moved}, more than 50`, moved > 50, true);
    swiped++;
  }
  await page.setViewport({ width: 1024, height: 900 });
  await ready(page);
  expect("a map was there to be swiped over", swiped > 0, true);
  return `${swiped} maps`;
}

/** What shows attention, and follows the pointer. */
const MAPS = ".heatmap .plot, .pattern, .token-lines .plot";

/**
 * Colours that one has chosen leave the page of the menu marked, who wants no motion gets none, and what scrolls is reached by the
 * keyboard on phones.
 */
async function seen(page, _errors, { kind }) {
  await page.setViewport({ width: 360, height: 700 });
  await drawn(page);
  const unreached = await page.evaluate(() =>
    [...document.querySelectorAll("main *")]
      .filter((each) => each.checkVisibility() && /auto|scroll/.test(getComputedStyle(each).overflowX))
      .filter((each) => each.scrollWidth > each.clientWidth + 1)
      .filter((each) => each.tabIndex < 0 && !each.querySelector("a, button, input, [tabindex='0']"))
      .map((each) => each.outerHTML.slice(0, 80)),
  );
  expect("what scrolls, but not by the keyboard", unreached.join("; "), "");
  if (kind !== "chrome") return "chosen colours: in Chromium alone, whose driver sets them";
  const session = await page.createCDPSession();
  await session.send("Emulation.setEmulatedMedia", { features: [{ name: "forced-colors", value: "active" }] });
  const marks = await page.$$eval("header nav a, .local a, footer nav a", (all) =>
    all.map((each) => ({
      isCurrent: each.hasAttribute("aria-current"),
      mark: getComputedStyle(each).borderBottomColor,
    })),
  );
  await session.send("Emulation.setEmulatedMedia", {
    features: [{ name: "prefers-reduced-motion", value: "reduce" }],
  });
  const moving = await page.$$eval("*", (all) =>
    all
      .filter((each) => {
        const { transitionDuration, animationDuration, animationName } = getComputedStyle(each);
        const lasts = (times) => times.split(",").some((time) => Number.parseFloat(time) > 0.01);
        return lasts(transitionDuration) || (animationName !== "none" && lasts(animationDuration));
      })
      .map((each) => each.outerHTML.slice(0, 80)),
  );
  expect("what moves for who wants no motion", moving.slice(0, 5).join("; "), "");
  await session.send("Emulation.setEmulatedMedia", { features: [] });
  await session.detach();
  const of = (isCurrent) => [...new Set(marks.filter((each) => each.isCurrent === isCurrent).map(({ mark }) => mark))];
  expect("marks of the page of the menu", of(true).length, 1);
  expect("the same marks of other pages", of(false).includes(of(true)[0]), false);
}

/** What a visitor of a page waits for, and how far what is shown moves meanwhile. */
export function quickPage({ browser, url, name, kind }) {
  return visit(browser, `${url}${name}.html`, async (page) => {
    await ready(page);
    // A page that is ready at once is so before it is painted.
    await page.waitForFunction(() => performance.getEntriesByName("first-contentful-paint").length > 0);
    const { paint, shown } = await page.evaluate(() => ({
      paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime,
      shown: performance.getEntriesByName("ready")[0]?.startTime,
    }));
    expect(`the first paint, ${paint} ms, before 1000`, paint < 1000, true);
    const shifts = [];
    for (const width of kind === "chrome" ? [390, 1440] : []) {
      await page.setViewport({ width, height: 900 });
      await page.reload();
      await ready(page);
      const shift = await layoutShift(page);
      expect(`layout shift at ${width} pixels, ${shift}, below ${MOST_SHIFT}`, shift < MOST_SHIFT, true);
      shifts.push(shift.toFixed(3));
    }
    const moved = shifts.length > 0 ? `, shifts ${shifts.join(" and ")}` : "";
    return `painted after ${paint.toFixed(0)} ms, ready after ${shown.toFixed(0)} ms${moved}`;
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
export const EVERY_PAGE = { "every page": look, "scrollers and marks": seen, keyboard: reachable, typing, swipe };

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
