// What `openModel` takes, what it finds in it, and what it refuses.

import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { open as openFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, describe, expect, test, vi } from "vitest";
import { fileSource } from "../../../src/entries/weights.ts";
import { text, writeGguf } from "../../support/gguf-writer.ts";
import { startHub } from "../../support/hub-server.ts";
import { openFiles } from "../../support/open-files.ts";
import { serveFolder } from "../../support/range-server.ts";
import { encoderFolder } from "../../support/tiny-encoders.ts";
import { TINY_FEATURES, tinyFolder } from "../../support/tiny-models.ts";
import { wordTokenizer } from "../../support/word-tokenizer.ts";
import {
  createFolderStore,
  type Kernels,
  loadKernels,
  models,
  type OpenModelOptions,
  type OpenProgress,
  type OpenSource,
  openModel,
  quantized,
  statistics,
} from "./entries.ts";

const root = join(import.meta.dirname, "../../..");
const folder = join(root, "model/stories");
const read = (name: string) => new Uint8Array(readFileSync(join(folder, name)));
const PROMPT = "the cat sat on the mat because it was";

const stores = mkdtempSync(join(tmpdir(), "headwise-open-"));
afterAll(() => rmSync(stores, { recursive: true, force: true }));

/** One word, which the model writes behind the prompt. */
async function firstWord(source: OpenSource, options: OpenModelOptions = {}): Promise<string> {
  using model = await openModel(source, { store: false, ...options });
  return (await model.text(PROMPT, { maxTokens: 1 }).text).trim();
}

describe("a source", () => {
  const names = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"];
  const fileOf = (name: string) => new File([read(name)], name);
  const sources: readonly (readonly [string, () => OpenSource | Promise<OpenSource>])[] = [
    ["the path of a GGUF file", () => "model/stories/stories.gguf"],
    ["the path of a folder", () => folder],
    ["the path of a folder with / at its end", () => `${folder}/`],
    ["the file: URL of a GGUF file", () => pathToFileURL(join(folder, "stories.gguf"))],
    ["the file: URL of a folder as a string", () => pathToFileURL(folder).href],
    ["bytes", () => read("stories.gguf")],
    ["an ArrayBuffer", () => read("stories.gguf").buffer as ArrayBuffer],
    ["a Blob", () => new Blob([read("stories.gguf")])],
    ["a File", () => fileOf("stories.gguf")],
    ["files of a folder", () => names.map(fileOf)],
    ["what opens files by name", () => (name: string) => (names.includes(name) ? read(name) : undefined)],
  ];
  test.each(sources)("may be %s", async (_, make) => {
    expect(await firstWord(await make())).toBe("soft");
  });

  test("may be an open file", async () => {
    const handle = await openFile(join(folder, "stories.gguf"));
    expect(await firstWord(await fileSource(handle))).toBe("soft");
    await handle.close();
  });

  test("may be the URL of a file or a folder of a server, and is kept in the store", async () => {
    const server = await serveFolder((name) => ([...names, "stories.gguf"].includes(name) ? read(name) : undefined));
    const url = `http://127.0.0.1:${(server.address() as { port: number }).port}/stories`;
    const store = createFolderStore(join(stores, "urls"));
    expect(await firstWord(`${url}/stories.gguf`, { store })).toBe("soft");
    expect(await firstWord(new URL(`${url}/`), { store })).toBe("soft");
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    // The server is gone, and what was read is there.
    expect(await firstWord(`${url}/stories.gguf`, { store })).toBe("soft");
    expect(await firstWord(`${url}/`, { store })).toBe("soft");
  });
});

test("a table of inputs of layers stays in its file, in this thread and in a worker, until the model is released", async () => {
  const config = TINY_FEATURES.gemma4_text;
  const place = mkdtempSync(join(stores, "gemma-"));
  for (const name of ["config.json", "model.safetensors"])
    writeFileSync(join(place, name), tinyFolder(config)(name) as Uint8Array);
  const tokenizer = {
    encode: (text: string) => text.split(" ").map(Number),
    decode: (ids: readonly number[]) => ids.map((id) => ` ${id}`).join(""),
  };
  const texts = async (options: OpenModelOptions) => {
    using model = await openModel(place, { tokenizer, store: false, weights: "f32", ...options });
    const answers = ["1 2 3", "60 5", "1 2 3 4"].map((prompt) => model.text(prompt, { maxTokens: 9 }).text);
    return await Promise.all(answers);
  };
  const want = await texts({ perLayer: "resident" });
  expect(await texts({})).toEqual(want);
  expect(await texts({ worker: true })).toEqual(want);
  expect(await texts({ worker: true, perLayer: "resident" })).toEqual(want);
  const isOpen = () => openFiles().some((path) => path.startsWith(place));
  await vi.waitFor(() => expect(isOpen()).toBe(false));
  using model = await openModel(place, { tokenizer, store: false });
  if (process.platform === "linux") expect(isOpen()).toBe(true);
  model.release();
  await vi.waitFor(() => expect(isOpen()).toBe(false));
  const wrong = openModel(place, { tokenizer, perLayer: "none" as never });
  await expect(wrong).rejects.toThrow('openModel: options.perLayer expected "on-demand" or "resident", got "none"');
});

