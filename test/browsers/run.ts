/**
 * Opens the pages of scenarios.ts in real browsers, with the package as its tarball installs it:
 * `node test/browsers/run.ts [--only chromium,csp] [--repeat N] [--json FILE]`. Ends with 1 when anything is not as it should be.
 */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { bundleSuite } from "../runtimes/bundle.ts";
import { pack } from "../runtimes/pack.mjs";
import { type Browser, NoReport, type PageReport } from "./drivers/browser.ts";
import { writeExtension } from "./extension.ts";
import type { Verdict } from "./judges.ts";
import { KINDS, type Kind } from "./kinds.ts";
import { installProject } from "./project.ts";
import { SCENARIOS, type Scenario } from "./scenarios.ts";
import { serve } from "./serve.ts";

interface Row extends Verdict {
  readonly browser: string;
  readonly version: string;
  readonly scenario: string;
}

const { values } = parseArgs({
  options: { only: { type: "string" }, repeat: { type: "string" }, json: { type: "string" } },
});
const only = values.only?.split(",") ?? [];
const known = [...KINDS.map(({ id }) => id), ...SCENARIOS.map(({ name }) => name)];
const unknown = only.find((name) => !known.includes(name));
if (unknown !== undefined) throw new Error(`--only expected some of ${known.join(", ")}, got ${unknown}`);
/** Those of `all` that were asked for, or all where none of their sort was. */
const pick = <T>(all: readonly T[], nameOf: (each: T) => string) => {
  const picked = all.filter((each) => only.includes(nameOf(each)));
  return picked.length > 0 ? picked : all;
};

/** How often each page is opened: more than once to look for what happens rarely. */
const repeats = Number(values.repeat ?? 1);

const folder = mkdtempSync(join(tmpdir(), "headwise-browsers-"));
process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(1));

const began = performance.now();
const project = installProject(join(folder, "project"), pack({ into: folder }));
const suite = await bundleSuite();
const server = await serve(SCENARIOS, project, suite);
const rows: Row[] = [];
for (const kind of pick(KINDS, ({ id }) => id)) await runKind(kind);
server.close();

const problems = [...rows.flatMap((row) => row.problems), ...differences()];
for (const problem of differences()) console.log(problem);
if (values.json) writeFileSync(values.json, `${JSON.stringify(rows, null, 2)}\n`);
const passed = rows.filter((row) => row.problems.length === 0).length;
console.log(`${passed} of ${rows.length} pages passed in ${((performance.now() - began) / 1000).toFixed(0)} s`);
process.exitCode = problems.length > 0 || rows.length === 0 ? 1 : 0;

async function runKind({ id, can, scenarios, leftOut, start }: Kind): Promise<void> {
  let at = { browser: id, version: "", scenario: "its start" };
  try {
    const browser = await start();
    try {
      for (const scenario of pick(SCENARIOS, ({ name }) => name)) {
        if (scenarios?.includes(scenario.name) === false || leftOut?.includes(scenario.name)) continue;
        if (scenario.extension && !browser.installExtension) continue;
        at = { browser: browser.name, version: browser.version, scenario: scenario.name };
        for (let i = 0; i < repeats; i++) await runScenario(scenario, can, browser, at);
      }
    } finally {
      at = { ...at, scenario: "its end" };
      await browser.close();
    }
  } catch (error) {
    report({ ...at, problems: [String(error)] }, 0);
  }
}

async function runScenario(
  scenario: Scenario,
  can: Kind["can"],
  browser: Browser,
  at: Pick<Row, "browser" | "version" | "scenario">,
): Promise<void> {
  const began = performance.now();
  let verdict: Verdict;
  try {
    const address = await addressOf(scenario, browser);
    const page = await visit(browser, `${address}${scenario.query}`, at.scenario);
    verdict = page.error === undefined ? scenario.judge(page, can, address) : { problems: [page.error] };
  } catch (error) {
    verdict = { problems: [String(error)] };
  }
  report({ ...at, ...verdict }, performance.now() - began);
}

/**
 * What a page reports. One that falls silent is opened once more, in a browser of its own where the driver starts one
 * for each page: the report of WebKitGTK's service worker stayed away once in some hundred runs, on a busy machine only,
 * for a reason that was not found. A page that reports something wrong is not opened again.
 */
async function visit(browser: Browser, url: string, scenario: string): Promise<PageReport> {
  try {
    return await browser.visit(url);
  } catch (error) {
    if (!(error instanceof NoReport)) throw error;
    console.log(`again  ${browser.name} | ${scenario}: ${error.message}; the page is opened once more`);
    return browser.visit(url);
  }
}

async function addressOf(scenario: Scenario, { installExtension }: Browser): Promise<string> {
  if (!scenario.extension || !installExtension) return server.addressOf(scenario);
  const extension = join(folder, scenario.name);
  writeExtension(extension, project, suite, scenario.script);
  return `${await installExtension(extension)}page.html`;
}

/** Keeps and prints a row. */
function report(row: Row, took: number): void {
  rows.push(row);
  const { browser, version, scenario, build, checks, digests, workloadMs, details } = row;
  const ms = workloadMs === undefined ? undefined : `${workloadMs.toFixed(0)} ms`;
  const cells = [`${browser} ${version}`, scenario, build, checks, digests?.simd, ms, details].filter(Boolean);
  const mark = row.problems.length === 0 ? "ok    " : "FAILED";
  console.log(`${mark} ${cells.join(" | ")} (${(took / 1000).toFixed(1)} s)`);
  for (const problem of row.problems) console.log(`       ${problem}`);
}

/** Digests that should be the same in all rows and are not. */
function differences(): string[] {
  const found = new Map<string, Set<string>>();
  for (const { digests = {} } of rows)
    for (const [name, digest] of Object.entries(digests)) found.set(name, (found.get(name) ?? new Set()).add(digest));
  return [...found]
    .filter(([, digests]) => digests.size > 1)
    .map(([name, digests]) => `digest ${name} expected to be the same in all browsers, got ${[...digests].join(", ")}`);
}
