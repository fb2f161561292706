// Every page of build/site in Chromium, Firefox and WebKitGTK: npm run test:site [-- --only write] [-- --all]. What holds for all pages is in
// every-page.mjs, what one page does in pages/NAME.mjs: its `scenarios`, and those that measure time, `timed`, which have the machine
// to themselves. Screenshots of each page at three widths, light and dark, are written to build/site-screenshots.

import { existsSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { PAGES } from "../../site/pages.ts";
import { serveSite } from "../../site/serve.ts";
import { launch, visit } from "../examples/pages.mjs";
import { EVERY_PAGE, quickPage, ready } from "./every-page.mjs";
import { expectCachingHost, expectPlainHost } from "./hosting.mjs";
import { expectOffline } from "./offline.mjs";
import { expectOlder } from "./older.mjs";
import { expectPolicy } from "./policy.mjs";
import { expectSameBits, readDigests } from "./same-bits.mjs";
import { enginesOf } from "./sample.ts";
import { launchWebKit, RECORDER } from "./webkit.mjs";

const { only, all } = parseArgs({
  options: { only: { type: "string", default: "" }, all: { type: "boolean", default: false } },
}).values;
/** Whether scenarios that repeat another engine are left out: sample.ts. What one asks for by name runs in every engine. */
const isSampled = only === "" && !all;
const root = join(import.meta.dirname, "../..");
const shots = join(root, "build/site-screenshots");
const installer = join(root, "test/browsers/install.sh");
const { default: puppeteer } = await import("puppeteer-core");

/** Pages are dark in Firefox, which takes a colour scheme at its start only. */
const DARK = { "layout.css.prefers-color-scheme.content-override": 0 };

const ENGINES = {
  chrome: () => launch(puppeteer, "chrome", installer),
  firefox: () => launch(puppeteer, "firefox", installer, { extraPrefsFirefox: DARK }),
  webkit: launchWebKit,
};

// What was started ends with this process.
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(1));

let [passed, leftOut] = [0, 0];
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
    fail(name, error);
  }
}

function leaveOut(name, engines) {
  console.log(`--    ${name}: in ${engines.join(" and ")}`);
  leftOut++;
}

function fail(name, error) {
  console.log(`FAIL  ${name}\n${error.stack}`);
  failed.push(name);
}

/** Starts an engine, with a server of its own: what is reported there is of this engine. */
async function start(kind) {
  const violations = [];
  const first = kind === "webkit" ? RECORDER : undefined;
  const onViolation = (report) => violations.push(report);
  const { url, server } = await serveSite(0, { prefix: "/some/folder/", first, onViolation });
  const browser = await ENGINES[kind]();
  // The first page of a browser waits for its processes.
  await visit(browser, `${url}nothing`, () => {});
  return { browser, kind, url, server, violations, shots };
}

/** The scenarios of a page. */
async function own(name, which) {
  const file = join(import.meta.dirname, "pages", `${name}.mjs`);
  return existsSync(file) ? Object.entries((await import(file))[which] ?? {}) : [];
}

async function runTimed(engine) {
  for (const { name } of PAGES) {
    await scenario(`${name}, ${engine.kind}, quick`, () => quickPage({ ...engine, name }));
    for (const [what, work] of await own(name, "timed"))
      await scenario(`${name}, ${engine.kind}, ${what}`, () => work({ ...engine, name }));
  }
}

/** What holds for every page, on one visit of this one. */
async function onOneVisit(given) {
  const { browser, kind, url, name } = given;
  const titleOf = (what) => `${name}, ${kind}, ${what}`;
  const all = Object.entries(EVERY_PAGE).filter(([what]) => titleOf(what).includes(only));
  if (all.length === 0) return;
  try {
    await visit(browser, `${url}${name}.html`, async (page, errors) => {
      await ready(page);
      for (const [what, work] of all) await scenario(titleOf(what), () => work(page, errors, given));
    });
  } catch (error) {
    fail(titleOf("a visit"), error);
  }
}

/** All scenarios of an engine that measure no time; returns its digests by address. */
async function runOthers(engine) {
  const { kind } = engine;
  for (const { name, title } of PAGES) {
    const given = { ...engine, name, title };
    await onOneVisit(given);
    for (const [what, work] of await own(name, "scenarios")) {
      const engines = enginesOf(name, what);
      if (!isSampled || engines.includes(kind)) await scenario(`${name}, ${kind}, ${what}`, () => work(given));
      else leaveOut(`${name}, ${kind}, ${what}`, engines);
    }
  }
  let digests = {};
  await scenario(`digests, ${kind}`, async () => {
    digests = await readDigests(engine);
    return `${Object.keys(digests).length} addresses`;
  });
  await scenario(`offline, ${kind}`, () => expectOffline(engine));
  await scenario(`older engines, ${kind}`, () => expectOlder(engine));
  await scenario(`plain host, ${kind}`, () => expectPlainHost(engine));
  await scenario(`caching host, ${kind}`, () => expectCachingHost(engine));
  await scenario(`policy, ${kind}`, () => expectPolicy(engine));
  return digests;
}

rmSync(shots, { recursive: true, force: true });
mkdirSync(shots, { recursive: true });
const engines = [];
try {
  for (const kind of Object.keys(ENGINES)) {
    engines.push(await start(kind));
    await runTimed(engines.at(-1));
  }
  const digests = await Promise.all(engines.map(runOthers));
  await scenario("digests, in all engines", () => expectSameBits(engines, digests));
} finally {
  for (const { browser, server } of engines) {
    await browser.close();
    server.close();
    server.closeAllConnections();
  }
}
const sampled = leftOut > 0 ? `, ${leftOut} left out that two other engines ran` : "";
console.log(
  `\nsite: ${passed} passed${sampled}, ${failed.length} failed${failed.length > 0 ? `: ${failed.join("; ")}` : ""}`,
);
process.exitCode = failed.length > 0 ? 1 : 0;
