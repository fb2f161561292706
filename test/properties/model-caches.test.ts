// What holds for whole decoders on caches of any format: the bits do not depend on how tokens are cut into calls, nor on other
// sessions, whatever their formats and lengths.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Kernels } from "../../src/entries/core.ts";
import { expectPages } from "../../src/layers/attention/kv-state.ts";
import type { Model } from "../../src/models/blocks/model.ts";
import { forward } from "../../src/models/decoder/forward.ts";
import { createSession, type SessionOptions } from "../../src/models/decoder/session.ts";
import { type GeneratedToken, generate } from "../../src/models/generate/generate.ts";
import { type GenerationJob, generateMany } from "../../src/models/generate/generate-many.ts";
import { loadModel } from "../../src/models/load/load-model.ts";
import { firstDifference, kernelsOf, shippedBuilds } from "../support/layers.ts";
import { sampled } from "../support/sampled.ts";
import { TINY, type TinyName, tinyFolder } from "../support/tiny-models.ts";

type Format = NonNullable<SessionOptions["format"]>;

/** A page changes its format where the query is two pages later. */
const AGING: Format = [
  { keys: "f32", values: "f32", tokens: 128 },
  { keys: "q8", values: "q4" },
];
const NAMES = Object.keys(TINY) as TinyName[];
const CASES = NAMES.flatMap((name) =>
  // Latents have no 4-bit form, and do not age.
  (name === "deepseek_v3" ? (["q8"] as const) : (["q8", "q4", AGING] as const)).map(
    (format) => [name, format] as const,
  ),
);
const WIDTH = 67;
const prompt = Array.from({ length: 300 }, (_, i) => (i * 29 + 5) % WIDTH);

/** Tokens of generations in one batch. */
async function runMany(jobs: readonly GenerationJob[]): Promise<GeneratedToken[][]> {
  const found = new Map<GenerationJob, GeneratedToken[]>(jobs.map((job) => [job, []]));
  for await (const { job, token, end } of generateMany(jobs)) {
    if (token) found.get(job)?.push(token);
    if (end) expect(end).toEqual({ reason: "length" });
  }
  return [...found.values()];
}

