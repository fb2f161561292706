// `headwise embed`: a tiny decoder as an encoder, with a tokenizer of words.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { loadKernels } from "../../../src/entries/index.ts";
import { embed, gguf, loadEncoder, models } from "../../../src/entries/models.ts";
import { runCli } from "../../support/cli.ts";
import { writeGguf } from "../../support/gguf-writer.ts";
import { encoderTensors, TINY_ENCODERS } from "../../support/tiny-encoders.ts";
import { ggufModel, wordPieceKeys } from "../../support/tiny-gguf.ts";
import { TINY, tinyFolder } from "../../support/tiny-models.ts";
import { wordTokenizer } from "../../support/word-tokenizer.ts";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "headwise-embed-"));
  const file = tinyFolder(TINY.llama);
  for (const name of ["config.json", "model.safetensors"]) writeFileSync(join(folder, name), file(name) as Uint8Array);
  writeFileSync(join(folder, "tokenizer.json"), JSON.stringify(wordTokenizer(TINY.llama.vocab_size)));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const run = (...args: string[]) => runCli(["embed", folder, ...args]);

test("prints the vectors that embed gives, of length 1, and the cosine of each pair", async () => {
  using kernels = await loadKernels({ deterministic: true, models });
  const model = await loadEncoder(kernels, folder);
  const want = embed(model, [[5, 6, 7], [8]], { pooling: "last", normalize: true });
  const options = ["--pooling", "last", "--deterministic"];
  const result = JSON.parse(run("w5 w6 w7", "w8", ...options, "--json").stdout);
  expect(result).toMatchObject({ type: "llama", pooling: "last", dModel: TINY.llama.hidden_size });
  expect(result.texts).toEqual([
    { text: "w5 w6 w7", vector: Array.from(want[0] as Float32Array) },
    { text: "w8", vector: Array.from(want[1] as Float32Array) },
  ]);
  const cosine = want[0]!.reduce((sum, x, i) => sum + x * want[1]![i]!, 0);
  const { status, stdout } = run("w5 w6 w7", "w8", ...options);
  expect(status).toBe(0);
  expect(stdout).toContain(`cosine 1, 2  ${cosine.toFixed(4)}\n`);
});

test("takes a GGUF file, with the vocabulary that it has", async () => {
  const config = { ...TINY_ENCODERS.bert, layer_norm_eps: 2 ** -14 };
  const tensors = new Map([...encoderTensors("bert")].filter(([name]) => !name.startsWith("cls.")));
  const model = ggufModel(config, tensors);
  const path = join(folder, "bert.gguf");
  writeFileSync(path, writeGguf({ ...model, metadata: { ...model.metadata, ...wordPieceKeys(67) } }));
  using kernels = await loadKernels({ deterministic: true, models });
  const encoder = await loadEncoder(kernels, path, { gguf });
  const [want] = embed(encoder, [[2, 4, 5, 6, 3]], { normalize: true });
  const { stdout } = runCli(["embed", path, "the cats", "--deterministic", "--json"]);
  expect(JSON.parse(stdout).texts).toEqual([{ text: "the cats", vector: Array.from(want as Float32Array) }]);
});

test("takes the prompt of a task, and a table of rows", () => {
  const vectors = join(import.meta.dirname, "../../vectors/retrieval");
  const vectorOf = (model: string, ...args: string[]) =>
    JSON.parse(runCli(["embed", join(vectors, model), "the cat", "--json", ...args]).stdout).texts[0].vector;
  expect(vectorOf("bert-modules", "--task", "query")).not.toEqual(vectorOf("bert-modules", "--task", "document"));
  expect(vectorOf("static-mean")).toHaveLength(8);
  expect(runCli(["embed", join(vectors, "static-mean"), "the cat"]).stderr).toContain("static, a table, opened");
});

test.each([
  [["w5", "--pooling", "max"], '--pooling expected mean, cls, last, got "max"'],
  [[], "expected a model and a text, got 1 arguments"],
])("%j is refused", (args, message) => {
  const { status, stderr } = run(...args);
  expect([status, stderr.startsWith("headwise embed: ")]).toEqual([2, true]);
  expect(stderr).toContain(message.slice(0, 20));
});
