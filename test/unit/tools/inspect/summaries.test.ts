// What is said of a model and of results beside the inspections: next tokens, ranked heads, configurations, digests.

import { describe, expect, test } from "vitest";
import { loadKernels } from "../../../../src/entries/index.ts";
import {
  type DetectedHead,
  detectHeads,
  digestFloats,
  type KindScore,
  layerConfig,
  longestText,
  nextTokens,
  rankHeads,
} from "../../../../src/entries/inspect.ts";
import { loadModel, models } from "../../../../src/entries/models.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";
import { FloatDigest } from "../../../../src/tools/diagnostics/self-test.ts";
import { TINY, type TinyName, tinyFolder } from "../../../support/tiny-models.ts";

describe("nextTokens", () => {
  const logits = Float32Array.of(0, 3, Number.NEGATIVE_INFINITY, 3, 1);
  const sum = [0, 3, 3, 1].reduce((all, logit) => all + Math.exp(logit), 0);

  test("gives the most probable ones first, of equal ones the lower id", () => {
    const found = nextTokens(logits, 3);
    expect(found.map(({ id, logit }) => [id, logit])).toEqual([
      [1, 3],
      [3, 3],
      [4, 1],
    ]);
    for (const { logit, probability } of found) expect(probability).toBeCloseTo(Math.exp(logit) / sum, 12);
    expect(nextTokens(logits, 9)).toHaveLength(5);
    expect(nextTokens(logits, 0)).toEqual([]);
  });

  test("gives the ids of the largest logits in any order of them", () => {
    const values = createRandom(7)
      .floats(500)
      .map((x) => Math.round(40 * x)); // many are equal
    const sorted = Array.from(values.keys()).sort((a, b) => values[b]! - values[a]! || a - b);
    for (const count of [0, 1, 8, 499, 500, 600])
      expect(nextTokens(values, count).map(({ id }) => id)).toEqual(sorted.slice(0, count));
  });

  test("gives those that were asked for, in their order", () => {
    expect(nextTokens(logits, [2, 1, 2]).map(({ id, probability }) => [id, probability > 0])).toEqual([
      [2, false],
      [1, true],
      [2, false],
    ]);
  });

  test.each<[logits: unknown, which: unknown, message: string]>([
    [[1, 2], 1, "logits expected Float32Array, got Array"],
    [new Float32Array(), 1, "logits expected one or more, got none"],
    [logits, -1, "which expected an integer"],
    [logits, [5], "which[0] expected an integer from 0 to 4, got 5"],
    [logits, "1", "which expected an integer"],
  ])("%j and %j are refused", (values, which, message) => {
    expect(() => nextTokens(values as never, which as never)).toThrow(`nextTokens: ${message}`);
  });
});

describe("rankHeads", () => {
  const score = (value: number, baseline = 0.5): KindScore => ({ score: value, baseline, tokens: 9 });
  const head = (at: number, kind: string, scores: Record<string, KindScore>) =>
    ({ layer: 0, head: at, kind, scores, offset: { ...score(0), by: 1 } }) as unknown as DetectedHead;

  test("sorts by kind, then by distance from the baseline; mixed ones have their nearest pattern", () => {
    const heads = [
      head(0, "mixed", { previous: score(0.6), induction: score(0.7) }),
      head(1, "induction", { induction: score(0.9) }),
      head(2, "bigram", { bigram: score(1) }),
      head(3, "previous", { previous: score(0.8) }),
      head(4, "previous", { previous: score(0.8, 0.7) }),
      head(5, "name mover", { reference: score(1), previous: score(0.9) }),
    ];
    const ranked = rankHeads(heads);
    expect(ranked.map((each) => [each.head, each.nearest, each.score.score])).toEqual([
      [5, "name mover", 1],
      [3, "previous", 0.8],
      [4, "previous", 0.8],
      [1, "induction", 0.9],
      [2, "bigram", 1],
      [0, "induction", 0.7],
    ]);
    expect(heads.map((each) => each.head)).toEqual([0, 1, 2, 3, 4, 5]);
  });

  test("what is no result of detectHeads is refused", () => {
    expect(() => rankHeads(1 as never)).toThrow(new TypeError("rankHeads: heads expected an array, got 1"));
    expect(() => rankHeads([{}] as never)).toThrow("rankHeads: heads[0].scores expected");
    expect(() => rankHeads([head(0, "previous", {})])).toThrow("rankHeads: heads[0].scores.previous expected");
  });
});

describe("of a model", async () => {
  const kernels = await loadKernels({ models });
  const load = (name: TinyName) => loadModel(kernels, tinyFolder(TINY[name]));

  test("the longest text is that of the positions, else that of detectHeads", async () => {
    using learned = await load("gpt2");
    using rotary = await load("llama");
    const most = longestText(learned);
    expect([most, longestText(rotary)]).toEqual([learned.maxSeqLen, 16_384]);
    const text = (length: number) => [Array.from({ length }, (_, i) => i % learned.vocabSize)];
    expect(detectHeads(learned, text(most), { copying: false }).length).toBeGreaterThan(0);
    expect(() => detectHeads(learned, text(most + 1), { copying: false })).toThrow(RangeError);
    expect(() => longestText({} as never)).toThrow("longestText: model expected what loadModel gives");
  });

  test("the configuration of a layer has all defaults, and cannot be changed", async () => {
    using model = await load("llama");
    const config = layerConfig(model, model.layers - 1);
    expect(config).toMatchObject({ dModel: model.dModel, causal: true, window: { left: Number.POSITIVE_INFINITY } });
    expect(Object.isFrozen(config)).toBe(true);
    expect(() => layerConfig(model, model.layers)).toThrow("layerConfig: layer expected an integer from 0 to");
    expect(() => layerConfig({} as never, 0)).toThrow("layerConfig: model expected what loadModel gives");
  });
});

test("a digest is of the bits, and of where arrays end", () => {
  const data = Float32Array.of(1, -0, Number.NaN, 4);
  const digest = new FloatDigest();
  digest.add(data);
  expect(digestFloats(data)).toBe(digest.toString());
  expect(digestFloats(data)).toMatch(/^[\da-f]{16}$/);
  const others = [[data.subarray(0, 2), data.subarray(2)], [Float32Array.of(1, 0, Number.NaN, 4)], []];
  for (const other of others) expect(digestFloats(...other)).not.toBe(digestFloats(data));
  expect(() => digestFloats([1] as never)).toThrow(
    new TypeError("digestFloats: arrays[0] expected Float32Array, got Array"),
  );
});
