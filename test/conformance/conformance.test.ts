// The cases of test/vectors, and what the runner refuses.

import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { loadKernels } from "../../src/entries/core.ts";
import { planModel } from "../../src/models/load/plan-model.ts";
import { modulesOf } from "../support/modules.ts";
import { Case, type Entry, type ListedTensor, readIndex } from "./case.ts";
import { isChatFolder, runChatFolder } from "./chat.ts";
import { compareOutcome } from "./compare.ts";
import { quantDecoderAttention, quantMatMul } from "./quantised.ts";
import { runFolder } from "./suite.ts";

const folder = join(import.meta.dirname, "../vectors");

test.each(["simd", "relaxed"] as const)(
  "every case of test/vectors is within its tolerance on the %s build",
  async (build) => {
    const kernels = await loadKernels(modulesOf(build));
    expect(kernels.build).toBe(build);
    const results = await runFolder(folder, kernels);
    expect(results.filter((result) => result.state !== "passed")).toEqual([]);
    expect(results.length).toBeGreaterThanOrEqual(92);
    // module_empty_rows: 3 rows of the output and 6 of the maps; module_empty_head: 1 and 1; functional_rank3_keep: 2 and 2.
    const masked = Object.fromEntries(results.filter((r) => r.maskedRows > 0).map((r) => [r.name, r.maskedRows]));
    expect(masked).toEqual({ module_empty_rows: 9, module_empty_head: 2, functional_rank3_keep: 4 });
    kernels.release();
  },
);

test("every template and snippet of test/vectors/chat gives the text or the error of transformers", async () => {
  const chat = join(folder, "chat");
  expect([isChatFolder(chat), isChatFolder(folder)]).toEqual([true, false]);
  const results = await runChatFolder(chat);
  expect(results.filter(({ state }) => state !== "passed")).toEqual([]);
  expect(results.length).toBeGreaterThanOrEqual(240);
});

test("a folder of templates with another text or without an error fails, and what is not covered is skipped", async () => {
  const given = mkdtempSync(join(tmpdir(), "chat-"));
  try {
    const write = (name: string, value: unknown) => writeFileSync(join(given, name), JSON.stringify(value));
    for (const name of ["templates", "expected", "json-schema"]) mkdirSync(join(given, name));
    writeFileSync(join(given, "templates", "a.jinja"), "{{ messages[0].content }}{{ messages[0].x.y }}");
    write("conversations.json", [{ name: "b", messages: [{ role: "user", content: "hi" }] }]);
    write("expected/a.json", { b: { text: "hi" } });
    const snippet = { template: "{{ x }}", variables: { x: null } };
    const wants = [{ text: "None" }, { text: "Nine" }, { error: "no" }, { refused: "no" }];
    const refusal = { template: "{{ raise_exception('no') }}", variables: {} };
    write("jinja-snippets.json", [
      ...wants.map((want, i) => ({ name: String(i), ...snippet, ...want })),
      ...wants.slice(2).map((want, i) => ({ name: `r${i}`, ...refusal, ...want })),
    ]);
    const results = await runChatFolder(given);
    expect(results.map(({ name, state }) => `${name} ${state}`)).toEqual([
      ...[
        "a, b failed",
        "0 passed",
        "1 failed",
        "2 failed",
        "3 failed",
        "r0 passed",
        "r1 passed",
        "json-schema skipped",
      ],
    ]);
    expect(results[2]?.problems).toEqual(['expected "Nine" at 1, got "None"']);
  } finally {
    rmSync(given, { recursive: true });
  }
});

