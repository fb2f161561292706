import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { configure, describeModel } from "headwise/configure";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { runCli } from "../../support/cli.ts";
import known from "../configure/known-models.json" with { type: "json" };

const BUDGET = ["--parameter-budget", "125M", "--seq-len", "2048", "--target", "browser"];
const GIVEN = [...BUDGET, "--roofline", "50,10"];
const ROOFLINE = { flops: 50e9, bytes: 10e9 };
const QWEN = known.models.find(({ name }) => name === "Qwen3-0.6B")?.config as object;

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "headwise-configure-"));
  writeFileSync(join(folder, "config.json"), JSON.stringify(QWEN));
  writeFileSync(join(folder, "other.json"), JSON.stringify({ ...QWEN, model_type: "qwen9" }));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const run = (...args: string[]) => runCli(["configure", ...args]);

describe("a budget", () => {
  test("gives what configure gives, as JSON", () => {
    const { status, stdout, stderr } = run(...GIVEN, "--heads", "8", "--weights", "q4", "--json");
    expect([status, stderr]).toEqual([0, ""]);
    const options = { parameterBudget: 125e6, seqLen: 2048, target: "browser", numHeads: 8, weights: "q4" } as const;
    expect(JSON.parse(stdout)).toEqual(JSON.parse(JSON.stringify(configure({ ...options, roofline: ROOFLINE }))));
  });

  test("prints choices with reasons and rules, costs, and warnings", () => {
    const { stdout } = run(...GIVEN, "--head-dim", "16");
    expect(stdout).toMatch(/^choice +value +reason\ndModel +768 +the budget is near the rule of 125 million$/m);
    expect(stdout).toMatch(/^linear memory +[\d,]+ bytes \(\d+ MB\): weights [\d,]+, a session [\d,]+, calls [\d,]+$/m);
    expect(stdout).toMatch(/^decode +\d\S* tokens\/s predicted/m);
    expect(stdout).toMatch(/^warning: heads of 16 are below 32/m);
    expect(stdout).toMatch(/^dModel +125M 768\/12\/64, 350M/m);
    expect(stdout).not.toMatch(/ $/m);
  });

  test("--measure builds a layer: its bytes are those predicted, and both times are there", {
    timeout: 120_000,
  }, () => {
    const small = ["--parameter-budget", "200k", "--seq-len", "64", "--target", "worker", "--measure", "--json"];
    const { status, stdout, stderr } = run(...small);
    expect([status, stderr]).toEqual([0, ""]);
    const { layer, roofline, speed } = JSON.parse(stdout);
    const { predicted, measured } = layer;
    expect(measured.weightBytes).toBe(predicted.weightBytes);
    expect(measured.sessionBytes).toBe(predicted.sessionBytes);
    for (const ms of [predicted.prefillMs, predicted.decodeMs, measured.prefillMs, measured.decodeMs])
      expect(ms).toBeGreaterThan(0);
    expect(roofline.flops).toBeGreaterThan(1e8);
    expect(speed.decodeTokensPerSecond).toBeGreaterThan(0);
  });
});

describe("--model", () => {
  test.each([() => folder, () => join(folder, "config.json")])("%s: what describeModel gives, as JSON", (place) => {
    const { status, stdout } = run(
      "--model",
      place(),
      "--seq-len",
      "300",
      "--weights",
      "q8",
      "--cache",
      "f16",
      "--json",
    );
    expect(status).toBe(0);
    const cost = describeModel(QWEN, { seqLen: 300, weights: "q8", format: "f16" });
    expect(JSON.parse(stdout)).toEqual(JSON.parse(JSON.stringify(cost)));
  });

  test("a GGUF file, as text", () => {
    const { stdout } = run("--model", "model/stories/stories.gguf");
    expect(stdout).toMatch(/^parameters +743,296$/m);
    expect(stdout).toMatch(/^in the file +793,136 bytes/m);
    expect(stdout).toMatch(/^layers +keep +numbers a token +window +numbers of a state\n4 +heads +64 +- +-$/m);
  });
});

test.each([
  [["--target", "browser"], "configure: expected --model, or --parameter-budget, --seq-len and --target"],
  [[...BUDGET.slice(0, 4), "--target", "tv"], "configure: --target expected browser, phone, worker, server, got tv"],
  [
    ["--parameter-budget", "5", ...BUDGET.slice(2)],
    "configure: --parameter-budget expected 10k to 1T, such as 125M or 1.5B, got 5",
  ],
  [[...BUDGET, "--roofline", "50"], "configure: --roofline expected two numbers > 0, such as 50,12, got 50"],
  [[...BUDGET, "--heads", "0"], "configure: --heads expected an integer from 1 to 65536, got 0"],
  [["--model", "model", "--measure"], "configure: --measure expected none beside --model"],
  [["model"], "configure: expected options alone, got model"],
])("%j is refused", (args, message) => {
  expect(run(...args)).toMatchObject({ status: 2, stderr: `headwise ${message} (see headwise configure --help)\n` });
});

test("a type that is not known is refused with the file and the nearest ones", () => {
  const { status, stderr } = run("--model", join(folder, "other.json"));
  expect(status).toBe(2);
  expect(stderr).toMatch(
    /configure: .*other\.json: model_type expected one whose costs are known \(nearest: .*qwen.*\), got "qwen9"/,
  );
});
