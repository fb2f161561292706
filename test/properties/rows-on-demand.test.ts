// Models whose table of inputs of layers stays in its file: the bits of those that hold it, wherever the file is and whatever fails.

import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import type { Tensor } from "../../src/base/tensor/tensor.ts";
import type { ByteSource } from "../../src/files/byte-source.ts";
import { openSafetensors, writeSafetensors } from "../../src/files/safetensors/safetensors.ts";
import { createStore } from "../../src/files/store.ts";
import type { Model } from "../../src/models/blocks/model.ts";
import { forward, forwardAsync } from "../../src/models/decoder/forward.ts";
import { createSession, exportSession, importSession, type Session } from "../../src/models/decoder/session.ts";
import { encode } from "../../src/models/encoder/encode.ts";
import { loadEncoder } from "../../src/models/encoder/load.ts";
import { generate } from "../../src/models/generate/generate.ts";
import { generateMany } from "../../src/models/generate/generate-many.ts";
import { type LoadModelOptions, loadModel, planModelFiles } from "../../src/models/load/load-model.ts";
import { gguf } from "../../src/models/spec/read-gguf.ts";
import { detectHeads } from "../../src/tools/inspect/detect-heads.ts";
import { modelDigest } from "../../src/tools/inspect/digest.ts";
import { captureRun, forwardWith } from "../../src/tools/inspect/forward-with.ts";
import { inspect } from "../../src/tools/inspect/records.ts";
import type { Kernels } from "../../src/wasm/kernels.ts";
import { toQ8_0, writeGguf } from "../support/gguf-writer.ts";
import { kernelsOf } from "../support/layers.ts";
import { openFiles } from "../support/open-files.ts";
import { sampled } from "../support/sampled.ts";
import { ggufModel, realTensors } from "../support/tiny-gguf.ts";
import { TINY_FEATURES, tinyTensors } from "../support/tiny-models.ts";

const [VOCABULARY, ROWS, LENGTH] = [350, 340, 300];
/** Bytes of a row: five layers of so many floats. 209 rows are held, so that they come and go within the sequences below. */
const WIDE = 4000;
const ROW = 5 * WIDE * 4;
const LARGER = {
  ...{ vocab_size: VOCABULARY, vocab_size_per_layer_input: ROWS, hidden_size_per_layer_input: WIDE },
  ...{ sliding_window: 70, rms_norm_eps: 2 ** -14 },
};
const MODELS = {
  gemma4_text: { ...TINY_FEATURES.gemma4_text, ...LARGER },
  gemma3n_text: { ...TINY_FEATURES.gemma3n_text, ...LARGER, activation_sparsity_pattern: [0, 0, 0, 0, 0] },
} as const;
type Name = keyof typeof MODELS;
const NAMES = Object.keys(MODELS) as Name[];
/** A row that is read for the end of the sequence alone. */
const LATE = 335;
// All different; some have no row of their own.
const IDS = Array.from({ length: LENGTH }, (_, i) => (i * 11) % VOCABULARY).map((id) => (id === LATE ? 3 : id));
IDS[290] = LATE;
const ROOM = { maxSeqLen: 400 };

/** Waits until it is so, for two seconds at most. */
async function until(isSo: () => boolean): Promise<void> {
  for (let i = 0; i < 400 && !isSo(); i++) await new Promise((resolve) => setTimeout(resolve, 5));
  expect(isSo()).toBe(true);
}

const json = (config: object) => new TextEncoder().encode(JSON.stringify(config));
/** What `make` gives for a model, made once. */
function once<T>(make: (name: Name) => T): (name: Name) => T {
  const made = new Map<Name, T>();
  return (name) => {
    const found = made.get(name) ?? make(name);
    made.set(name, found);
    return found;
  };
}
/** The tensors that GGUF files have too. */
const tensorsOf = once((name) => realTensors(MODELS[name], tinyTensors(MODELS[name])));
const folderOf = once(
  (name): ReadonlyMap<string, Uint8Array> =>
    new Map([
      ["config.json", json(MODELS[name])],
      ["model.safetensors", writeSafetensors(tensorsOf(name))],
    ]),
);

/** The files of a model as sources that count what is read of them; `before` is called with each range. */
function counted(files: ReadonlyMap<string, Uint8Array>, before: (begin: number, end: number) => unknown = () => {}) {
  const counts = { bytes: 0, reads: 0 };
  const open = (name: string): ByteSource | undefined => {
    const bytes = files.get(name);
    return (
      bytes && {
        size: bytes.length,
        async read(offset, length) {
          await before(offset, offset + length);
          counts.bytes += length;
          counts.reads++;
          return bytes.subarray(offset, offset + length);
        },
      }
    );
  };
  return { counts, open };
}

