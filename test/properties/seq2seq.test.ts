// What holds for models with two halves: the bits of logits do not depend on how tokens are cut into calls, on other sessions or
// on threads, and sources are projected once.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Kernels } from "../../src/entries/core.ts";
import { forward, forwardAsync } from "../../src/models/decoder/forward.ts";
import { createSession, type Session } from "../../src/models/decoder/session.ts";
import { encode } from "../../src/models/encoder/encode.ts";
import { loadSeq2Seq, type Seq2Seq } from "../../src/models/encoder/load.ts";
import { readSource } from "../../src/models/encoder/read-source.ts";
import { generate } from "../../src/models/generate/generate.ts";
import { type GenerationJob, generateMany } from "../../src/models/generate/generate-many.ts";
import { kernelsOf, shippedBuilds, threadedKernels } from "../support/layers.ts";
import { runSeq2SeqOracle } from "../support/seq2seq-oracle.ts";
import { seq2seqFolder, seq2seqTensors, sourceFor, TINY_SEQ2SEQ, type TinySeq2Seq } from "../support/tiny-seq2seq.ts";

const NAMES = Object.keys(TINY_SEQ2SEQ) as TinySeq2Seq[];
const prompt = Array.from({ length: 40 }, (_, i) => (i * 29 + 5) % 67);

