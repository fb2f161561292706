// What holds for every page: no errors, no violation that axe finds, no overflow at three widths, light and dark.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { visit } from "../examples/pages.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const WIDTHS = [360, 768, 1440];
const SCHEMES = ["light", "dark"];

/** A page says that it shows what it is there for by `data-ready` on its body. */
export const ready = (page) => page.waitForSelector("body[data-ready]", { timeout: 60_000 });

export function everyPage({ browser, kind, url, name, title, shots }) {
  return visit(browser, `${url}${name}.html`, async (page, errors) => {
    await ready(page);
    const shown = await page.title();
    if (!shown.startsWith(title)) throw new Error(`the title expected "${title}", got "${shown}"`);
    for (const scheme of SCHEMES) {
      // Firefox takes no scheme from a driver: it is tested in light.
      if (kind === "chrome") await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
      else if (scheme === "dark") continue;
      for (const width of WIDTHS) {
        await page.setViewport({ width, height: 900 });
        await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
        await expectNoOverflow(page, width);
        await page.screenshot({ path: join(shots, `${name}-${kind}-${scheme}-${width}.png`), fullPage: true });
      }
      await expectAccessible(page, scheme);
    }
    if (errors.length > 0) throw new Error(`errors of the page: ${errors.join("; ")}`);
    return kind === "chrome" ? "three widths, light and dark, axe" : "three widths, light (no driver sets dark), axe";
  });
}

/** Throws if the page is wider than the window, or an element that does not scroll is. */
export async function expectNoOverflow(page, width) {
  const wide = await page.evaluate(() => {
    const limit = document.documentElement.clientWidth + 0.5;
    const scrolls = (element) => {
      for (let each = element.parentElement; each; each = each.parentElement)
        if (/auto|scroll|hidden/.test(getComputedStyle(each).overflowX) && each !== document.body) return true;
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