let kernels: Kernels;
const resident = new Map<Name, Model>();
const logits = new Map<Name, Float32Array>();
const place = mkdtempSync(join(tmpdir(), "headwise-rows-"));
beforeAll(async () => {
  kernels = await kernelsOf("relaxed");
  for (const name of NAMES) {
    const model = await loadModel(kernels, counted(folderOf(name)).open, { perLayer: "resident" });
    using session = createSession(model, ROOM);
    resident.set(name, model);
    logits.set(name, forward(session, IDS, { rows: "all" }).logits);
  }
});
afterAll(() => {
  kernels.release();
  rmSync(place, { recursive: true });
});
const of = (name: Name) => resident.get(name) as Model;
/** Compared instead of floats, of which a failure would list a hundred thousand. */
const bitsOf = (floats: Float32Array) => createHash("sha256").update(floats).digest("hex");
const rowsOf = (name: Name, from = 0, to = LENGTH) =>
  bitsOf((logits.get(name) as Float32Array).subarray(from * VOCABULARY, to * VOCABULARY));
const onDemand = (name: Name, options: LoadModelOptions = {}) =>
  loadModel(kernels, counted(folderOf(name)).open, options);
const read = async (session: Session, ids: readonly number[]) =>
  bitsOf((await forwardAsync(session, ids, { rows: "all" })).logits);

async function textOf(session: Session, ids: readonly number[], options: Parameters<typeof generate>[2] = {}) {
  const found: number[] = [];
  for await (const { id } of generate(session, ids, { maxTokens: 12, ...options })) found.push(id);
  return found;
}

