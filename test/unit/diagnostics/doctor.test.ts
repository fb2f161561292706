// `headwise info` and `headwise bench` as built, and what their reports are made of.

import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { afterEach, describe, expect, test, vi } from "vitest";
import { columnsText } from "../../../src/cli/text.ts";
import { placeAttention } from "../../../src/diagnostics/attention-work.ts";
import { type Diagnosis, diagnose, diagnosisText, type Headwise } from "../../../src/diagnostics/doctor.ts";
import { placeProjection } from "../../../src/diagnostics/linear-work.ts";
import { peakModule, startPeak } from "../../../src/diagnostics/peak.ts";
import { median, timeLoads } from "../../../src/diagnostics/timing.ts";
import { scaledDotProductAttention, selfTest } from "../../../src/entries/core.ts";
import { HeadwiseError } from "../../../src/util/errors.ts";
import { kernelsOf, shippedBuilds } from "../../support/layers.ts";

const built = fileURLToPath(new URL("../../../dist/cli.js", import.meta.url));
const { version } = JSON.parse(readFileSync(new URL("../../../package.json", import.meta.url), "utf8")) as {
  version: string;
};

/** Runs the built `headwise ...args`, in Node with `flags`. */
function run(args: readonly string[], flags: readonly string[] = []) {
  return spawnSync(process.execPath, [...flags, built, ...args], { encoding: "utf8" });
}

/** The relative error of a sum of n products, each rounded to 24 bits: RMS, if roundings are independent. */
const roundings = (n: number) => Math.sqrt(n) * 2 ** -24;

