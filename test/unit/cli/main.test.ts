import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { expect, test } from "vitest";
import { cli, manifest, spawnCli } from "../../support/cli.ts";

/** The files of dist/ that only the command line reads. */
const filesOfCli = () =>
  readdirSync(dirname(cli))
    .filter((name) => /^cli(?:-.*)?\.js$/.test(name))
    .map((name) => join(dirname(cli), name));

/** Runs the built `headwise ...args`. */
const run = (...args: string[]) => spawnCli(args);

test("help and version", () => {
  expect(run("--version").stdout).toBe(`${manifest.version}\n`);
  expect(run("--help")).toMatchObject({
    status: 0,
    stderr: "",
    stdout: expect.stringContaining("headwise quantize IN OUT"),
  });
  expect(run("report", "--help").stdout).toContain("--layer N");
  expect(run("quantize", "--help").stdout).toContain("--include REGEX");
});

test("every file of src/cli/ is part of the command line as built", () => {
  const files = readdirSync(new URL("../../../src/cli", import.meta.url)).map((name) => `src/cli/${name}`);
  const built = filesOfCli().flatMap((file) => Array.from(readFileSync(file, "utf8").matchAll(/^\/\/ (src\/.*)$/gm)));
  expect([...new Set(built.map(([, file]) => file))].sort()).toEqual(files.sort());
});

test("the command line imports the entries of dist/, and reads none of them before a command runs", () => {
  const reached = new Set<string>();
  const reach = (file: string) => {
    if (reached.has(file)) return;
    reached.add(file);
    for (const [, path = ""] of readFileSync(file, "utf8").matchAll(/(?:^| from | import )"(\.\/[^"]+\.js)"/gm))
      reach(join(dirname(file), path));
  };
  reach(cli);
  const all = filesOfCli();
  expect([...reached].filter((file) => !all.includes(file))).toEqual([]);
  expect(reached.size).toBeLessThan(4);
  expect(all.reduce((sum, file) => sum + statSync(file).size, 0)).toBeLessThan(200_000);
});

test("without a command the help is printed on stderr, with exit code 2", () => {
  expect(run()).toEqual(expect.objectContaining({ status: 2, stdout: "", stderr: run("--help").stdout }));
});

test("help COMMAND is COMMAND --help", () => {
  expect(run("help").stdout).toBe(run("--help").stdout);
  expect(run("help", "run")).toMatchObject({ status: 0, stdout: run("run", "--help").stdout });
  expect(run("-v").stdout).toBe(`${manifest.version}\n`);
});

test.each([
  [
    ["inof"],
    'headwise expected info, run, generate, chat, embed, inspect, bench, quantize, report, cache, configure, got "inof", did you mean info? (see headwise --help)\n',
  ],
  [
    ["quantise"],
    'headwise expected info, run, generate, chat, embed, inspect, bench, quantize, report, cache, configure, got "quantise", did you mean quantize? (see headwise --help)\n',
  ],
  [
    ["frobnicate"],
    'headwise expected info, run, generate, chat, embed, inspect, bench, quantize, report, cache, configure, got "frobnicate" (see headwise --help)\n',
  ],
  [["info", "model"], "headwise info: expected options alone, got model (see headwise info --help)\n"],
  [["bench", "a", "b"], "headwise bench: expected one folder at most, got 2 (see headwise bench --help)\n"],
  [["run"], "headwise run: expected one file, got 0 (see headwise run --help)\n"],
  [["inspect"], "headwise inspect: expected a model and a text, got neither (see headwise inspect --help)\n"],
  [["quantize"], "headwise quantize: expected two files, IN and OUT, got 0 (see headwise quantize --help)\n"],
  [["report"], "headwise report: expected two files, MODEL and SAMPLES, got 0 (see headwise report --help)\n"],
])("%j points to the help of the command", (args, stderr) => {
  expect(run(...args)).toMatchObject({ status: 2, stdout: "", stderr });
});

test("package.json names the file, which runs by itself", () => {
  expect(manifest.bin).toEqual({ headwise: "./dist/cli.js" });
  const PATH = `${dirname(process.execPath)}${delimiter}${process.env.PATH}`;
  const printed = execFileSync(cli, ["--version"], { env: { ...process.env, PATH }, encoding: "utf8" });
  expect(printed).toBe(`${manifest.version}\n`);
});
