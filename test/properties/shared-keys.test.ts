// The laws of sessions for models with layers that attend the keys of other layers: also where pages age or are dropped, so that a
// layer finds them as the one before it did.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Model } from "../../src/models/blocks/model.ts";
import { forward, forwardAsync } from "../../src/models/decoder/forward.ts";
import {
  createSession,
  exportSession,
  importSession,
  type Session,
  type SessionOptions,
} from "../../src/models/decoder/session.ts";
import { generate } from "../../src/models/generate/generate.ts";
import { generateMany } from "../../src/models/generate/generate-many.ts";
import { loadModel } from "../../src/models/load/load-model.ts";
import { planModel } from "../../src/models/load/plan-model.ts";
import type { Kernels } from "../../src/wasm/kernels.ts";
import { kernelsOf, threadedKernels } from "../support/layers.ts";
import { logitsOf } from "../support/logits.ts";
import { TINY_FEATURES, tinyFolder } from "../support/tiny-models.ts";

const MODELS = {
  // With a window that drops pages within the sequences below.
  gemma4_text: { ...TINY_FEATURES.gemma4_text, sliding_window: 70 },
  gemma3n_text: { ...TINY_FEATURES.gemma3n_text, sliding_window: 70 },
} as const;
type Name = keyof typeof MODELS;

const FORMATS: readonly NonNullable<SessionOptions["format"]>[] = [
  ...(["f32", "q8"] as const),
  [
    { keys: "f32", values: "f32", tokens: 128 },
    { keys: "q8", values: "q4" },
  ],
];
const [LENGTH, WIDTH, TRUNCATABLE] = [700, 67, 40];
const IDS = Array.from({ length: LENGTH }, (_, i) => (i * 29 + 5) % WIDTH);

let kernels: Kernels;
const models = new Map<Name, Model>();
beforeAll(async () => {
  kernels = await kernelsOf("relaxed");
  for (const name of Object.keys(MODELS) as Name[])
    models.set(name, await loadModel(kernels, tinyFolder(MODELS[name])));
});
afterAll(() => kernels.release());

describe.each((Object.keys(MODELS) as Name[]).flatMap((name) => FORMATS.map((format) => [name, format] as const)))(
  "%s, %j",
  (name, format) => {
    const options = { maxSeqLen: 900, truncatable: TRUNCATABLE, format };
    const open = () => createSession(models.get(name) as Model, options);

    test("at once, in chunks, token by token, in slices, cut, forked and restored: the same bits", async () => {
      using whole = open();
      const all = logitsOf(whole, IDS, [LENGTH]);
      expect(all.every(Number.isFinite)).toBe(true);
      using chunks = open();
      expect(logitsOf(chunks, IDS, [7, 1, 120, 1, 300, 127, 144])).toEqual(all);
      using single = open();
      const ones = IDS.slice(0, 400).map(() => 1);
      expect(logitsOf(single, IDS.slice(0, 400), ones)).toEqual(all.slice(0, 400 * WIDTH));
      using sliced = open();
      const { logits } = await forwardAsync(sliced, IDS, { rows: "all", sliceMs: 1e-9 });
      expect(Array.from(logits)).toEqual(all);
      const cut = LENGTH - 30;
      whole.truncate(cut);
      expect(logitsOf(whole, IDS.slice(cut), [LENGTH - cut])).toEqual(all.slice(cut * WIDTH));
      whole.truncate(cut);
      using fork = whole.fork();
      forward(whole, [1, 2, 3]);
      expect(logitsOf(fork, IDS.slice(cut), [1, LENGTH - cut - 1])).toEqual(all.slice(cut * WIDTH));
      using restored = open();
      importSession(restored, exportSession(single), IDS.slice(0, 400));
      expect(logitsOf(restored, IDS.slice(400), [300])).toEqual(all.slice(400 * WIDTH));
    });

    test("texts that are generated together are those that are generated alone", async () => {
      const prompts = [IDS.slice(0, 5), IDS.slice(40, 481), IDS.slice(7, 260)];
      const alone: number[][] = [];
      for (const prompt of prompts) {
        using session = open();
        const ids: number[] = [];
        for await (const { id } of generate(session, prompt, { maxTokens: 12 })) ids.push(id);
        alone.push(ids);
      }
      const sessions = prompts.map(open);
      const jobs = prompts.map((ids, i) => ({ session: sessions[i] as Session, ids, maxTokens: 12 }));
      const together: number[][] = prompts.map(() => []);
      for await (const { job, token } of generateMany(jobs)) if (token) together[jobs.indexOf(job)]?.push(token.id);
      expect(together).toEqual(alone);
      for (const session of sessions) session.release();
    });

    test("only layers with keys of their own take memory, as planned", () => {
      using session = open();
      expect(session.bytes).toBe(planModel(MODELS[name], options).sessions);
      expect(exportSession(session).length).toBe(3);
    });
  },
);

test("threads change no bit", async () => {
  const threaded = await threadedKernels("relaxed", 2);
  for (const name of Object.keys(MODELS) as Name[]) {
    const model = await loadModel(threaded, tinyFolder(MODELS[name]));
    using session = createSession(model, { maxSeqLen: 900 });
    using own = createSession(models.get(name) as Model, { maxSeqLen: 900 });
    expect(logitsOf(session, IDS, [400, 300])).toEqual(logitsOf(own, IDS, [LENGTH]));
  }
  threaded.release();
});
