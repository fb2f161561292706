// The choice of dot products, by clocks of every kind.

import { afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import type { Instance } from "../../../src/wasm/instantiate.ts";
import { findDotModes } from "../../../src/wasm/int-dot.ts";
import { startOwn } from "../../../src/wasm/select-build.ts";
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

/** An instance whose products take `direct` and `emulated` milliseconds a call of a clock that moves by `step`. */
function withClock(step: number, direct: number, emulated: number): { instance: Instance; calls: () => number } {
  let [time, calls] = [0, 0];
  vi.spyOn(performance, "now").mockImplementation(() => (step > 0 ? Math.floor(time / step) * step : 0));
  const repeat_dots: Instance["kernels"]["repeat_dots"] = (_out, _x, _w, rounds) => {
    calls++;
    time += rounds > 0 ? direct : emulated;
  };
  return { instance: { ...instance, kernels: { ...instance.kernels, repeat_dots } }, calls: () => calls };
}

describe.each([0.000_01, 0.005, 0.1, 1])("a clock of steps of %d ms", (step) => {
  test.each([
    ["one instruction", 0.0015, 0.003, BYTES],
    ["one instruction of a fast CPU", 0.0011, 0.0016, BYTES],
    ["five instructions", 0.004, 0.003, PAIRS],
    ["five instructions of a slow CPU", 0.05, 0.03, PAIRS],
  ])("finds products of %s", (_, direct, emulated, modes) => {
    const { instance, calls } = withClock(step, direct, emulated);
    expect(findDotModes(instance)).toEqual(modes);
    expect(calls() * Math.min(direct, emulated), "ms").toBeLessThan(20);
  });
});

test("a clock that stands still takes pairs, after few calls", () => {
  const { instance, calls } = withClock(0, 0.003, 0.003);
  expect(findDotModes(instance)).toEqual(PAIRS);
  expect(calls()).toBeLessThanOrEqual(1000);
});

test("without products of bytes there are only pairs", async () => {
  const simd = await startOwn(modulesOf("simd"));
  expect(findDotModes(simd.instance)).toEqual({ exact: 0, fast: 1 });
});
