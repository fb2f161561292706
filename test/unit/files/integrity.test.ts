// Files whose SHA-256 is stated: what is taken, what is refused, and what stays of it.

import { createHash } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import type { Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import type { Kernels } from "../../../src/entries/core.ts";
import { createStore, HeadwiseError } from "../../../src/entries/models.ts";
import { loadTokenizer } from "../../../src/entries/text.ts";
import type { ByteSource } from "../../../src/files/byte-source.ts";
import { FileChecks } from "../../../src/files/model-files.ts";
import { HeldPieces } from "../../../src/files/read-ahead.ts";
import { forward } from "../../../src/models/decoder/forward.ts";
import { createSession } from "../../../src/models/decoder/session.ts";
import { type LoadModelOptions, loadModel } from "../../../src/models/load/load-model.ts";
import { gguf as ggufReader } from "../../../src/models/spec/read-gguf.ts";
import { kernelsOf } from "../../support/layers.ts";
import { serveFolder } from "../../support/range-server.ts";
import { sampled } from "../../support/sampled.ts";
import { tinyGguf } from "../../support/tiny-gguf.ts";
import { TINY, tinyFolder, tinyTensors } from "../../support/tiny-models.ts";

const PIECE = 2 ** 22;
const sha256 = (bytes: Uint8Array, form: "hex" | "base64" = "hex") => createHash("sha256").update(bytes).digest(form);

const config = { ...TINY.llama, vocab_size: 100_003, rms_norm_eps: 2 ** -14 };
const tensors = tinyTensors(config);
const parts = tinyFolder(config, tensors);
const whole = tinyGguf(config, tensors);
const NAMES = ["config.json", "model.safetensors"];
const partOf = (name: string) => parts(name) as Uint8Array;
const DIGESTS = Object.fromEntries(NAMES.map((name) => [name, sha256(partOf(name))]));

let kernels: Kernels;
let folder = "";
let server: Server;
let address = "";
/** What the server gives instead of a file. */
const instead = new Map<string, Uint8Array | undefined>();
beforeAll(async () => {
  kernels = await kernelsOf("relaxed");
  folder = await mkdtemp(join(tmpdir(), "headwise-integrity-"));
  await writeFile(join(folder, "model.gguf"), whole);
  for (const name of NAMES) await writeFile(join(folder, name), partOf(name));
  const fileOf = (name: string) => (name === "model.gguf" ? whole : parts(name));
  server = await serveFolder((name) => (instead.has(name) ? instead.get(name) : fileOf(name)));
  address = `http://127.0.0.1:${(server.address() as { port: number }).port}/`;
});
afterAll(async () => {
  kernels.release();
  server.closeAllConnections();
  server.close();
  await rm(folder, { recursive: true });
});

async function logitsOf(source: Parameters<typeof loadModel>[1], options: LoadModelOptions = {}) {
  using model = await loadModel(kernels, source, { gguf: ggufReader, ...options });
  using session = createSession(model, { maxSeqLen: 9 });
  return forward(session, [5, 6, 7]).logits;
}

function memoryStore() {
  const kept = new Map<string, Uint8Array>();
  const store = createStore({
    read: async (key) => kept.get(key),
    write: async (key, bytes) => void kept.set(key, bytes.slice()),
    remove: async (key) => void kept.delete(key),
  });
  return { kept, store };
}

describe("loadModel with integrity", () => {
  test.each([
    ["hex", () => sha256(whole)],
    ["capitals", () => sha256(whole).toUpperCase()],
    ["sha256:hex", () => `sha256:${sha256(whole)}`],
    ["sha256-base64", () => `sha256-${sha256(whole, "base64")}`],
    ["an object", () => ({ "model.gguf": sha256(whole), "other.gguf": "0".repeat(64) })],
  ])("gives a GGUF file with the stated digest the same bits, as %s", async (form, stated) => {
    const want = await logitsOf(whole);
    const integrity = stated();
    const url = `${address}model.gguf`;
    expect(await logitsOf(url, { integrity })).toEqual(want);
    if (typeof integrity !== "string") return;
    const others = [join(folder, "model.gguf"), whole, new Blob([whole])];
    for (const source of sampled(others, 1, undefined, form.length))
      expect(await logitsOf(source, { integrity })).toEqual(want);
  });

  test("gives a folder with the stated digests the same bits, from a server also with a store", async () => {
    const want = await logitsOf(parts);
    const { store } = memoryStore();
    for (const source of [parts, folder, address])
      expect(await logitsOf(source, { integrity: DIGESTS, store })).toEqual(want);
    expect(await logitsOf(address, { integrity: DIGESTS, store })).toEqual(want);
  });

  /** The middle of the weights, padding behind the tensors' names, the first byte, and the last one. */
  test.each([
    ["a weight", 2_000_000],
    ["the format's name", 0],
    ["the last byte", -1],
  ])("refuses a file with another byte in %s before it is given out, and keeps nothing of it", async (_, at) => {
    const changed = whole.slice();
    const index = at < 0 ? changed.length + at : at;
    changed.set([(changed[index] as number) ^ 1], index);
    instead.set("model.gguf", changed);
    const { store, kept } = memoryStore();
    const used = kernels.usedBytes;
    const failing = logitsOf(`${address}model.gguf`, { integrity: sha256(whole), store });
    await expect(failing).rejects.toMatchObject({
      code: "BAD_FILE",
      message: `loadModel: file "model.gguf" expected SHA-256 ${sha256(whole)} (options.integrity), got ${sha256(changed)}`,
    });
    expect([kernels.usedBytes, kept.size]).toEqual([used, 0]);
    instead.clear();
    const good = { integrity: sha256(whole), store };
    expect(await logitsOf(`${address}model.gguf`, good)).toEqual(await logitsOf(whole));
  });

  test("refuses one changed file of a folder, also where that makes the model another one", async () => {
    const other = JSON.parse(new TextDecoder().decode(partOf("config.json")));
    for (const fields of [{ rms_norm_eps: 0.5 }, { hidden_size: 3 }, { hidden_size: "x" }]) {
      const changed = new TextEncoder().encode(JSON.stringify({ ...other, ...fields }));
      await expect(
        logitsOf((name) => (name === "config.json" ? changed : parts(name)), { integrity: DIGESTS }),
      ).rejects.toThrow(/^loadModel: file "config.json" expected SHA-256 /);
    }
  });

  test("a server that is away is named, and what came of the right file stays", async () => {
    const { store, kept } = memoryStore();
    const integrity = sha256(whole);
    await logitsOf(`${address}model.gguf`, { integrity, store });
    const pieces = kept.size;
    kept.delete([...kept.keys()].at(-1) as string);
    instead.set("model.gguf", undefined);
    await expect(logitsOf(`${address}model.gguf`, { integrity, store })).rejects.toThrow("got 404");
    expect(kept.size).toBe(pieces - 1);
    instead.clear();
  });

  /** Loads a file whose last piece lies far behind all tensors, so that it is read in the end, and calls `onLast` then. */
  async function loadUntil(onLast: () => void, used: Kernels, signal?: AbortSignal) {
    const padded = new Uint8Array(6 * PIECE + whole.length);
    padded.set(whole);
    const source: ByteSource = {
      size: padded.length,
      async read(at, length) {
        if (at + length === padded.length) onLast();
        return padded.subarray(at, at + length);
      },
    };
    return loadModel(used, source, { gguf: ggufReader, integrity: sha256(padded), signal });
  }

  test("a signal ends loading while the rest of a file is read, and frees all", async () => {
    const before = kernels.usedBytes;
    const stop = new AbortController();
    await expect(loadUntil(() => stop.abort(new Error("enough")), kernels, stop.signal)).rejects.toThrow("enough");
    expect(kernels.usedBytes).toBe(before);
  });

  test("kernels that are released while the rest of a file is read end it", async () => {
    const own = await kernelsOf("simd");
    await expect(loadUntil(() => own.release(), own)).rejects.toMatchObject({ code: "RELEASED" });
  });

  test("options of another form, and files without a digest, are refused by name", async () => {
    const rule = 'a SHA-256, as 64 hex digits or as "sha256-" and base64';
    const ofEach: readonly (readonly [unknown, string])[] = [
      ["abc", `options.integrity expected ${rule}, got "abc"`],
      [5, `options.integrity expected ${rule}, got 5`],
      [`sha384-${"A".repeat(43)}=`, `options.integrity expected ${rule}, got "sha384-AAA`],
      [{ "config.json": 5 }, `options.integrity["config.json"] expected ${rule}, got 5`],
      [
        { "config.json": DIGESTS["config.json"] },
        'options.integrity expected one of file "model.safetensors" too, got none',
      ],
      [
        DIGESTS["config.json"],
        "options.integrity expected digests by the names of files, as several are read, got a single one",
      ],
    ];
    for (const [integrity, text] of ofEach)
      await expect(logitsOf(parts, { integrity: integrity as never })).rejects.toThrow(`loadModel: ${text}`);
  });
});

test("loadTokenizer refuses a changed file, and takes those with their digests", async () => {
  const vocab = { "<unk>": 0, the: 1, cat: 2 };
  const tokenizer = {
    model: {
      type: "WordPiece",
      unk_token: "<unk>",
      continuing_subword_prefix: "##",
      max_input_chars_per_word: 9,
      vocab,
    },
    ...{ added_tokens: [], normalizer: null, pre_tokenizer: { type: "Whitespace" }, post_processor: null },
    decoder: { type: "WordPiece", prefix: "##", cleanup: false },
  };
  const bytes = new TextEncoder().encode(JSON.stringify(tokenizer));
  const find = (name: string) => (name === "tokenizer.json" ? bytes : undefined);
  const integrity = { "tokenizer.json": sha256(bytes) };
  expect((await loadTokenizer(find, { integrity })).encode("the cat")).toEqual([1, 2]);
  bytes[bytes.length - 1] = 32;
  await expect(loadTokenizer(find, { integrity })).rejects.toThrow(
    `loadTokenizer: file "tokenizer.json" expected SHA-256 ${integrity["tokenizer.json"]} (options.integrity), got `,
  );
});

describe("a file that is followed", () => {
  const bytes = new Uint8Array(20 * PIECE + 9);
  for (let i = 0; i < bytes.length; i += 1000) bytes[i] = i >> 10;
  const open = async (source: ByteSource) => {
    const checks = new FileChecks("load", sha256(bytes));
    const found = await checks.following(async () => source, new HeldPieces())("file");
    return { checks, read: (found as ByteSource).read };
  };

  test("may be read in any order, in part or not at all", async () => {
    const source: ByteSource = { size: bytes.length, read: async (at, length) => bytes.subarray(at, at + length) };
    for (const order of [[], [19, 3, 7], Array.from({ length: 20 }, (_, i) => 19 - i)]) {
      const { checks, read } = await open(source);
      for (const index of order) await read(index * PIECE, PIECE);
      await checks.verify();
    }
  });

  test.each<[string, unknown, number]>([
    ["to its end after a failure that it may explain", new HeadwiseError("BAD_FILE", "load: no tensors"), 21],
    ["no further after one of memory", new HeadwiseError("OUT_OF_MEMORY", "load: full"), 1],
    ["no further after one of the program that loads it", new Error("enough"), 1],
  ])("is read %s", async (_, failure, want) => {
    let reads = 0;
    const { checks, read } = await open({
      size: bytes.length,
      read: async (at, length) => {
        reads++;
        return bytes.subarray(at, at + length);
      },
    });
    await read(0, 1);
    await checks.verify(failure);
    expect(reads).toBe(want);
  });

  test("has the digest of each piece computed once, also of those that are read in the end", async () => {
    const digest = vi.spyOn(crypto.subtle, "digest");
    const { checks, read } = await open({
      size: bytes.length,
      read: async (at, length) => bytes.subarray(at, at + length),
    });
    await read(3 * PIECE, 1);
    await checks.verify();
    expect(digest).toHaveBeenCalledTimes(21);
    digest.mockRestore();
  });

  test("must be the same when a piece is read again", async () => {
    let reads = 0;
    const source: ByteSource = {
      size: bytes.length,
      // The first time piece 19 is read, it is another one.
      read: async (at, length) =>
        at === 19 * PIECE && reads++ === 0 ? new Uint8Array(length).fill(7) : bytes.subarray(at, at + length),
    };
    const { checks, read } = await open(source);
    // Others take its place meanwhile.
    for (let index = 19; index >= 0; index--) await read(index * PIECE, 1);
    await expect(checks.verify()).rejects.toThrow(
      'load: file "file" expected to stay as it was while it was read, got other bytes',
    );
  });
});
