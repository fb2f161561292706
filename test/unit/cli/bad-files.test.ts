// Files that no command can use: each gives an error of one line and exit code 2.

import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { runCli } from "../../support/cli.ts";

const model = (file: string) => fileURLToPath(new URL(`../../../model/${file}`, import.meta.url));
const [weights, config] = [model("model.safetensors"), model("config.json")];

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "headwise-bad-"));
  mkdirSync(at("a-folder"));
  writeFileSync(at("empty.safetensors"), "");
  // The beginnings of what torch.save writes today, and wrote before.
  writeFileSync(at("zip.pt"), Buffer.concat([Buffer.from("PK\u0003\u0004"), Buffer.alloc(2000)]));
  writeFileSync(at("pickle.pt"), Buffer.concat([Buffer.of(0x80, 2, 0x8a, 10), Buffer.alloc(2000)]));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const at = (name: string) => join(folder, name);

/** Arguments with a file in the place of each argument that names one. */
const PLACES: readonly (readonly [command: string, name: string, args: (path: string) => string[]])[] = [
  ["run", "MODEL", (path) => [path, "--config", config]],
  ["run", "--config", (path) => [weights, "--config", path]],
  ["run", "--input", (path) => [weights, "--input", path]],
  ["quantize", "IN", (path) => [path, at("out"), "--weights", "q8"]],
  ["report", "MODEL", (path) => [path, weights, "--config", config]],
  ["report", "SAMPLES", (path) => [weights, path, "--config", config]],
  ["report", "--config", (path) => [weights, weights, "--config", path]],
];

describe.each(PLACES)("%s, %s", (command, name, args) => {
  const fails = (file: string, text: string | RegExp) => {
    const before = readdirSync(folder);
    const { status, stdout, stderr } = runCli([command, ...args(at(file))]);
    expect(stderr).toMatch(text);
    expect(stderr).toMatch(/^headwise [^\n]{1,400}\n$/);
    expect([status, stdout]).toEqual([2, ""]);
    expect(readdirSync(folder)).toEqual(before);
  };
  const fault = (file: string, what: string) =>
    `headwise ${command}: ${name} expected a file that can be read, got ${at(file)}, which ${what}\n`;

  test("a file that does not exist", () => fails("absent", fault("absent", "does not exist")));
  test("a folder", () => {
    if (command === "run" && name === "MODEL") fails("a-folder", "MODEL expected a folder with model.safetensors");
    else fails("a-folder", fault("a-folder", "is a folder"));
  });
  test("an empty file", () => fails("empty.safetensors", fault("empty.safetensors", "is empty")));
  test.each(["zip.pt", "pickle.pt"])("%s", (file) => fails(file, `headwise ${command}: `));
});
