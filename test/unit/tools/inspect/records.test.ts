import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import { sha256 } from "../../../../src/base/util/bytes.ts";
import { loadKernels, type Tensor } from "../../../../src/entries/index.ts";
import {
  decodeRecord,
  encodeRecord,
  forwardWith,
  type InspectionName,
  type InspectionRecord,
  type Inspections,
  inspect,
  replay,
} from "../../../../src/entries/inspect.ts";
import { latent } from "../../../../src/entries/latent.ts";
import { createSession, loadModel, models } from "../../../../src/entries/models.ts";
import { quantized } from "../../../../src/entries/quantized.ts";
import { threadedKernels } from "../../../support/layers.ts";
import { TINY, tinyFolder, tinyTensors } from "../../../support/tiny-models.ts";

const simd = await loadKernels({ models, quantized, latent, deterministic: true });
const relaxed = await loadKernels({ models, quantized, latent });
const model = await loadModel(simd, tinyFolder(TINY.llama));
const ids = [5, 60, 2, 33, 33, 7, 41];
const texts = { ids, from: [5, 60, 17, 33, 30, 7, 41], answers: [9, 20] };
const steer = Float32Array.from({ length: 40 }, (_, i) => Math.fround(1 / (i - 20.5)));

const REQUESTS: { readonly [Name in InspectionName]: readonly Inspections[Name]["request"][] } = {
  forward: [
    { ids },
    { ids: Int32Array.from(ids), rows: "all", top: 3, format: "q8" },
    {
      ids,
      edits: [
        { at: "residPre", layer: 1, add: steer, tokens: [2, 3] },
        {
          at: "z",
          layer: 0,
          head: 1,
          set: { data: Float32Array.of(...steer.subarray(0, 24)), shape: [2, 12] },
          tokens: [0, 6],
        },
        { at: "mlpOut", layer: 0, scale: -0.1 },
      ],
      capture: [{ at: "embed" }, { at: "k", layer: 1, head: 0 }],
      patterns: [1],
    },
  ],
  patchSites: [
    { ...texts, sites: "z" },
    { ...texts, sites: [{ at: "residPre", layer: 1 }], eachToken: true, format: "f16" },
  ],
  patchPaths: [{ ...texts, senders: "z", receivers: [{ at: "q", layer: 1, head: 2 }], throughMlps: true }],
  explainScore: [{ ids, layer: 1, head: 2, query: 6, key: 3, format: "q8" }],
  logitAttrs: [{ ids, token: 6, id: 9, minus: 20 }],
  decomposeResid: [{ ids, token: 4, layer: 1 }],
  logitLens: [{ ids, at: "residMid", tokens: [1, 6], top: 5 }],
  detectHeads: [{ texts: [ids, { tokens: ids, pairs: [{ query: 4, key: 3 }] }], least: 0.01, maxOffset: 2 }],
  copyingScores: [{}],
};
const CASES = Object.entries(REQUESTS).flatMap(([name, requests]) =>
  requests.map((request): [InspectionName, object] => [name as InspectionName, request]),
);
const run = (name: InspectionName, request: object, on = model) => inspect(on, name, request as never);

