import { afterEach, describe, expect, test, vi } from "vitest";
import { median, timeLoads } from "../../../../src/tools/diagnostics/timing.ts";

describe("timing", () => {
  afterEach(() => void vi.unstubAllGlobals());

  /** A clock that shows `now`. */
  const stubClock = (now: () => number) => vi.stubGlobal("performance", { now });

  test("loads alternate, and each is compared with the first in the same round", async () => {
    const clock = { ms: 0 };
    stubClock(() => clock.ms);
    const order: string[] = [];
    const load = (name: string, ms: number) => ({
      flops: 6e6,
      run() {
        order.push(name);
        clock.ms += ms;
      },
    });
    const effort = { warmupMs: 0, sampleMs: 6, rounds: 5, mostMs: 1e6 };
    const [first, second] = (await timeLoads([load("a", 2), load("b", 3)], effort)) ?? [];
    // Four runs of a and two of b are the first that take 6 ms.
    expect(order.join("").slice(-30)).toBe("aaaabb bbaaaa aaaabb bbaaaa aaaabb".replaceAll(" ", ""));
    expect(first).toEqual({ ms: 2, bestMs: 2, gflops: 3, bestGflops: 3, ratio: 1 });
    expect(second).toEqual({ ms: 3, bestMs: 3, gflops: 2, bestGflops: 2, ratio: 2 / 3 });
  });

  test("a clock that stands still for a while makes samples longer, and little time fewer rounds", async () => {
    const clock = { ms: 0 };
    stubClock(() => Math.floor(clock.ms));
    let runs = 0;
    const load = {
      flops: 1e6,
      run() {
        runs++;
        clock.ms += 1 / 64;
      },
    };
    const [rate] = (await timeLoads([load], { warmupMs: 0, sampleMs: 8, rounds: 100, mostMs: 1 })) ?? [];
    expect(rate?.ms).toBeCloseTo(1 / 64, 3);
    // 1 to warm up, 1 + 8 + 64 + 512 to find 512 runs of 8 ms, the last two twice, and the least of three rounds.
    expect(runs).toBe(1 + 1 + 8 + 2 * 64 + 2 * 512 + 3 * 512);
  });

  test("a clock of 100 ms makes samples of five ticks", async () => {
    const clock = { ms: 0 };
    stubClock(() => {
      // Reading it takes a microsecond.
      clock.ms += 1e-3;
      return 100 * Math.floor(clock.ms / 100);
    });
    const load = {
      flops: 1e6,
      run() {
        clock.ms += 3;
      },
    };
    const [rate] = (await timeLoads([load], { warmupMs: 0, sampleMs: 8, rounds: 5, mostMs: 1e6 })) ?? [];
    expect(Math.abs((rate?.ms ?? 0) / 3 - 1)).toBeLessThan(0.2);
    expect(Math.abs((rate?.bestMs ?? 0) / 3 - 1)).toBeLessThan(0.2);
  });

  test("a sample that was interrupted is not taken for a long one", async () => {
    const clock = { ms: 0 };
    stubClock(() => Math.floor(clock.ms));
    let runs = 0;
    // The second run is the first of the search.
    const load = {
      flops: 1e6,
      run() {
        clock.ms += runs++ === 1 ? 20 : 1 / 64;
      },
    };
    const [rate] = (await timeLoads([load], { warmupMs: 0, sampleMs: 8, rounds: 3, mostMs: 1 })) ?? [];
    expect(rate?.bestMs).toBeCloseTo(1 / 64, 3);
  });

  test("a clock that never moves ends without rates, when each load has run", async () => {
    stubClock(() => 0);
    const runs = [0, 0];
    const loads = runs.map((_, i) => ({ flops: 1e8, run: () => void runs[i]!++ }));
    expect(await timeLoads(loads, { warmupMs: 80, sampleMs: 8, rounds: 20, mostMs: 700 })).toBeUndefined();
    // 128 to warm up; 1 + 8 + 64 + 512 to find that 8.6e9 operations do not move it.
    expect(runs).toEqual([128 + 1 + 8 + 64 + 512, 128]);
  });

  test("the median is the middle one, or the upper of two", () => {
    expect([median([3, 1, 2]), median([4, 1, 3, 2]), median([5])]).toEqual([2, 3, 5]);
  });
});
