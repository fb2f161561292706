import { describe, expect, test } from "vitest";
import { type Diagnosis, diagnosisText, steadiness } from "../../../../src/tools/diagnostics/doctor.ts";

const features = {
  ...{ codegen: true, simd: true, relaxedSimd: false, threads: true, sharedMemory: false },
  isolated: false,
};
const threads = { requested: "auto", used: 1, reason: "so" } as const;
const work = { work: "linear", shape: "[1, 1]", gflops: 50, bestGflops: 60, relativeError: 1e-7, largestError: 1e-7 };
const busy: Diagnosis = {
  ...{ ok: true, version: "1", engine: "e", processors: 1, features },
  kernels: { build: "simd", reason: "r", fused: false, threads, startMs: 1, memoryBytes: 2e6 },
  peak: { arithmetic: "mul+add", gflops: 74, bestGflops: 100, variation: 0.26 },
  works: [work],
};
const steady: Diagnosis = {
  ...busy,
  peak: { arithmetic: "mul+add", gflops: 96, bestGflops: 100, variation: 0.04 },
  works: [{ ...work, ofPeak: 0.6 }],
};

test("the text mentions speed that varied and features that are missing", () => {
  const text = diagnosisText(busy);
  expect(text).toContain("\nmachine    1 processor\n");
  expect(text).toContain("\nthreads    1 (auto): so\n");
  expect(text).toContain("\nnote       the speed varied");
  expect(diagnosisText(steady)).not.toContain("note");
  expect(diagnosisText(steady)).not.toContain("integers");
  const kernels = { ...busy.kernels!, dotProducts: { exact: "i16 pairs", fast: "i8 emulated", ms: 4.06 } as const };
  expect(diagnosisText({ ...busy, kernels })).toContain(
    "\nintegers   i16 pairs, with fast activations i8 emulated (chosen in 4.1 ms)\n",
  );
});

test("a peak that varied gives no percentage, and the text says so", () => {
  expect(diagnosisText(busy)).toContain(
    "\nlinear     50.0 GFLOP/s (best 60.0), no percentage: the peak varied by 26 %, error 1.0e-7: [1, 1]",
  );
  expect(diagnosisText(steady)).toContain("(best 60.0), 60 % of the peak, error");
  const two = { ...steady, kernels: { ...steady.kernels!, threads: { ...threads, used: 2 } } };
  expect(diagnosisText(two)).toContain("(best 60.0), 60 % of 2 x the peak, error");
});

test.each([
  [{ gflops: 96, bestGflops: 100 }, [60, 30], { variation: 0.04, steady: true }],
  [{ gflops: 75, bestGflops: 100 }, [60, 30], { variation: 0.25, steady: true }],
  [{ gflops: 74, bestGflops: 100 }, [60, 30], { variation: 0.26, steady: false }],
  // A peak of 96 to 100, and a thread that did 120.
  [{ gflops: 96, bestGflops: 100 }, [60, 120], { variation: 0.2, steady: false }],
])("a peak of %j beside works of %j varied: %j", (peak, works, expected) => {
  const { variation, steady } = steadiness(peak, works);
  expect(variation).toBeCloseTo(expected.variation, 12);
  expect(steady).toBe(expected.steady);
});

test.each([
  [{ isolated: false, sharedMemory: true }, "no threads in this page (it is not cross-origin isolated)"],
  [{ isolated: false, sharedMemory: false }, "no threads in this page (it is not cross-origin isolated)"],
  [{ isolated: true, sharedMemory: true }, "threads, shared memory, isolated"],
  [{ isolated: null, sharedMemory: true }, "threads, shared memory"],
  [{ isolated: null, sharedMemory: false }, "no threads (no shared memory)"],
  [{ isolated: true, sharedMemory: true, threads: false }, "no threads"],
])("features %j read %j", (changed, text) => {
  const row = diagnosisText({ ...busy, features: { ...features, ...changed } }).split("\n")[3];
  expect(row).toBe(`features   codegen, SIMD, no relaxed SIMD, ${text}`);
});

describe("what is no diagnosis is refused by name", () => {
  const without = (field: string) => Object.fromEntries(Object.entries(busy).filter(([name]) => name !== field));
  test.each<[unknown, string]>([
    [undefined, "diagnosis expected an object, got undefined"],
    [null, "diagnosis expected an object, got null"],
    ["ok", 'diagnosis expected an object, got "ok"'],
    [[], "diagnosis expected an object, got Array"],
    [{}, "diagnosis.ok expected boolean, got undefined"],
    [without("features"), "diagnosis.features expected an object, got undefined"],
    [{ ...busy, version: 4 }, "diagnosis.version expected string, got 4"],
    [
      { ...busy, features: { ...features, isolated: 1 } },
      "diagnosis.features.isolated expected boolean or null, got 1",
    ],
    [{ ...busy, kernels: 5 }, "diagnosis.kernels expected an object, got 5"],
    [{ ...busy, kernels: {} }, "diagnosis.kernels.build expected string, got undefined"],
    [{ ...busy, peak: { gflops: 1, bestGflops: "2" } }, 'diagnosis.peak.bestGflops expected number, got "2"'],
    [{ ...busy, works: {} }, "diagnosis.works expected an array, got Object"],
    [{ ...busy, works: [work, null] }, "diagnosis.works[1] expected an object, got null"],
    [
      { ...busy, works: [{ ...work, relativeError: "0" }] },
      'diagnosis.works[0].relativeError expected number or null, got "0"',
    ],
    [{ ...busy, selfTest: true }, "diagnosis.selfTest expected an object, got true"],
  ])("%j", (junk, text) => {
    expect(() => diagnosisText(junk as Diagnosis)).toThrow(new TypeError(`diagnosisText: ${text}`));
  });

  test("a promise of one", () => {
    expect(() => diagnosisText(Promise.resolve(busy) as unknown as Diagnosis)).toThrow(
      /^diagnosisText: diagnosis expected what diagnose resolves with, got Promise/,
    );
  });

  test("and what went through JSON is one, also with an error that is not finite", () => {
    for (const relativeError of [1e-7, Number.NaN, Number.POSITIVE_INFINITY]) {
      const report = { ...busy, works: [{ ...work, relativeError }] };
      expect(diagnosisText(JSON.parse(JSON.stringify(report)) as Diagnosis)).toBe(diagnosisText(report));
    }
  });

  test("and a report of 0.4.0 is one, which does not say how much the peak varied", () => {
    const { variation, ...peak } = steady.peak!;
    expect(diagnosisText({ ...steady, peak } as Diagnosis)).toBe(diagnosisText(steady));
  });
});