describe.each(CASES)("%s of %o", (name, request) => {
  test("is repeated bit for bit from its link, in other kernels and on another copy of the model", async () => {
    const { results, record } = await run(name, request);
    const link = encodeRecord(record);
    expect(link).toMatch(/^[\w-]+$/);
    expect(decodeRecord(link)).toEqual(record);
    const kernels = await loadKernels({ models, quantized, deterministic: true });
    const again = await replay(await loadModel(kernels, tinyFolder(TINY.llama)), decodeRecord(link));
    expect(again.same).toBe(true);
    expect(again.results).toEqual(results);
    expect(encodeRecord(again.record)).toBe(link);
    kernels.release();
  });

  test("is refused with another model or build by name, and the other build repeats its own", async () => {
    const { record } = await run(name, request);
    const other = await loadModel(relaxed, tinyFolder(TINY.llama));
    const fused = await run(name, request, other);
    expect(fused.record.model).toBe(record.model);
    expect((await replay(other, decodeRecord(encodeRecord(fused.record)))).same).toBe(true);
    if (relaxed.build === "relaxed") {
      await expect(replay(other, record)).rejects.toThrow(
        'replay: record.kernels.build expected "relaxed", that of the model given, got "simd": loadKernels({ deterministic: true }) runs that',
      );
      await expect(replay(model, fused.record)).rejects.toThrow(/record\.kernels\.build expected "simd".* "relaxed"$/);
    }
    const coarse = await loadModel(simd, tinyFolder(TINY.llama), { weights: "q8" });
    await expect(replay(coarse, record)).rejects.toThrow(
      'replay: record.formats expected "q8", that of the model given, got "f32"',
    );
    const others = await loadModel(simd, tinyFolder(TINY.llama, tinyTensors(TINY.llama, 2)));
    await expect(replay(others, record)).rejects.toThrow(
      /^replay: record\.model expected "[0-9a-f]{64}", that of the model given, got "[0-9a-f]{64}"$/,
    );
    others.release();
    other.release();
    coarse.release();
  });

  test("says when results are others", async () => {
    const { record } = await run(name, request);
    const wrong = { ...record, results: record.results.replace(/^./, (digit) => (digit === "0" ? "1" : "0")) };
    expect((await replay(model, wrong)).same).toBe(false);
  });
});

test("a link of one process has the same bits in another", async () => {
  const folder = join(import.meta.dirname, "../../../../model");
  const trained = await loadModel(simd, folder);
  const edits = [{ at: "z", layer: 0, head: 1, set: 0 }] as const;
  const { record } = await inspect(trained, "forward", { ids: [3, 17, 9, 21, 3, 17], edits, patterns: [0, 1] });
  const program = join(import.meta.dirname, "replay-link.ts");
  const hooks = join(import.meta.dirname, "../../../../scripts/source-hooks.mjs");
  const args = ["--import", hooks, program, folder, encodeRecord(record)];
  expect(execFileSync(process.execPath, args, { encoding: "utf8" })).toBe(`true ${record.results}\n`);
});

test("a latent model and caches by age are repeated, too", async () => {
  const deep = await loadModel(simd, tinyFolder(TINY.deepseek_v3), { weights: "q8" });
  const { record } = await inspect(deep, "patchSites", { ...texts, sites: "z", format: "f16" });
  expect((await replay(deep, decodeRecord(encodeRecord(record)))).same).toBe(true);
  const long = Array.from({ length: 300 }, (_, i) => (i * 31) % 67);
  const format = [
    { keys: "f32", values: "f32", tokens: 128 },
    { keys: "q8", values: "q4" },
  ] as const;
  const aged = await inspect(model, "forward", { ids: long, format, rows: "all" });
  expect((await replay(model, decodeRecord(encodeRecord(aged.record)))).same).toBe(true);
  const plain = await inspect(model, "forward", { ids: long, rows: "all" });
  expect(plain.record.results).not.toBe(aged.record.results);
});

test("threads, whose memory is shared, repeat what one thread gave", async () => {
  const long = Array.from({ length: 200 }, (_, i) => (i * 31) % 67);
  const { record } = await inspect(model, "forward", {
    ids: long,
    patterns: [0],
    capture: [{ at: "mlpOut", layer: 1 }],
  });
  const three = await threadedKernels("simd", 3);
  const shared = await loadModel(three, tinyFolder(TINY.llama));
  expect((await replay(shared, record)).same).toBe(true);
  three.release();
});

test("one call has the bits of several in turn, so that its record stands for them", async () => {
  const edits = [{ at: "residPre", layer: 1, add: steer, tokens: [4, 5] }] as const;
  const { results } = await inspect(model, "forward", { ids, edits });
  using session = createSession(model);
  forwardWith(session, ids.slice(0, 4));
  forwardWith(session, ids.slice(4, 5), { edits: [{ ...edits[0], tokens: [0] }] });
  const last = forwardWith(session, ids.slice(5), { edits: [{ ...edits[0], tokens: [0] }] });
  expect(last.logits).toEqual(results.logits);
});

