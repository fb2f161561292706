// Tasks of the site's engine: what one leaves in memory, and what becomes of one when another begins.

import { readFileSync } from "node:fs";
import { expect, test, vi } from "vitest";
import type { Call } from "../../../site/worker/call.ts";
import { patternsTask } from "../../../site/worker/gallery.ts";
import { attendTask, shownReading, studyTask } from "../../../site/worker/inspect.ts";
import { type Changes, PLAIN } from "../../../site/worker/inspect-runs.ts";
import { stagesTask } from "../../../site/worker/inspect-stages.ts";
import { measureTask } from "../../../site/worker/inspect-statistics.ts";
import { whyTask } from "../../../site/worker/inspect-why.ts";
import { loadedModel, loadTask, modelAs } from "../../../site/worker/load.ts";
import { restoreTask, writeTask } from "../../../site/worker/write.ts";
import { traceAttention } from "../../../src/entries/inspect.ts";
import { TINY, tinyFolder, tinyTensors } from "../../support/tiny-models.ts";

// A browser's storage, which Node does not have.
vi.mock("../../../site/worker/storage.ts", () => {
  const values = new Map<string, unknown>();
  return {
    keep: async (name: string, value: unknown) => void values.set(name, structuredClone(value)),
    kept: async (name: string) => values.get(name),
  };
});

/** The tokenizer of characters of the model "induction", and its 96 tokens. */
const TOKENIZER = readFileSync(new URL("../../../model/tokenizer.json", import.meta.url));
const VOCABULARY = 96;

function filesOf(config: object, tensors = tinyTensors(config)): { readonly files: readonly File[] } {
  const read = tinyFolder(config, tensors);
  const file = (name: string) => new File([read(name) as Uint8Array<ArrayBuffer>], name);
  return { files: [file("config.json"), file("model.safetensors"), new File([TOKENIZER], "tokenizer.json")] };
}
const LLAMA = filesOf({ ...TINY.llama, vocab_size: VOCABULARY });
const GPT2 = filesOf({ ...TINY.gpt2, vocab_size: VOCABULARY });
const LATENT = filesOf({ ...TINY.deepseek_v3, vocab_size: VOCABULARY });

/** A call, with a stop after `reports` of its reports. */
function callOf(reports = Number.POSITIVE_INFINITY): Call & { readonly reports: () => number } {
  const abort = new AbortController();
  let count = 0;
  const report = () => {
    if (++count === reports) abort.abort();
  };
  return { report, signal: abort.signal, reports: () => count };
}

const used = () => loadedModel().kernels.memory.used;
const attend = (changes: Partial<Changes> = {}) =>
  attendTask({ text: "the cat sat", changes: { ...PLAIN, ...changes }, layer: 1, head: 1 });
const REPLACED = { name: "AbortError", message: "The model or the text was replaced meanwhile." };

test("of two loads at once the second gives the model, and the first releases its own", async () => {
  await loadTask({ source: GPT2 }, callOf());
  const alone = used();
  const first = loadTask({ source: LLAMA }, callOf());
  const second = loadTask({ source: GPT2 }, callOf());
  await expect(first).rejects.toMatchObject(REPLACED);
  expect((await second).type).toBe("gpt2");
  expect(loadedModel().model).toMatchObject({ type: "gpt2", released: false });
  expect(used()).toBe(alone);
});

test("a model in another format is that of the model that is loaded, whatever was loaded meanwhile", async () => {
  await loadTask({ source: LLAMA }, callOf());
  const late = modelAs("q8");
  const load = loadTask({ source: GPT2 }, callOf());
  await expect(late).rejects.toMatchObject(REPLACED);
  await load;
  const own = used();
  const [one, same] = await Promise.all([modelAs("q8"), modelAs("q8")]);
  expect(one).toMatchObject({ type: "gpt2", released: false });
  expect(same).toBe(one);
  const both = used();
  await expect(Promise.all([modelAs("f16"), modelAs("q8")])).rejects.toMatchObject(REPLACED);
  expect(used()).toBe(both);
  expect(await modelAs("stored")).toBe(loadedModel().model);
  expect(used()).toBe(own);
});

test("what a task shows belongs to the model that is loaded", async () => {
  await loadTask({ source: LLAMA }, callOf());
  await attend();
  const studying = studyTask({ answer: undefined });
  await loadTask({ source: GPT2 }, callOf());
  await expect(studying).rejects.toMatchObject(REPLACED);
  expect(shownReading).toThrow("No text was read.");
  await expect(studyTask({ answer: undefined })).rejects.toThrow("No text was read.");
});

