import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { configure, describeModel } from "headwise/configure";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { configurationText } from "../../../src/cli/configure.ts";
import { runCli, spawnCli } from "../../support/cli.ts";
import { FASTER_CLOCK } from "../../support/clock.ts";
import known from "../tools/configure/known-models.json" with { type: "json" };

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
    const { status, stdout, stderr } = run(...GIVEN, "--head-dim", "16");
    expect(status).toBe(0);
    expect(stdout).toMatch(/^choice +value +reason\ndModel +768 +the budget is near the rule of 125 million$/m);
    expect(stdout).toMatch(
      /^linear memory +[\d,]+ bytes \(\d+ MB\): weights [\d,]+ \(q8\), a session [\d,]+ \(f16\), calls [\d,]+$/m,
    );
    expect(stdout).toMatch(/^decode +\d\S* tokens\/s predicted/m);
    expect(stderr).toMatch(/^warning: heads of 16 are below 32/);
    expect(stdout).toMatch(/^dModel +125M 768\/12\/64, 350M/m);
    expect(stdout).not.toMatch(/ $/m);
  });

  test("the roofline is printed with the rates that kernels reach, by which speed is predicted", () => {
    const weights = {
      q8: {
        flops: 40e9,
        bytes: [
          [1e6, 9e9],
          [1e8, 5e9],
        ],
      },
    } as const;
    const roofline = { ...ROOFLINE, weights, attention: { prompt: 20e9, token: 6e9 } };
    const found = configure({ parameterBudget: 125e6, seqLen: 2048, target: "browser", roofline });
    expect(configurationText({ ...found, roofline })).toContain(
      "50.0 GFLOP/s, 10.0 GB/s at most; with q8 40.0 GFLOP/s, reading 9.00 GB/s of 1.00 MB, 5.00 GB/s of 100 MB; " +
        "attention 20.0 GFLOP/s in a prompt, 6.00 of a token\n",
    );
  });

  test("that fits in no format is chosen all the same, with a warning, and the exit code is 1", () => {
    const small = ["--parameter-budget", "1B", ...GIVEN.slice(2), "--memory", "100MB"];
    const { status, stdout, stderr } = run(...small);
    expect(status).toBe(1);
    expect(stderr).toMatch(/^warning: \d+ MB of linear memory exceed the 100 MB that are given, in every format/m);
    expect(stdout).toMatch(/^memory +100 MB +as asked for$/m);
    const json = run(...small, "--json");
    expect([json.status, json.stderr]).toEqual([1, ""]);
    expect(JSON.parse(json.stdout)).toMatchObject({
      fits: false,
      warnings: [expect.stringContaining("exceed the 100 MB")],
    });
  });

  test.each([
    ["2k", "1.5GB", "32k", 2000, 1.5e9, 32_000],
    ["2Ki", "1GiB", "0.5Mi", 2048, 2 ** 30, 2 ** 19],
    ["300", "4Gi", "8192", 300, 2 ** 32, 8192],
  ])("units: %s tokens, %s, %s entries", (seqLen, memory, vocabulary, tokens, bytes, entries) => {
    const units = ["--parameter-budget", "0.125G", "--seq-len", seqLen, "--memory", memory, "--vocabulary", vocabulary];
    const { stdout } = run(...units, "--target", "browser", "--roofline", "50,10", "--json");
    const options = {
      parameterBudget: 125e6,
      seqLen: tokens,
      target: "browser",
      memory: bytes,
      vocabSize: entries,
    } as const;
    expect(JSON.parse(stdout)).toEqual(JSON.parse(JSON.stringify(configure({ ...options, roofline: ROOFLINE }))));
  });

  test("--measure builds a layer: its bytes are those predicted, and both times are there", {
    timeout: 120_000,
  }, () => {
    const small = ["--parameter-budget", "200k", "--seq-len", "64", "--target", "worker", "--measure", "--json"];
    const { status, stdout, stderr } = spawnCli(["configure", ...small], FASTER_CLOCK);
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

  test("a folder of safetensors, as text: the formats in memory are those of the file, or those asked for", () => {
    const [stored, asked] = [[], ["--weights", "q4", "--cache", "q8"]].map(
      (formats) => run("--model", "model/stories", ...formats).stdout,
    );
    expect(stored).toMatch(/^linear memory .* weights [\d,]+ \(as stored: BF16\), a session [\d,]+ \(f32\), calls/m);
    expect(stored).toMatch(/\n\nFor linear memory in other formats: --weights q8 --cache q8\.\n$/);
    expect(asked).not.toContain("other formats");
    expect(asked).toMatch(/^linear memory .* weights [\d,]+ \(q4\), a session [\d,]+ \(q8\), calls/m);
  });

  test("a GGUF file, as text", () => {
    const { stdout } = run("--model", "model/stories/stories.gguf");
    expect(stdout).toMatch(/^parameters +743,296$/m);
    expect(stdout).toMatch(/^stored +793,136 bytes \(793 KB\), matrices in Q8_0$/m);
    expect(stdout).toMatch(/^linear memory .* weights [\d,]+ \(as stored: Q8_0\), a session [\d,]+ \(f32\), calls/m);
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
  [[...BUDGET, "--memory", "5GiB"], "configure: --memory expected 1 to 4Gi bytes, such as 500MB or 1GiB, got 5GiB"],
  [
    [...BUDGET.slice(0, 3), "2x", ...BUDGET.slice(4)],
    "configure: --seq-len expected 1 to 1Gi tokens, such as 4096, 4k or 4Ki, got 2x",
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

test("a file that is no config.json, an encoder, and a file that is missing are refused as what they are", () => {
  writeFileSync(join(folder, "tokenizer.json"), "{}");
  writeFileSync(join(folder, "bert.json"), JSON.stringify({ model_type: "bert" }));
  const said = (name: string) => {
    const { status, stderr } = run("--model", name);
    expect(status).toBe(2);
    return stderr;
  };
  expect(said(join(folder, "tokenizer.json"))).toMatch(
    /tokenizer\.json: config expected the fields of config\.json, got none named model_type$/m,
  );
  expect(said(join(folder, "bert.json"))).toMatch(
    /got "bert", an encoder or a model with one, of which headwise\/models/,
  );
  expect(said("model/config.jsn")).toMatch(/expected a file "config\.json" in "model\/config\.jsn", got none$/m);
  expect(said("HuggingFaceTB/SmolLM2-135M")).toMatch(/Hugging Face would have the URL/);
});

test("more tokens than the model states are described with a warning", () => {
  const stated = join(folder, "stated.json");
  writeFileSync(stated, JSON.stringify({ ...QWEN, max_position_embeddings: 40_960 }));
  const [short, long] = ["40960", "40961"].map((seqLen) => run("--model", stated, "--seq-len", seqLen));
  expect([short?.status, short?.stderr, long?.status]).toEqual([0, "", 0]);
  expect(long?.stderr).toBe("warning: 40961 tokens are more than the 40960 that the model states\n");
  expect(long?.stdout).toMatch(/^40961 tokens +[\d,]+ bytes/m);
});

test("windows are spoken of where there are some", () => {
  const gemma = known.models.find(({ name }) => name === "gemma-3-1b")?.config as object;
  writeFileSync(join(folder, "gemma.json"), JSON.stringify(gemma));
  const [without, windowed] = [folder, join(folder, "gemma.json")].map((model) => run("--model", model).stdout);
  expect(without).toMatch(/^a token +[\d,]+ bytes .* of cache at 16 bits$/m);
  expect(windowed).toMatch(/^a token +[\d,]+ bytes .* of cache at 16 bits, while no window is full$/m);
});
