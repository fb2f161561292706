// Sessions that are stored as pages and restored: the same bits, and wrong calls that change nothing.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { HeadwiseError, type Kernels } from "../../../../src/entries/core.ts";
import { expectPages } from "../../../../src/layers/attention/kv-state.ts";
import type { CachePage } from "../../../../src/layers/state/export.ts";
import type { Model } from "../../../../src/models/blocks/model.ts";
import { forward, forwardAsync } from "../../../../src/models/decoder/forward.ts";
import {
  createSession,
  exportSession,
  importSession,
  type Session,
  type SessionOptions,
} from "../../../../src/models/decoder/session.ts";
import { loadSeq2Seq, type Seq2Seq } from "../../../../src/models/encoder/load.ts";
import { readSource } from "../../../../src/models/encoder/read-source.ts";
import { generate } from "../../../../src/models/generate/generate.ts";
import { loadModel } from "../../../../src/models/load/load-model.ts";
import { firstDifference, kernelsOf } from "../../../support/layers.ts";
import { TINY, tinyFolder } from "../../../support/tiny-models.ts";
import { seq2seqFolder, sourceFor, type TinySeq2Seq } from "../../../support/tiny-seq2seq.ts";

const idsOf = (count: number) => Array.from({ length: count }, (_, i) => (i * 29 + 5) % 67);
const ids = idsOf(400);

let kernels: Kernels;
beforeAll(async () => {
  kernels = await kernelsOf("simd");
});
afterAll(() => kernels.release());

const FORMATS: readonly SessionOptions[] = [
  {},
  { format: "q8" },
  {
    format: [
      { keys: "f32", values: "f32", tokens: 128 },
      { keys: "q8", values: "q4" },
    ],
  },
];
const CASES = (["llama", "gemma2", "deepseek_v3"] as const).flatMap((name) =>
  // Latents have no 4-bit form.
  FORMATS.slice(0, name === "deepseek_v3" ? 2 : 3).map((options) => ({ name, options })),
);

test.each(CASES)(
  "$name, $options: pages that were updated as the session grew continue it with the same logits and tokens",
  async ({ name, options }) => {
    using model = await loadModel(kernels, tinyFolder(TINY[name]));
    const open = () => createSession(model, { maxSeqLen: 420, ...options });
    using session = open();
    const stored = session.states.map(() => new Map<number, Uint8Array>());
    let changed = 0;
    for (let held = 0; held < 390; held = session.length) {
      forward(session, ids.slice(held, held + 130));
      for (const [layer, pages] of exportSession(session, held).entries())
        for (const { index, bytes } of pages) {
          stored[layer]?.set(index, bytes);
          changed++;
        }
    }
    expect(changed).toBeGreaterThanOrEqual(2 * 4);
    using restored = open();
    const listed = stored.map((pages) => Array.from(pages, ([index, bytes]) => ({ index, bytes })));
    importSession(restored, listed, ids.slice(0, 390));
    expect([...restored.tokens]).toEqual([...ids.slice(0, 390)]);
    expect(exportSession(restored)).toEqual(exportSession(session));
    // Penalties and guesses depend on the tokens that were read before.
    const continued = async (on: Session) => {
      const tokens: unknown[] = [];
      const options = { maxTokens: 20, repetitionPenalty: 1.4, temperature: 0.7, seed: 1, draft: { ngram: 2 } };
      for await (const token of generate(on, [7], options)) tokens.push(token);
      return tokens;
    };
    expect(firstDifference(forward(restored, [3]).logits, forward(session, [3]).logits)).toBe(-1);
    expect(await continued(restored)).toEqual(await continued(session));
  },
);

