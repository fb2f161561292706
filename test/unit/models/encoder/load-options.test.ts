// What loadEncoder and loadSeq2Seq share with loadModel: limits of memory, sources, stores, progress and signals.

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Kernels } from "../../../../src/entries/core.ts";
import { createFolderStore, type HeadwiseError, type ModelSource } from "../../../../src/entries/models.ts";
import { WEIGHT_FORMATS } from "../../../../src/layers/linear/formats.ts";
import { forward } from "../../../../src/models/decoder/forward.ts";
import { embed, encode } from "../../../../src/models/encoder/encode.ts";
import { loadEncoder, loadSeq2Seq, planEncoder, readEncoder } from "../../../../src/models/encoder/load.ts";
import { readSource } from "../../../../src/models/encoder/read-source.ts";
import { kernelsOf } from "../../../support/layers.ts";
import { serveFolder, urlOf } from "../../../support/range-server.ts";
import { shortenWaits } from "../../../support/short-waits.ts";
import { encoderFolder, TINY_ENCODERS, type TinyEncoder } from "../../../support/tiny-encoders.ts";
import { tinyFolder, tinyTensors } from "../../../support/tiny-models.ts";
import { seq2seqFolder, sourceFor, TINY_SEQ2SEQ, type TinySeq2Seq } from "../../../support/tiny-seq2seq.ts";

shortenWaits();

let kernels: Kernels;
beforeAll(async () => {
  kernels = await kernelsOf("relaxed");
});
afterAll(() => kernels.release());

const IDS = [5, 6, 7];

/** Loads a model of either kind, and runs it. */
const KINDS = {
  loadEncoder: {
    folder: encoderFolder("bert"),
    async run(source: ModelSource, options: object = {}) {
      using model = await loadEncoder(kernels, source, options);
      return encode(model, [IDS])[0] as Float32Array;
    },
  },
  loadSeq2Seq: {
    folder: seq2seqFolder("bart"),
    async run(source: ModelSource, options: object = {}) {
      using model = await loadSeq2Seq(kernels, source, options);
      using session = await readSource(model, IDS);
      return forward(session, [1, 2]).logits;
    },
  },
} as const;
const FILES = ["config.json", "model.safetensors"];

/** What loading says, and the bytes of tensors that were read before. All memory is free afterwards. */
async function refusal(load: (onProgress: (done: number) => void) => Promise<{ release(): void }>) {
  const before = kernels.usedBytes;
  let read = 0;
  const error = await load((done) => {
    read = done;
  }).then(
    (model) => model.release(),
    (cause: HeadwiseError) => cause,
  );
  expect(kernels.usedBytes).toBe(before);
  return { error, read };
}

describe.each(Object.entries(KINDS))("%s", (name, { folder, run }) => {
  test("a path, a URL, a server, files and a source of bytes give the same bits", async () => {
    const want = await run(folder);
    const bytesOf = (file: string) => (folder(file) as Uint8Array).slice();
    const path = await mkdtemp(join(tmpdir(), "headwise-encoder-"));
    for (const file of FILES) await writeFile(join(path, file), bytesOf(file));
    const server = await serveFolder((file) => folder(file));
    const ofBytes = (bytes: Uint8Array) => ({
      size: bytes.length,
      read: async (at: number, length: number) => bytes.slice(at, at + length),
    });
    const sources: ModelSource[] = [
      ...[path, new URL(`file://${path}`), `${urlOf(server)}/`, new URL(urlOf(server))],
      FILES.map((file) => new File([bytesOf(file)], file)),
      async (file) => (FILES.includes(file) ? new Blob([bytesOf(file)]) : undefined),
      (file) => (FILES.includes(file) ? ofBytes(bytesOf(file)) : undefined),
    ];
    for (const source of sources) expect(await run(source)).toEqual(want);
    server.close();
    await rm(path, { recursive: true });
  });

  test("what a store has kept is not requested again", async () => {
    const server = await serveFolder((file) => folder(file));
    const path = await mkdtemp(join(tmpdir(), "headwise-store-"));
    const url = urlOf(server);
    const store = createFolderStore(path, { validate: false });
    const want = await run(url, { store });
    server.close();
    expect(await run(url, { store })).toEqual(want);
    await expect(run(url)).rejects.toMatchObject({ code: "BAD_FILE" });
    await rm(path, { recursive: true });
  });

  test("progress counts the bytes of all tensors, and a signal ends loading and frees all", async () => {
    const seen: number[] = [];
    await run(folder, { onProgress: (done: number, all: number) => seen.push(done / all) });
    expect([seen.length > 5, seen.at(-1)]).toEqual([true, 1]);
    expect(seen).toEqual([...seen].sort((a, b) => a - b));
    const before = kernels.usedBytes;
    const stop = new AbortController();
    const onProgress = (done: number, all: number) => done > all / 2 && stop.abort(new Error("enough"));
    await expect(run(folder, { onProgress, signal: stop.signal })).rejects.toThrow("enough");
    expect(kernels.usedBytes).toBe(before);
  });

  test.each([
    [{ maxBytes: -1 }, "options.maxBytes expected an integer from 0 to"],
    [{ onProgress: 1 }, "onProgress expected a function, got 1"],
    [{ signal: {} }, "signal expected an AbortSignal"],
    [{ store: {} }, "options.store.open expected a function, got undefined"],
    [{ maxByte: 1 }, "options expected only weights, "],
  ])("%o is refused before anything is read", async (options, message) => {
    const neverRead = () => expect.unreachable();
    await expect(run(neverRead, options)).rejects.toThrow(`${name}: ${message}`);
  });
});

