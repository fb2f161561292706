// What opened models answer of texts: forms of arguments, orders, errors, and the same in a worker.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { openModel } from "../../../src/entries/index.ts";

const vectors = join(import.meta.dirname, "../../vectors/retrieval");
const open = (name: string, options = {}) => openModel(join(vectors, name), { store: false, ...options });
const DOCUMENTS = ["the dog ran", "paris is near .", "a mat"];

describe("a model of vectors", () => {
  test("takes prompts by task, and cuts vectors", async () => {
    using model = await open("bert-modules");
    expect(model.can).toEqual(["embed", "rank"]);
    const plain = await model.embed("paris is near");
    expect(plain).toHaveLength(6);
    // The default prompt is that of passages; documents have none by that name.
    expect(await model.embed("paris is near", { task: "passage" })).toEqual(plain);
    expect(await model.embed("paris is near", { task: "document" })).not.toEqual(plain);
    expect(await model.embed("paris is near", { dimensions: 4 })).toEqual(plain.subarray(0, 4));
    expect(await model.embed([])).toEqual([]);
    await expect(model.embed("paris", { task: "clustering" })).rejects.toThrow(
      'embed: options.task expected one of "query", "document", "passage", got "clustering"',
    );
    await expect(model.embed("paris", { dimensions: 0 })).rejects.toThrow("embed: options.dimensions expected");
    await expect(model.embed([3] as never)).rejects.toThrow("embed: texts[0] expected a string, got 3");
  });

  test("ranks by the similarity of vectors, of equal ones the first document", async () => {
    using model = await open("bert-modules");
    const ranked = await model.rank("paris", [...DOCUMENTS, "paris is near ."]);
    expect(ranked.map(({ score }) => score)).toEqual(ranked.map(({ score }) => score).sort((a, b) => b - a));
    expect(ranked.findIndex(({ index }) => index === 1)).toBe(ranked.findIndex(({ index }) => index === 3) - 1);
    expect(await model.rank("paris", DOCUMENTS, { topK: 1 })).toHaveLength(1);
    const [[query], vectorsOf] = [
      await model.embed(["paris"], { task: "query" }),
      await model.embed(DOCUMENTS, { task: "document" }),
    ];
    const dot = vectorsOf.map((row) => row.reduce((sum, x, i) => sum + x * (query?.[i] ?? 0), 0));
    expect((await model.rank("paris", DOCUMENTS))[0]?.index).toBe(dot.indexOf(Math.max(...dot)));
    await expect(model.rank("paris", "text" as never)).rejects.toThrow("rank: documents expected");
    await expect(model.rank("paris", DOCUMENTS, { topK: 0 })).rejects.toThrow("rank: options.topK expected");
  });

  test("refuses texts without a token, and tokens that the model lacks", async () => {
    const idOf = (letter: string) => (letter === "z" ? 50 : 7);
    const tokenizer = { encode: (text: string) => Array.from(text, idOf), decode: () => "" };
    using model = await open("bert-modules", { tokenizer });
    const embed = (texts: string[]) => model.embed(texts, { task: "document" });
    await expect(embed(["a", ""])).rejects.toThrow("embed: texts[1] expected 1 or more tokens, got none");
    await expect(embed(["a", "ab", "az"])).rejects.toThrow(
      "embed: texts[2][1] expected an integer from 0 to 49, got 50",
    );
  });

  test("takes a tokenizer of one's own, a shorter length, and the other forms of what it is opened for", async () => {
    class Letters {
      encode(text: string) {
        return Array.from(text, () => 7);
      }
      decode() {
        return "";
      }
    }
    using own = await open("bert-modules", { tokenizer: new Letters() });
    expect(await own.embed("the cat")).toHaveLength(6);
    await expect(open("rerank-roberta", { tokenizer: new Letters() })).rejects.toThrow(
      "openModel: options.tokenizer expected one of loadTokenizer or readGgufTokenizer, for a model that can rank, got another one",
    );
    using short = await open("bert-modules", { maxSeqLen: 5, for: "rank" });
    expect([short.can, short.choices.maxSeqLen.value]).toEqual([["embed", "rank"], 5]);
    await expect(short.embed("a", { pooling: "cls" })).rejects.toThrow("embed: options.pooling expected none");
    await expect(short.embed("a", { dimensions: 11 })).rejects.toThrow(
      "embed: options.dimensions expected at most 10, got 11",
    );
  });

  test("may be of a model for another task", async () => {
    using model = await open("rerank-roberta", { for: "embed" });
    expect([model.can, (await model.embed("the cat")).length]).toEqual([["embed", "rank"], 16]);
  });

  test("does what it cannot do by no other name", async () => {
    using model = await open("bert-modules");
    expect(() => model.classify("a")).toThrow(
      "classify: model expected one that can classify, got bert, which can embed and rank",
    );
    await expect(open("bert-modules", { for: "entities" })).rejects.toThrow(
      "openModel: source expected a model that can entities, got bert, which can embed and rank",
    );
  });

  test("gives the same in a worker, and ends with its signal", async () => {
    using local = await open("bert-modules");
    using remote = await open("bert-modules", { worker: true });
    expect(await remote.embed(DOCUMENTS)).toEqual(await local.embed(DOCUMENTS));
    const shares: number[] = [];
    await remote.embed(DOCUMENTS, { onProgress: (share) => shares.push(share) });
    expect(shares.at(-1)).toBe(1);
    await expect(local.embed(DOCUMENTS, { signal: AbortSignal.abort(new Error("no")) })).rejects.toThrow("no");
  });
});