describe.each(shippedBuilds)("models with two halves in the %s build", (build) => {
  let kernels: Kernels;
  const models = new Map<TinySeq2Seq, Seq2Seq>();
  beforeAll(async () => {
    kernels = await kernelsOf(build);
    for (const name of NAMES) models.set(name, await loadSeq2Seq(kernels, seq2seqFolder(name)));
  });
  afterAll(() => kernels.release());
  const modelOf = (name: TinySeq2Seq) => models.get(name) as Seq2Seq;

  test.each(NAMES)("%s: states and logits are within 1e-5 of the largest of float64", async (name) => {
    const model = modelOf(name);
    const source = sourceFor(name, 30);
    const { states, logits } = runSeq2SeqOracle(name, seq2seqTensors(name), source, prompt);
    expectNear(encode(model, [source])[0], states.flat());
    using session = await readSource(model, source, { maxSeqLen: 64 });
    expectNear(forward(session, prompt, { rows: "all" }).logits, logits.flat());
  });

  test.each(NAMES)("%s: tokens at once, in chunks, one by one and in slices have the same bits", async (name) => {
    const model = modelOf(name);
    const ids = Array.from({ length: 290 }, (_, i) => (i * 17 + 3) % 67);
    const open = () => readSource(model, sourceFor(name, 270), { maxSeqLen: 300 });
    using whole = await open();
    using chunks = await open();
    using single = await open();
    const { logits } = forward(whole, ids, { rows: "all" });
    for (let at = 0; at < ids.length; at += 101) {
      const part = forward(chunks, ids.slice(at, at + 101), { rows: "all" }).logits;
      expect(part).toEqual(logits.subarray(at * 67, at * 67 + part.length));
    }
    for (const [at, id] of ids.slice(0, 140).entries())
      expect(forward(single, [id]).logits, `token ${at}`).toEqual(logits.subarray(at * 67, (at + 1) * 67));
    single.truncate(100);
    const again = await forwardAsync(single, ids.slice(100, 150), { sliceMs: 1e-3 });
    expect(again.logits).toEqual(logits.subarray(149 * 67, 150 * 67));
    expect(logits.every(Number.isFinite)).toBe(true);
  });

  test("sessions of other sources do not change a job's tokens", async () => {
    const model = modelOf("t5");
    const sources = [sourceFor("t5", 3), sourceFor("t5", 150, 2), sourceFor("t5", 40, 3)];
    const open = (i: number) => readSource(model, sources[i] as number[], { maxSeqLen: 64 });
    const jobs: GenerationJob[] = [];
    for (const i of sources.keys()) jobs.push({ session: await open(i), ids: [i, 1], maxTokens: 20 });
    const found = new Map<GenerationJob, number[]>(jobs.map((job) => [job, []]));
    for await (const { job, token } of generateMany(jobs)) if (token) found.get(job)?.push(token.id);
    for (const [i, job] of jobs.entries()) {
      const alone: number[] = [];
      for await (const { id } of generate(await open(i), [i, 1], { maxTokens: 20 })) alone.push(id);
      expect(found.get(job)).toEqual(alone);
    }
  });

  test("a session frees its memory, and a source that fails leaves none", async () => {
    const model = modelOf("bart");
    (await readSource(model, sourceFor("bart", 300))).release();
    const used = kernels.usedBytes;
    const session = await readSource(model, sourceFor("bart", 300), { format: "f16" });
    forward(session, prompt);
    const grown = kernels.usedBytes;
    expect(grown - used).toBeGreaterThanOrEqual(session.bytes);
    session.release();
    expect(kernels.usedBytes).toBe(grown - session.bytes);
    const before = kernels.usedBytes;
    const abort = new AbortController();
    const options = { sliceMs: 1e-3, signal: abort.signal, onProgress: () => abort.abort("enough") };
    await expect(readSource(model, sourceFor("bart", 300), options)).rejects.toBe("enough");
    await expect(readSource(model, sourceFor("bart", 30), { maxSeqLen: 321 })).rejects.toThrow(
      "readSource: maxSeqLen expected at most 320, the positions of the model, got 321",
    );
    expect(kernels.usedBytes).toBe(before);
  });

  test("the decoder alone has no session, and sources of another kind are refused", async () => {
    const model = modelOf("t5");
    // @ts-expect-error: types refuse it too
    expect(() => createSession(model)).toThrow("createSession: model expected what loadModel gives");
    await expect(readSource(model, sourceFor("whisper", 4))).rejects.toThrow(
      "readSource: source expected token ids, since the model reads text, got",
    );
    const hears = modelOf("whisper");
    await expect(readSource(hears, [1, 2])).rejects.toThrow("readSource: source");
    await expect(readSource(hears, { data: new Float32Array(12), shape: [12, 1] })).rejects.toThrow(
      "readSource: source expected shape [10, frames], got [12, 1]",
    );
    await expect(readSource(hears, sourceFor("whisper", 301))).rejects.toThrow(
      "readSource: source expected at most 600 frames, the positions of the model, got 602",
    );
    await expect(readSource(model, [])).rejects.toThrow("readSource: source expected 1 or more tokens, got none");
    const ran: number[] = [];
    const onProgress = (done: number) => ran.push(done);
    for (const options of [{ format: "q9" as never }, { maxSeqLen: 2 ** 20 }, { truncatable: -1 }])
      await expect(readSource(model, [1], { ...options, onProgress })).rejects.toThrow(
        `readSource: ${Object.keys(options)[0]} expected`,
      );
    expect(ran).toEqual([]);
    const format = [{ keys: "f32", values: "f32" }] as never;
    await expect(readSource(model, [1], { format })).rejects.toThrow("readSource: format expected one for all tokens");
  });
});

test("threads give the bits of one", async () => {
  const one = await kernelsOf("simd");
  const three = await threadedKernels("simd", 3);
  const logitsOf = async (kernels: Kernels, name: TinySeq2Seq) => {
    const model = await loadSeq2Seq(kernels, seq2seqFolder(name));
    const session: Session = await readSource(model, sourceFor(name, 150), { maxSeqLen: 64 });
    return forward(session, prompt, { rows: "all" }).logits;
  };
  for (const name of NAMES) expect(await logitsOf(three, name)).toEqual(await logitsOf(one, name));
  one.release();
  three.release();
});

function expectNear(got: ArrayLike<number> | undefined, want: readonly number[]): void {
  expect(got?.length).toBe(want.length);
  const most = want.reduce((largest, x) => Math.max(largest, Math.abs(x)), 0);
  const worst = want.reduce((largest, x, i) => Math.max(largest, Math.abs(x - (got?.[i] ?? Number.NaN))), 0);
  expect(worst).toBeLessThanOrEqual(1e-5 * most);
}