describe.each(sampled(NAMES, 1))("%s", (name) => {
  test("at once, in pieces, token by token, cut, forked and restored: the bits of a table in memory", async () => {
    using model = await onDemand(name);
    using whole = createSession(model, ROOM);
    expect(await read(whole, IDS)).toEqual(rowsOf(name));
    using pieces = createSession(model, ROOM);
    for (const [from, to] of [
      [0, 7],
      [7, 8],
      [8, 200],
      [200, LENGTH],
    ] as const)
      expect(await read(pieces, IDS.slice(from, to))).toEqual(rowsOf(name, from, to));
    using single = createSession(model, ROOM);
    for (let i = 0; i < 60; i++) expect(await read(single, [IDS[i] as number])).toEqual(rowsOf(name, i, i + 1));
    whole.truncate(250);
    using fork = whole.fork();
    await forwardAsync(whole, [1, 2, 3]);
    expect(await read(fork, IDS.slice(250))).toEqual(rowsOf(name, 250));
    using restored = createSession(model, ROOM);
    importSession(restored, exportSession(single), IDS.slice(0, 60));
    expect(await read(restored, IDS.slice(60))).toEqual(rowsOf(name, 60));
  });

  test("several calls at once, which read rows beside each other", async () => {
    using model = await onDemand(name);
    const cuts = [0, 40, 120, 299];
    const sessions = cuts.map(() => createSession(model, ROOM));
    const all = await Promise.all(cuts.map((cut, i) => read(sessions[i] as Session, IDS.slice(0, cut + 1))));
    for (const [i, cut] of cuts.entries()) expect(all[i]).toEqual(rowsOf(name, 0, cut + 1));
    for (const session of sessions) session.release();
  });

  test("texts alone, together, with guesses and with drafts are those of a table in memory", async () => {
    using model = await onDemand(name);
    const prompts = [IDS.slice(0, 5), IDS.slice(40, 220), IDS.slice(7, 90)];
    const want: number[][] = [];
    for (const prompt of prompts) {
      using session = createSession(of(name), ROOM);
      want.push(await textOf(session, prompt));
    }
    const sessions = prompts.map(() => createSession(model, ROOM));
    const jobs = prompts.map((ids, i) => ({ session: sessions[i] as Session, ids, maxTokens: 12 }));
    const together: number[][] = prompts.map(() => []);
    for await (const { job, token } of generateMany(jobs)) if (token) together[jobs.indexOf(job)]?.push(token.id);
    expect(together).toEqual(want);
    for (const session of sessions) session.release();
    for (const [i, prompt] of prompts.entries()) {
      using alone = createSession(model, ROOM);
      using guessed = createSession(model, ROOM);
      using drafted = createSession(model, ROOM);
      using draft = createSession(model, ROOM);
      expect(await textOf(alone, prompt)).toEqual(want[i]);
      expect(await textOf(guessed, prompt, { draft: { ngram: 1 } })).toEqual(want[i]);
      expect(await textOf(drafted, prompt, { draft: { session: draft } })).toEqual(want[i]);
    }
  });

  test("its digest and its inspections are those of a table in memory", async () => {
    using model = await onDemand(name);
    expect(await modelDigest(model)).toBe(await modelDigest(of(name)));
    const used = kernels.usedBytes;
    const request = { ids: IDS.slice(0, 40), top: 5 };
    const measured = { ids: IDS.slice(0, 260), statistics: { topK: 2, received: true } };
    for (const asked of [request, measured]) {
      const [own, other] = [await inspect(model, "forward", asked), await inspect(of(name), "forward", asked)];
      expect(own.record).toEqual(other.record);
    }
    const texts = { texts: [IDS.slice(0, 60), IDS.slice(40, 90)] };
    const [own, other] = [await inspect(model, "detectHeads", texts), await inspect(of(name), "detectHeads", texts)];
    expect(own.record).toEqual(other.record);
    expect(kernels.usedBytes).toBe(used);
  });

  test("a synchronous call is refused by name, unless its rows were read of late", async () => {
    using model = await onDemand(name);
    using session = createSession(model, ROOM);
    await forwardAsync(session, [5, 6, 7]);
    const got = (where: string) => ({
      code: "NOT_RESIDENT",
      message: `${where}: session expected one of a model that was loaded with { perLayer: "resident" }, or an asynchronous call, got one whose inputs of layers are in a file`,
    });
    expect(() => forward(session, [5, 300])).toThrow(expect.objectContaining(got("forward")));
    expect(() => forwardWith(session, [300])).toThrow(expect.objectContaining(got("forwardWith")));
    expect(() => captureRun(session, [300])).toThrow(expect.objectContaining(got("forwardWith")));
    const used = kernels.usedBytes;
    const statistics = { layers: [0] };
    expect(() => forwardWith(session, [300], { statistics })).toThrow(expect.objectContaining(got("forwardWith")));
    expect(() => detectHeads(model, [[300, 5]])).toThrow(expect.objectContaining(got("detectHeads")));
    expect(kernels.usedBytes).toBe(used);
    expect(session.length).toBe(3);
    forward(session, [7, 5]);
    using other = createSession(of(name), ROOM);
    expect(forward(session, [6]).logits).toEqual(forward(other, [5, 6, 7, 7, 5, 6]).logits);
  });

  test("memory is that of its plan, with the table in memory or not, and free once it is released", async () => {
    const before = kernels.usedBytes;
    const model = await onDemand(name);
    expect(model.bytes).toBe(of(name).bytes);
    expect(model.bytes).toBe((await planModelFiles(counted(folderOf(name)).open, ROOM)).weights);
    expect(kernels.usedBytes - before).toBe(model.bytes);
    model.release();
    model.release();
    expect(kernels.usedBytes).toBe(before);
  });
});

// What is read.

test("loading reads nothing of the table, and its progress is that of the rest; a call reads rows alone", async () => {
  const files = folderOf("gemma4_text");
  const { counts, open } = counted(files);
  const seen: (readonly [number, number])[] = [];
  using model = await loadModel(kernels, open, { onProgress: (done, all) => seen.push([done, all]) });
  expect(seen.at(-1)?.[0]).toBe(seen.at(-1)?.[1]);
  const size = (files.get("model.safetensors") as Uint8Array).length;
  expect(counts.bytes).toBeLessThan(size - 0.99 * ROWS * ROW);
  const loaded = counts.bytes;
  using session = createSession(model, ROOM);
  const reads = counts.reads;
  // Rows 5 and 6 together.
  await forwardAsync(session, [5, 300, 6, 8, 100, 6]);
  expect([counts.bytes - loaded, counts.reads - reads]).toEqual([5 * ROW, 4]);
  await forwardAsync(session, [8, 100]);
  expect(counts.bytes - loaded).toBe(5 * ROW);
});