describe("info", () => {
  test("examines the engine: features, build, self-test, speed and error", () => {
    const { status, stdout, stderr } = run(["info", "--threads", "2", "--json"]);
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
    expect(report.works?.map(({ work }) => work)).toEqual(["linear", "attention"]);
    for (const { gflops = Infinity, bestGflops = 0, ofPeak, relativeError } of report.works ?? []) {
      expect(bestGflops).toBeGreaterThanOrEqual(gflops);
      expect(ofPeak).toBeCloseTo(bestGflops / (2 * (report.peak?.bestGflops ?? 0)), 6);
      expect(relativeError).toBeGreaterThan(0);
      expect(relativeError).toBeLessThan(roundings(768));
    }
  });

  test("as text, with the build that is the same everywhere", () => {
    const { status, stdout } = run(["info", "--deterministic"]);
    expect(status).toBe(0);
    const [head, ...lines] = stdout.trimEnd().split("\n");
    expect(head).toBe(`headwise ${version}: ok`);
    const rows = new Map(lines.map((line) => [line.slice(0, 11).trimEnd(), line.slice(11)]));
    rows.delete("note");
    expect([...rows.keys()]).toEqual(
      "engine system machine features build threads self-test peak linear attention memory".split(" "),
    );
    expect(rows.get("features")).toBe("codegen, SIMD, relaxed SIMD, threads, shared memory");
    expect(rows.get("build")).toMatch(/^simd: deterministic was asked for \(started in /);
    expect(rows.get("self-test")).toMatch(/^ok: 9e246a77089b1b21 as published, 200 outputs /);
    expect(rows.get("peak")).toContain("mul+add on one thread");
  });

  test("an engine that may not compile has a report that says so, and exit code 1", () => {
    const refuse = 'const refuse = () => { throw new WebAssembly.CompileError("no") };';
    const script = `${refuse} WebAssembly.compile = refuse; WebAssembly.Module = class { constructor() { refuse() } };`;
    const flags = ["--import", `data:text/javascript,${encodeURIComponent(script)}`];
    const { status, stdout, stderr } = run(["info", "--json"], flags);
    expect([status, stderr]).toEqual([1, ""]);
    expect(JSON.parse(stdout)).toMatchObject({
      ok: false,
      problem: { code: "NO_CODEGEN", message: expect.stringContaining("forbids compiling wasm from bytes") },
      features: { codegen: false, simd: true },
    });
    const text = run(["info"], flags);
    expect([text.status, text.stdout.split("\n")[0]]).toEqual([1, `headwise ${version}: FAILED`]);
    expect(text.stdout).toContain("\nfeatures   no codegen, SIMD");
    expect(text.stdout).toContain("\nproblem    loadKernels: this host forbids");
  });

  test.each([
    [["info", "--fast"], "headwise info: Unknown option '--fast'"],
    [["info", "model"], "headwise info: expected options alone, got model"],
    [["info", "--threads", "0"], "headwise info: --threads expected auto or an integer from 1 to 64, got 0"],
    [["bench", "--threads", "two"], "headwise bench: --threads expected auto or an integer from 1 to 64, got two"],
    [["bench", "--shape", "bert"], "headwise bench: --shape expected linear, gpt2, llama, got bert"],
    [["bench", "--weights", "q5"], "headwise bench: --weights expected f32, f16, bf16, q8, q8-row, q4, got q5"],
  ])("%s is refused", (args, text) => {
    const { status, stdout, stderr } = run(args);
    expect(stderr).toContain(text);
    expect([status, stdout, stderr.trimEnd().split("\n").length]).toEqual([2, "", 1]);
  });
});

describe("bench", () => {
  afterEach(() => void vi.doUnmock("../../../src/cli/load-kernels.ts"));

  test("kernels that have started are given back when others do not start", async () => {
    const kernels = await kernelsOf("simd");
    const startKernels = vi
      .fn()
      .mockResolvedValueOnce(kernels)
      .mockRejectedValue(new HeadwiseError("NO_SIMD", "no more"));
    vi.doMock("../../../src/cli/load-kernels.ts", () => ({ startKernels }));
    const { bench } = await import("../../../src/cli/bench.ts");
    await expect(bench(["--shape", "linear", "--threads", "1"], version)).rejects.toThrow("no more");
    expect([startKernels.mock.calls.length, kernels.released]).toEqual([2, true]);
  });

  test("times each build with each number of threads", () => {
    const { status, stdout } = run(["bench", "--shape", "linear", "--threads", "2", "--json"]);
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

  test("prints a table", () => {
    const { stdout } = run(["bench", "--shape", "gpt2", "--threads", "1", "--weights", "q8"]);
    const [title, , head, ...rows] = stdout.trimEnd().split("\n");
    expect(title).toMatch(new RegExp(`^headwise ${version}, Node .*, weights q8$`));
    expect(head?.split(/ {2,}/)).toEqual(
      "shape,work,build,threads,ms,best ms,tokens/s,GFLOP/s,best,of first".split(","),
    );
    expect(rows.slice(0, 6).map((row) => row.split(/ {2,}/).slice(0, 4).join())).toEqual(
      ["prefill 128", "prefill 512", "decode at 512"].flatMap((work) => [
        `gpt2,${work},relaxed,1`,
        `gpt2,${work},simd,1`,
      ]),
    );
    expect(rows.at(-1)).toBe("gpt2: GPT-2 small, a layer");
  });
});

describe("the report", () => {
  const surroundings = { version: "1.2.3", engine: "an engine" };

  test("a self-test of other bits is a failure, with both digests", async () => {
    const kernels = await kernelsOf("simd");
    const other = { ok: false, digest: "0", expected: "1", outputs: 200 };
    const headwise: Headwise = {
      loadKernels: async () => kernels,
      selfTest: () => other,
      scaledDotProductAttention,
    };
    const report = await diagnose(headwise, surroundings);
    expect(report).toMatchObject({ ok: false, selfTest: other });
    expect(kernels.released).toBe(true);
    expect(diagnosisText(report)).toMatch(/^headwise 1\.2\.3: FAILED\nengine {5}an engine\nfeatures/);
    expect(diagnosisText(report)).toContain("self-test  FAILED: 0, published is 1, 200 outputs");
  });

  test("kernels are given back when an examination throws", async () => {
    const kernels = await kernelsOf("simd");
    const headwise: Headwise = {
      loadKernels: async () => kernels,
      selfTest,
      scaledDotProductAttention() {
        throw new HeadwiseError("KERNEL_FAILED", "it fell");
      },
    };
    await expect(diagnose(headwise, surroundings)).rejects.toThrow("it fell");
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
      return diagnose({ loadKernels: async () => kernels, selfTest, scaledDotProductAttention }, surroundings);
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
      vi.stubGlobal("performance", { now: () => 1e6 });
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

  const report = async (): Promise<Diagnosis> => {
    const features = { codegen: true, simd: true, relaxedSimd: false, threads: true, sharedMemory: false };
    const threads = { requested: "auto", used: 1, reason: "so" } as const;
    return {
      ...{ ok: true, version: "1", engine: "e", processors: 1, features: { ...features, isolated: false } },
      kernels: { build: "simd", reason: "r", fused: false, threads, startMs: 1, memoryBytes: 2e6 },
      peak: { arithmetic: "mul+add", gflops: 74, bestGflops: 100 },
    };
  };

  test("speed that varied is said, and what an engine lacks", async () => {
    const busy = await report();
    const text = diagnosisText(busy);
    expect(text).toContain("\nmachine    1 processor\n");
    expect(text).toContain("codegen, SIMD, no relaxed SIMD, threads, no shared memory, not isolated");
    expect(text).toContain("\nthreads    1 (auto): so\n");
    expect(text).toContain("\nnote       the speed varied");
    expect(diagnosisText({ ...busy, peak: { ...busy.peak!, gflops: 76 } })).not.toContain("note");
  });
});

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

describe.each(shippedBuilds)("works on the %s build", (build) => {
  test("a projection and an attention are within rounding of float64, and nothing else is", async () => {
    using kernels = await kernelsOf(build);
    const used = kernels.usedBytes;
    const projection = placeProjection(kernels, 64, 32, 48);
    expect(projection.flops).toBe(2 * 64 * 32 * 48);
    expect(projection.error().relative).toBeGreaterThan(0.1);
    projection.run();
    expect(projection.error().relative).toBeLessThan(roundings(48));
    projection.release();
    expect(kernels.usedBytes).toBe(used);

    const attention = placeAttention(scaledDotProductAttention, kernels, 2, 150, 16);
    // Keys that a query sees, two products with each.
    expect(attention.flops).toBe(2 * 2 * 2 * 16 * ((150 * 151) / 2));
    attention.run();
    expect(attention.error().relative).toBeLessThan(roundings(150));
    const zeros: typeof scaledDotProductAttention = (_, q) => ({
      ...{ output: { data: new Float32Array(q.data.length), shape: q.shape } },
      ...{ present: undefined, scores: undefined, lse: undefined },
    });
    const wrong = placeAttention(zeros, kernels, 2, 150, 16);
    wrong.run();
    expect(wrong.error().relative).toBe(1);
  });
});

describe("timing", () => {
  afterEach(() => void vi.unstubAllGlobals());

  /** A clock that shows `now`. */
  const stubClock = (now: () => number) => vi.stubGlobal("performance", { now });

  test("loads are run by turns, and compared with the first in the same round", async () => {
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

describe("the page", () => {
  afterEach(() => {
    vi.unstubAllGlobals();
    vi.doUnmock("../../../src/diagnostics/doctor.ts");
  });

  test("says what the policy refused in this run, not in earlier ones", async () => {
    const elements = new Map<string, { textContent: string; dataset: Record<string, string>; click?: () => void }>();
    const find = (id: string) => {
      const made = {
        textContent: "",
        dataset: {},
        addEventListener: (_: string, f: () => void) => Object.assign(made, { click: f }),
      };
      if (!elements.has(id)) elements.set(id, made);
      return elements.get(id);
    };
    let refuse: (event: { effectiveDirective: string; blockedURI: string }) => void = () => {};
    const addEventListener = (_: string, listener: typeof refuse) => {
      refuse = listener;
    };
    vi.stubGlobal("document", { getElementById: find, addEventListener, documentElement: { dataset: { version } } });
    vi.stubGlobal("location", { search: "?threads=1" });
    let runs = 0;
    const diagnose = async () => {
      refuse({ effectiveDirective: "worker-src", blockedURI: `blob-${++runs}` });
      return { ok: true };
    };
    vi.doMock("../../../src/diagnostics/doctor.ts", () => ({ diagnose, diagnosisText: () => "text" }));
    await import("../../../src/entries/doctor-page.ts");
    const report = find("report");
    await vi.waitFor(() => expect(report?.dataset.ok).toBe("true"), 5000);
    expect(report?.textContent).toBe("text\npolicy     worker-src refused blob-1");
    find("again")?.click?.();
    await vi.waitFor(() => expect(report?.dataset.ok).toBe("true"), 5000);
    expect(report?.textContent).toBe("text\npolicy     worker-src refused blob-2");
  });
});

test("columns of words begin below each other, those of numbers end so", () => {
  expect(
    columnsText(
      [
        ["a", "bc"],
        ["def", "1"],
      ],
      1,
    ),
  ).toBe("a    bc\ndef   1");
});