describe("a model", () => {
  test("of GGUF writes text, and says what it can and what was chosen", async () => {
    using model = await openModel("model/stories/stories.gguf");
    expect(model.can).toEqual(["text"]);
    expect(model.type).toBe("llama");
    const { build, threads, weights, cache, maxSeqLen, memory } = model.choices;
    expect(["simd", "relaxed"]).toContain(build.value);
    expect(threads).toEqual({ value: 1, reason: "passes of a model this small are too short to be divided" });
    expect(weights).toEqual({ value: "stored", reason: "as the files store them" });
    expect(cache?.value).toBe("q8");
    expect(maxSeqLen.value).toBe(192);
    expect(memory.value).toBeGreaterThan(0);
    expect(model.parts.model.type).toBe("llama");
    expect(model.parts.kernels.models).toBe(true);
    expect(await model.countTokens("the cat")).toBe(3);
  });

  test("keeps the formats that are asked for", async () => {
    const options = { weights: "q4", cache: "f32", maxSeqLen: 64, threads: 2, deterministic: true } as const;
    using model = await openModel(folder, options);
    const { build, threads, weights, cache, maxSeqLen } = model.choices;
    expect([build.value, threads.value, weights.value, cache?.value, maxSeqLen.value]).toEqual([
      "simd",
      2,
      "q4",
      "f32",
      64,
    ]);
    expect([weights.reason, cache?.reason, maxSeqLen.reason]).toEqual(["asked for", "asked for", "asked for"]);
  });

  test("has kernels of statistics if they are given", async () => {
    using model = await openModel("model/stories/stories.gguf", { statistics });
    expect(model.parts.kernels.statistics).toBe(true);
  });

  test("with a template chats", async () => {
    const template = "{% for m in messages %}{{ m.content }} {% endfor %}";
    using model = await openModel("model/stories/stories.gguf", { template, for: "chat" });
    expect(model.can).toEqual(["text", "chat"]);
    const answer = model.chat([{ role: "user", content: PROMPT }], { maxTokens: 1 });
    expect((await answer.text).trim()).toBe("soft");
  });

  test("is released by using, and throws then", async () => {
    let kept: Awaited<ReturnType<typeof openModel>>;
    {
      await using model = await openModel("model/stories/stories.gguf");
      kept = model;
      expect(model.released).toBe(false);
    }
    expect(kept.released).toBe(true);
    expect(() => kept.text("the")).toThrow("text: model was released");
  });

  test("says how far it is: files, bytes and the time that is left", async () => {
    const seen: OpenProgress[] = [];
    using _ = await openModel(folder, { onProgress: (progress) => seen.push(progress) });
    const last = seen.at(-1) as OpenProgress;
    expect(last.bytes).toBe(last.allBytes);
    expect([last.file, last.files]).toEqual(["stories", 1]);
    expect(seen.every(({ bytes }, i) => bytes > (seen[i - 1]?.bytes ?? 0))).toBe(true);
  });

  test("is not opened when its signal is aborted, before or while its weights are read", async () => {
    const signal = AbortSignal.abort(new Error("no more"));
    await expect(openModel(folder, { signal })).rejects.toThrow("no more");
    const abort = new AbortController();
    const onProgress = () => abort.abort(new Error("enough"));
    await expect(openModel(folder, { signal: abort.signal, onProgress })).rejects.toThrow("enough");
  });

  test("with little memory takes a smaller cache and a shorter length, and says so", async () => {
    using model = await openModel(folder, { memory: 2_600_000 });
    expect(model.choices.weights).toEqual({
      value: "q8",
      reason: "as the files store them, they would not fit in memory",
    });
  });
});