test("bytes in memory are read where they lie, by synchronous calls too", async () => {
  const files = folderOf("gemma4_text");
  const copies = vi.spyOn(Uint8Array.prototype, "slice");
  using model = await loadModel(kernels, (name) => files.get(name));
  const most = Math.max(0, ...copies.mock.results.map(({ value }) => (value as Uint8Array).length));
  copies.mockRestore();
  expect(most).toBeLessThan(2 ** 20);
  using session = createSession(model, ROOM);
  expect(bitsOf(forward(session, IDS, { rows: "all" }).logits)).toBe(rowsOf("gemma4_text"));
});

test("bytes that are transferred while the model lives are missed by name, and the session is as it was", async () => {
  const files = new Map(Array.from(folderOf("gemma4_text"), ([name, bytes]) => [name, bytes.slice()]));
  using model = await loadModel(kernels, (name) => files.get(name));
  using session = createSession(model, ROOM);
  forward(session, [1, 2]);
  structuredClone(0, { transfer: [files.get("model.safetensors")?.buffer as ArrayBuffer] });
  const text = "loadModel: source expected bytes that stay while the model does, got transferred ones";
  expect(() => forward(session, [3])).toThrow(text);
  expect(session.length).toBe(2);
});

describe("a table is read from", () => {
  const name = "gemma4_text";
  const expectBits = async (source: Parameters<typeof loadModel>[1], options: LoadModelOptions = {}) => {
    using model = await loadModel(kernels, source, options);
    expect(model.weights.perLayer?.stored?.held([300])).toBeUndefined();
    using session = createSession(model, ROOM);
    expect(await read(session, IDS)).toEqual(rowsOf(name));
  };
  const write = (own: string, files: ReadonlyMap<string, Uint8Array>) => {
    const folder = mkdtempSync(join(place, own));
    for (const [file, bytes] of files) writeFileSync(join(folder, file), bytes);
    return folder;
  };
  /** A model whose tensors of odd numbers are in a file of their own. */
  const shards = (): ReadonlyMap<string, Uint8Array> => {
    const parts = [new Map(), new Map()] as const;
    for (const [i, [tensor, value]] of [...tensorsOf(name)].entries()) parts[i % 2]?.set(tensor, value);
    const weight_map = Object.fromEntries(
      parts.flatMap((part, i) => [...part.keys()].map((key) => [key, `${i}.safetensors`])),
    );
    return new Map([
      ["config.json", json(MODELS[name])],
      ["model.safetensors.index.json", json({ weight_map })],
      ...parts.map((part, i) => [`${i}.safetensors`, writeSafetensors(part)] as const),
    ]);
  };
  const ggufFile = (change: (tensors: ReturnType<typeof ggufModel>["tensors"]) => void = () => {}) => {
    const parts = ggufModel(MODELS[name], tensorsOf(name));
    change(parts.tensors);
    return writeGguf(parts);
  };

  test("a folder, whose file is closed with the model", async () => {
    const folder = write("folder", folderOf(name));
    const isOpen = () => openFiles().includes(join(folder, "model.safetensors"));
    await expectBits(folder);
    if (process.platform !== "linux") return;
    await until(() => !isOpen());
    const model = await loadModel(kernels, folder);
    expect(isOpen()).toBe(true);
    model.release();
    model.release();
    await until(() => !isOpen());
    // Nothing is left of a model that holds the table, nor of one that failed.
    using _ = await loadModel(kernels, folder, { perLayer: "resident" });
    expect(isOpen()).toBe(false);
    await expect(loadModel(kernels, folder, { maxBytes: 10 })).rejects.toMatchObject({ code: "OUT_OF_MEMORY" });
    expect(isOpen()).toBe(false);
  });

  test("several safetensors files", () => expectBits(write("shards", shards())));

  test("a GGUF file", () => expectBits(join(write("gguf", new Map([["m.gguf", ggufFile()]])), "m.gguf"), { gguf }));

  test("files that a page was given, and with a digest that is checked", async () => {
    const files = [...folderOf(name)].map(([own, bytes]) => new File([bytes as Uint8Array<ArrayBuffer>], own));
    await expectBits(files);
    const integrity = Object.fromEntries(
      await Promise.all([...folderOf(name)].map(async ([own, bytes]) => [own, await sha256(bytes)] as const)),
    );
    await expectBits(files, { integrity });
  });

  test("GGUF tensors of blocks, of which single rows are decoded", async () => {
    const { metadata, tensors } = ggufModel(MODELS[name], tensorsOf(name));
    const blocks = tensors.map((own) => {
      if (own.name !== "per_layer_token_embd.weight") return own;
      return { ...own, type: 8, bytes: toQ8_0(new Float32Array(own.bytes.slice().buffer)) };
    });
    const { open } = counted(new Map([["m.gguf", writeGguf({ metadata, tensors: blocks })]]));
    const source = open("m.gguf") as ByteSource;
    using own = await loadModel(kernels, source, { gguf });
    using other = await loadModel(kernels, source, { gguf, perLayer: "resident" });
    using mine = createSession(own, ROOM);
    using theirs = createSession(other, ROOM);
    expect(await read(mine, IDS)).toBe(bitsOf(forward(theirs, IDS, { rows: "all" }).logits));
  });

  test("a server, by ranges of rows; not when the signal of loading is aborted later, and not a changed file", async () => {
    const files = folderOf(name);
    const counts = { bytes: 0 };
    const state = { mark: '"1"', status: 206 };
    const server = createServer((request, response) => {
      const bytes = files.get((request.url as string).slice(1));
      if (!bytes) return void response.writeHead(404).end();
      if (state.status !== 206) return void response.writeHead(state.status).end();
      const [, begin, last] = /bytes=(\d+)-(\d+)/.exec(request.headers.range as string) as unknown as [
        string,
        string,
        string,
      ];
      const end = Math.min(Number(last) + 1, bytes.length);
      counts.bytes += end - Number(begin);
      const range = `bytes ${begin}-${end - 1}/${bytes.length}`;
      response.writeHead(206, { "Content-Range": range, ETag: state.mark }).end(bytes.subarray(Number(begin), end));
    });
    const url = await listening(server);
    const abort = new AbortController();
    using model = await loadModel(kernels, url, { signal: abort.signal });
    abort.abort();
    const loaded = counts.bytes;
    using session = createSession(model, ROOM);
    await forwardAsync(session, [300, 302]);
    expect(counts.bytes - loaded).toBe(2 * ROW);
    const states: Partial<typeof state>[] = [{ status: 403 }, { mark: '"2"' }];
    for (const change of states) {
      Object.assign(state, { mark: '"1"', status: 206 }, change);
      const failure = await forwardAsync(session, [200]).catch((error: Error) => error);
      expect(failure).toMatchObject({
        code: "BAD_FILE",
        message: expect.stringMatching(/^forwardAsync: url .* expected/),
      });
      expect(session.length).toBe(2);
    }
    Object.assign(state, { mark: '"1"' });
    await forwardAsync(session, [200]);
    await closed(server);
    await forwardAsync(session, [200, 300]);

    const kept = new Map<string, Uint8Array>();
    const store = createStore({
      read: async (key) => kept.get(key),
      write: async (key, bytes) => void kept.set(key, bytes.slice()),
      remove: async (key) => void kept.delete(key),
    });
    const again = createServer(server.listeners("request")[0] as () => void);
    const other = await listening(again);
    await expectBits(other, { store });
    await closed(again);
    // What was read once is there without the server.
    await expectBits(other, { store });
  });
});

