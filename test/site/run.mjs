// Every page of build/site in Chromium and Firefox: npm run test:site [-- --only chat]. What holds for all pages is in
// every-page.mjs, what one page does in pages/NAME.mjs. Screenshots of each page at three widths, light and dark, are written to
// build/site-screenshots.

import { existsSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { PAGES } from "../../site/pages.ts";
import { serveSite } from "../../site/serve.ts";
import { launch } from "../examples/pages.mjs";
import { everyPage } from "./every-page.mjs";
import { expectOffline } from "./offline.mjs";

const { only } = parseArgs({ options: { only: { type: "string", default: "" } } }).values;
const root = join(import.meta.dirname, "../..");
const shots = join(root, "build/site-screenshots");
const { default: puppeteer } = await import("puppeteer-core");
const installer = join(root, "test/browsers/install.sh");

rmSync(shots, { recursive: true, force: true });
mkdirSync(shots, { recursive: true });
const { url, server } = await serveSite(0, { prefix: "/some/folder/" });
let passed = 0;
const failed = [];

/** What a scenario may take. */
const LIMIT_MS = 120_000;

/** Runs a scenario and prints what became of it. */
async function scenario(name, work) {
  if (!name.includes(only)) return;
  const begin = performance.now();
  try {
    const late = new Promise((_, reject) =>
      setTimeout(() => reject(new Error(`no end within ${LIMIT_MS / 1000} s`)), LIMIT_MS).unref(),
    );
    const found = await Promise.race([work(), late]);
    console.log(
      `ok    ${name.padEnd(34)} ${((performance.now() - begin) / 1000).toFixed(1).padStart(5)} s  ${found ?? ""}`,
    );
    passed++;
  } catch (error) {
    console.log(`FAIL  ${name}\n${error.stack}`);
    failed.push(name);
  }
}

for (const kind of ["chrome", "firefox"]) {
  const browser = await launch(puppeteer, kind, installer);
  try {
    for (const { name, title } of PAGES) {
      const given = { browser, kind, url, name, title, shots };
      await scenario(`${name}, ${kind}, every page`, () => everyPage(given));
      const own = join(import.meta.dirname, "pages", `${name}.mjs`);
      if (existsSync(own)) {
        const { scenarios } = await import(own);
        for (const [what, work] of Object.entries(scenarios))
          await scenario(`${name}, ${kind}, ${what}`, () => work(given));
      }
    }
    await scenario(`offline, ${kind}`, () => expectOffline(browser));
  } finally {
    await browser.close();
  }
}
server.close();
server.closeAllConnections();
console.log(`\nsite: ${passed} passed, ${failed.length} failed${failed.length > 0 ? `: ${failed.join("; ")}` : ""}`);
process.exitCode = failed.length > 0 ? 1 : 0;
