// The speed of loaded models and of any work; the values of options.

import { measureModel, OPTION_VALUES, timeWorks } from "headwise/configure";
import { loadModel, models } from "headwise/models";
import { expect, test } from "vitest";
import { loadKernels } from "../../../../src/entries/index.ts";
import { fasterClock } from "../../../support/clock.ts";
import { TINY, tinyFolder } from "../../../support/tiny-models.ts";

test("works are timed by turns, each beside the first", async () => {
  using _ = fasterClock();
  const runs = [0, 0];
  const work = (i: number, rounds: number) => ({
    flops: rounds,
    run() {
      runs[i]!++;
      for (let r = 0, sum = 0; r < rounds; r++) sum += Math.sqrt(r + sum);
    },
  });
  const [short, long] = await timeWorks([work(0, 1000), work(1, 100_000)]);
  expect(short!.ratio).toBe(1);
  expect(long!.ms).toBeGreaterThan(short!.ms);
  for (const { ms, bestMs, gflops, bestGflops } of [short!, long!]) {
    expect(bestMs).toBeLessThanOrEqual(ms);
    expect(bestGflops).toBeGreaterThanOrEqual(gflops);
  }
  expect(Math.min(...runs)).toBeGreaterThan(3);
});

test("a clock that stands still is NO_CLOCK", async () => {
  // Not a spy, which keeps each of some million calls.
  const { now } = performance;
  performance.now = () => 5;
  try {
    await expect(timeWorks([{ flops: 1e9, run() {} }])).rejects.toThrow(
      "timeWorks: clock expected to advance while code runs, got one that stands still",
    );
  } finally {
    performance.now = now;
  }
});

test.each<[works: unknown, message: string]>([
  [1, "works expected an array, got 1"],
  [[1], "works[0] expected an object, got 1"],
  [[{ flops: 0, run() {} }], "works[0].flops expected a finite number > 0, got 0"],
  [[{ flops: 1 }], "works[0].run expected a function, got undefined"],
])("timeWorks refuses %j", async (works, message) => {
  await expect(timeWorks(works as never)).rejects.toThrow(`timeWorks: ${message}`);
});

test("a model is measured beside reading, and its memory is given back", async () => {
  using _ = fasterClock();
  using kernels = await loadKernels({ models });
  using model = await loadModel(kernels, tinyFolder(TINY.qwen3_moe));
  const { tokens, ...speed } = await measureModel(model);
  expect(tokens).toBe(Math.min(128, (model.maxSeqLen ?? 129) - 1));
  for (const each of Object.values(speed)) expect(each).toBeGreaterThan(0);
  expect(speed.prefillTokensPerSecond).toBeGreaterThan(speed.decodeTokensPerSecond);
  // The first leaves the scratch memory of the kernels.
  const used = kernels.usedBytes;
  await measureModel(model);
  expect(kernels.usedBytes).toBe(used);
  await expect(measureModel({} as never)).rejects.toThrow("measureModel: model expected what loadModel gives");
});

test("the values of options are complete, and cannot be changed", async () => {
  expect(OPTION_VALUES).toEqual({
    weights: ["f32", "f16", "bf16", "q8", "q8-row", "q4"],
    cache: ["f32", "f16", "q8", "q4"],
    target: ["browser", "phone", "worker", "server"],
    attention: ["mha", "gqa", "mqa", "mla"],
  });
  expect(() => (OPTION_VALUES.cache as string[]).push("q2")).toThrow(TypeError);
  expect(Object.isFrozen(OPTION_VALUES)).toBe(true);
});
