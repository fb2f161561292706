// The choice of dot products, by clocks of every kind.

import { afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { createDotModes } from "../../../src/wasm/int-dot.ts";
import { type Instance, startOwn } from "../../../src/wasm/modules.ts";
import { modulesOf } from "../../support/modules.ts";

const PAIRS = { exact: 0, fast: 5 };
const BYTES = { exact: 2, fast: 3 };

let instance: Instance;
beforeAll(async () => {
  ({ instance } = await startOwn(modulesOf("relaxed")));
});
afterEach(() => {
  vi.restoreAllMocks();
});

/** What a call of products takes, in milliseconds, and what the system takes from it, by when it begins. */
interface Machine {
  readonly direct: number | ((time: number) => number);
  readonly emulated: number | ((time: number) => number);
  readonly interruption?: (time: number) => number;
}

/** An instance on a machine with a clock that moves by `step`. */
function withClock(
  step: number,
  { direct, emulated, interruption = () => 0 }: Machine,
): { instance: Instance; calls: () => number; time: () => number } {
  let [time, calls] = [0, 0];
  vi.spyOn(performance, "now").mockImplementation(() => (step > 0 ? Math.floor(time / step) * step : 0));
  const repeat_dots: Instance["kernels"]["repeat_dots"] = (_out, _x, _w, rounds) => {
    calls++;
    const taken = rounds > 0 ? direct : emulated;
    time += (typeof taken === "number" ? taken : taken(time)) + interruption(time);
  };
  const own = { ...instance, kernels: { ...instance.kernels, repeat_dots } };
  return { instance: own, calls: () => calls, time: () => time };
}

describe.each([0.000_01, 0.005, 0.1, 1])("a clock of steps of %d ms", (step) => {
  test.each([
    ["one instruction", 0.0015, 0.003, BYTES],
    ["one instruction of a fast CPU", 0.0011, 0.0016, BYTES],
    ["five instructions", 0.004, 0.003, PAIRS],
    ["five instructions of a slow CPU", 0.05, 0.03, PAIRS],
  ])("finds products of %s", (_, direct, emulated, modes) => {
    const { instance, time } = withClock(step, { direct, emulated });
    expect(createDotModes()(instance)).toEqual(modes);
    expect(time(), "ms").toBeLessThan(60);
  });
});

describe("where other programs use the CPU", () => {
  // Before it is optimised, code takes the same for both but for an eighth, as in V8.
  const unoptimised = { direct: 0.0104, emulated: 0.0117 };
  const one = { direct: 0.0026, emulated: 0.0045 };
  const five = { direct: 0.0058, emulated: 0.0045 };

  /** Code that is optimised at `at`, on a system that takes 30 ms from it after every 3, the first time at `first`. */
  const busy = (fast: typeof one, at: number, first: number): Machine => {
    let next = first;
    return {
      direct: (time) => (time < at ? unoptimised : fast).direct,
      emulated: (time) => (time < at ? unoptimised : fast).emulated,
      interruption: (time) => {
        if (time < next) return 0;
        next = time + 33;
        return 30;
      },
    };
  };

  test.each([
    ["one instruction", one, BYTES],
    ["five instructions", five, PAIRS],
  ])("products of %s are found, whenever they are interrupted and optimised", (_, fast, modes) => {
    for (let first = 0; first < 3; first += 0.013)
      for (const at of [0, 0.9, 1.7, 20]) {
        const { instance, time } = withClock(0.000_01, busy(fast, at, first));
        expect(createDotModes()(instance), `interrupted at ${first}, optimised at ${at}`).toEqual(modes);
        expect(time(), "ms").toBeLessThan(100);
      }
  });

  test("what was not optimised when it was first timed is timed again, until it is", () => {
    const { instance, calls } = withClock(0.000_01, busy(one, 400, 1));
    const modesOf = createDotModes();
    const found = Array.from({ length: 12 }, () => [modesOf(instance), calls()] as const);
    expect(found[0]?.[0]).toEqual(PAIRS);
    const first = found.findIndex(([{ exact }]) => exact === BYTES.exact);
    expect(first).toBeGreaterThan(0);
    // Then it is decided.
    for (const [modes, count] of found.slice(first)) expect([modes, count]).toEqual([BYTES, found[first]?.[1]]);
  });

  test("products that take about the same are timed a few times, and not for ever", () => {
    const { instance, calls, time } = withClock(0.000_01, { direct: 0.003, emulated: 0.0033 });
    const modesOf = createDotModes();
    const counts = Array.from({ length: 20 }, () => [modesOf(instance), calls()] as const);
    for (const [modes] of counts) expect(modes).toEqual(PAIRS);
    expect(counts[1]?.[1]).toBeGreaterThan(counts[0]?.[1] as number);
    expect(counts[5]?.[1]).toBe(counts[19]?.[1]);
    expect(time(), "ms").toBeLessThan(700);
  });
});

test("a clock that stands still takes pairs, after few calls", () => {
  const { instance, calls } = withClock(0, { direct: 0.003, emulated: 0.003 });
  const modesOf = createDotModes();
  for (let i = 0; i < 3; i++) expect(modesOf(instance)).toEqual(PAIRS);
  expect(calls()).toBeLessThanOrEqual(1000);
});

test("without products of bytes there are only pairs", async () => {
  const simd = await startOwn(modulesOf("simd"));
  expect(createDotModes()(simd.instance)).toEqual({ exact: 0, fast: 1 });
});
