import { execFileSync } from "node:child_process";
import { delimiter, dirname } from "node:path";
import { expect, test } from "vitest";
import { cli, manifest, runCli } from "../../support/cli.ts";

/** Runs `headwise ...args`. */
const run = (...args: string[]) => runCli(args);

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

test("package.json names the file, which runs by itself", () => {
  expect(manifest.bin).toEqual({ headwise: "./dist/cli.js" });
  const PATH = `${dirname(process.execPath)}${delimiter}${process.env.PATH}`;
  const printed = execFileSync(cli, ["--version"], { env: { ...process.env, PATH }, encoding: "utf8" });
  expect(printed).toBe(`${manifest.version}\n`);
});
