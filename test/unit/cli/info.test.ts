// `headwise info`, as built.

import { describe, expect, test } from "vitest";
import type { Diagnosis } from "../../../src/tools/diagnostics/doctor.ts";
import { manifest, runCli, spawnCli } from "../../support/cli.ts";

const { version } = manifest;

/** The relative error of a sum of n products, each rounded to 24 bits: RMS, if roundings are independent. */
const roundings = (n: number) => Math.sqrt(n) * 2 ** -24;

describe("info", () => {
  test("examines the engine: features, build, self-test, speed and error", () => {
    const { status, stdout, stderr } = runCli(["info", "--threads", "2", "--json"]);
    expect([status, stderr]).toEqual([0, ""]);
    const report = JSON.parse(stdout) as Diagnosis;
    expect(report).toMatchObject({
      ok: true,
      version,
      engine: expect.stringContaining(`Node ${process.versions.node}, V8 `),
      features: { codegen: true, simd: true, relaxedSimd: true, threads: true, sharedMemory: true, isolated: null },
      kernels: { threads: { requested: 2, used: 2, reason: "as many as were asked for" } },
      selfTest: { ok: true },
    });
    expect(report.selfTest?.digest).toBe(report.selfTest?.expected);
    expect(report.peak?.arithmetic).toBe(report.kernels?.fused ? "fma" : "mul+add");
    // The relaxed build has products of bytes, which take one instruction of the CPU or three.
    const { exact, fast } = report.kernels?.dotProducts ?? {};
    expect([
      ["i16 pairs", "i8 emulated"],
      ["i8", "i8"],
    ]).toContainEqual([exact, fast]);
    expect(report.works?.map(({ work }) => work)).toEqual(["linear", "attention"]);
    for (const { gflops = Infinity, bestGflops = 0, ofPeak, relativeError } of report.works ?? []) {
      expect(bestGflops).toBeGreaterThanOrEqual(gflops);
      // On a busy machine the peak varies, and there is no percentage.
      if (ofPeak !== undefined) expect(ofPeak).toBeCloseTo(bestGflops / (2 * (report.peak?.bestGflops ?? 0)), 6);
      expect(ofPeak ?? 0).toBeLessThanOrEqual(1);
      expect(relativeError).toBeGreaterThan(0);
      expect(relativeError).toBeLessThan(roundings(768));
    }
  });

  test("as text, with the build that is the same everywhere", () => {
    const { status, stdout } = runCli(["info", "--deterministic"]);
    expect(status).toBe(0);
    const [head, ...lines] = stdout.trimEnd().split("\n");
    expect(head).toBe(`headwise ${version}: ok`);
    const rows = new Map(lines.map((line) => [line.slice(0, 11).trimEnd(), line.slice(11)]));
    rows.delete("note");
    expect([...rows.keys()]).toEqual(
      "engine system machine features build threads integers self-test peak linear attention memory".split(" "),
    );
    expect(rows.get("features")).toBe("codegen, SIMD, relaxed SIMD, threads, shared memory");
    expect(rows.get("build")).toMatch(/^simd: deterministic was asked for \(started in /);
    expect(rows.get("integers")).toMatch(/^i16 pairs, with fast activations i16 pairs \(chosen in \d/);
    expect(rows.get("self-test")).toMatch(/^ok: 9e246a77089b1b21 as published, 200 outputs /);
    expect(rows.get("peak")).toContain("mul+add on one thread");
  });

  test("an engine that may not compile gets a report with problem NO_CODEGEN, and exit code 1", () => {
    const refuse = 'const refuse = () => { throw new WebAssembly.CompileError("no") };';
    const script = `${refuse} WebAssembly.compile = refuse; WebAssembly.Module = class { constructor() { refuse() } };`;
    const flags = ["--import", `data:text/javascript,${encodeURIComponent(script)}`];
    const { status, stdout, stderr } = spawnCli(["info", "--json"], flags);
    expect([status, stderr]).toEqual([1, ""]);
    expect(JSON.parse(stdout)).toMatchObject({
      ok: false,
      problem: { code: "NO_CODEGEN", message: expect.stringContaining("forbids compiling wasm from bytes") },
      features: { codegen: false, simd: true },
    });
    const text = spawnCli(["info"], flags);
    expect([text.status, text.stdout.split("\n")[0]]).toEqual([1, `headwise ${version}: FAILED`]);
    expect(text.stdout).toContain("\nfeatures   no codegen, SIMD");
    expect(text.stdout).toContain("\nproblem    loadKernels: this host forbids");
  });

  test.each([
    [["info", "--fast"], "headwise info: unknown option --fast (see headwise info --help)"],
    [["info", "--thread", "2"], "headwise info: unknown option --thread, did you mean --threads?"],
    [["info", "model"], "headwise info: expected options alone, got model"],
    [["info", "--threads", "0"], "headwise info: --threads expected auto or an integer from 1 to 64, got 0"],
    [["bench", "--threads", "two"], "headwise bench: --threads expected auto or an integer from 1 to 64, got two"],
    [["bench", "--shape", "bert"], "headwise bench: --shape expected linear, gpt2, llama, got bert"],
    [["bench", "--weights", "q5"], "headwise bench: --weights expected f32, f16, bf16, q8, q8-row, q4, got q5"],
  ])("%s is refused", (args, text) => {
    const { status, stdout, stderr } = runCli(args);
    expect(stderr).toContain(text);
    expect([status, stdout, stderr.trimEnd().split("\n").length]).toEqual([2, "", 1]);
  });
});
