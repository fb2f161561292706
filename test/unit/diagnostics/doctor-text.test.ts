import { expect, test } from "vitest";
import type { Diagnosis } from "../../../src/diagnostics/doctor.ts";
import { diagnosisText } from "../../../src/diagnostics/doctor-text.ts";

test("the text mentions speed that varied and features that are missing", () => {
  const features = { codegen: true, simd: true, relaxedSimd: false, threads: true, sharedMemory: false };
  const threads = { requested: "auto", used: 1, reason: "so" } as const;
  const busy: Diagnosis = {
    ...{ ok: true, version: "1", engine: "e", processors: 1, features: { ...features, isolated: false } },
    kernels: { build: "simd", reason: "r", fused: false, threads, startMs: 1, memoryBytes: 2e6 },
    peak: { arithmetic: "mul+add", gflops: 74, bestGflops: 100 },
  };
  const text = diagnosisText(busy);
  expect(text).toContain("\nmachine    1 processor\n");
  expect(text).toContain("codegen, SIMD, no relaxed SIMD, threads, no shared memory, not isolated");
  expect(text).toContain("\nthreads    1 (auto): so\n");
  expect(text).toContain("\nnote       the speed varied");
  expect(diagnosisText({ ...busy, peak: { ...busy.peak!, gflops: 76 } })).not.toContain("note");
});