describe("kernels that are given", () => {
  const reranker = join(root, "test/vectors/retrieval/rerank-roberta");

  test("run several models in one memory, with the answers of models alone, and are left as they were", async () => {
    using kernels = await loadKernels({ models, quantized });
    const ask = async (options: OpenModelOptions) => {
      using writer = await openModel(folder, options);
      using reader = await openModel(reranker, options);
      const ranked = await reader.rank("w1 w2", ["w3", "w1 w2 w4"]);
      return { ranked, text: await writer.text(PROMPT, { maxTokens: 8 }).text, build: writer.choices.build };
    };
    const first = await ask({ kernels });
    expect(first.build).toEqual({ value: kernels.build, reason: "that of the given kernels" });
    // The scratch of calls stays.
    const used = kernels.usedBytes;
    const { ranked, text } = await ask({ kernels });
    expect([kernels.released, kernels.usedBytes]).toEqual([false, used]);
    const alone = await ask({});
    expect([ranked, text]).toEqual([alone.ranked, alone.text]);
  });

  test("are left as they were by a model that is not opened, in the middle of its weights or of its modules", async () => {
    using kernels = await loadKernels({ models, quantized });
    const before = kernels.usedBytes;
    const abort = new AbortController();
    const onProgress = () => abort.abort(new Error("enough"));
    await expect(openModel(folder, { kernels, signal: abort.signal, onProgress })).rejects.toThrow("enough");
    const folderOf = join(root, "test/vectors/retrieval/bert-modules");
    const lacking = (name: string) => {
      const own = join(folderOf, name.replace("3_Dense", "2_Dense"));
      if (name === "3_Dense/model.safetensors" || !existsSync(own)) return undefined;
      const bytes = new Uint8Array(readFileSync(own));
      if (name !== "modules.json") return bytes;
      const modules = JSON.parse(new TextDecoder().decode(bytes)) as object[];
      modules.splice(3, 0, { ...modules[2], path: "3_Dense" });
      return new TextEncoder().encode(JSON.stringify(modules));
    };
    await expect(openModel(lacking, { kernels })).rejects.toThrow(
      'openModel: source expected a file "model.safetensors", got none',
    );
    expect([kernels.released, kernels.usedBytes]).toEqual([false, before]);
  });

  test("are refused without what a model needs, beside options about kernels, and once released", async () => {
    const plain = await loadKernels();
    await expect(openModel(folder, { kernels: plain })).rejects.toMatchObject({ code: "NO_MODELS" });
    await expect(openModel(folder, { kernels: plain, threads: 2 })).rejects.toThrow(
      "openModel: options.threads expected none with options.kernels, got 2",
    );
    plain.release();
    await expect(openModel(folder, { kernels: plain })).rejects.toMatchObject({ code: "RELEASED" });
    await expect(openModel(folder, { kernels: {} as Kernels })).rejects.toThrow("openModel: options.kernels expected");
  });
});

test.each(["glm4-moe-lite", "kimi-linear", "minicpm3", "mistral4", "youtu"])(
  "a decoder with latents, %s, has the kernels that it needs",
  async (family) => {
    const model = join(root, "test/vectors/families", family);
    using opened = await openModel((name) => {
      if (name === "tokenizer.json") return new TextEncoder().encode(JSON.stringify(wordTokenizer(40)));
      return existsSync(join(model, name)) ? new Uint8Array(readFileSync(join(model, name))) : undefined;
    });
    expect(await opened.text("w7 w8", { maxTokens: 3 }).ids).toHaveLength(3);
  },
);

