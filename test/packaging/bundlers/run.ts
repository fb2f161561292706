// Bundles one page with every bundler, from the packed package and without configuration, and opens it in Chromium. What
// it computes must have the bits that Node computes. `--only vite,next` takes some; `--project <folder>` keeps the project
// there and uses its tools again.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { isDeepStrictEqual, parseArgs } from "node:util";
import { makeProject, type Project, versionOf } from "../project.ts";
import { launchChromium, type Outcome, visit } from "./browser.ts";
import { BUNDLERS, type Bundler, type Served } from "./bundlers.ts";

const { values } = parseArgs({ options: { only: { type: "string" }, project: { type: "string" } } });
const names = values.only?.split(",") ?? BUNDLERS.map(({ name }) => name);
const unknown = names.filter((name) => !BUNDLERS.some((bundler) => bundler.name === name));
if (unknown.length > 0) throw new RangeError(`--only expected names of bundlers, got ${unknown.join(", ")}`);

const folder = values.project ? resolve(values.project) : mkdtempSync(join(tmpdir(), "headwise-bundlers-"));
process.on("exit", () => {
  if (!values.project) rmSync(folder, { recursive: true, force: true });
});

const project = await makeProject(join(import.meta.dirname, "project"), folder);
const { runTrial }: { runTrial(): Promise<Outcome> } = await import(pathToFileURL(join(folder, "trial.js")).href);
const { bits } = await runTrial();
const browser = await launchChromium(folder);
console.log(`${await browser.version()}, Node ${process.version}: ${JSON.stringify(bits)}`);

let failures = 0;
try {
  for (const bundler of BUNDLERS.filter(({ name }) => names.includes(name))) {
    const start = performance.now();
    const line = `${bundler.name.padEnd(9)} ${versionOf(project, bundler.tool).padEnd(9)}`;
    try {
      const found = await tryBundler(bundler, project);
      console.log(`ok    ${line} ${((performance.now() - start) / 1000).toFixed(1).padStart(5)} s   ${found}`);
    } catch (error) {
      failures++;
      console.log(`FAIL  ${line} ${error instanceof Error ? describe(error) : error}`);
    }
  }
} finally {
  await browser.close();
}
console.log(`${names.length - failures} of ${names.length} bundlers give Node's bits`);
process.exit(failures === 0 ? 0 : 1);

/** Says what was found where everything is as it must be; throws where not. */
async function tryBundler(bundler: Bundler, { folder }: Project): Promise<string> {
  const served = await bundler.bundle(folder);
  try {
    const { outcome, scriptBytes, complaints } = await visit(browser, served.url);
    if (complaints.length > 0) throw new Error(complaints.join("\n"));
    expectOutcome(outcome, served.isolated ? 2 : 1);
    const size = served.development ? "" : `${(scriptBytes / 1024).toFixed(1)} KB`;
    const page = `${size.padStart(8)}   ${outcome.build}, threads ${outcome.threads}: ${outcome.reason}`;
    return served.route ? `${page}\n${await tryRoute(served)}` : page;
  } finally {
    served.stop();
  }
}

async function tryRoute({ url, route }: Served): Promise<string> {
  const response = await fetch(`${url}${route}`, { signal: AbortSignal.timeout(60_000) });
  const body = await response.text();
  if (!response.ok) throw new Error(`${route} answered ${response.status}\n${body.slice(0, 2000)}`);
  const outcome: Outcome = JSON.parse(body);
  expectOutcome(outcome, 1);
  return `      ${route}: ${outcome.build}, threads ${outcome.threads}: ${outcome.reason}`;
}

function expectOutcome(outcome: Outcome, threads: number): void {
  if (outcome.error) throw new Error(outcome.error);
  if (!outcome.ok) throw new Error("selfTest: a digest is not the published one");
  if (!isDeepStrictEqual(outcome.bits, bits)) throw new Error(`the bits differ: ${JSON.stringify(outcome.bits)}`);
  if (outcome.threads !== threads)
    throw new Error(`expected ${threads} threads, got ${outcome.threads}: ${outcome.reason}`);
}

function describe(error: Error): string {
  return error.cause instanceof Error ? `${error.message}\n${describe(error.cause)}` : error.message;
}
