// The commands that run whole decoders.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { HeadwiseError } from "../../../src/base/util/errors.ts";
import type * as BenchModel from "../../../src/cli/bench.ts";
import { loadKernels } from "../../../src/entries/index.ts";
import { createSession, forward, loadModel, models } from "../../../src/entries/models.ts";
import { FloatDigest } from "../../../src/tools/diagnostics/self-test.ts";
import { runCli, spawnCli } from "../../support/cli.ts";
import { FASTER_CLOCK } from "../../support/clock.ts";
import { importWith } from "../../support/replace-module.ts";
import { TINY, tinyFolder } from "../../support/tiny-models.ts";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "headwise-models-"));
  const file = tinyFolder(TINY.qwen3_moe);
  for (const name of ["config.json", "model.safetensors"]) writeFileSync(join(folder, name), file(name) as Uint8Array);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const run = (...args: string[]) => runCli(["run", folder, ...args]);

describe("run --ids", () => {
  test("prints the largest logits that forward gives, and reads the ids in two ways", async () => {
    const { status, stdout, stderr } = run("--ids", "5,6,7,8", "--top", "3", "--deterministic", "--json");
    expect([status, stderr]).toEqual([0, ""]);
    using kernels = await loadKernels({ deterministic: true, models });
    const { logits } = forward(createSession(await loadModel(kernels, folder)), [5, 6, 7, 8]);
    const digest = new FloatDigest();
    digest.add(logits);
    const order = Array.from(logits.keys()).sort((a, b) => logits[b]! - logits[a]!);
    const result = JSON.parse(stdout);
    expect(result).toMatchObject({
      ...{ folder, type: "qwen3_moe", layers: 2, vocabSize: 67, digest: digest.toString() },
      ...{ prefill: { tokens: 4 }, decode: { tokens: 3, past: 1, same: true } },
      top: order.slice(0, 3).map((id) => ({ id, logit: logits[id] })),
    });
    const whole = logits.reduce((sum, logit) => sum + Math.exp(logit), 0);
    expect(result.top[0].probability).toBeCloseTo(Math.exp(logits[order[0]!]!) / whole, 9);
  });

  test("prints a table, with one token too", () => {
    const lines = run("--ids", "5", "--top", "2").stdout.trimEnd().split("\n");
    expect(lines.find((line) => line.startsWith("decode"))).toBe("decode    none: no token is decoded");
    expect(lines.at(-3)).toMatch(/^id +logit +probability$/);
    expect(lines.slice(-2).every((line) => /^ *\d+ +-?\d\S* +\d+\.\d\d %$/.test(line))).toBe(true);
  });

  test.each([
    [["--ids", "5,67"], "run: --ids expected ids below 67, those of the model, got 67"],
    [["--ids", "5,x"], "run: --ids expected token ids, separated by commas, got 5,x"],
    [["--ids", "5", "--layer", "1"], "run: --layer expected none beside --ids, got 1"],
    [["--ids", "5", "--top", "0"], "run: --top expected an integer from 1 to 1048576, got 0"],
    [["--ids", "5,6", "--decode", "2"], "run: --decode expected an integer from 0 to 1, got 2"],
    [["--top", "4"], "run: --top expected --ids beside it, got none"],
  ])("%j is refused", (args, message) => {
    expect(run(...args)).toMatchObject({ status: 2, stderr: `headwise ${message} (see headwise run --help)\n` });
  });
});

describe("bench FOLDER", () => {
  test("times a prompt and a token in each format, beside reading the weights", () => {
    const { status, stdout } = spawnCli(["bench", folder, "--json"], FASTER_CLOCK);
    expect(status).toBe(0);
    const { type, tokens, rows, leftOut } = JSON.parse(stdout);
    expect([type, tokens, leftOut]).toEqual(["qwen3_moe", 128, []]);
    expect(rows.map(({ weights }: { weights: string }) => weights)).toEqual(["f32", "f16", "q8", "q4"]);
    for (const row of rows) {
      expect(row.prefillTokensPerSecond).toBeGreaterThan(row.decodeTokensPerSecond);
      expect(row.readingTokensPerSecond).toBeGreaterThan(row.decodeTokensPerSecond);
      expect(row.ofReading).toBeLessThan(1);
    }
    expect(rows[3].bytes).toBeLessThan(rows[0].bytes);
  });

  test("prints a table of one format", () => {
    const lines = spawnCli(["bench", folder, "--weights", "q8"], FASTER_CLOCK).stdout.trimEnd().split("\n");
    expect(lines).toHaveLength(6);
    expect(lines[2]).toMatch(/^qwen3_moe, 2 layers, prompt of 128 tokens, build \w+, threads 1$/);
    expect(lines.at(-1)).toMatch(/^q8 .* %$/);
  });

  test("a format that memory has no room for is left out, with the reason", async () => {
    const cause = new HeadwiseError("OUT_OF_MEMORY", "loadModel: 5 more bytes do not fit");
    const source = (name: string) => new URL(`../../../src/cli/${name}.ts`, import.meta.url);
    const { benchModel, modelBenchText } = await importWith<typeof BenchModel>(source("bench"), source("load"), {
      openDecoder: () => Promise.reject(new Error(`bench: model: ${cause.message}`, { cause })),
    });
    const result = await benchModel("model", ["f32"], 1, { "no-store": true, quiet: true });
    expect(result).toMatchObject({ rows: [], leftOut: [{ weights: "f32", reason: cause.message }] });
    expect(modelBenchText(result)).toBe("f32 was left out: loadModel: 5 more bytes do not fit");
  });

  test("a shape beside it, and a folder without a model, are refused", () => {
    expect(runCli(["bench", folder, "--shape", "gpt2"])).toMatchObject({
      ...{
        status: 2,
        stderr: "headwise bench: --shape expected none beside a folder, got gpt2 (see headwise bench --help)\n",
      },
    });
    const { status, stderr } = runCli(["bench", tmpdir()]);
    expect([status, stderr]).toEqual([2, expect.stringMatching(/got "\w+" without config.json$/m)]);
  });
});