describe("an encoder", () => {
  const words = (name: string) =>
    name === "tokenizer.json" ? new TextEncoder().encode(JSON.stringify(wordTokenizer(60))) : undefined;
  const bert = encoderFolder("bert");
  const open = (more: Readonly<Record<string, object>> = {}, options: OpenModelOptions = {}) =>
    openModel((name) => {
      const own = more[name];
      return own ? new TextEncoder().encode(JSON.stringify(own)) : (words(name) ?? bert(name));
    }, options);
  const MODULES = [
    { idx: 0, type: "sentence_transformers.models.Transformer", path: "" },
    { idx: 1, type: "sentence_transformers.models.Pooling", path: "1_Pooling" },
    { idx: 2, type: "sentence_transformers.models.Normalize", path: "2_Normalize" },
  ];

  test("embeds a text or a list of texts, and nothing else", async () => {
    using model = await open();
    expect(model.can).toEqual(["embed", "rank"]);
    const [first, second] = await model.embed(["w1 w2", "w3"]);
    expect(await model.embed("w3")).toEqual(second);
    expect(first?.length).toBe(40);
    expect(() => model.text("w1")).toThrow("text: model expected one that can text, got bert, which can embed");
    expect(() => model.chat([])).toThrow("chat: model expected one that can chat, got bert, which can embed");
  });

  test("pools, normalises and cuts as the files of sentence-transformers say", async () => {
    const files = {
      "modules.json": MODULES,
      "1_Pooling/config.json": {
        word_embedding_dimension: 40,
        pooling_mode_cls_token: true,
        pooling_mode_mean_tokens: false,
      },
      "sentence_bert_config.json": { max_seq_length: 3, do_lower_case: false },
    };
    using model = await open(files);
    using plain = await open();
    const [own] = await model.embed(["w1 w2 w3 w4 w5"]);
    expect(own).toEqual(await plain.embed("w1 w2 w3", { pooling: "cls", normalize: true }));
    expect(model.choices.maxSeqLen.value).toBe(3);
  });

  test("is refused with modules or a pooling that are not known", async () => {
    const pooling = { "1_Pooling/config.json": { pooling_mode: "mean" } };
    const lstm = {
      ...pooling,
      "modules.json": [...MODULES.slice(0, 2), { type: "sentence_transformers.models.LSTM", path: "2_LSTM" }],
    };
    await expect(open(lstm)).rejects.toThrow(
      "openModel: modules.json expected modules of these kinds: Transformer, Pooling, Dense, LayerNorm, Normalize, SpladePooling, StaticEmbedding, MultiVectorMask, LogitScore, Router, got LSTM",
    );
    const best = { "modules.json": MODULES, "1_Pooling/config.json": { pooling_mode: "best" } };
    await expect(open(best)).rejects.toThrow(
      'openModel: 1_Pooling/config.json expected pooling modes that are known: cls, max, mean, mean_sqrt_len_tokens, mean_sqrt_len, weightedmean, lasttoken, got "best"',
    );
  });

  test('is made of a decoder by { for: "embed" }', async () => {
    using model = await openModel(folder, { for: "embed" });
    const [a, b] = await model.embed(["the cat", "the dog"], { pooling: "last", normalize: true });
    expect(a?.length).toBe(128);
    expect(a).not.toEqual(b);
  });
});