test("test/vectors has a case of every operator", () => {
  const ops = new Set(readIndex(folder).map((entry) => entry.op));
  expect([...ops].sort()).toEqual([
    "Attention",
    "CausalLM",
    "DecoderAttention",
    "LoadSafetensors",
    "MHAToGQA",
    "MLA",
    "MatMul",
    "MultiHeadAttention",
    "MultiheadAttention",
    "QuantDecoderAttention",
    "QuantMatMul",
    "RotaryEmbedding",
    "Softmax",
    "scaled_dot_product_attention",
  ]);
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

test("a NaN row is accepted as ours only where the adapter finds no key allowed, and only for finite numbers", () => {
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

test("a listed tensor with other bytes fails, one without sha256 and hex too if it has bytes, and another number of all", async () => {
  const kernels = await loadKernels(modulesOf("simd"));
  const entry = readIndex(folder).find(({ name }) => name === "many_tensors")!;
  const [none, hex, last] = entry.tensors as [ListedTensor, ListedTensor, ListedTensor];
  expect([none.nbytes, none.sha256, none.hex, hex.hex, entry.tensor_count]).toEqual([
    0,
    undefined,
    undefined,
    "03",
    40,
  ]);
  const problemsOf = async (changed: Partial<Entry>) =>
    (await runFolder(folder, kernels, [{ ...entry, ...changed }]))[0]?.problems;
  expect(await problemsOf({})).toEqual([]);
  expect(await problemsOf({ tensor_count: 41 })).toEqual(["expected 41 tensors, got 40"]);
  expect(await problemsOf({ tensor_count: undefined })).toEqual(["expected 3 tensors, got 40"]);
  expect(await problemsOf({ tensors: [{ ...hex, hex: "04" }] })).toEqual(['tensor "t7": expected bytes 04']);
  expect(await problemsOf({ tensors: [{ ...hex, hex: undefined, sha256: "0" }] })).toEqual([
    'tensor "t7": expected other bytes',
  ]);
  expect(await problemsOf({ tensors: [none, { ...last, hex: undefined }] })).toEqual([
    'tensor "t39": expected a case with sha256 or hex of its 1 bytes',
  ]);
  kernels.release();
});

test("an operator without an adapter fails, and so does a file with other bytes than the index says", async () => {
  const kernels = await loadKernels(modulesOf("simd"));
  const entry = readIndex(folder)[0]!;
  expect((await runFolder(folder, kernels, [{ ...entry, op: "Convolution" }]))[0]).toMatchObject({
    state: "failed",
    problems: ["RangeError: no adapter for the operator Convolution"],
  });
  expect((await runFolder(folder, kernels, [{ ...entry, sha256: "0" }]))[0]).toMatchObject({ state: "failed" });
  kernels.release();
});

test("models that are refused by name are skipped, with what planModel says of them", async () => {
  const given = mkdtempSync(join(tmpdir(), "conformance-"));
  const entry = { name: "a", set: "models", op: "CausalLM", file: "", attributes: {} };
  const kernels = await loadKernels(modulesOf("simd"));
  try {
    for (const model_type of ["deepseek_v32", "qwen4_exp_text"]) {
      writeFileSync(join(given, "config.json"), JSON.stringify({ model_type }));
      const [result] = await runFolder(given, kernels, [entry]);
      expect(result).toMatchObject({
        state: "skipped",
        problems: [expect.stringContaining("that an indexer selects")],
      });
      const [, reason = "none"] = /has (.*)$/.exec(result?.problems[0] ?? "") ?? [];
      expect(() => planModel({ model_type })).toThrow(`got "${model_type}", which has ${reason}`);
    }
  } finally {
    kernels.release();
    rmSync(given, { recursive: true });
  }
});

test.each([
  ["without cases", [], "index.json lists no cases"],
  ["whose cases are all skipped", [{ name: "a", set: "models", op: "CausalLM" }], "every case is skipped"],
])("a folder %s fails, and says so", (_, cases, said) => {
  const given = mkdtempSync(join(tmpdir(), "conformance-"));
  try {
    writeFileSync(join(given, "index.json"), JSON.stringify({ cases }));
    writeFileSync(join(given, "config.json"), '{"model_type": "zamba2"}');
    const hooks = join(import.meta.dirname, "../../scripts/source-hooks.mjs");
    const { status, stdout } = spawnSync(process.execPath, ["--import", hooks, join(import.meta.dirname, "run.ts")], {
      encoding: "utf8",
      env: { ...process.env, CONFORMANCE_DIR: given },
    });
    expect(stdout).toContain(`${given}: ${said}`);
    expect(stdout).toMatch(/\n0 passed, 0 failed\n$/);
    expect(status).toBe(1);
  } finally {
    rmSync(given, { recursive: true });
  }
});