// What fails, and what ends a call.

/** A model whose reads wait for `gate`, once it was loaded, and where row LATE of its table lies. */
async function gated() {
  const gate: { wait?: ((begin: number, end: number) => unknown) | undefined } = {};
  const files = folderOf("gemma3n_text");
  const { open } = counted(files, (begin, end) => gate.wait?.(begin, end));
  const { tensors } = await openSafetensors(files.get("model.safetensors") as Uint8Array);
  const { offset } = tensors.get("model.embed_tokens_per_layer.weight") as { readonly offset: number };
  return { gate, model: await loadModel(kernels, open), late: offset + LATE * ROW };
}

test("a read that fails in the middle of a call leaves the session as it was, by any call", async () => {
  const { gate, model, late } = await gated();
  using session = createSession(model, ROOM);
  expect(await read(session, IDS.slice(0, 20))).toEqual(rowsOf("gemma3n_text", 0, 20));
  const calls: Record<string, () => Promise<unknown>> = {
    forwardAsync: () => read(session, IDS.slice(20)),
    generate: () => textOf(session, IDS.slice(20)),
    generateMany: async () => {
      for await (const _ of generateMany([{ session, ids: IDS.slice(20) }]));
    },
    draft: () => textOf(session, IDS.slice(20), { draft: { ngram: 1 } }),
  };
  for (const [name, call] of Object.entries(calls)) {
    using other = createSession(model, ROOM);
    await read(other, IDS.slice(0, 250));
    expect(model.weights.perLayer?.stored?.held([LATE])).toBeUndefined();
    const used = kernels.usedBytes;
    gate.wait = (begin, end) => {
      if (begin <= late && late < end) throw new Error("the disk is gone");
    };
    const error = await call().catch((thrown: Error) => thrown);
    expect(error, name).toMatchObject({ code: "BAD_FILE", message: expect.stringContaining("the disk is gone") });
    // Of a prompt among others, the chunks before have been read.
    expect([name, session.length]).toEqual([name, name === "generateMany" ? 20 + 256 : 20]);
    expect(kernels.usedBytes).toBe(used);
    session.truncate(20);
    gate.wait = undefined;
    expect(await read(session, IDS.slice(20)), name).toEqual(rowsOf("gemma3n_text", 20));
    session.truncate(20);
  }
  model.release();
});