describe("a model on a hub", () => {
  const files = {
    "README.md": new TextEncoder().encode("# stories"),
    "stories-Q8_0.gguf": read("stories.gguf"),
    "stories-Q4_0.gguf": read("stories-q4.gguf"),
    "mmproj-F16.gguf": new Uint8Array(9),
  };
  const models = {
    "owner/stories": files,
    "owner/folder": Object.fromEntries(
      ["config.json", "model.safetensors", "tokenizer.json"].map((name) => [name, read(name)]),
    ),
    "owner/onnx": { "model.onnx": new Uint8Array(3), "config.json": read("config.json") },
  };

  test("is found by its name, and by that of a quantisation", async () => {
    await using hub = await startHub({ models });
    expect(await firstWord("owner/stories", { hub: hub.url })).toBe("soft");
    expect(hub.requests.some(({ path }) => path.endsWith("/stories-Q8_0.gguf"))).toBe(true);
    expect(await firstWord("owner/stories:q4_0", { hub: hub.url })).toBe("soft");
    expect(hub.requests.some(({ path }) => path.endsWith("/stories-Q4_0.gguf"))).toBe(true);
    expect(await firstWord("owner/folder", { hub: new URL(hub.url) })).toBe("soft");
    expect(await firstWord(`${hub.url}/owner/stories`, { hub: hub.url })).toBe("soft");
    expect(await firstWord(`${hub.url}/owner/stories/blob/main/stories-Q4_0.gguf`, { hub: hub.url })).toBe("soft");
  });

  test("opens without a network once it is in the store", async () => {
    const store = createFolderStore(join(stores, "hub"));
    const hub = await startHub({ models });
    expect(await firstWord("owner/stories", { hub: hub.url, store })).toBe("soft");
    await hub[Symbol.asyncDispose]();
    expect(await firstWord("owner/stories", { hub: hub.url, store })).toBe("soft");
  });

  test("is read to its end when the connection breaks off in the middle", async () => {
    await using hub = await startHub({ models, dropAfter: 100_000 });
    expect(await firstWord("owner/stories", { hub: hub.url })).toBe("soft");
    // What has come is not requested again.
    const begins = hub.requests.flatMap(({ host, range }) => (host === "files" ? [/\d+/.exec(range ?? "")?.[0]] : []));
    expect(begins).toContain("100000");
  });

  test("is read again once it has changed, by its ETag", async () => {
    const store = createFolderStore(join(stores, "changed"));
    const changing: Record<string, Uint8Array> = { "stories-Q8_0.gguf": read("stories.gguf") };
    await using hub = await startHub({ models: { "owner/stories": changing } });
    expect(await firstWord("owner/stories", { hub: hub.url, store })).toBe("soft");
    // The same vocabulary and weights but one word, with as many bytes.
    const other = Buffer.from(read("stories.gguf"));
    const at = other.indexOf("soft");
    other.write("hard", at);
    changing["stories-Q8_0.gguf"] = other;
    expect(await firstWord("owner/stories", { hub: hub.url, store })).toBe("hard");
  });

  test("gets a token that no other host is sent, nor any message shows", async () => {
    const token = "hf_secret";
    await using hub = await startHub({ models, token });
    expect(await firstWord("owner/stories", { hub: hub.url, token })).toBe("soft");
    expect(
      hub.requests
        .filter(({ host }) => host === "hub")
        .every(({ authorization }) => authorization === `Bearer ${token}`),
    ).toBe(true);
    const others = hub.requests.filter(({ host }) => host === "files");
    expect(others.length).toBeGreaterThan(0);
    expect(others.filter(({ authorization }) => authorization !== undefined)).toEqual([]);
    const without = await openModel("owner/stories", { hub: hub.url, store: false }).catch(String);
    expect(without).toMatch(
      /got "owner\/stories" \(status 401\); set HF_TOKEN or options.token to read one that is gated$/,
    );
    const wrong = await openModel("owner/stories", { hub: hub.url, store: false, token: "hf_other" }).catch(String);
    expect(wrong).toMatch(/the token may not read it$/);
    const odd = await openModel("owner/stories", { hub: hub.url, token: "hf_line\n" }).catch(String);
    expect(odd).toBe("RangeError: openModel: options.token expected visible ASCII characters, got others");
    expect(`${without}${wrong}${odd}`).not.toMatch(/hf_(secret|other|line)/);
  });

  test("that does not fit in memory is refused with the quantisations that would", async () => {
    await using hub = await startHub({ models });
    const open = openModel("owner/stories", { hub: hub.url, store: false, memory: 2_000_000 });
    await expect(open).rejects.toThrow(/what would fit: (?:.*, or )?the quantisation Q4_0$/);
  });

  test("is refused with what there is", async () => {
    await using hub = await startHub({ models });
    const open = (name: string) => openModel(name, { hub: hub.url, store: false });
    const host = new URL(hub.url).host;
    await expect(open("owner/stories:Q2_K")).rejects.toThrow(
      'openModel: source expected one of Q4_0, Q8_0 behind "owner/stories", got "Q2_K"',
    );
    await expect(open("owner/folder:Q4_0")).rejects.toThrow(
      'openModel: source expected "owner/folder" alone, got "Q4_0": it has safetensors',
    );
    await expect(open("owner/onnx")).rejects.toThrow(
      'openModel: source expected a model in GGUF, or in safetensors with config.json, got "owner/onnx" with files of .onnx, .json',
    );
    await expect(open("owner/nothing")).rejects.toThrow(
      `openModel: source expected the name of a model that ${host} has, got "owner/nothing" (status 404)`,
    );
  });
});