test("calls at the same time take the memory of four, and one that waits ends with its signal", async () => {
  const peakOf = async (count: number) => {
    using model = await open("bert-modules");
    const { kernels } = model.parts;
    let peak = 0;
    const onProgress = () => {
      peak = Math.max(peak, kernels.usedBytes);
    };
    const texts = Array.from({ length: 24 }, () => "paris is near . the dog ran");
    const calls = Array.from({ length: count }, () => model.embed(texts, { sliceMs: 1e-3, onProgress }));
    const abort = new AbortController();
    const last = model.embed(texts, { signal: abort.signal });
    let ended = 0;
    for (const call of calls) call.then(() => ended++);
    abort.abort(new Error("enough"));
    await expect(last).rejects.toThrow("enough");
    expect(ended).toBe(0);
    expect(new Set((await Promise.all(calls)).map(String)).size).toBe(1);
    return peak;
  };
  const [one, four, many] = [await peakOf(1), await peakOf(4), await peakOf(12)];
  expect(four).toBeGreaterThan(one);
  expect(many).toBeLessThanOrEqual(four);
});

test("a table of rows needs no kernels, and is released", async () => {
  const model = await open("static-mean");
  expect([model.type, model.can]).toEqual(["static", ["embed", "rank"]]);
  const [a, b] = await model.embed(["the cat", ""]);
  expect(a?.reduce((sum, x) => sum + x * x, 0)).toBeCloseTo(1, 6);
  expect(b).toEqual(new Float32Array(8));
  model.release();
  await expect(model.embed("the cat")).rejects.toThrow("embed: model was released");
});

test("a cross encoder scores each document with the query", async () => {
  using model = await open("rerank-roberta");
  expect(model.can).toEqual(["rank", "classify"]);
  const ranked = await model.rank("is paris near ?", DOCUMENTS);
  expect(ranked.map(({ index }) => index).sort()).toEqual([0, 1, 2]);
  expect(await model.rank("is paris near ?", [DOCUMENTS[1] as string])).toEqual([
    { index: 0, score: ranked.find(({ index }) => index === 1)?.score },
  ]);
  await expect(model.classify([["a", "b", "c"]] as never)).rejects.toThrow(
    "classify: texts[0] expected a text, or two that belong together, got 3",
  );
});

test("labels of one's own need a model of inference", async () => {
  using model = await open("zeroshot-bert");
  const [found] = await model.classify(["the cat sat"], { labels: ["animal", "place"] });
  expect(found?.map(({ label }) => label).sort()).toEqual(["animal", "place"]);
  expect((found?.[0]?.score ?? 0) + (found?.[1]?.score ?? 0)).toBeCloseTo(1, 6);
  await expect(model.classify("the cat", { labels: [] })).rejects.toThrow(
    "classify: options.labels expected 1 or more",
  );
  await expect(model.classify("the cat", { labels: ["a"], hypothesis: "none" })).rejects.toThrow(
    'classify: options.hypothesis expected a sentence with {}, got "none"',
  );
  const [alone] = await model.classify(["the cat"], { labels: ["animal"] });
  expect(alone?.[0]?.score).toBeLessThan(1);
  // A label is text, whatever it looks like.
  const scoreOf = async (label: string) => (await model.classify("the cat", { labels: [label] }))[0]?.score;
  expect(await scoreOf("$`")).toBe(await scoreOf("%`"));
  using other = await open("classify-modernbert");
  await expect(other.classify("the cat", { labels: ["a"] })).rejects.toThrow("no label that begins with entail");
});

