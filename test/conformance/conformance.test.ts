import { join } from "node:path";
import { expect, test } from "vitest";
import { loadKernels } from "../../src/entries/core.ts";
import { modulesOf } from "../support/modules.ts";
import { Case, readIndex } from "./case.ts";
import { compareOutcome, firstDifference } from "./compare.ts";
import { quantDecoderAttention, quantMatMul } from "./quantised.ts";
import { runFolder, SKIPPED } from "./suite.ts";

const folder = join(import.meta.dirname, "../vectors");
const close = { atol: 1e-5, rtol: 1e-5 };
const want = { data: Float64Array.of(1, 2, 3, Number.NaN, Number.NEGATIVE_INFINITY, 100), shape: [2, 3] };
const changed = (index: number, value: number) => ({ data: want.data.with(index, value), shape: want.shape });

test.each(["simd", "relaxed"] as const)(
  "every case of test/vectors is within its tolerance on the %s build",
  async (build) => {
    const kernels = await loadKernels(modulesOf(build));
    expect(kernels.build).toBe(build);
    const results = runFolder(folder, kernels);
    expect(results.filter((result) => result.state !== "passed")).toEqual([]);
    expect(results.length).toBeGreaterThanOrEqual(85);
    // module_empty_rows: 3 rows of the output and 6 of the maps; module_empty_head: 1 and 1; functional_rank3_keep: 2 and 2.
    const masked = Object.fromEntries(results.filter((r) => r.maskedRows > 0).map((r) => [r.name, r.maskedRows]));
    expect(masked).toEqual({ module_empty_rows: 9, module_empty_head: 2, functional_rank3_keep: 4 });
    kernels.release();
  },
);

test("test/vectors has a case of every operator that is not skipped", () => {
  const ops = new Set(readIndex(folder).map((entry) => entry.op));
  expect([...ops].sort()).toEqual([
    "Attention",
    "DecoderAttention",
    "LoadSafetensors",
    "MHAToGQA",
    "MatMul",
    "MultiHeadAttention",
    "MultiheadAttention",
    "QuantDecoderAttention",
    "QuantMatMul",
    "RotaryEmbedding",
    "Softmax",
    "scaled_dot_product_attention",
  ]);
  expect(Object.keys(SKIPPED).filter((op) => ops.has(op))).toEqual([]);
});

test("the comparator accepts what is equal, NaN and infinities included, and what is within atol + rtol·|want|", () => {
  expect(firstDifference("y", want, want, { atol: 0, rtol: 0 })).toBeUndefined();
  expect(firstDifference("y", changed(5, 100.001), want, close)).toBeUndefined();
});

test("the comparator names the first element that is beyond atol + rtol·|want|", () => {
  expect(firstDifference("y", changed(5, 100.0011), want, close)).toBe(
    "y[1, 2]: got 100.0011, want 100, tolerance 0.00001 + 0.00001·|want|",
  );
  expect(firstDifference("y", changed(1, 2.1), want, close)).toMatch(/^y\[0, 1\]: got 2\.1, want 2,/);
});