test.each(CASES)(
  "$name, $options: pages of tokens that were read one by one are those of tokens that were read at once",
  async ({ name, options }) => {
    using model = await loadModel(kernels, tinyFolder(TINY[name]));
    const [single, whole] = [1, 2].map(() => createSession(model, { maxSeqLen: 420, ...options })) as [
      Session,
      Session,
    ];
    forward(single, ids.slice(0, 250));
    for (const id of ids.slice(250, 260)) forward(single, [id]);
    forward(whole, ids.slice(0, 260));
    expect(exportSession(single)).toEqual(exportSession(whole));
    for (const session of [single, whole]) session.release();
  },
);

test.each(["llama", "gemma2", "deepseek_v3", "t5", "whisper"] as const)(
  "%s: pages are refused for more tokens than they hold, and restore all of them or the first",
  async (name) => {
    const isDecoder = name in TINY;
    using model = isDecoder
      ? await loadModel(kernels, tinyFolder(TINY[name as keyof typeof TINY]))
      : await loadSeq2Seq(kernels, seq2seqFolder(name as TinySeq2Seq));
    const source = sourceFor(isDecoder ? "t5" : (name as TinySeq2Seq), 20);
    const open = async () =>
      isDecoder
        ? createSession(model as Model, { maxSeqLen: 300 })
        : readSource(model as Seq2Seq, source, { maxSeqLen: 300 });
    using session = await open();
    forward(session, ids.slice(0, 10));
    const pages = exportSession(session);
    using restored = await open();
    for (const count of [11, 60, 128])
      expect(() => importSession(restored, pages, ids.slice(0, count))).toThrow(
        `importSession: layer 0: ids.length expected at most 10, the tokens that the pages hold, got ${count}`,
      );
    expect(restored.length).toBe(0);
    // A page that was not exported again when it was full is not one of the longer sequence.
    forward(session, ids.slice(10, 200));
    const stale = exportSession(session).map((all, layer) => [...(pages[layer] ?? []), ...all.slice(1)]);
    expect(() => importSession(restored, stale, ids.slice(0, 200))).toThrow(
      "importSession: layer 0: ids.length expected at most 10, the tokens that the pages hold, got 200",
    );
    const all = exportSession(session);
    session.truncate(0);
    for (const count of [9, 10, 128]) {
      importSession(restored, count > 10 ? all : pages, ids.slice(0, count));
      forward(session, ids.slice(0, count));
      const [logits, expected] = [restored, session].map((each) => forward(each, [3]).logits) as [never, never];
      expect(firstDifference(logits, expected), `${count} tokens`).toBe(-1);
      for (const each of [restored, session]) each.truncate(0);
    }
  },
);