describe("maxBytes of loadEncoder", () => {
  /** A folder without what is before the head, which `planEncoder` does not count. */
  const headless = (config: object) => {
    const heads = /^(cls|lm_head|vocab_transform|vocab_layer_norm|vocab_projector|predictions|head|decoder)\./;
    return tinyFolder(config, new Map([...tinyTensors(config, 1, readEncoder)].filter(([name]) => !heads.test(name))));
  };

  test.each(Object.keys(TINY_ENCODERS) as TinyEncoder[])(
    "%s loads with the bytes of its plan, and not with one less",
    async (name) => {
      const { total } = planEncoder(TINY_ENCODERS[name]);
      const source = headless(TINY_ENCODERS[name]);
      const load = (maxBytes: number) => (onProgress: (done: number) => void) =>
        loadEncoder(kernels, source, { maxBytes, onProgress });
      expect((await refusal(load(total))).error).toBeUndefined();
      const { error, read } = await refusal(load(total - 1));
      expect([error?.code, read]).toEqual(["OUT_OF_MEMORY", 0]);
      expect(error?.message).toContain(`loadEncoder: options.maxBytes expected ${total} or more (`);
    },
  );

  test("the error names the bytes, what they are for, and formats that fit", async () => {
    const config = { ...TINY_ENCODERS.bert, hidden_size: 128, intermediate_size: 512, vocab_size: 9001 };
    const source = headless(config);
    const { weights, scratch, total } = planEncoder(config);
    const f16 = planEncoder(config, { weights: "f16" }).total;
    const said = async (maxBytes: number) =>
      (await refusal((onProgress) => loadEncoder(kernels, source, { maxBytes, onProgress }))).error?.message;
    expect(await said(f16)).toBe(
      `loadEncoder: options.maxBytes expected ${total} or more (${weights} of weights, ${scratch} of calls on texts of 320 ` +
        `tokens), got ${f16}; what fits: weights "f16", or weights "q8", or weights "q4"`,
    );
    expect(await said(1000)).toMatch(/what fits: no format$/);
  });
});

describe("maxBytes of loadSeq2Seq", () => {
  const most = 320;

  /** The limit that the error of a limit of 0 names. */
  async function limitOf(name: TinySeq2Seq, options: object): Promise<number> {
    const load = () => loadSeq2Seq(kernels, seq2seqFolder(name), { ...options, maxBytes: 0 });
    const { error, read } = await refusal(load);
    expect([error?.code, read]).toEqual(["OUT_OF_MEMORY", 0]);
    return Number(/options\.maxBytes expected (\d+) or more/.exec(error?.message ?? "")?.[1]);
  }

  const cases = (Object.keys(TINY_SEQ2SEQ) as TinySeq2Seq[]).flatMap((name) =>
    ([undefined, ...WEIGHT_FORMATS] as const).map((weights) => [name, weights] as const),
  );

  test.each(cases)(
    "%s, weights %s: a source, a session and its calls take at most the limit",
    async (name, weights) => {
      const own = await kernelsOf("relaxed");
      const options = { weights, maxSeqLen: 300 };
      const maxBytes = await limitOf(name, options);
      const used = own.usedBytes;
      const model = await loadSeq2Seq(own, seq2seqFolder(name), { ...options, maxBytes });
      const sourceLength = name === "bart" ? most : 300;
      let peak = 0;
      const note = () => {
        peak = Math.max(peak, own.usedBytes - used);
      };
      const read = () => readSource(model, sourceFor(name, sourceLength), { sliceMs: 1e-3, onProgress: note });
      const first = await read();
      const ids = Array.from({ length: 300 }, (_, i) => (i * 17 + 3) % 67);
      forward(first, ids);
      note();
      first.release();
      await read();
      note();
      expect(peak).toBeLessThanOrEqual(maxBytes);
      expect(peak).toBeGreaterThan(0.6 * maxBytes);
      own.release();
    },
  );

  test("the error says what is for what, and shorter sessions that fit", async () => {
    const maxBytes = (await limitOf("t5", { maxSeqLen: 300 })) - 1;
    const load = () => loadSeq2Seq(kernels, seq2seqFolder("t5"), { maxSeqLen: 300, maxBytes });
    const { error } = await refusal(load);
    expect(error?.message).toMatch(
      /\(\d+ of weights, \d+ of a session of 300 tokens with a source of 300, \d+ of calls\), got \d+; what fits: maxSeqLen \d+$/,
    );
    const maxSeqLen = Number(/\d+$/.exec(error?.message ?? ""));
    (await loadSeq2Seq(kernels, seq2seqFolder("t5"), { maxSeqLen, maxBytes })).release();
  });
});

test("vectors of a model whose limit was met need no more than the limit", async () => {
  const own = await kernelsOf("relaxed");
  const used = own.usedBytes;
  const { total } = planEncoder(TINY_ENCODERS.nomic_bert, { weights: "q8" });
  const model = await loadEncoder(own, encoderFolder("nomic_bert"), { weights: "q8", maxBytes: total });
  embed(
    model,
    [1, 300, 512, 7, 128].map((length) => Array.from({ length }, (_, i) => i % 67)),
  );
  expect(own.usedBytes - used).toBeLessThanOrEqual(total);
  own.release();
});