test("what is asked later does not change a record, and requests of anything but data are refused", async () => {
  const given = { ids: [1, 2], edits: [{ at: "z" as const, layer: 0, set: 0 }] };
  const { record } = await inspect(model, "forward", given);
  given.ids[0] = 3;
  given.edits[0]!.set = 9;
  expect((await replay(model, record)).same).toBe(true);
  const wrong = (request: object, name = "forward") => inspect(model, name as "forward", request as never);
  await expect(wrong({ ids, edits: [{ at: "z", layer: 0, set: () => 1 }] })).rejects.toThrow(
    "inspect: request.edits[0].set expected plain data, got function",
  );
  await expect(wrong({ ids }, "forwardWith")).rejects.toThrow(
    'inspect: name expected "forward" or "patchSites" or "patchPaths" or "explainScore" or "logitAttrs" or',
  );
  await expect(wrong({ ids: [99] })).rejects.toThrow("ids[0] expected an integer from 0 to 66, got 99");
  await expect(wrong({ ids: { length: 2 ** 31 } })).rejects.toThrow("ids");
  await expect(wrong({ ids, edit: [] })).rejects.toThrow("edit");
  await expect(wrong(ids)).rejects.toThrow("inspect: request expected an object, got Array");
  await expect(wrong({ ids }, "attend")).rejects.toThrow('inspect: name expected "forward" or "patchSites" or');
});

describe("a record that asks for much", () => {
  const digits = "0".repeat(64);
  const recordOf = async (name: InspectionName, request: object) => {
    const { record } = await inspect(model, "copyingScores", {});
    return { ...record, inspect: name, request, results: digits } as InspectionRecord<"forward">;
  };
  const sites = Array.from({ length: 2000 }, () => ({ at: "residPre", layer: 0 }));
  const long = Array.from({ length: 400 }, (_, i) => i % 67);
  const LAYERS = model.layers;

  test.each<[InspectionName, object, number]>([
    ["patchSites", { ...texts, sites }, 2002 * 7],
    ["patchSites", { ...texts, sites, eachToken: true }, (2 + 14_000) * 7],
    ["patchPaths", { ...texts, senders: sites, receivers: "residPost" }, 4002 * 7],
    ["detectHeads", { texts: [ids, { tokens: long }] }, 7 + (400 * 400) / 256],
    ["forward", { ids: long }, 625],
    ["logitLens", { ids: long }, 625 + 400 * LAYERS],
  ])("of %s is refused before a pass", async (name, request, tokens) => {
    const record = await recordOf(name, request);
    await expect(replay(model, record, { maxTokens: tokens - 1 })).rejects.toThrow(
      `replay: record.request expected at most ${tokens - 1} tokens in all passes, got ${tokens}: options.maxTokens allows more`,
    );
  });

  test("is refused from 65,536 tokens on, unless an option allows more", async () => {
    const record = await recordOf("patchSites", { ...texts, sites: sites.slice(0, 1400), eachToken: true });
    await expect(replay(model, record)).rejects.toThrow("expected at most 65536 tokens in all passes, got 68614");
    const small = await recordOf("forward", { ids: long });
    expect((await replay(model, small, { maxTokens: 625 })).same).toBe(false);
    await expect(replay(model, small, { maxTokens: 0 })).rejects.toThrow(
      "replay: options.maxTokens expected an integer from 1 to 9007199254740991, got 0",
    );
  });

  test("yields to the event loop between passes, and within them", async () => {
    let now = 0;
    const clock = vi.spyOn(performance, "now").mockImplementation(() => (now += 10));
    let [turns, done] = [0, false];
    const turn = () => {
      turns++;
      if (!done) setImmediate(turn);
    };
    try {
      setImmediate(turn);
      await inspect(model, "patchSites", { ...texts, sites: sites.slice(0, 30) as never });
      const between = turns;
      await inspect(model, "logitLens", { ids: long });
      done = true;
      expect(between).toBeGreaterThan(30);
      expect(turns - between).toBeGreaterThan(10);
    } finally {
      clock.mockRestore();
    }
  });
});