describe("calls that fail", () => {
  let model: Model;
  beforeAll(async () => {
    model = await loadModel(kernels, tinyFolder(TINY.llama));
  });
  const open = (maxSeqLen = 300) => createSession(model, { maxSeqLen });
  const filled = (count: number) => {
    const session = open();
    forward(session, ids.slice(0, count));
    return session;
  };

  test.each([
    ["no pages", undefined, [1, 2], "importSession: pages expected the lists of exportSession, got undefined"],
    ["text", "pages", [1, 2], 'importSession: pages expected the lists of exportSession, got "pages"'],
    ["pages of one layer", [[]], [], "importSession: pages expected the 2 lists of exportSession, got 1"],
    [
      "pages of more layers",
      [[], [], [], []],
      [],
      "importSession: pages expected the 2 lists of exportSession, got more",
    ],
    ["a layer of none", [[], 5], [], "importSession: layer 1: pages expected an iterable of { index, bytes }, got 5"],
    ["too few", [[], []], [1], "importSession: layer 0: pages expected 1 for length 1, got 0"],
    ["wrong tokens", [[], []], [67], "importSession: ids[0] expected an integer from 0 to 66, got 67"],
    [
      "too many tokens",
      [[], []],
      { length: 301 },
      "importSession: ids.length expected an integer from 0 to 300, got 301",
    ],
  ])("%s are refused by name, and the session stays empty", (_what, pages, tokens, text) => {
    using session = open();
    expect(() => importSession(session, pages as never, tokens)).toThrow(text);
    expect(session.length).toBe(0);
  });

  test("a page that is wrong in the last layer empties the layers before", () => {
    using session = filled(200);
    const pages = exportSession(session);
    pages[1] = [...(pages[1] ?? [])].reverse();
    using other = open();
    const text = "importSession: layer 1: pages[0].index expected 0, got 1";
    expect(() => importSession(other, pages, ids.slice(0, 200))).toThrow(text);
    expect([other.length, ...other.states.map((state) => expectPages("test", state).cache.length)]).toEqual([0, 0, 0]);
    importSession(other, exportSession(session), ids.slice(0, 200));
    expect(other.length).toBe(200);
  });

  test("sessions that hold tokens, are in use or released are refused", async () => {
    using one = filled(1);
    const session = filled(10);
    const pages = exportSession(session);
    for (const [held, count] of [
      [session, 10],
      [one, 1],
    ] as const)
      expect(() => importSession(held, pages, ids.slice(0, 10))).toThrow(
        `importSession: session expected one without tokens, got ${count}`,
      );
    expect(() => exportSession(session, 11)).toThrow("exportSession: since expected an integer from 0 to 10, got 11");
    const running = forwardAsync(session, ids.slice(0, 250), { sliceMs: 1e-6 });
    expect(() => exportSession(session)).toThrow("exportSession: cache expected one that no unfinished call is using");
    await running;
    session.release();
    expect(() => exportSession(session)).toThrow(new HeadwiseError("RELEASED", "exportSession: session was released"));
    expect(() => importSession(session, pages, [])).toThrow(
      new HeadwiseError("RELEASED", "importSession: session was released"),
    );
  });

  test("reading the last pages that releases the model fails, and leaves the session empty", async () => {
    const own = await loadModel(kernels, tinyFolder(TINY.llama));
    using source = filled(10);
    const [first, second] = exportSession(source) as [CachePage[], CachePage[]];
    using session = createSession(own, { maxSeqLen: 300 });
    function* last() {
      yield* second;
      own.release();
    }
    expect(() => importSession(session, [first, last()], ids.slice(0, 10))).toThrow(
      new HeadwiseError("RELEASED", "importSession: model was released"),
    );
    expect([session.length, ...session.states.map((state) => expectPages("test", state).cache.length)]).toEqual([
      0, 0, 0,
    ]);
  });

  test("reading the lists that releases the session, or its model, fails before a page is read", async () => {
    using source = filled(10);
    const lists = exportSession(source);
    const own = await loadModel(kernels, tinyFolder(TINY.llama));
    for (const owner of ["session", "model"] as const) {
      const session = createSession(own, { maxSeqLen: 300 });
      let read = 0;
      const listOf = (pages: Iterable<CachePage>) => ({
        *[Symbol.iterator]() {
          read++;
          yield* pages;
        },
      });
      function* releasing() {
        yield* Array.from(lists, listOf);
        ({ session, model: own })[owner].release();
      }
      const error = new HeadwiseError("RELEASED", `importSession: ${owner} was released`);
      expect(() => importSession(session, releasing(), ids.slice(0, 10))).toThrow(error);
      expect(read).toBe(0);
    }
  });

  test("reading pages that reads tokens into the session fails, and leaves it empty", () => {
    using source = filled(10);
    const [first, second] = exportSession(source) as [never, never];
    using session = open();
    const list = {
      get [Symbol.iterator]() {
        forward(session, [1]);
        return () => [second][Symbol.iterator]();
      },
    };
    expect(() => importSession(session, [first, list], ids.slice(0, 10))).toThrow(
      "forward: cache expected one that no unfinished call is using",
    );
    expect([session.length, session.tokens.length]).toEqual([0, 0]);
    using plain = open();
    const [logits, expected] = [session, plain].map((each) => forward(each, [1, 2]).logits) as [
      Float32Array,
      Float32Array,
    ];
    expect(firstDifference(logits, expected)).toBe(-1);
  });
});