test("entities lie where the text says, also behind what normalisation removes", async () => {
  using model = await open("ner-bert");
  const text = "The  cat sat on a mät in Paris.";
  for (const aggregation of ["simple", "first", "average", "max"] as const)
    for (const { start, end, score } of await model.entities(text, { aggregation })) {
      expect(text.slice(start, end).trim()).toBe(text.slice(start, end));
      expect(score).toBeGreaterThan(0);
    }
  expect(await model.entities(["", "a"])).toHaveLength(2);
  await expect(model.entities("a", { aggregation: "none" as never })).rejects.toThrow(
    'entities: options.aggregation expected "simple" or "first" or "average" or "max", got "none"',
  );
});

test("answers are parts of the text, also of one that is longer than the model reads", async () => {
  using model = await open("qa-distilbert");
  const context = "the cat sat on a mat . paris is near . ".repeat(30);
  const found = await model.answer("is it near ?", context, { topK: 3, maxAnswerTokens: 4 });
  expect(found).toHaveLength(3);
  for (const { text, start, end } of found) expect(context.slice(start, end)).toBe(text);
  expect(found.some(({ start }) => start > 40)).toBe(true);
  expect(await model.answer("is it near ?", "")).toEqual([]);
});

test("masks are filled in the order of their text, each apart", async () => {
  using model = await open("fill-distilbert");
  expect(model.can).toEqual(["fill", "embed", "rank"]);
  const [one, two] = await model.fill(["the [MASK] sat", "the [MASK] sat on [MASK]"], { topK: 2 });
  expect([one?.length, two?.length, one?.[0]?.length]).toEqual([1, 2, 2]);
  expect(one?.[0]?.[0]?.token).toBe(one?.[0]?.[0]?.text.replace(/^(?=s$)/, "##"));
  await expect(model.fill("the cat")).rejects.toThrow(
    'fill: texts[0] expected a mask, "[MASK]", within the first 40 tokens, got "the cat"',
  );
});

test("sparse vectors and vectors of tokens rank documents too", async () => {
  using sparse = await open("splade-bert");
  const { ids, weights } = await sparse.embedSparse("paris is near");
  expect([...ids]).toEqual([...ids].sort((a, b) => a - b));
  expect(weights.every((weight) => weight > 0)).toBe(true);
  expect((await sparse.rank("paris", DOCUMENTS)).length).toBe(3);
  using late = await open("colbert-bert");
  const rows = await late.embedTokens("cat", { task: "query" });
  expect([rows.length, rows[0]?.length]).toEqual([9, 6]);
  expect((await late.rank("paris", DOCUMENTS)).length).toBe(3);
});

test("a folder that names a part that is missing or not known is refused", async () => {
  const read = (name: string) => new Uint8Array(readFileSync(join(vectors, "bert-modules", name)));
  const openWith = (changes: Readonly<Record<string, object | undefined>>) =>
    openModel((name) => {
      if (name in changes) return changes[name] ? new TextEncoder().encode(JSON.stringify(changes[name])) : undefined;
      try {
        return read(name);
      } catch {
        return undefined;
      }
    });
  const dense = JSON.parse(new TextDecoder().decode(read("2_Dense/config.json")));
  await expect(
    openWith({ "2_Dense/config.json": { ...dense, activation_function: "torch.nn.Softplus" } }),
  ).rejects.toThrow(
    'openModel: 2_Dense/config.json expected an activation_function that is known: Identity, Tanh, ReLU, GELU, Sigmoid, SiLU, got "torch.nn.Softplus"',
  );
  // Its own matrix says that it has other outputs than inputs.
  const square = { ...dense, in_features: 8, out_features: 8, use_residual: true };
  await expect(openWith({ "2_Dense/config.json": square })).rejects.toThrow(
    'openModel: tensor "linear.weight" expected as many outputs as its residual in "2_Dense", got ',
  );
  await expect(openWith({ "2_Dense/model.safetensors": undefined })).rejects.toMatchObject({ code: "BAD_FILE" });
  await expect(openWith({ "modules.json": [{ type: "a.Pooling", path: "1_Pooling" }] })).rejects.toThrow(
    "openModel: modules.json expected a Transformer or a StaticEmbedding, got Pooling",
  );
});