describe.each(shippedBuilds)("whole decoders in the %s build", (build) => {
  let kernels: Kernels;
  const models = new Map<TinyName, Model>();
  beforeAll(async () => {
    kernels = await kernelsOf(build);
    for (const name of NAMES) models.set(name, await loadModel(kernels, tinyFolder(TINY[name])));
  });
  afterAll(() => kernels.release());
  const open = (name: TinyName, format: Format = "f32", maxSeqLen = 310) =>
    createSession(models.get(name) as Model, { maxSeqLen, format });

  /** Tokens of a generation alone. */
  async function runAlone(name: TinyName, format: Format, ids: readonly number[], maxTokens: number, maxSeqLen = 310) {
    using session = open(name, format, maxSeqLen);
    const tokens: GeneratedToken[] = [];
    for await (const token of generate(session, ids, { maxTokens })) tokens.push(token);
    return tokens;
  }

  test.each(sampled(CASES, 4, ([, format]) => JSON.stringify(format), build.length))(
    "%s, %j: a prompt at once, in chunks and token by token gives the same bits",
    (name, format) => {
      using whole = open(name, format);
      using chunks = open(name, format);
      using single = open(name, format);
      const all = forward(whole, prompt, { rows: "all" }).logits;
      expect(all.every(Number.isFinite)).toBe(true);
      for (let at = 0; at < prompt.length; at += 37) {
        const part = forward(chunks, prompt.slice(at, at + 37), { rows: "all" }).logits;
        expect(firstDifference(part, all.subarray(at * WIDTH, at * WIDTH + part.length)), `chunk at ${at}`).toBe(-1);
      }
      for (const [at, id] of prompt.entries()) {
        const { logits } = forward(single, [id]);
        expect(firstDifference(logits, all.subarray(at * WIDTH, (at + 1) * WIDTH)), `token ${at}`).toBe(-1);
      }
      // The formats are those of the caches: float32 has other bits.
      using plain = open(name);
      expect(firstDifference(forward(plain, prompt).logits, all.subarray(-WIDTH))).not.toBe(-1);
    },
  );

  test.each(sampled(NAMES, 4, undefined, build.length))(
    "%s: sessions of all formats in one batch have the tokens and probabilities of each alone",
    async (name) => {
      const own: readonly Format[] = ["f32", ...CASES.flatMap(([each, format]) => (each === name ? [format] : []))];
      const jobs = own.flatMap((format) =>
        [3, 250].map((count) => ({ session: open(name, format), ids: prompt.slice(0, count), maxTokens: 12 })),
      );
      const found = await runMany(jobs);
      for (const [i, { ids }] of jobs.entries()) {
        const format = own[i >> 1] as Format;
        expect(found[i], `${JSON.stringify(format)}, ${ids.length} tokens`).toEqual(
          await runAlone(name, format, ids, 12),
        );
      }
      for (const { session } of jobs) session.release();
    },
  );

  const pairs: [Format, Format][] = [
    ["f32", "f16"],
    ["f16", "f32"],
    ["f32", "q8"],
    ["q4", "f16"],
    ["q8", "q4"],
    ["f32", AGING],
    [AGING, "f32"],
  ];
  test.each(sampled(pairs, 2, ([, after]) => Number(after === AGING), build.length))(
    "a session of format %j, then one of %j with as many rows: its bits are those alone, and only its pages and the scratch change",
    async (before, after) => {
      /** What calls of 140, 40, 1 and 1 rows give, each behind one of a session of another format, if one is given. */
      const run = async (other?: Format) => {
        using kernels = await kernelsOf(build);
        const { memory } = kernels;
        const start = memory.allocate("start", 1);
        // Heads so wide that attention takes the most scratch.
        const model = await loadModel(kernels, tinyFolder({ ...TINY.llama, head_dim: 64 }));
        const session = createSession(model, { maxSeqLen: 200, format: after });
        const first = other && createSession(model, { maxSeqLen: 200, format: other });
        // So large that growth does not hide what is written behind the scratch.
        memory.free(memory.allocate("room", 1_000_000));
        return [prompt.slice(0, 140), prompt.slice(140, 180), [1], [2]].flatMap((ids) => {
          if (first) forward(first, ids, { rows: "all" });
          memory.u8(memory.scratch("soil", 1), memory.scratchBytes).fill(0xff);
          const was = memory.u8(0, memory.byteLength).slice();
          const { logits } = forward(session, ids, { rows: "all" });
          const own = session.states.map((state) => {
            const { at } = expectPages("test", state).pages;
            return [at, at + state.bytes] as const;
          });
          const scratch = memory.scratch("soil", 1);
          const is = memory.u8(0, was.length);
          for (const [begin, end] of [...own, [scratch, scratch + memory.scratchBytes] as const])
            was.set(is.subarray(begin, end), begin);
          expect(Buffer.compare(is.subarray(start), was.subarray(start))).toBe(0);
          return [...logits];
        });
      };
      const [alone, behind] = [await run(), await run(before)];
      expect(alone.every(Number.isFinite)).toBe(true);
      expect(behind).toEqual(alone);
    },
  );

  test.each([[[600, 3, 300]], [[300, 3, 600]]])(
    "prompts of %j tokens, some of them longer than a chunk, have in one batch the tokens and probabilities of each alone",
    async (lengths) => {
      const jobs = lengths.map((count) => ({
        ...{ session: open("llama", "f32", 640), maxTokens: 20 },
        ids: Array.from({ length: count }, (_, i) => (i * 29 + count) % WIDTH),
      }));
      const found = await runMany(jobs);
      for (const [i, { ids }] of jobs.entries())
        expect(found[i], `${ids.length} tokens`).toEqual(await runAlone("llama", "f32", ids, 20, 640));
      for (const { session } of jobs) session.release();
    },
  );
});