describe("what is wrong is said under the name of openModel", () => {
  const failure = (source: OpenSource, options: OpenModelOptions = {}) =>
    openModel(source, { store: false, ...options }).then(
      () => "none",
      ({ message }: Error) => message,
    );

  test("a source or an option of another kind", async () => {
    expect(await failure(7 as never)).toMatch(/^openModel: source expected a URL, a path, .*, got 7$/);
    expect(await failure("")).toBe('openModel: source expected a URL, a path or a name, got ""');
    expect(await failure("ftp://host/a.gguf")).toMatch(
      /^openModel: source expected a URL of http:, https: or file:, got "ftp:/,
    );
    expect(await failure([])).toBe("openModel: source expected the files of a model, got none");
    expect(await failure(folder, { dtype: "q8" } as never)).toBe(
      'openModel: options expected weights instead, got "dtype"',
    );
    expect(await failure(folder, { for: "sing" as never })).toBe(
      'openModel: options.for expected "text" or "chat" or "embed" or "embedSparse" or "embedTokens" or "rank" or "classify" or "entities" or "answer" or "fill", got "sing"',
    );
    expect(await failure(folder, { memory: 0 })).toMatch(/^openModel: options.memory expected an integer/);
  });

  test("a file that is not there, or is another", async () => {
    expect(await failure(join(folder, "none.gguf"))).toMatch(
      /^openModel: source expected a path that exists, a URL, or "owner\/name" of a model on a hub, got ".*none.gguf"$/,
    );
    expect(await failure(join(root, "docs"))).toMatch(
      /^openModel: source expected a folder with config.json .*, got "docs" without config.json$/,
    );
    expect(await failure(join(folder, "model.safetensors"))).toMatch(
      /^openModel: source expected the folder of config.json and model.safetensors/,
    );
    expect(await failure(new TextEncoder().encode("<!DOCTYPE html><title>no</title>"))).toMatch(/^openModel: .*page/);
  });

  test("a page of a server instead of a file", async () => {
    const server = await serveFolder(() => undefined);
    const url = `http://127.0.0.1:${(server.address() as { port: number }).port}`;
    expect(await failure(`${url}/none.gguf`)).toMatch(
      /^openModel: url ".*none.gguf" expected a file that may be read, got 404/,
    );
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    expect(await failure(`${url}/none.gguf`)).toMatch(/^openModel: url ".*none.gguf" expected an answer, got /);
  }, 20_000);

  test("a model that is not known, with those that are near", async () => {
    const config = { model_type: "lama", hidden_size: 8 };
    const open = (name: string) =>
      name === "config.json" ? new TextEncoder().encode(JSON.stringify(config)) : undefined;
    expect(await failure(open)).toMatch(/^openModel: model_type expected a supported one \(nearest: "llama"/);
    const file = writeGguf({ metadata: { "general.architecture": text("qwen33") }, tensors: [] });
    expect(await failure(file)).toMatch(
      /^openModel: key "general.architecture" expected a supported one \(nearest: "qwen3", .*\), got "qwen33"$/,
    );
  });

  test("a missing package, with the command that installs it, before any weight is read", () => {
    const code = `
      import { registerHooks } from "node:module";
      registerHooks({ resolve(name, context, next) {
        if (name.startsWith("@huggingface/")) throw new Error("Cannot find package '" + name + "'");
        return next(name, context);
      } });
      const { openModel } = await import("headwise");
      const onProgress = () => console.log("weights");
      const open = (options) => openModel("model/stories", { onProgress, store: false, ...options });
      const say = ({ code, message }) => console.log(code, message);
      await open({}).catch(say);
      await open({ for: "chat", template: "", tokenizer: { encode() {}, decode() {} } }).catch(say);`;
    const hooks = pathToFileURL(join(root, "scripts/source-hooks.mjs")).href;
    const args = ["--import", hooks, "--input-type=module", "--eval", code];
    const lines = execFileSync(process.execPath, args, { cwd: root, encoding: "utf8" }).trim().split("\n");
    expect(lines).toEqual(
      ["tokenizers", "jinja"].map((name) => {
        const rule = `the package @huggingface/${name}: npm install @huggingface/${name}, or pass its exports as options.libraries`;
        return `NO_LIBRARY openModel: expected ${rule}, got Error: Cannot find package '@huggingface/${name}'`;
      }),
    );
  });

  test("too little memory, with what is needed and what would fit", async () => {
    const text = await failure(folder, { memory: 300_000 });
    expect(text).toMatch(
      /^openModel: memory expected \d+ bytes or more \(\d+ of weights, \d+ of a session, \d+ of calls\), got 300000 \(asked for\); what would fit: /,
    );
  });

  test("another task", async () => {
    expect(await failure(encoderFolder("bert"), { for: "text" })).toBe(
      "openModel: source expected a model that writes, got bert, an encoder, which reads texts",
    );
    expect(await failure(folder, { for: "chat" })).toBe(
      "openModel: source expected a model with a chat template, or options.template, got llama without one",
    );
    using model = await openModel(folder);
    expect(() => model.embed("the")).toThrow(
      'embed: model expected one that can embed, got llama, which can text: open it with { for: "embed" }',
    );
    expect(() => model.chat([{ role: "user", content: "the" }])).toThrow(
      "chat: model expected one with a chat template, or options.template, got llama without one: text goes on with a text",
    );
  });
});
