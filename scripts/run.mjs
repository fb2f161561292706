// What the scripts of package.json run: `node scripts/run.mjs NAME [ARGUMENT...]` builds the package if a source is newer
// than dist/, does what the command needs first, and gives its program the arguments.

import { spawn } from "node:child_process";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const [major, minor] = process.versions.node.split(".").map(Number);
// npm runs scripts with the Node of devDependencies. If its install script was blocked, npm silently takes that of the PATH.
// Since 22.18, Node runs TypeScript as it is.
if (major < 22 || (major === 22 && minor < 18)) {
  console.error(
    `This ran on Node ${process.version}: the pinned one is missing. Run \`npm rebuild node\`, or allow its install script.`,
  );
  process.exit(1);
}

process.chdir(join(dirname(fileURLToPath(import.meta.url)), ".."));

const node = (file, ...args) => [process.execPath, file, ...args];
/** Installs the packages of a folder, which only this command needs. */
const install = (folder) => ["npm", "--prefix", folder, "ci", "--no-audit", "--no-fund"];
const browsers = ["sh", "test/browsers/install.sh"];
const vitest = ["node_modules/vitest/vitest.mjs", "run", "--config", "test/vitest.config.ts"];
const site = node("site/build.ts");
const peers = (file) => ({ first: [install("bench/peers")], program: node(file) });

/** Of each command, or of one with its first argument: what runs first, and the program that is given the other arguments. */
const COMMANDS = {
  start: { program: node("examples/start.ts") },
  seeds: { program: node("examples/seeds/main.ts") },
  heads: { program: node("examples/heads/main.ts") },
  study: { program: node("examples/studies/main.ts") },
  test: { program: node(...vitest) },
  "test:long": { program: node(...vitest, "--mode", "long") },
  "test:runtimes": { program: node("test/runtimes/run.ts") },
  "test:browsers": { first: [browsers, install("test/browsers")], program: node("test/browsers/run.ts") },
  "test:bundlers": { first: [browsers], program: node("test/packaging/bundlers/run.ts") },
  "test:package": { program: node("test/packaging/package/run.ts") },
  "test:site": { first: [browsers, install("test/site"), site], program: node("test/site/run.mjs") },
  "test:examples": { program: node("test/examples/run.mjs") },
  "test:cloudflare": {
    first: [node("examples/cloudflare/search/run.mjs")],
    program: node("examples/cloudflare/run.mjs", "--sessions", "20", "--seconds", "20"),
  },
  site: { program: site },
  "site --images": { first: [install("test/site"), site], program: node("test/site/images.mjs") },
  sizes: { program: node("scripts/sizes.mjs") },
  "check:wasm": { program: node("test/packaging/wasm.ts") },
  docs: { first: [install("docs/reference")], program: node("docs/reference/build.mjs") },
  conformance: { program: node("--import", "./scripts/source-hooks.mjs", "test/conformance/run.ts") },
  bench: { program: node("bench/run.ts") },
  "bench:peers": peers("bench/peers/run.ts"),
  "bench:peers decoders": peers("bench/peers/decoders/run.ts"),
  "bench:peers encoders": peers("bench/peers/encoders/run.ts"),
};

/** Runs a program to its end, and ends with it if it fails. */
async function run([file, ...args]) {
  // Windows has npm as a script of its shell.
  const child = spawn(file, args, { stdio: "inherit", shell: file === "npm" && process.platform === "win32" });
  const stop = (signal) => child.kill(signal);
  for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, stop);
  const code = await new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("exit", (code) => resolve(code ?? 1));
  });
  for (const signal of ["SIGINT", "SIGTERM"]) process.off(signal, stop);
  if (code !== 0) process.exit(code);
}

const [name = "", ...args] = process.argv.slice(2);
const part = COMMANDS[`${name} ${args[0]}`];
const command = part ?? COMMANDS[name];
if (!command) {
  console.error(`run: expected one of ${Object.keys(COMMANDS).join(", ")}, got ${JSON.stringify(name)}`);
  process.exit(1);
}
await run(node("scripts/build.mjs", "--if-stale"));
for (const step of command.first ?? []) await run(step);
await run([...command.program, ...(part ? args.slice(1) : args)]);
