import { describe, expect, test } from "vitest";
import { peakModule, startPeak } from "../../../../src/tools/diagnostics/timing.ts";
import { kernelsOf } from "../../../support/layers.ts";

describe("the peak", () => {
  test.each([true, false])("is a module that computes twelve chains (fused: %s)", (fused) => {
    const { exports } = new WebAssembly.Instance(new WebAssembly.Module(peakModule(fused)));
    const peak = exports.peak as (rounds: number, a: number, b: number) => number;
    // 1, 3, 7; 3, 9.
    expect([peak(2, 2, 1), peak(1, 2, 3)]).toEqual([12 * 7, 12 * 9]);
  });

  test("rounds once where the engine fuses, else twice", async () => {
    using kernels = await kernelsOf("relaxed");
    const once = (fused: boolean) => {
      const { exports } = new WebAssembly.Instance(new WebAssembly.Module(peakModule(fused)));
      // b·b needs 25 bits.
      return (exports.peak as (rounds: number, a: number, b: number) => number)(1, -(1 + 2 ** -12), 1 + 2 ** -12);
    };
    // b - b² = -2^-12 - 2^-24, or -2^-12 where b² was rounded to 1 + 2^-11.
    expect(once(false)).toBe(-12 * 2 ** -12);
    expect(once(true)).toBe(-12 * (kernels.fused ? 2 ** -12 + 2 ** -24 : 2 ** -12));
  });

  test("counts its operations", () => {
    expect(startPeak(false).flops).toBe(2 * 4 * 12 * 50_000);
  });
});
