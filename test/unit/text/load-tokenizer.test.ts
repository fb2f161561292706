// Tokenizers of a model's folder: where its files are, what they say, and files that are missing or wrong.

import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import * as library from "@huggingface/tokenizers";
import { afterAll, expect, test } from "vitest";
import { createStore } from "../../../src/entries/models.ts";
import { loadTokenizer } from "../../../src/entries/text.ts";
import { badFileOf } from "../../support/bad-file.ts";
import { serveFolder, urlOf } from "../../support/range-server.ts";
import { shortenWaits } from "../../support/short-waits.ts";
import { readTextVectors } from "../../support/vocabulary.ts";

shortenWaits();

const { tokenizer, cases } = readTextVectors("byte-level");
const [sample, ids] = cases[3] as (typeof cases)[number];

/** The files of a folder, by name. */
const FILES: Readonly<Record<string, unknown>> = {
  "tokenizer.json": tokenizer,
  "tokenizer_config.json": {
    ...{ bos_token: "<|begin|>", eos_token: { content: "<|im_end|>" }, clean_up_tokenization_spaces: true },
    ...{
      chat_template: [
        { name: "tool_use", template: "t" },
        { name: "default", template: "d" },
      ],
      model_max_length: 5,
    },
  },
  "generation_config.json": { eos_token_id: [657, 12] },
  "config.json": { eos_token_id: 13 },
};
const textOf = (value: unknown) => (typeof value === "string" ? value : JSON.stringify(value));
const opener = (files: Readonly<Record<string, unknown>>) => (name: string) =>
  files[name] === undefined ? undefined : new TextEncoder().encode(textOf(files[name]));

const folder = mkdtempSync(join(tmpdir(), "tokenizer-"));
for (const [name, value] of Object.entries(FILES)) writeFileSync(join(folder, name), textOf(value));
afterAll(() => rmSync(folder, { recursive: true }));

test("it is read from a folder, its URL, files, a function and a server, which need not have all files", async () => {
  // The query is that of each file.
  const server = await serveFolder((name, query) => opener(FILES)(query === "key=1" ? name : ""));
  const files = Object.entries(FILES).map(([name, value]) => new File([textOf(value)], name));
  for (const source of [folder, pathToFileURL(folder), files, opener(FILES), `${urlOf(server)}?key=1`]) {
    const { encode, endIds, chatTemplate, specialTokens, vocabSize } = await loadTokenizer(source);
    expect({ endIds, chatTemplate, specialTokens, vocabSize }).toEqual({
      ...{ endIds: [657, 12, 13], chatTemplate: "d", vocabSize: 656 },
      specialTokens: { bos_token: "<|begin|>", eos_token: "<|im_end|>" },
    });
    expect(Array.from(encode(sample))).toEqual(ids);
  }
  server.close();
});

test("the model of induction has a token for each character of its vocabulary, and refuses others", async () => {
  const model = new URL("../../../model/", import.meta.url);
  const { vocabulary } = JSON.parse(readFileSync(new URL("config.json", model), "utf8")) as { vocabulary: string };
  const { encode, decode, vocabSize } = await loadTokenizer(model);
  const reversed = Array.from(vocabulary).reverse().join("");
  expect(vocabSize).toBe(96);
  expect(Array.from(encode(reversed))).toEqual(Array.from({ length: 96 }, (_, i) => 95 - i));
  expect(decode(encode(reversed))).toBe(reversed);
  expect(() => encode("caf\u00e9")).toThrow("characters that the vocabulary has tokens for");
});

test("a store keeps the files and which ones there are not, for a start without a network", async () => {
  const { "generation_config.json": _, ...some } = FILES;
  const server = await serveFolder(opener(some));
  const url = urlOf(server);
  const kept = new Map<string, Uint8Array>();
  const store = createStore({
    read: async (key) => kept.get(key),
    write: async (key, bytes) => void kept.set(key, bytes.slice()),
    remove: async (key) => void kept.delete(key),
  });
  const first = await loadTokenizer(url, { store });
  await new Promise((done) => server.close(done).closeAllConnections());
  await expect(loadTokenizer(url)).rejects.toMatchObject({ code: "BAD_FILE" });
  const again = await loadTokenizer(url, { store });
  expect(Array.from(again.encode(sample))).toEqual(ids);
  expect([again.endIds, again.chatTemplate]).toEqual([[657, 13], "d"]);
  expect(again.endIds).toEqual(first.endIds);
});

test("tokenizer.json suffices, and chat_template.jinja comes before tokenizer_config.json", async () => {
  const plain = await loadTokenizer(opener({ "tokenizer.json": tokenizer }));
  expect([plain.endIds, plain.chatTemplate, plain.specialTokens]).toEqual([[], undefined, {}]);
  const { chatTemplate } = await loadTokenizer(opener({ ...FILES, "chat_template.jinja": "{{ 1 }}" }));
  expect(chatTemplate).toBe("{{ 1 }}");
});

test("spaces before marks remain, whatever clean_up_tokenization_spaces says", async () => {
  const { encode, decode } = await loadTokenizer(opener(FILES));
  expect(decode(Array.from(encode("it 's here , really ?")))).toBe("it 's here , really ?");
});

