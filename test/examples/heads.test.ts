import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { answerPairs, pronounPairs } from "../../examples/heads/labels.ts";
import { headTable, MODELS } from "../../examples/heads/table.ts";
import { loadKernels } from "../../src/entries/index.ts";
import { detectHeads } from "../../src/entries/inspect.ts";
import { type Model, models } from "../../src/entries/models.ts";
import { TINY, tinyFolder } from "../support/tiny-models.ts";

const card = (folder: string) => readFileSync(new URL(`../../model/${folder}README.md`, import.meta.url), "utf8");

describe.each([
  ["induction", ""],
  ["stories", "stories/"],
] as const)("%s", (name, folder) => {
  test("the table of heads in the model card is what the model gives", async () => {
    using kernels = await loadKernels({ models, deterministic: true });
    expect(card(folder)).toContain(`\n\n${await headTable(kernels, MODELS[name]!)}\n\n`);
  });
});

test("the circuit by hand is what it is made to be", async () => {
  using kernels = await loadKernels({ models, deterministic: true });
  expect((await headTable(kernels, MODELS["by-hand"]!)).split("\n").slice(2, 4)).toEqual([
    "| 0.0 | previous | 1.00 | 0.02 | 0.05 | 0.00 | 1.00 | 0.10 | 0.00 |",
    // 21 of 41 tokens are new, and look at the first one, which is the previous one of token 1 of 40.
    "| 1.0 | induction | 0.03 | 0.02 | 0.51 | 1.00 | 0.10 | 0.10 | 1.00 |",
  ]);
});

test("layers with another window have baselines of their own", async () => {
  using kernels = await loadKernels({ models });
  const tokens = Array.from({ length: 60 }, (_, i) => (i * 7) % 30);
  const windowed = {
    source: tinyFolder(TINY.gemma2),
    columns: ["previous", "first"],
    detect: (model: Model) => detectHeads(model, [tokens]),
  };
  const rows = (await headTable(kernels, windowed)).split("\n").filter((row) => row.startsWith("| baseline"));
  expect(rows.map((row) => row.split(" | ").slice(0, 4))).toEqual([
    // Means of 1 / min(i + 1, 9), of 59 tokens, and of 1 / (i + 1), of 60: in layer 0 tokens see nine keys at most.
    ["| baseline, layer 0", "", "0.13", "0.05"],
    ["| baseline, layer 1", "", "0.06", "0.08"],
  ]);
});

/** Runs `npm run heads -- ...args` on the built package. */
function run(...args: string[]): { status: number | null; stdout: string; stderr: string } {
  const main = fileURLToPath(new URL("../../examples/heads/main.ts", import.meta.url));
  return spawnSync(process.execPath, [main, ...args], { encoding: "utf8" });
}

test("npm run heads -- induction prints the table of the card", () => {
  const { status, stdout, stderr } = run("induction");
  expect([status, stderr]).toEqual([0, ""]);
  expect(card("")).toContain(`\n\n${stdout}\n`);
});

test.each([[["zebra"]], [["stories", "induction"]]])("%j is refused without a stack", (args) => {
  const { status, stdout, stderr } = run(...args);
  expect([status, stdout]).toEqual([1, ""]);
  expect(stderr).toBe(`npm run heads takes induction or stories or by-hand; got ${args.join(" ")}.\n`);
});

test("answers refer to earlier mentions, pronouns to what they stand for", () => {
  const text = "<s> the cat sat on the mat because it was soft . what was soft ? the mat . tom was cold , so he ran .";
  const words = text.split(" ");
  const names = ["it is the surface", "he or she"];
  expect(
    answerPairs(
      words,
      [
        [17, 0],
        [24, 1],
      ],
      names,
    ),
  ).toEqual([{ query: 16, key: 6 }]);
  expect(pronounPairs(words)).toEqual([
    { query: 8, key: 6 },
    { query: 24, key: 19 },
  ]);
});
