// Runs all examples on the packed package, in copies outside of the repository, and compares their answers:
// npm run test:examples [-- --only bun]

import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { pack } from "../runtimes/pack.mjs";
import { chatPage } from "./chat-page.mjs";
import { createReference, expect } from "./given.mjs";
import { launch, maps, mapsIsolated, viteBuild, viteDev } from "./pages.mjs";
import { endAll, run } from "./processes.mjs";
import { searchPage } from "./search-page.mjs";
import { bun, deno, nodeServer } from "./servers.mjs";
import { textPage } from "./text-page.mjs";

const { only } = parseArgs({ options: { only: { type: "string", default: "" } } }).values;
const repository = join(import.meta.dirname, "../..");
const root = mkdtempSync(join(tmpdir(), "headwise-examples-"));
const npm = process.platform === "win32" ? "npm.cmd" : "npm";
let browser;
let firefox;

const SCENARIOS = {
  "the model": reference,
  "node-server": nodeServer,
  deno,
  bun,
  "browser, maps": maps,
  "browser, maps, isolated": mapsIsolated,
  "browser, text": (given) => textPage(given),
  "browser, text, isolated": (given) => textPage(given, { isolated: true }),
  // Firefox starts workers of workers, which threads are here, only without a driver (test/browsers).
  "browser, text, Firefox": ({ firefox, ...given }) => textPage({ ...given, browser: firefox }),
  "search, its page": searchPage,
  "cloudflare, its page": chatPage,
  "vite build": viteBuild,
  "vite dev": viteDev,
};

process.on("exit", cleanUp);
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(1));

function cleanUp() {
  endAll();
  rmSync(root, { recursive: true, force: true, maxRetries: 5 });
}

/** The likeliest character of the deterministic build and its logit agree with float64. */
function reference({ exact }) {
  const { prompt, top } = JSON.parse(readFileSync(join(root, "model/logits.json"), "utf8"));
  const [{ character, logit }] = exact.choices(prompt, 1);
  expect("the likeliest character", character, top[0].character);
  expect("a logit within 1e-4 of float64", Math.abs(logit - top[0].logit) < 1e-4, true);
  return `${JSON.stringify(prompt)} goes on with ${JSON.stringify(character)}, logit ${logit.toFixed(6)}`;
}

function freePort() {
  return new Promise((resolve, reject) => {
    const server = createServer().on("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

/** Copies the examples and the model, installs the package as a user would, and the runtimes and the browser driver. */
async function install() {
  const LEFT_OUT = new Set(["node_modules", "dist", "built"]);
  const copy = (from, to) =>
    cpSync(join(repository, from), join(root, to), {
      recursive: true,
      filter: (path) => !LEFT_OUT.has(basename(path)),
    });
  for (const name of ["induction", "browser", "search", "vite", "node-server", "deno", "bun"])
    copy(`examples/${name}`, `examples/${name}`);
  copy("model", "model");
  for (const name of ["retrieval.md", "search.md"]) copy(`docs/guide/${name}`, `docs/${name}`);
  const { devDependencies } = JSON.parse(readFileSync(join(repository, "package.json"), "utf8"));
  const [tokenizers, jinja] = ["@huggingface/tokenizers", "@huggingface/jinja"].map(
    (name) => `${name}@${devDependencies[name]}`,
  );
  const tarball = await pack({ into: root });
  writeFileSync(join(root, "package.json"), '{ "private": true, "type": "module" }\n');
  const quiet = ["--no-audit", "--no-fund", "--loglevel=error"];
  await run(npm, ["install", ...quiet, tarball, tokenizers, jinja], { cwd: root });
  await run(npm, ["install", ...quiet, tarball, tokenizers], { cwd: join(root, "examples/vite"), seconds: 240 });
  for (const name of ["package.json", "package-lock.json"]) copy(`test/examples/${name}`, `tools/${name}`);
  await run(npm, ["ci", ...quiet], { cwd: join(root, "tools"), seconds: 240 });
}

/** The arguments of the scenarios. */
async function prepare() {
  await install();
  const { default: puppeteer } = await import(
    pathToFileURL(join(root, "tools/node_modules/puppeteer-core/lib/puppeteer/puppeteer-core.js"))
  );
  const installer = join(repository, "test/browsers/install.sh");
  browser = await launch(puppeteer, "chrome", installer);
  firefox = await launch(puppeteer, "firefox", installer);
  return {
    browser,
    firefox,
    root,
    npm,
    freePort,
    folder: (name) => join(root, "examples", name),
    temporary: (name) => join(root, name),
    tool: (name) => join(root, "tools/node_modules/.bin", name),
    types: join(root, "tools/node_modules/@types"),
    exact: await createReference(root, true),
    fast: await createReference(root, false),
  };
}

const started = Date.now();
const seconds = (since) => `${((Date.now() - since) / 1000).toFixed(1)} s`;
const given = await prepare();
console.log(`installed ${join(basename(root), "node_modules/headwise")} and the runtimes in ${seconds(started)}`);
let [ran, failed] = [0, 0];
for (const [name, scenario] of Object.entries(SCENARIOS)) {
  if (!name.includes(only)) continue;
  ran++;
  const began = Date.now();
  try {
    console.log(`ok    ${name.padEnd(26)}${await scenario(given)} (${seconds(began)})`);
  } catch (error) {
    failed++;
    console.log(`FAIL  ${name.padEnd(26)}${error.message}`);
  }
}
await Promise.all([browser.close(), firefox.close()]);
console.log(`${ran - failed} of ${ran} examples give the expected answers, in ${seconds(started)}`);
process.exit(failed === 0 && ran > 0 ? 0 : 1);
