// A model in a worker: the same answers, aborts and errors as in this thread, and nothing left when it is released.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startHub } from "../../support/hub-server.ts";
import { encoderFolder } from "../../support/tiny-encoders.ts";
import { wordTokenizer } from "../../support/word-tokenizer.ts";
import { type OpenedModel, type OpenModelOptions, openModel, statistics } from "./entries.ts";

const root = join(import.meta.dirname, "../../..");
const FILE = "model/stories/stories.gguf";
const TEMPLATE = "{% for m in messages %}{{ m.content }} {% endfor %}";
const PROMPT = "anna put the apple in the box .";

let here: OpenedModel;
let there: OpenedModel;
beforeAll(async () => {
  here = await openModel(FILE, { template: TEMPLATE });
  there = await openModel(FILE, { template: TEMPLATE, worker: true });
});
afterAll(() => {
  here.release();
  there.release();
});

describe("a model in a worker", () => {
  test("can and has chosen the same, and has no parts here", () => {
    expect(there.can).toEqual(here.can);
    expect({ ...there.choices, memory: 0, store: 0 }).toEqual({ ...here.choices, memory: 0, store: 0 });
    expect(() => there.parts).toThrow(
      "parts: model expected one that was opened without the option worker, got one in a worker",
    );
  });

  test("writes the same ids, several answers at once, with aborts", async () => {
    const options = { maxTokens: 25, temperature: 0.8, seed: 7 };
    const own = here.text(PROMPT, options);
    const expected = await own.ids;
    const drafted = there.text(PROMPT, { ...options, draft: { ngram: 1 } });
    expect([await drafted.ids, await drafted.logprobs]).toEqual([expected, await own.logprobs]);
    const abort = new AbortController();
    const answers = [{}, {}, { signal: abort.signal }].map((more) => there.text(PROMPT, { ...options, ...more }));
    let count = 0;
    for await (const _ of answers[2]!) if (++count === 5) abort.abort();
    expect(await answers[0]?.ids).toEqual(expected);
    expect(await answers[1]?.ids).toEqual(expected);
    const cut = (await answers[2]?.ids) ?? [];
    expect(cut.length).toBeLessThan(25);
    expect(cut).toEqual(expected.slice(0, cut.length));
    expect((await answers[2]?.end)?.reason).toBe("aborted");
  });

  test("goes on with conversations without reading them again", async () => {
    const messages = [{ role: "user", content: PROMPT }];
    const first = there.chat(messages, { maxTokens: 6 });
    messages.push({ role: "assistant", content: await first.text }, { role: "user", content: "where was the apple ?" });
    const { reused } = await there.chat(messages, { maxTokens: 6 }).end;
    expect(reused).toBeGreaterThan(8);
    const cold = here.chat(messages, { maxTokens: 6 });
    expect(await there.chat(messages, { maxTokens: 6 }).ids).toEqual(await cold.ids);
  });

  test("fails with the same errors, classes and codes", async () => {
    const long = there.text("the ".repeat(300));
    await expect(long.text).rejects.toMatchObject({ name: "HeadwiseError", code: "CACHE_FULL" });
    expect(() => there.text("the", { temperature: -1 })).toThrow(RangeError);
    await expect(there.text("the", { logitsProcessors: [() => {}] }).text).rejects.toThrow(
      "text: logitsProcessors expected none with the option worker, got Array",
    );
    const tight = openModel(FILE, { worker: true, memory: 1000 });
    await expect(tight).rejects.toMatchObject({
      code: "OUT_OF_MEMORY",
      message: expect.stringMatching(/^openModel: memory expected/),
    });
  });

  test("is refused with what crosses no threads", async () => {
    const failure = (options: OpenModelOptions) => openModel(FILE, options).catch(({ message }: Error) => message);
    const store = { open: async () => new Uint8Array() as never, remove: async () => {} };
    expect(await failure({ worker: true, store })).toBe(
      "openModel: options.store expected none or false with the option worker, got one",
    );
    expect(await failure({ worker: true, statistics })).toBe(
      "openModel: options.statistics expected none with the option worker, got some",
    );
    expect(await failure({ worker: 3 as never })).toBe("openModel: options.worker expected a function, got 3");
    const sent = openModel(() => undefined, { worker: true }).catch(({ message }: Error) => message);
    expect(await sent).toMatch(/^openModel: source expected one that can be sent to a worker, got a function/);
  });

  test("may be given as bytes, which are transferred", async () => {
    const bytes = new Uint8Array(readFileSync(join(root, FILE)));
    using model = await openModel(bytes, { worker: true });
    expect((await model.text("the cat sat on the mat because it was", { maxTokens: 1 }).text).trim()).toBe("soft");
    expect(bytes.length).toBe(0);
  });

  test("may be on a hub, with what would fit where memory has no room", async () => {
    const bytesOf = (name: string) => new Uint8Array(readFileSync(join(root, "model/stories", name)));
    const files = { "a-Q8_0.gguf": bytesOf("stories.gguf"), "a-Q4_0.gguf": bytesOf("stories-q4.gguf") };
    await using hub = await startHub({ models: { "owner/stories": files }, token: "hf_secret" });
    const options = { worker: true, hub: hub.url, token: "hf_secret", store: false } as const;
    const seen = new Set<string>();
    using model = await openModel("owner/stories", { ...options, onProgress: ({ file }) => seen.add(file) });
    expect((await model.text("the cat sat on the mat because it was", { maxTokens: 1 }).text).trim()).toBe("soft");
    expect([...seen]).toEqual(["owner/stories"]);
    await expect(openModel("owner/stories", { ...options, memory: 2_000_000 })).rejects.toThrow(/quantisation Q4_0$/);
    const file = new URL(`${hub.url}/owner/stories/resolve/main/a-Q4_0.gguf`);
    using other = await openModel(file, options);
    expect(other.can).toEqual(["text"]);
  });

  test("reports progress, and is not opened once its signal is aborted", async () => {
    const seen: number[] = [];
    using _ = await openModel(FILE, { worker: true, onProgress: ({ bytes }) => seen.push(bytes) });
    expect(seen.length).toBeGreaterThan(3);
    const abort = new AbortController();
    const onProgress = () => abort.abort(new Error("enough"));
    await expect(openModel(FILE, { worker: true, signal: abort.signal, onProgress })).rejects.toThrow("enough");
  });

  test("makes vectors", async () => {
    const bert = encoderFolder("bert");
    const file = (name: string, bytes: Uint8Array) => new File([bytes as Uint8Array<ArrayBuffer>], name);
    const files = [
      ...["config.json", "model.safetensors"].map((name) => file(name, bert(name) as Uint8Array)),
      file("tokenizer.json", new TextEncoder().encode(JSON.stringify(wordTokenizer(60)))),
    ];
    using local = await openModel(files);
    using remote = await openModel(files, { worker: true });
    expect(await remote.embed(["w1 w2", "w3"])).toEqual(await local.embed(["w1 w2", "w3"]));
    await expect(remote.embed("w1", { signal: AbortSignal.abort(new Error("no")) })).rejects.toThrow("no");
  });

  test("is released at once: what waits rejects, and the worker ends", async () => {
    const workers: Worker[] = [];
    const worker = () => {
      const made = new Worker(readFileSync(join(root, "build/open-worker.txt"), "utf8"), { eval: true, execArgv: [] });
      workers.push(made);
      return made;
    };
    const model = await openModel(FILE, { worker });
    const answer = model.text(PROMPT);
    for await (const _ of answer) break;
    const waiting = model.text(PROMPT);
    const ended = new Promise((resolve) => workers[0]?.on("exit", resolve));
    model.release();
    await expect(waiting.text).rejects.toMatchObject({ code: "RELEASED" });
    await ended;
    expect(() => model.text(PROMPT)).toThrow("text: model was released");
  });

  test("is refused with a worker of another script, and reported when it is lost", async () => {
    const other = () =>
      new Worker(
        'const { parentPort } = require("node:worker_threads"); parentPort.on("message", () => parentPort.postMessage({ script: "headwise/worker 0.0.1" }));',
        { eval: true, execArgv: [] },
      );
    await expect(openModel(FILE, { worker: other })).rejects.toMatchObject({
      code: "ABI_MISMATCH",
      message: expect.stringMatching(
        /^openModel: options.worker expected a worker that runs headwise\/open-worker .*, got headwise\/worker 0\.0\.1$/,
      ),
    });
    let made: Worker | undefined;
    const worker = () => {
      made = new Worker(readFileSync(join(root, "build/open-worker.txt"), "utf8"), { eval: true, execArgv: [] });
      return made;
    };
    const model = await openModel(FILE, { worker });
    const answer = model.text(PROMPT);
    void made?.terminate();
    await expect(answer.text).rejects.toMatchObject({ code: "WORKER_LOST" });
  });
});
