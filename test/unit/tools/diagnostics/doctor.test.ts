import { afterEach, describe, expect, test, vi } from "vitest";
import { HeadwiseError } from "../../../../src/base/util/errors.ts";
import * as core from "../../../../src/entries/core.ts";
import { diagnose, diagnosisText, type Headwise } from "../../../../src/tools/diagnostics/doctor.ts";
import { kernelsOf } from "../../../support/layers.ts";

/** The relative error of a sum of n products, each rounded to 24 bits: RMS, if roundings are independent. */
const roundings = (n: number) => Math.sqrt(n) * 2 ** -24;

describe("a diagnosis", () => {
  const surroundings = { version: "1.2.3", engine: "an engine" };

  test("a self-test of other bits is reported as a failure, with both digests", async () => {
    const kernels = await kernelsOf("simd");
    const attend: Headwise["attend"] = (...call) => core.attend(...call).map((y) => -y);
    const report = await diagnose({ ...core, loadKernels: async () => kernels, attend }, surroundings);
    const { digest, expected } = report.selfTest as NonNullable<typeof report.selfTest>;
    expect(report).toMatchObject({ ok: false, selfTest: { ok: false, outputs: 200 } });
    expect(digest).not.toBe(expected);
    expect(kernels.released).toBe(true);
    expect(diagnosisText(report)).toMatch(/^headwise 1\.2\.3: FAILED\nengine {5}an engine\nfeatures/);
    expect(diagnosisText(report)).toContain(`self-test  FAILED: ${digest}, expected ${expected}, 200 outputs`);
  });

  test("junk is refused by name, before kernels are loaded", async () => {
    const loadKernels = vi.fn();
    const headwise = { ...core, loadKernels };
    const rows: [headwise: unknown, surroundings: unknown, text: string][] = [
      [undefined, surroundings, "diagnose: headwise.loadKernels expected a function, got undefined"],
      [{}, surroundings, "diagnose: headwise.loadKernels expected a function, got undefined"],
      [{ loadKernels }, surroundings, "diagnose: headwise.createAttention expected a function, got undefined"],
      [headwise, undefined, "diagnose: surroundings.version expected a string, got undefined"],
      [headwise, { version: "1", engine: 5 }, "diagnose: surroundings.engine expected a string, got 5"],
    ];
    for (const [headwise, given, text] of rows)
      await expect(diagnose(headwise as Headwise, given as typeof surroundings)).rejects.toThrow(new TypeError(text));
    expect(loadKernels).not.toHaveBeenCalled();
  });

  test("no percentage of the peak is above 100", async () => {
    const kernels = await kernelsOf("simd");
    const headwise: Headwise = { ...core, loadKernels: async () => kernels };
    const { peak, works = [] } = await diagnose(headwise, surroundings);
    expect(peak?.variation).toBeGreaterThanOrEqual(0);
    expect(peak?.variation).toBeLessThan(1);
    expect(works.length).toBe(2);
    for (const { ofPeak = 0 } of works) expect(ofPeak).toBeLessThanOrEqual(1);
  });

  test("kernels are released when a check throws", async () => {
    const kernels = await kernelsOf("simd");
    const headwise: Headwise = {
      ...core,
      loadKernels: async () => kernels,
      attend() {
        throw new HeadwiseError("KERNEL_FAILED", "attend: it fell");
      },
    };
    await expect(diagnose(headwise, surroundings)).rejects.toThrow("selfTest: it fell");
    expect(kernels.released).toBe(true);
  });

  describe("on hosts of the edge", () => {
    afterEach(() => void vi.unstubAllGlobals());

    /** Bytes are refused, modules that were compiled before run. */
    const refuseBytes = () => {
      class Module {
        constructor() {
          throw new WebAssembly.CompileError("Wasm code generation disallowed by embedder");
        }
      }
      vi.stubGlobal("WebAssembly", Object.create(WebAssembly, { Module: { value: Module } }));
    };
    const examine = async () => {
      const kernels = await kernelsOf("simd");
      refuseBytes();
      return diagnose({ ...core, loadKernels: async () => kernels }, surroundings);
    };

    test("without code generation the works are timed, beside no peak", async () => {
      const diagnosis = await examine();
      expect(diagnosis).toMatchObject({ ok: true, features: { codegen: false, simd: true } });
      expect(diagnosis.peak).toBeUndefined();
      expect(diagnosis.works?.map(({ work, ofPeak }) => [work, ofPeak])).toEqual([
        ["linear", undefined],
        ["attention", undefined],
      ]);
      for (const { gflops = 0, bestGflops = 0, relativeError } of diagnosis.works ?? []) {
        expect(gflops).toBeGreaterThan(0);
        expect(bestGflops).toBeGreaterThanOrEqual(gflops);
        expect(relativeError).toBeLessThan(roundings(768));
      }
      expect(diagnosisText(diagnosis)).toMatch(/\nlinear {5}\d+\.\d GFLOP\/s \(best \d+\.\d\), error \d\.\de-7: \[128/);
    });

    test("where the clock stands still too, the errors remain", { timeout: 60_000 }, async () => {
      // It stands still behind the warm-ups, each of which ends at its second reading.
      let readings = 0;
      vi.stubGlobal("performance", { now: () => 2 ** (20 + Math.min(++readings, 20)) });
      const diagnosis = await examine();
      expect([diagnosis.ok, diagnosis.peak]).toEqual([true, undefined]);
      for (const { gflops, bestGflops, ofPeak, relativeError } of diagnosis.works ?? []) {
        expect([gflops, bestGflops, ofPeak]).toEqual([undefined, undefined, undefined]);
        expect(relativeError).toBeGreaterThan(0);
        expect(relativeError).toBeLessThan(roundings(768));
      }
      const text = diagnosisText(diagnosis);
      expect(text).toMatch(/\nlinear {5}error \d\.\de-7: \[128, 768\] x \[768, 768\]\nattention {2}error /);
      expect(text).toContain("\nnote       the clock of this engine stands still while code runs");
      expect(text).not.toMatch(/NaN|Infinity|undefined/);
    });
  });
});
