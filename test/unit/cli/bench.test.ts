// `headwise bench`, as built.

import { describe, expect, test, vi } from "vitest";
import type * as Bench from "../../../src/cli/bench.ts";
import { HeadwiseError } from "../../../src/util/errors.ts";
import { manifest, runCli } from "../../support/cli.ts";
import { FASTER_CLOCK } from "../../support/clock.ts";
import { kernelsOf } from "../../support/layers.ts";
import { importWith } from "../../support/replace-module.ts";

const { version } = manifest;

describe("bench", () => {
  test("kernels that have started are released when others do not start", async () => {
    const kernels = await kernelsOf("simd");
    const startKernels = vi
      .fn()
      .mockResolvedValueOnce(kernels)
      .mockRejectedValue(new HeadwiseError("NO_SIMD", "no more"));
    const source = (name: string) => new URL(`../../../src/cli/${name}.ts`, import.meta.url);
    const { bench } = await importWith<typeof Bench>(source("bench"), source("load-kernels"), { startKernels });
    await expect(bench(["--shape", "linear", "--threads", "1"], version)).rejects.toThrow("no more");
    expect([startKernels.mock.calls.length, kernels.released]).toEqual([2, true]);
  });

  test("times each build with each number of threads", () => {
    const { status, stdout } = runCli(["bench", "--shape", "linear", "--threads", "2", "--json"], FASTER_CLOCK);
    expect(status).toBe(0);
    const { headwise, rows } = JSON.parse(stdout) as { headwise: string; rows: Record<string, number | string>[] };
    expect(headwise).toBe(version);
    expect(rows.map(({ build, threads }) => `${build} ${threads}`)).toEqual([
      "relaxed 1",
      "relaxed 2",
      "simd 1",
      "simd 2",
    ]);
    expect(rows[0]?.ofFirst).toBe(1);
    for (const { ms, bestMs, gflops, tokensPerSecond } of rows as Record<string, number>[]) {
      expect(bestMs).toBeLessThanOrEqual(ms as number);
      expect(gflops).toBeCloseTo((2 * 128 * 768 * 768) / (ms as number) / 1e6, 6);
      expect(tokensPerSecond).toBeCloseTo(128_000 / (ms as number), 6);
    }
  });

  test("of one processor there is one, and no heading stands twice", () => {
    const one = 'require("node:os").availableParallelism = () => 1; require("node:module").syncBuiltinESMExports();';
    const flags = [
      "--import",
      `data:text/javascript,${encodeURIComponent(`import { createRequire } from "node:module"; const require = createRequire("file:///"); ${one}`)}`,
    ];
    const { stdout } = runCli(["bench", "--shape", "linear"], [...flags, ...FASTER_CLOCK]);
    const [title, , head] = stdout.split("\n");
    expect(title).toContain(", 1 processor, ");
    const headings = (head as string).split(/ {2,}/);
    expect(new Set(headings).size).toBe(headings.length);
  });

  test("prints a table", () => {
    const { stdout } = runCli(["bench", "--shape", "gpt2", "--threads", "1", "--weights", "q8"], FASTER_CLOCK);
    const [title, , head, ...rows] = stdout.trimEnd().split("\n");
    expect(title).toMatch(new RegExp(`^headwise ${version}, Node .*, \\d+ processors?, .* GiB, weights q8$`));
    expect(title).not.toMatch(/\b1 processors/);
    expect(head?.split(/ {2,}/)).toEqual(
      "shape,work,build,threads,ms,least ms,tokens/s,GFLOP/s,most GFLOP/s,relative speed".split(","),
    );
    expect(rows.slice(0, 6).map((row) => row.split(/ {2,}/).slice(0, 4).join())).toEqual(
      ["prefill 128", "prefill 512", "decode at 512"].flatMap((work) => [
        `gpt2,${work},relaxed,1`,
        `gpt2,${work},simd,1`,
      ]),
    );
    expect(rows.at(-1)).toBe("gpt2: GPT-2 small, a layer");
  });
});