test.each<readonly [string, Readonly<Record<string, unknown>>, string]>([
  [
    "no tokenizer.json",
    { "tokenizer.model": "x" },
    'source expected a file "tokenizer.json", got none; a model without it, such as one with tokenizer.model alone, is read from its GGUF by readGgufTokenizer',
  ],
  ["text that is no JSON", { "tokenizer.json": "{" }, 'tokenizer.json expected valid JSON, got "{"'],
  ["a list", { "tokenizer.json": "[]" }, "tokenizer.json expected a JSON object, got Array"],
  ["no vocabulary", { "tokenizer.json": {} }, "tokenizer.json expected model.vocab with the tokens, got undefined"],
  [
    "another kind of normalizer",
    { "tokenizer.json": { ...tokenizer, normalizer: { type: "Other" } } },
    "tokenizer.json expected a tokenizer that @huggingface/tokenizers reads, got Error",
  ],
  [
    "another config",
    { ...FILES, "tokenizer_config.json": "null" },
    "tokenizer_config.json expected a JSON object, got null",
  ],
])("files with %s are refused", async (_, files, text) => {
  expect(await badFileOf(() => loadTokenizer(opener(files)))).toContain(`loadTokenizer: ${text}`);
});

test("a part of the file that the library fails on when it comes to it is the file's fault", async () => {
  const json = {
    ...tokenizer,
    post_processor: { type: "TemplateProcessing", single: null, pair: [], special_tokens: {} },
  };
  const { encode } = await loadTokenizer(opener({ ...FILES, "tokenizer.json": json }));
  expect(await badFileOf(() => encode("a"))).toMatch(
    /^encode: tokenizer\.json expected a tokenizer that @huggingface\/tokenizers reads, got TypeError: /,
  );
});

test("ids that end a generation may be none, which -1 and what is no id are", async () => {
  const endsOf = async (eos: unknown) =>
    (await loadTokenizer(opener({ "tokenizer.json": tokenizer, "generation_config.json": { eos_token_id: eos } })))
      .endIds;
  expect(await Promise.all([-1, [5, -1, 1.5, "6"], null, {}].map(endsOf))).toEqual([[], [5], [], []]);
});

test("a file that is too long to be one is refused before it is read", async () => {
  const read = () => Promise.reject(new Error("it is read"));
  await expect(loadTokenizer(() => ({ size: 2 ** 28 + 1, read }))).rejects.toThrow(
    'loadTokenizer: source expected a file "tokenizer.json" of at most 268435456 bytes, got 268435457',
  );
});

test("a signal ends it, and wrong options are named", async () => {
  const aborted = AbortSignal.abort(new Error("enough"));
  await expect(loadTokenizer(folder, { signal: aborted })).rejects.toThrow("enough");
  await expect(loadTokenizer(folder, { signal: 1 as never })).rejects.toThrow(
    "loadTokenizer: signal expected an AbortSignal, got 1",
  );
  await expect(loadTokenizer(folder, { store: {} as never })).rejects.toThrow(
    "loadTokenizer: options.store.open expected a function, got undefined",
  );
  await expect(loadTokenizer(folder, { library: {} as never })).rejects.toThrow(
    "loadTokenizer: options.library expected the exports of @huggingface/tokenizers (Tokenizer), got Object",
  );
});

test("without the packages, the error says what to install, and their exports can be passed", async () => {
  expect((await loadTokenizer(folder, { library })).vocabSize).toBe(656);
  const root = join(import.meta.dirname, "../../..");
  const code = `
    import { registerHooks } from "node:module";
    registerHooks({ resolve(name, context, next) {
      if (name.startsWith("@huggingface/")) throw new Error("Cannot find package '" + name + "'");
      return next(name, context);
    } });
    const { loadTokenizer, readGgufTokenizer, renderChat } = await import("headwise/text");
    const metadata = new Map([["tokenizer.ggml.model", "bert"], ["tokenizer.ggml.tokens", ["[UNK]"]]]);
    const calls = [() => loadTokenizer(${JSON.stringify(folder)}), () => readGgufTokenizer({ metadata }),
      () => renderChat({ encode() {}, decode() {}, chatTemplate: "" }, [{ role: "user", content: "a" }])];
    for (const call of calls) await call().catch(({ code, message }) => console.log(code, message));`;
  const hooks = pathToFileURL(join(root, "scripts/source-hooks.mjs")).href;
  const args = ["--import", hooks, "--input-type=module", "--eval", code];
  const lines = execFileSync(process.execPath, args, { cwd: root, encoding: "utf8" }).trim().split("\n");
  expect(lines).toEqual(
    (["loadTokenizer tokenizers", "readGgufTokenizer tokenizers", "renderChat jinja"] as const).map((call) => {
      const [where, name] = call.split(" ");
      const rule = `the package @huggingface/${name}: npm install @huggingface/${name}, or pass its exports as options.library`;
      return `NO_LIBRARY ${where}: expected ${rule}, got Error: Cannot find package '@huggingface/${name}'`;
    }),
  );
});
