// Where commands write, as built: results on stdout, the rest on stderr, and what happens where stdout cannot be written.

import { spawn, spawnSync } from "node:child_process";
import {
  closeSync,
  existsSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { cli, spawnCli } from "../../support/cli.ts";
import { sampled } from "../../support/sampled.ts";
import { TINY, tinyFolder } from "../../support/tiny-models.ts";
import { wordTokenizer } from "../../support/word-tokenizer.ts";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "headwise-output-"));
  const file = tinyFolder(TINY.llama);
  for (const name of ["config.json", "model.safetensors"]) writeFileSync(join(folder, name), file(name) as Uint8Array);
  writeFileSync(join(folder, "tokenizer.json"), JSON.stringify(wordTokenizer(TINY.llama.vocab_size)));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Runs `headwise ...args` with a reader of stdout that ends at once, or after the first piece. */
function runWithoutReader(
  args: readonly string[],
  afterFirst: boolean,
): Promise<{ code: number | null; stderr: string }> {
  const child = spawn(process.execPath, [cli, ...args], { stdio: ["ignore", "pipe", "pipe"] });
  let stderr = "";
  child.stderr.setEncoding("utf8").on("data", (text) => (stderr += text));
  if (afterFirst) child.stdout.once("data", () => child.stdout.destroy());
  else child.stdout.destroy();
  return new Promise((resolve) => child.on("close", (code) => resolve({ code, stderr })));
}

describe("a reader of stdout that ends", () => {
  test("ends generate without a word, with the code of a program that SIGPIPE ended", async () => {
    const args = ["generate", folder, "--ids", "5,6", "--tokens", "100000", "--max-seq-len", "100002"];
    expect(await runWithoutReader(args, true)).toEqual({ code: 141, stderr: "" });
  });

  test.each(sampled([[["--help"]], [["--version"]], [["run", "--help"]], [["configure", "--help"]]], 2))(
    "ends %j in the same way",
    async (args) => {
      expect(await runWithoutReader(args, false)).toEqual({ code: 141, stderr: "" });
    },
  );
});

test.runIf(existsSync("/dev/full"))("an output without room is an error of one line, and the exit code is 1", () => {
  const full = openSync("/dev/full", "w");
  try {
    for (const args of [["--help"], ["generate", folder, "--ids", "5", "--tokens", "3", "--quiet"]])
      expect(
        spawnSync(process.execPath, [cli, ...args], { stdio: ["ignore", full, "pipe"], encoding: "utf8" }),
      ).toEqual(
        expect.objectContaining({
          status: 1,
          stderr:
            "headwise: standard output expected one that can be written, got ENOSPC: no space left on device, write\n",
        }),
      );
  } finally {
    closeSync(full);
  }
});

test("no other file of the command line writes to stdout", () => {
  const sources = join(import.meta.dirname, "../../../src/cli");
  const writing = readdirSync(sources).filter((name) =>
    /console\.(log|info|table)|stdout\.(write|end)/.test(
      readFileSync(join(sources, name), "utf8").replace(/^\s*(\*|\/\/).*$/gm, ""),
    ),
  );
  expect(writing).toEqual(["terminal.ts"]);
});

describe("stdout has the result alone", () => {
  const args = ["generate", "", "w5 w6 w7", "--tokens", "6", "--deterministic"];

  test("of generate, with the statistics on stderr unless --quiet", () => {
    args[1] = folder;
    const { stdout, stderr } = spawnCli(args);
    expect(stdout).toMatch(/^(\s*w\d+){6}\n$/);
    expect(stderr).toMatch(/^\nmodel .*\nsession .*\nfirst token .*\ndecode .*\nbuild .*\nthreads .*\n$/);
    expect(spawnCli([...args, "--quiet"])).toMatchObject({ status: 0, stdout, stderr: "" });
  });

  test("of embed, with the statistics on stderr unless --quiet", () => {
    const { stdout, stderr } = spawnCli(["embed", folder, "w5", "w6", "--deterministic"]);
    expect(stdout).toMatch(/^w5 .*\nw6 .*\ncosine 1, 2 .*\n$/);
    expect(stderr).toMatch(/^\nmodel .*\nvectors .*\nbuild .*\n$/);
    expect(spawnCli(["embed", folder, "w5", "w6", "--deterministic", "--quiet"])).toMatchObject({ stdout, stderr: "" });
  });
});

describe('"-" is standard input', () => {
  const given = (args: readonly string[], input: string) =>
    spawnSync(process.execPath, [cli, ...args, "--quiet", "--deterministic"], {
      input,
      encoding: "utf8",
    }).stdout.replace(/loaded in .*/, "");

  test.each(sampled(["generate", "embed", "inspect"], 2))("for %s, without the line break at its end", (command) => {
    const wanted = given([command, folder, "w5 w6 w7"], "");
    expect(wanted).not.toBe("");
    expect(given([command, folder, "-"], "w5 w6 w7\n")).toBe(wanted);
  });

  test("for one text of embed", () => {
    const { status, stderr } = spawnCli(["embed", folder, "-", "-"]);
    const text = 'headwise embed: expected "-" once, for standard input, got it 2 times (see headwise embed --help)\n';
    expect([status, stderr]).toEqual([2, text]);
  });
});