test("a read that fails at once in an inspection is an error of its call, and of nobody else", async () => {
  const { gate, model } = await gated();
  const unheard: unknown[] = [];
  const hear = (error: unknown) => unheard.push(error);
  process.on("unhandledRejection", hear);
  let now = 0;
  // Every step takes longer than a slice.
  const clock = vi.spyOn(performance, "now").mockImplementation(() => (now += 100));
  gate.wait = () => {
    throw new Error("the disk is gone");
  };
  for (let i = 0; i < 5; i++)
    await expect(inspect(model, "forward", { ids: [1, 2, 3] })).rejects.toThrow("the disk is gone");
  clock.mockRestore();
  await new Promise((resolve) => setTimeout(resolve, 10));
  process.off("unhandledRejection", hear);
  expect(unheard).toEqual([]);
  model.release();
});

test("a call that waits for a read ends with its signal, or with its model, and not later", async () => {
  const { gate, model } = await gated();
  using session = createSession(model, ROOM);
  let fail = (_: Error) => {};
  const hang = new Promise<void>((_, reject) => {
    fail = reject;
  });
  gate.wait = () => hang;
  const abort = new AbortController();
  const aborted = forwardAsync(session, IDS, { signal: abort.signal });
  await new Promise((resolve) => setTimeout(resolve, 5));
  expect(() => session.truncate(0)).toThrow(expect.objectContaining({ code: "IN_USE" }));
  abort.abort(new Error("enough"));
  await expect(aborted).rejects.toThrow("enough");
  expect(session.length).toBe(0);
  const end = new AbortController();
  const text = textOf(session, IDS, { signal: end.signal });
  end.abort(new Error("enough of text"));
  await expect(text).rejects.toThrow("enough of text");
  const waits = forwardAsync(session, IDS);
  await new Promise((resolve) => setTimeout(resolve, 5));
  model.release();
  // Of a file that was closed with the model, nothing can be read.
  gate.wait = undefined;
  fail(new Error("closed"));
  await expect(waits).rejects.toMatchObject({ code: "RELEASED" });
});

test("an encoder holds the table, and its synchronous calls read it", async () => {
  const config = { ...MODELS.gemma4_text, num_kv_shared_layers: 0 };
  const statesOf = async (tensors: ReadonlyMap<string, Tensor>) => {
    const weights = writeSafetensors(tensors);
    const { open } = counted(
      new Map([
        ["config.json", json(config)],
        ["model.safetensors", weights],
      ]),
    );
    using model = await loadEncoder(kernels, open);
    return encode(model, [IDS.slice(0, 40)]);
  };
  const tensors = tinyTensors(config);
  const states = await statesOf(tensors);
  const table = tensors.get("model.embed_tokens_per_layer.weight") as Tensor;
  table.data.subarray((IDS[1] as number) * 5 * WIDE).fill(0, 0, 5 * WIDE);
  expect(await statesOf(tensors)).not.toEqual(states);
});

test("a value of the option that is none is refused", async () => {
  const wrong = onDemand("gemma4_text", { perLayer: "none" as never });
  await expect(wrong).rejects.toThrow('loadModel: options.perLayer expected "on-demand" or "resident", got "none"');
});

const listening = (server: Server) =>
  new Promise<string>((resolve) => {
    server.listen(0, "127.0.0.1", () => resolve(`http://127.0.0.1:${(server.address() as { port: number }).port}/`));
  });
const closed = (server: Server) => {
  server.closeAllConnections();
  return new Promise((resolve) => server.close(resolve));
};
const sha256 = async (bytes: Uint8Array) =>
  Buffer.from(await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>)).toString("hex");