describe("links", async () => {
  const edits = [{ at: "k", layer: 0, head: 1, add: steer.subarray(0, 12), tokens: [2] }] as const;
  const { record } = await inspect(model, "forward", { ids, edits, top: 3 });
  const link = encodeRecord(record);
  const bytes = Buffer.from(link, "base64url");
  const signed = (body: Uint8Array) => Buffer.concat([body, sha256(body).subarray(0, 4)]).toString("base64url");

  test("a changed character, a missing one and one more are refused, each by a clear error", () => {
    const wrong = /^decodeRecord: text expected (base64url|what encodeRecord gives, got one that was cut or changed)/;
    for (let at = 0; at < link.length; at++) {
      for (const other of ["A", "_", "9", "%"])
        if (link[at] !== other)
          expect(() => decodeRecord(link.slice(0, at) + other + link.slice(at + 1))).toThrow(wrong);
      expect(() => decodeRecord(link.slice(0, at))).toThrow(wrong);
      expect(() => decodeRecord(link.slice(0, at) + link.slice(at + 1))).toThrow(wrong);
    }
    expect(() => decodeRecord(`${link}A`)).toThrow(wrong);
    expect(() => decodeRecord(`${link}=`)).toThrow(wrong);
  });

  test("whoever changes a bit and signs it, gets an error or another record, and never the recorded results", async () => {
    const body = bytes.subarray(0, -4);
    const texts: string[] = [];
    const decoded: InspectionRecord[] = [];
    for (let bit = 0; bit < 8 * body.length; bit++) {
      const changed = Uint8Array.from(body);
      changed[bit >> 3]! ^= 1 << (bit & 7);
      try {
        const other = decodeRecord(signed(changed));
        expect(other).not.toEqual(record);
        expect(encodeRecord(other)).toBe(signed(changed));
        decoded.push(other);
      } catch (error) {
        expect((error as Error).message).toMatch(/^decodeRecord: (text|record)\S* expected /);
        texts.push((error as Error).message);
      }
    }
    expect(texts.length).toBeGreaterThan(100);
    expect(decoded.length).toBeGreaterThan(100);
    let refused = 0;
    let others = 0;
    for (const [i, other] of decoded.entries()) {
      if (i % 31 !== 0) continue;
      try {
        const again = await replay(model, other as InspectionRecord<"forward">);
        // Kernels of another version may give the same bits; a bit of an edit may be lost in rounding.
        if (!again.same || other.kernels.stamp !== record.kernels.stamp) others++;
        else expect(again.results).toEqual((await replay(model, record)).results);
      } catch (error) {
        expect((error as Error).message).toMatch(/^(replay|forwardWith|createSession): \S+ expected /);
        refused++;
      }
    }
    expect([refused > 5, others > 5]).toEqual([true, true]);
  });

  test.each<[string, unknown, RegExp]>([
    ["no text", 7, /text expected a string, got 7/],
    ["nothing", "", /cut or changed/],
    ["another alphabet", "a+b/", /text expected base64url, got "a\+b\/"/],
    ["spaces", `${link} `, /base64url/],
    ["the whole address", `https://example.com/lab#${link}`, /expected the part of the link behind #, got "https:/],
    ["a link without its last character", link.slice(0, -1), /got one that was cut or changed/],
    ["a link without its last two", link.slice(0, -2), /got one that was cut or changed/],
    ["a link without its last three", link.slice(0, -3), /got one that was cut or changed/],
    ["four characters and one more", "AAAAA", /got one that was cut or changed/],
    ["text of more than 16 MiB", "A".repeat(2 ** 24 + 1), /at most 16777216 characters, got 16777217/],
    [
      "a list that says it has 2^53 items",
      signed(Uint8Array.of(0x9b, 0, 31, 255, 255, 255, 255, 255, 255)),
      /ends early/,
    ],
    ["an array that says it has 2^32 bytes", signed(Uint8Array.of(0xd8, 85, 0x5a, 255, 255, 255, 252)), /ends early/],
    ["a thousand lists in each other", signed(new Uint8Array(1000).fill(0x81)), /more than 32 levels/],
    ["a list without a length", signed(Uint8Array.of(0x9f, 0xff)), /an item of kind 4 without a length/],
    ["a number in more bytes than it needs", signed(Uint8Array.of(0x18, 1)), /another form of it at byte 0/],
    ["fields in another order", signed(Uint8Array.of(0xa2, 0x61, 98, 1, 0x61, 97, 1)), /another form/],
    ["a field twice", signed(Uint8Array.of(0xa2, 0x61, 97, 1, 0x61, 97, 1)), /another form/],
    ["more behind the record", signed(Uint8Array.of(0x80, 0)), /1 bytes more/],
    ["text that is not UTF-8", signed(Uint8Array.of(0x61, 0xff)), /not UTF-8/],
    ["a field whose name is a number", signed(Uint8Array.of(0xa1, 1, 1)), /a field without a name/],
    ["an unknown tag", signed(Uint8Array.of(0xc1, 0x41, 1)), /an unknown tag 1/],
    ["three bytes of floats", signed(Uint8Array.of(0xd8, 85, 0x43, 1, 2, 3)), /3 bytes as Float32Array/],
    ["undefined", signed(Uint8Array.of(0xf7)), /an unknown value 23/],
    ["no record", signed(Uint8Array.of(0x80)), /a record of 9 parts, got Array/],
  ])("%s is refused", (_, text, message) => {
    expect(() => decodeRecord(text as string)).toThrow(message);
  });

  test("names of fields mean nothing to the engine, and records of other forms are refused by name", () => {
    const request = JSON.parse('{"ids":[1],"__proto__":{"polluted":true},"constructor":1}');
    const back = decodeRecord(encodeRecord({ ...record, request }));
    expect(Object.keys(back.request)).toEqual(["ids", "__proto__", "constructor"]);
    expect(Object.getPrototypeOf(back.request)).toBe(Object.prototype);
    expect("polluted" in {}).toBe(false);
    for (const [field, value, text] of [
      ["version", 2, "encodeRecord: record.version expected 1, got 2"],
      ["model", "0", "encodeRecord: record.model expected 64 hexadecimal digits"],
      ["formats", 8, "encodeRecord: record.formats expected a string, got 8"],
      ["results", undefined, "encodeRecord: record.results expected 64 hexadecimal digits"],
      ["inspect", "toString", "encodeRecord: record.inspect expected"],
      ["kernels", { build: "fast", fused: true, stamp: 1 }, 'encodeRecord: record.kernels.build expected "simd" or'],
      ["request", null, "encodeRecord: record.request expected an object, got null"],
      ["more", 1, "more"],
    ] as const)
      expect(() => encodeRecord({ ...record, [field]: value } as never)).toThrow(text);
  });

  test("a text of 100 tokens with two heads ablated fits 600 characters, floats take 5.4 each", async () => {
    const long = Array.from({ length: 100 }, (_, i) => (i * 31) % 67);
    const edits = [0, 1].map((head) => ({ at: "z" as const, layer: 0, head, set: 0 }));
    expect(encodeRecord((await inspect(model, "forward", { ids: long, edits })).record).length).toBeLessThan(600);
    const set: Tensor = { data: new Float32Array(100 * 40).fill(0.1), shape: [100, 40] };
    const patched = await inspect(model, "forward", { ids: long, edits: [{ at: "residPre", layer: 1, set }] });
    expect(encodeRecord(patched.record).length).toBeLessThan(600 + 5.4 * 4000);
  });
});