test("a text that is written ends when another model is loaded, and changes nothing of what that one writes", async () => {
  const options = { maxTokens: 40, temperature: 0, seed: 1 };
  const textOf = async (during?: () => Promise<unknown>) => {
    let text = "";
    let other: Promise<unknown> | undefined;
    const report: Call["report"] = (report) => {
      if (report.kind === "piece") text += report.text;
      other ??= during?.();
    };
    const writing = writeTask({ prompt: "the cat", options }, { ...callOf(), report });
    if (during) await expect(writing).rejects.toMatchObject({ code: "RELEASED" });
    else await writing;
    await other;
    return text;
  };
  await loadTask({ source: GPT2 }, callOf());
  const wanted = await textOf();
  await loadTask({ source: LLAMA }, callOf());
  await textOf(() => loadTask({ source: GPT2 }, callOf()));
  expect(await textOf()).toBe(wanted);
});

test("what was read of a text comes back for the model that read it, not for another of the same shape", async () => {
  const config = { ...TINY.llama, vocab_size: VOCABULARY };
  await loadTask({ source: LLAMA }, callOf());
  const options = { maxTokens: 3, temperature: 0, seed: 1 };
  const { length } = await writeTask({ prompt: "the cat", options }, callOf());
  await loadTask({ source: filesOf(config, tinyTensors(config, 2)) }, callOf());
  expect(await restoreTask()).toBe(0);
  await loadTask({ source: LLAMA }, callOf());
  expect(await restoreTask()).toBe(length);
});

test("fifty loads, passes and stopped loads leave memory as after the second", async () => {
  const options = { maxTokens: 3, temperature: 0, seed: 1 };
  const measured: number[] = [];
  for (let i = 0; i < 50; i++) {
    const stopped = callOf(2);
    await expect(loadTask({ source: LLAMA }, stopped)).rejects.toMatchObject({ name: "AbortError" });
    expect(stopped.reports()).toBe(2);
    await loadTask({ source: LLAMA }, callOf());
    await attend();
    await attend({ weights: "q8", edits: [{ layer: 1, head: 0, scale: 0 }] });
    whyTask({ layer: 1, head: 1, query: 3, key: 2 });
    stagesTask({ layer: 1, head: 1, query: 3, key: 2 });
    await writeTask({ prompt: "the cat", options }, callOf());
    measured.push(used());
  }
  expect(new Set(measured.slice(1))).toEqual(new Set([measured[1]]));
});

test("a pass that fails releases its session", async () => {
  await loadTask({ source: filesOf({ ...TINY.llama, vocab_size: 20 }) }, callOf());
  const before = used();
  await expect(patternsTask({ text: "the cat" })).rejects.toThrow(/^forwardWith: ids\[0\] expected/);
  expect(used()).toBe(before);
});

test.each<[string, (call: Call) => Promise<unknown>]>([
  ["measure", (call) => measureTask({ text: "the cat", length: 4096 }, call)],
])("a stop ends %s at the next step", async (_, run) => {
  await loadTask({ source: LLAMA }, callOf());
  const measured: number[] = [];
  for (let i = 0; i < 3; i++) {
    const abort = new AbortController();
    let reports = 0;
    const report = () => {
      // A message of the page is a task of its own, which runs when this one yields.
      if (++reports === 2) setImmediate(() => abort.abort());
    };
    await expect(run({ report, signal: abort.signal })).rejects.toMatchObject({ name: "AbortError" });
    expect(reports).toBeLessThan(5);
    measured.push(used());
  }
  expect(measured[2]).toBe(measured[1]); // the first call made room for its scratch
});

test("stages of latent attention are those of traceAttention, with the rows of the query and of the key", async () => {
  await loadTask({ source: LATENT }, callOf());
  const { words } = await attend();
  const [query, key] = [5, 3];
  const stages = stagesTask({ layer: 1, head: 2, query, key });
  const { model } = loadedModel();
  const width = stages[0]!.rows[0]!.values.length;
  const traced = traceAttention({ model, layer: 1 }, new Float32Array(words.length * width));
  expect(stages.map(({ name }) => name)).toEqual(traced.map(({ name }) => name));
  expect(stages.length).toBeGreaterThan(9);
  const namesOf = (stage: string) => stages.find(({ name }) => name === stage)!.rows.map(({ name }) => name);
  expect(namesOf("chunk")).toEqual([
    ...["q of all heads, of “a” at 5", "c of all heads, of “·” at 3"],
    "r of all heads, of “·” at 3",
  ]);
  const rowOf = (stage: string, row: string) =>
    stages.find(({ name }) => name === stage)!.rows.find(({ name }) => name === row)!.values;
  const [q, k] = [rowOf("absorb", "q of “a” at 5"), rowOf("absorb", "k of “·” at 3")];
  const [c, r] = [rowOf("norm", "c of all heads, of “·” at 3"), rowOf("rotate", "r of all heads, of “·” at 3")];
  expect(k).toEqual(Float32Array.of(...c, ...r));
  const dot = q.reduce((sum, x, i) => sum + x * k[i]!, 0);
  const [score] = rowOf("scores", "scores of “a” at 5 for “·” at 3");
  expect(dot / score!).toBeCloseTo(Math.sqrt(TINY.deepseek_v3.qk_nope_head_dim + TINY.deepseek_v3.qk_rope_head_dim), 3);
});
