// `headwise bench`, as built.

import { describe, expect, test, vi } from "vitest";
import { HeadwiseError } from "../../../src/base/util/errors.ts";
import type * as Bench from "../../../src/cli/bench.ts";
import { BENCH_SHAPES } from "../../../src/cli/bench.ts";
import { manifest, spawnCli } from "../../support/cli.ts";
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
    const { bench } = await importWith<typeof Bench>(source("bench"), source("load"), { startKernels });
    await expect(bench(["--shape", "linear", "--threads", "1"], version)).rejects.toThrow("no more");
    expect([startKernels.mock.calls.length, kernels.released]).toEqual([2, true]);
  });

  test("times each build with each number of threads", () => {
    const { status, stdout } = spawnCli(["bench", "--shape", "linear", "--threads", "2", "--json"], FASTER_CLOCK);
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

  test("prints a table, in which no heading stands twice where there is one processor", () => {
    const one = 'require("node:os").availableParallelism = () => 1; require("node:module").syncBuiltinESMExports();';
    const flags = [
      "--import",
      `data:text/javascript,${encodeURIComponent(`import { createRequire } from "node:module"; const require = createRequire("file:///"); ${one}`)}`,
    ];
    const { stdout } = spawnCli(["bench", "--shape", "linear", "--weights", "q8"], [...flags, ...FASTER_CLOCK]);
    const [title, , head, ...rows] = stdout.trimEnd().split("\n");
    expect(title).toMatch(new RegExp(`^headwise ${version}, Node .*, 1 processor, .* GiB, weights q8$`));
    expect(head?.split(/ {2,}/)).toEqual(
      "shape,work,build,threads,ms,least ms,tokens/s,GFLOP/s,most GFLOP/s,relative speed".split(","),
    );
    expect(rows.slice(0, 2).map((row) => row.split(/ {2,}/).slice(0, 4).join())).toEqual([
      "linear,linear,relaxed,1",
      "linear,linear,simd,1",
    ]);
    expect(rows.at(-1)).toMatch(/^linear: /);
  });

  test("a layer's work is a call of it, and gives its memory back", async () => {
    const works = BENCH_SHAPES.gpt2?.works ?? [];
    expect(works.map(({ name, tokens }) => [name, tokens])).toEqual([
      ["prefill 128", 128],
      ["prefill 512", 512],
      ["decode at 512", 1],
    ]);
    const kernels = await kernelsOf("simd");
    const used = [1, 2].map(() => {
      const load = works[2]!.prepare("q8")(kernels);
      // The matrices of q, k, v and the output, and 513 keys and values.
      expect(load.flops).toBe(8 * 768 * 768 + 4 * 768 * 513);
      // Each run takes its token back: the cache has room for one.
      for (let run = 0; run < 2; run++) load.run();
      load.release();
      return kernels.memory.used;
    });
    // The first leaves the scratch memory of the kernels.
    expect(used[1]).toBe(used[0]);
  });
});
