// The studies: their pages and figures are what their results give, and what is claimed of the results holds. Training needs
// PyTorch and minutes, so that it is not repeated here.

import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { drawFigure } from "../../examples/studies/chart.ts";
import * as copyTask from "../../examples/studies/copy-task/facts.ts";
import type { CopyResult, Group } from "../../examples/studies/copy-task/result.ts";
import { bitsOf, loadStudyKernels, logitsOf, scoreHeads, withModel } from "../../examples/studies/evaluate.ts";
import type { Task } from "../../examples/studies/groups.ts";
import * as latentRanks from "../../examples/studies/latent-ranks/facts.ts";
import type { RanksResult } from "../../examples/studies/latent-ranks/result.ts";
import { NoPyTorch, runPython } from "../../examples/studies/python.ts";
import { STUDIES } from "../../examples/studies/studies.ts";
import { filesOf, mean, writeResult } from "../../examples/studies/study.ts";

const studies = new URL("../../examples/studies/", import.meta.url);
const text = (file: string) => readFileSync(new URL(file, studies), "utf8");

describe.each(Object.entries(STUDIES))("%s", (name, study) => {
  const result = JSON.parse(text(`${name}/result.json`));
  const files = Object.entries(filesOf(study, result));

  test("the figures and the page are what result.json gives", () => {
    expect(files.map(([file]) => file)).toContain("README.md");
    for (const [file, expected] of files) expect(text(`${name}/${file}`), file).toBe(expected);
    expect(text(`${name}/result.json`)).toBe(writeResult(result));
  });

  test("figures have a title and a description, and are small", () => {
    for (const [file, svg] of files.filter(([file]) => file.endsWith(".svg"))) {
      expect(svg, file).toMatch(/<title id="title">[^<]+<\/title>\n<desc id="desc">[^<]{40,}<\/desc>/);
      expect(svg, file).not.toMatch(/NaN|undefined|Infinity/);
      expect(svg.length, file).toBeLessThan(60_000);
    }
  });

  test("the page shows every figure, and its links lead to files", () => {
    const page = text(`${name}/README.md`);
    const linksOf = (form: RegExp) => Array.from(page.matchAll(form), ([, file]) => file as string);
    const drawn = readdirSync(new URL(name, studies)).filter((file) => file.endsWith(".svg"));
    expect(linksOf(/!\[[^\]]+\]\(([^)]+)\)/g).toSorted()).toEqual(drawn.toSorted());
    const folder = new URL(`${name}/`, studies);
    expect(linksOf(/\]\(([^):#]+)/g).filter((file) => !existsSync(new URL(file, folder)))).toEqual([]);
    expect(page).not.toMatch(/NaN|undefined|Infinity/);
  });
});

const runMain = (argument: string) => {
  const hooks = new URL("../../scripts/source-hooks.mjs", import.meta.url).href;
  const main = fileURLToPath(new URL("main.ts", studies));
  return spawnSync(process.execPath, ["--import", hooks, main, argument], { encoding: "utf8" });
};

test.each(["copytask", "--figure"])("an unknown study or option, %s, is answered with the names of all", (given) => {
  const { status, stderr } = runMain(given);
  expect(stderr.trim()).toBe(`npm run study takes one of ${Object.keys(STUDIES).join(", ")}; got "${given}".`);
  expect(status).toBe(1);
});

test("--help names the studies", () => {
  const { status, stdout, stderr } = runMain("--help");
  expect([status, stderr]).toEqual([0, ""]);
  expect(stdout).toContain(Object.keys(STUDIES).join(", "));
});

test("without PyTorch, the error says what to install", async () => {
  const run = runPython(new URL("copy-task/train.py", studies), [], () => {}, [undefined, "no-such-python"]);
  await expect(run).rejects.toThrow(NoPyTorch);
  await expect(run).rejects.toThrow(/apt-get install python3-torch .* --figures/);
});

test("a figure has its lines at the places of their values, and text that is not markup", () => {
  const svg = drawFigure({
    title: "a < b",
    description: "one line",
    panels: [
      {
        title: "panel",
        x: { title: "x", ticks: [1, 2, 4], log: true },
        y: { title: "y", ticks: [0, 10] },
        lines: [
          {
            name: "line",
            points: [
              { x: 1, y: 0, high: 10 },
              { x: 2, y: 5 },
              { x: 4, y: 10 },
            ],
          },
        ],
      },
    ],
  });
  expect(svg).toContain("a &lt; b");
  // The chart spans 60 to 366 and 206 to 34.
  expect(svg).toContain('d="M60 206L213 120L366 34" fill="none"');
  expect(svg).toContain('d="M60 34L213 120L366 34L366 34L213 120L60 206Z"');
});

test("logits that are all alike take log2 of their number in bits, and a sure one none", () => {
  const rows = { tokens: [[1, 2]], targets: [[-100, 3]] };
  expect(bitsOf([new Float32Array(16)], rows)).toBe(3);
  expect(bitsOf([Float32Array.from({ length: 16 }, (_, i) => (i === 11 ? 200 : 0))], rows)).toBe(0);
});

test("the shipped induction model copies, with a head on the previous token and one on the answer", async () => {
  const ids = [3, 17, 9, 21, 5, 11, 30, 2];
  const tokens = [[...ids, ...ids]];
  const targets = [[...ids, ...ids].map((_, i, all) => (i > ids.length && i < 15 ? all[i + 1]! : -100))];
  const kernels = await loadStudyKernels();
  await withModel(kernels, new URL("../../model/", import.meta.url), (session) => {
    expect(bitsOf(logitsOf(session, { tokens, targets }), { tokens, targets })).toBeLessThan(0.1);
    const heads = scoreHeads(session, { tokens, targets });
    expect(heads).toHaveLength(8);
    expect(Math.max(...heads.slice(0, 4).map(({ previous }) => previous))).toBeGreaterThan(0.6);
    expect(Math.max(...heads.slice(4).map(({ answer }) => answer))).toBeGreaterThan(0.6);
  });
  kernels.release();
});

describe("the claims of copy-task", () => {
  const result = JSON.parse(text("copy-task/result.json")) as CopyResult;
  const { groupOf, HEADS, LAYERS, TASKS, verdictOf } = copyTask;
  const lossOf = (task: Task, layers: number, heads: number, positions: Group["positions"] = "rope") =>
    copyTask.lossOf(result, task, layers, heads, positions);

  test("32 groups of 5 seeds, whose logits are PyTorch's within 1e-4 and whose last loss while training is the one measured", () => {
    expect(result.setup.seeds).toEqual([1, 2, 3, 4, 5]);
    expect(result.groups).toHaveLength(32);
    for (const group of result.groups) {
      for (const list of ["bits", "bitsWithout", "otherBits", "answer", "previous"] as const)
        expect(group[list]).toHaveLength(5);
      expect(group.difference).toBeLessThan(1e-4);
      for (const [seed, curve] of group.curves.entries()) {
        expect(curve).toHaveLength(result.setup.steps / result.setup.every + 1);
        expect(Math.abs(curve.at(-1)! - group.bits[seed]!)).toBeLessThan(1e-3);
      }
    }
    for (const task of TASKS)
      for (const layers of LAYERS) for (const heads of HEADS) groupOf(result, task, layers, heads);
  });

  test("one layer copies over a fixed distance and not over a varied one, two layers both", () => {
    expect(lossOf("fixed", 1, 4)).toBeLessThan(0.1);
    for (const heads of HEADS) expect(lossOf("varied", 1, heads)).toBeGreaterThan(1);
    for (const task of TASKS) expect(lossOf(task, 2, 4)).toBeLessThan(0.1);
  });

  test("2 and 4 heads are near the best everywhere; 16 are not with RoPE, and are better with a learned table", () => {
    expect([2, 4].map((heads) => copyTask.casesNearBest(result, heads))).toEqual([4, 4]);
    expect(copyTask.casesNearBest(result, 16)).toBeLessThan(4);
    for (const [task, layers] of [
      ["fixed", 1],
      ["varied", 1],
      ["varied", 2],
    ] as const) {
      expect(verdictOf(groupOf(result, task, layers, 8).bits, groupOf(result, task, layers, 16).bits)).toBe("hurts");
      expect(lossOf(task, layers, 16, "learned")).toBeLessThan(lossOf(task, layers, 16) - copyTask.PLATEAU);
    }
  });

  test("two layers have an induction circuit, and lose the answer without its first head", () => {
    const circuit = groupOf(result, "varied", 2, copyTask.bestHeads(result, "varied", 2));
    expect(mean(circuit.answer)).toBeGreaterThan(0.9);
    expect(mean(circuit.previous)).toBeGreaterThan(0.4);
    expect(mean(circuit.bitsWithout)).toBeGreaterThan(1);
  });

  test("one layer without positions is no better than who does not know the order", () => {
    for (const task of TASKS)
      expect(lossOf(task, 1, 4, "none")).toBeGreaterThan(copyTask.unorderedBits(result.setup, task));
    expect(lossOf("varied", 1, 4, "learned")).toBeLessThan(copyTask.unorderedBits(result.setup, "varied"));
  });

  test("a model trained on a fixed distance does not copy over others", () => {
    for (const heads of HEADS)
      for (const layers of LAYERS) expect(mean(groupOf(result, "fixed", layers, heads).otherBits)).toBeGreaterThan(2);
  });

  test("a verdict needs a change of 0.1 bits and of two standard errors", () => {
    expect(verdictOf([1, 1.02, 0.98], [0.95, 0.93, 0.97])).toBe("plateau");
    expect(verdictOf([1, 1.02, 0.98], [0.5, 0.52, 0.48])).toBe("helps");
    expect(verdictOf([0.5, 0.52, 0.48], [1, 1.02, 0.98])).toBe("hurts");
    expect(verdictOf([0, 0, 3], [0, 0, 0])).toBe("unclear");
  });

  test("who knows which tokens are left takes the mean of log2 of their number", () => {
    expect(copyTask.unorderedBits(result.setup, "fixed")).toBeCloseTo(Math.log2(3_628_800) / 10, 12);
  });
});

describe("the claims of latent-ranks", () => {
  const result = JSON.parse(text("latent-ranks/result.json")) as RanksResult;
  const { belowEighth, groupOf, shareOf } = latentRanks;

  test("MHA, GQA, MQA and 8 ranks from 4 to 32, with 3 seeds each and PyTorch's logits within 5e-4", () => {
    const ranks = result.groups.flatMap(({ rank }) => rank ?? []);
    expect(ranks).toEqual([4, 6, 8, 11, 12, 16, 24, 32]);
    expect(result.groups.map(({ name }) => name).slice(0, 4)).toEqual(["MHA", "GQA 4", "GQA 2", "MQA"]);
    for (const { bits, difference, curves } of result.groups) {
      expect(bits).toHaveLength(3);
      expect(difference).toBeLessThan(5e-4);
      for (const [seed, curve] of curves.entries()) expect(Math.abs(curve.at(-1)! - bits[seed]!)).toBeLessThan(1e-3);
    }
  });

  test("the cache is below an eighth where the rank and 4 rotated floats are fewer than 16", () => {
    for (const { rank, floats } of result.groups) if (rank !== null) expect(floats).toBe(rank + 4);
    expect(groupOf(result, "MHA").floats).toBe(128);
    expect(belowEighth(result).map(({ rank }) => rank)).toEqual([4, 6, 8, 11]);
    expect(shareOf(result, groupOf(result, "MLA 12"))).toBe(1 / 8);
  });

  test("headwise stores at least that, and in whole groups of 8 floats", () => {
    for (const { floats, storedBytes } of result.groups) {
      expect(storedBytes).toBeGreaterThanOrEqual(4 * floats);
      expect(storedBytes % 32).toBe(0);
    }
  });

  test("rank 11, the largest below an eighth, is within 1 bit of MHA in every seed, and rank 4 in none", () => {
    expect(latentRanks.answer(result)).toMatch(/rank 11 \(\+0\.\d\d bits\) is within 1 bit of its loss in all 3 seeds/);
    expect(latentRanks.seedsWithinBit(result, groupOf(result, "MLA 11"))).toBe(3);
    expect(latentRanks.seedsWithinBit(result, groupOf(result, "MLA 4"))).toBe(0);
  });
});