test.each([
  ["NaN for a number", 0, Number.NaN],
  ["a number for NaN", 3, 0],
  ["infinity for a number", 5, Number.POSITIVE_INFINITY],
  ["the other infinity", 4, Number.POSITIVE_INFINITY],
  ["a number for an infinity", 4, -1e300],
])("the comparator refuses %s", (_, index, value) => {
  expect(firstDifference("y", changed(index, value), want, { atol: 1e308, rtol: 1 })).toMatch(/^y\[/);
});

test("what an adapter says that an element may differ is added to its tolerance, and to no other's", () => {
  const tenth = (element: number) => (element === 5 ? 0.1 : 0);
  expect(firstDifference("y", changed(5, 100.1), want, close, tenth)).toBeUndefined();
  expect(firstDifference("y", changed(5, 100.2), want, close, tenth)).toMatch(/^y\[1, 2\]: .*tolerance 0.10001 \+/);
  expect(firstDifference("y", changed(1, 2.1), want, close, tenth)).toMatch(/^y\[0, 1\]/);
});

test("blocks with one bit changed in each row are beyond what rounding may do", async () => {
  const kernels = await loadKernels(modulesOf("simd"));
  for (const entry of readIndex(folder).filter(({ set }) => set === "quantised")) {
    const [right, other] = [new Case(folder, entry), new Case(folder, entry)];
    const values = other.values.bind(other);
    // The lowest bit of the first integer of every row of blocks.
    other.values = (name) => {
      const { data, shape, dtype } = values(name);
      if (!name.endsWith("blocks")) return { data, shape, dtype };
      const width = shape.at(-1) as number;
      return { dtype, shape, data: data.map((byte, i) => (i % width === 2 ? byte ^ 1 : byte)) };
    };
    const run = entry.op === "QuantMatMul" ? quantMatMul : quantDecoderAttention;
    expect(compareOutcome(right, run(kernels, right)).problems).toEqual([]);
    expect(compareOutcome(right, run(kernels, other)).problems, entry.name).not.toEqual([]);
  }
  kernels.release();
});

test("the comparator tells -0 from 0 where a copy of the bits is asked for, and only there", () => {
  const [zero, minus] = [0, -0].map((value) => ({ data: [value], shape: [1] })) as [Pair, Pair];
  expect(firstDifference("y", minus, zero, { atol: 0, rtol: 0 })).toMatch(/^y\[0\]/);
  expect(firstDifference("y", minus, zero, close)).toBeUndefined();
});

type Pair = { data: number[]; shape: number[] };

test("the comparator refuses a wrong shape of the same size, missing elements and a missing output", () => {
  expect(firstDifference("y", { ...want, shape: [3, 2] }, want, close)).toBe("y: got shape [3, 2], want [2, 3]");
  expect(firstDifference("y", { ...want, data: want.data.slice(1) }, want, close)).toBe("y: got 5 elements, want 6");
  expect(firstDifference("y", undefined, want, close)).toBe("y: missing");
});

test("a NaN row gives way to ours only where the adapter says that no key is allowed, and only to finite numbers", () => {
  const entry = readIndex(folder).find(({ name }) => name === "module_empty_rows")!;
  const c = new Case(folder, entry);
  const [output, weights] = [c.values("attn_output"), c.values("attn_output_weights")];
  const filled = (value: number) => ({
    attn_output: { ...output, data: output.data.map((x) => (Number.isNaN(x) ? value : x)) },
    attn_output_weights: { ...weights, data: weights.data.map((x) => (Number.isNaN(x) ? value : x)) },
  });
  const maskedRows = { attn_output: (row: number) => row < 3, attn_output_weights: (row: number) => row < 6 };
  expect(compareOutcome(c, { outputs: filled(0), maskedRows })).toEqual({ problems: [], maskedRows: 9 });
  expect(compareOutcome(c, { outputs: filled(0) }).problems).toHaveLength(2);
  const fewer = { ...maskedRows, attn_output: (row: number) => row < 2 };
  expect(compareOutcome(c, { outputs: filled(0), maskedRows: fewer }).problems).toHaveLength(1);
  expect(compareOutcome(c, { outputs: filled(Number.POSITIVE_INFINITY), maskedRows }).problems).toHaveLength(2);
});

test("an operator without an adapter fails, and so does a file with other bytes than the index says", async () => {
  const kernels = await loadKernels(modulesOf("simd"));
  const entry = readIndex(folder)[0]!;
  expect(runFolder(folder, kernels, [{ ...entry, op: "Convolution" }])[0]).toMatchObject({
    state: "failed",
    problems: ["RangeError: no adapter for the operator Convolution"],
  });
  expect(runFolder(folder, kernels, [{ ...entry, sha256: "0" }])[0]).toMatchObject({ state: "failed" });
  expect(runFolder(folder, kernels, [{ ...entry, op: "MLA" }])[0]).toMatchObject({ state: "skipped" });
  kernels.release();
});
