import { describe, expect, test } from "vitest";
import { inductionByHand, VOCABULARY } from "../../../../examples/induction/by-hand.ts";
import { loadKernels, type Tensor } from "../../../../src/entries/index.ts";
import {
  baselineScore,
  copyingScores,
  type DetectHeadsOptions,
  detectHeads,
  detectionPattern,
  forwardWith,
  HEAD_KINDS,
  headScores,
  type LabelledText,
} from "../../../../src/entries/inspect.ts";
import { latent } from "../../../../src/entries/latent.ts";
import { createSession, forward, loadModel, models } from "../../../../src/entries/models.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";
import { sampled } from "../../../support/sampled.ts";
import { TINY, type TinyName, tinyFolder, tinyTensors } from "../../../support/tiny-models.ts";

const kernels = await loadKernels({ models, latent });
const load = (name: TinyName) => loadModel(kernels, tinyFolder(TINY[name]));
const textOf = (length: number, step = 29) => Array.from({ length }, (_, i) => (i * step + (i % 7)) % 67);

describe("the induction circuit by hand", async () => {
  const model = await loadModel(kernels, inductionByHand());
  const random = createRandom(2);
  const half = Array.from({ length: 90 }, () => random.int(1, VOCABULARY - 1));
  const ids = [0, ...half, ...half];

  test("its heads score 1 to the last bit of float32 weights, whichever way they are measured", () => {
    const { patterns } = forwardWith(createSession(model), ids, { patterns: [0, 1] });
    const previous = detectionPattern("previous", ids);
    expect(headScores(patterns[0]!, previous, { measure: "overlap" })).toEqual([1]);
    // Token 0 and tokens that are new look at token 0.
    expect(headScores(patterns[0]!, previous, { excludeFirst: true })).toEqual([1]);
    expect(headScores(patterns[0]!, previous, { measure: "abs", excludeFirst: true })).toEqual([1]);
    const induction = detectionPattern("induction", ids);
    expect(headScores(patterns[1]!, induction, { excludeFirst: true })).toEqual([1]);
    // A third is rounded, where three places are the ones to look at.
    expect(headScores(patterns[1]!, induction, { measure: "overlap" })[0]).toBeCloseTo(1, 6);
  });

  test("they are detected, and only the second one copies", () => {
    const [first, second] = detectHeads(model, [ids]);
    expect([first!.kind, second!.kind]).toEqual(["previous", "induction"]);
    expect(first!.scores.previous!.score).toBe(1);
    expect(first!.offset).toEqual({ ...first!.scores.previous, by: 1 });
    expect([first!.copying, second!.copying]).toEqual([0, 1]);
  });

  test("a window that holds a narrower kind counts only without it", () => {
    const local = { window: 4 };
    const kindOf = (options: DetectHeadsOptions) => detectHeads(model, [ids], { ...options, copying: false })[0]!.kind;
    expect(kindOf({ kinds: { local, previous: "previous" } })).toBe("previous");
    expect(kindOf({ kinds: { local } })).toBe("offset");
    expect(kindOf({ kinds: { local }, maxOffset: 0 })).toBe("local");
  });

  test("where a text says what refers to what, the second is a name mover", () => {
    const once = Array.from({ length: 20 }, (_, i) => i + 1);
    const tokens = [0, ...once, ...once];
    const pairs = once.slice(0, -1).map((_, i) => ({ query: 21 + i, key: 2 + i }));
    const [first, second] = detectHeads(model, [{ tokens, pairs }], { kinds: {} });
    expect(second!.kind).toBe("name mover");
    expect([second!.scores.reference!.score, second!.copies]).toEqual([1, 1]);
    expect(first!.kind).toBe("offset");
    expect([first!.scores.reference!.score, first!.copies]).toEqual([0, undefined]);
    // To the token before the one that comes next, which is not copied.
    const wrong = pairs.map(({ query, key }) => ({ query, key: key - 1 }));
    expect(detectHeads(model, [{ tokens, pairs: wrong }])[1]!.scores.reference!.score).toBe(0);
  });

  test("it continues what repeats", () => {
    const { ids: next } = forward(createSession(model), ids, { rows: "all", top: 1 });
    const repeated = Array.from({ length: 89 }, (_, i) => 91 + i).filter((at) => {
      const before = half.filter((_, i) => i > 0 && half[i - 1] === ids[at]);
      return new Set(before).size === 1;
    });
    expect(repeated.length).toBeGreaterThan(0);
    for (const at of repeated) expect(next![at]).toBe(ids[at + 1]);
  });
});

describe.each(sampled(["llama", "gemma2", "gpt_oss", "deepseek_v3"] as const, 2))("%s", async (name) => {
  const model = await load(name);
  const text = textOf(60);

  test("scores are those of headScores, and best offsets the largest of these", () => {
    const heads = detectHeads(model, [text], { copying: false });
    const { patterns } = forwardWith(createSession(model), text, { patterns: [0, 1] });
    expect(heads.map(({ layer, head }) => `${layer}.${head}`).join(" ")).toBe("0.0 0.1 0.2 0.3 1.0 1.1 1.2 1.3");
    const score = (layer: number, head: number, kind: Parameters<typeof detectionPattern>[0]) =>
      headScores(patterns[layer]!, detectionPattern(kind, text), { measure: "overlap" })[head]!;
    for (const { layer, head, scores, offset } of heads) {
      const { offset: best, ...kinds } = scores;
      expect({ ...best, by: offset.by }).toEqual(offset);
      expect(Object.keys(kinds)).toEqual(Object.keys(HEAD_KINDS));
      for (const [kind, { score: got }] of Object.entries(kinds))
        expect(got).toBeCloseTo(score(layer, head, HEAD_KINDS[kind]!), 12);
      const offsets = Array.from({ length: 9 }, (_, by) => score(layer, head, { offset: by }));
      expect(offset.score).toBeCloseTo(Math.max(...offsets), 12);
      expect(offset.by).toBe(offsets.indexOf(Math.max(...offsets)));
    }
  });
});

test("baselines are those of a head without preference; a layer's window is all that it sees", async () => {
  const text = textOf(60);
  const [head] = detectHeads(await load("llama"), [text], { copying: false });
  for (const [kind, { baseline }] of Object.entries(head!.scores))
    if (kind !== "uniform" && kind !== "offset")
      expect(baseline).toBeCloseTo(baselineScore(detectionPattern(HEAD_KINDS[kind]!, text), { measure: "overlap" }), 6);
  const lone = text.reduce((sum, _, i) => sum + 1 / (i + 1), 0) / 60;
  expect(head!.scores.uniform!.baseline).toBeCloseTo(lone, 12);
  // Layer 0 of gemma2 sees 9 keys, layer 1 all.
  const heads = detectHeads(await load("gemma2"), [text], { copying: false });
  const local = (layer: number) => heads.find((each) => each.layer === layer)!.scores.local!.baseline;
  const even = (most: number) => text.reduce((sum, _, i) => sum + Math.min(4, i + 1) / Math.min(most, i + 1), 0) / 60;
  expect(local(0)).toBeCloseTo(even(9), 6);
  expect(local(1)).toBeCloseTo(even(60), 6);
});

test.each(sampled(["llama", "gemma2"] as const, 1))(
  "%s: several texts have the scores of all of their tokens together; a long one is read in pieces",
  async (name) => {
    const model = await loadModel(kernels, tinyFolder({ ...TINY[name], max_position_embeddings: 2048 }));
    const texts = [textOf(1500, 31), textOf(20)];
    const options = { kinds: { previous: "previous", near: { window: 2 } }, copying: false } as const;
    const both = detectHeads(model, texts, options);
    const alone = texts.map((text) => detectHeads(model, [text], options));
    // 8 heads of 1500 x 1500 weights are more than are held at a time.
    const { patterns } = forwardWith(createSession(model), texts[0]!, { patterns: [1] });
    const want = headScores(patterns[0]!, detectionPattern("previous", texts[0]!), { measure: "overlap" });
    for (const [head, score] of want.entries()) {
      const [long, short] = alone.map((heads) => heads[4 + head]!.scores.previous!.score) as [number, number];
      expect(long).toBeCloseTo(score, 12);
      const { scores } = both[4 + head]!;
      expect(scores.previous!.score).toBeCloseTo((1499 * long + 19 * short) / 1518, 12);
    }
  },
);

test("kinds of one's own: a pattern by tokens, and which kind a head has depends on how far it is from its baseline", async () => {
  const model = await load("llama");
  const text = textOf(40);
  const { patterns } = forwardWith(createSession(model), text, { patterns: [0] });
  const own = { data: patterns[0]!.data.slice(2 * 1600, 3 * 1600), shape: [40, 40] };
  const kinds = { same: () => own, previous: "previous", wide: { window: 40 } } as const;
  const heads = detectHeads(model, [text], { kinds, copying: false });
  expect(heads[2]!.scores.same!.score).toBeCloseTo(1, 6);
  expect(heads[2]!.kind).toBe("same");
  // A window that holds all is perfect for every head, as it is for one without preference.
  expect(heads[3]!.scores.wide!.baseline).toBeCloseTo(1, 6);
  expect(heads[3]!.kind).not.toBe("wide");
  const kindsAt = (least: number) => detectHeads(model, [text], { least, copying: false }).map(({ kind }) => kind);
  expect(kindsAt(1)).toEqual(Array.from({ length: 8 }, () => "mixed"));
  expect(kindsAt(-1)).not.toContain("mixed");
});

test("what no token can match has no score", async () => {
  const [head] = detectHeads(await load("llama"), [[1, 2, 3]], { copying: false });
  expect(Object.keys(head!.scores)).toEqual(["previous", "current", "first", "local", "uniform", "offset"]);
});

test("a score says on how many tokens it rests; fewer than 8 make no kind, but for labels", async () => {
  const model = await loadModel(kernels, inductionByHand());
  const tokens = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 4];
  const detect = (text: LabelledText | readonly number[], options?: DetectHeadsOptions) =>
    detectHeads(model, [text], { copying: false, maxOffset: 5, ...options })[1]!;
  // The second 4 looks at the 5 behind the first.
  const { kind, scores } = detect(tokens);
  expect(scores.induction).toMatchObject({ score: 1, tokens: 1 });
  expect(scores.previous!.tokens).toBe(10);
  expect(kind).not.toBe("induction");
  expect(detect(tokens, { leastTokens: 1, maxOffset: 0 }).kind).toBe("induction");
  expect(detect(tokens, { leastTokens: 2, maxOffset: 0 }).kind).not.toBe("induction");
  const labelled = detect({ tokens, pairs: [{ query: 10, key: 5 }] });
  expect(labelled.scores.reference).toMatchObject({ score: 1, tokens: 1 });
  expect(labelled.kind).toBe("name mover");
});

test("the best offset is one of as many tokens as are asked for, if there is any", async () => {
  const model = await loadModel(kernels, inductionByHand());
  // All tokens are new, and look at token 0: k back of 11 - k tokens only the first does.
  const tokens = Array.from({ length: 11 }, (_, i) => i);
  const offsetOf = (leastTokens: number) =>
    detectHeads(model, [tokens], { copying: false, leastTokens, maxOffset: 10 })[1]!.offset;
  expect(offsetOf(1)).toMatchObject({ by: 10, tokens: 1, score: 1 });
  expect(offsetOf(2)).toMatchObject({ by: 9, tokens: 2, score: 0.5 });
  expect(offsetOf(12)).toEqual(offsetOf(1));
});

test("copying is that of copyingScores", async () => {
  const model = await load("llama");
  expect(detectHeads(model, [[1, 2, 3]]).map(({ copying }) => copying)).toEqual(copyingScores(model).flat());
});

test("copies: how often what a head writes for the token alone has its logit among the five largest, in float64 too", async () => {
  const tensors = tinyTensors(TINY.llama);
  const model = await loadModel(kernels, tinyFolder(TINY.llama, tensors));
  const tokens = textOf(67, 2);
  const pairs = tokens.map((_, key) => ({ query: 66, key }));
  const heads = detectHeads(model, [{ tokens, pairs }], { least: -2, copying: false });
  const { captured } = forwardWith(createSession(model), tokens, { capture: [{ at: "v", layer: 1 }] });
  const [values] = captured as [Tensor];
  const output = tensors.get("model.layers.1.self_attn.o_proj.weight")!;
  const gain = tensors.get("model.norm.weight")!.data;
  const table = tensors.get("model.embed_tokens.weight")!.data;
  for (let head = 0; head < 4; head++) {
    const share = tokens.filter((token, key) => {
      const row = Array.from({ length: 40 }, (_, d) => {
        let sum = 0;
        for (let i = 0; i < 12; i++)
          sum += output.data[d * 48 + head * 12 + i]! * values.data[key * 24 + (head >> 1) * 12 + i]!;
        return sum * gain[d]!;
      });
      const logits = Array.from({ length: 67 }, (_, id) => row.reduce((sum, x, d) => sum + x * table[id * 40 + d]!, 0));
      return logits.filter((logit) => logit > logits[token]!).length < 5;
    }).length;
    expect(heads[4 + head]!.copies).toBe(share / 67);
  }
  expect(new Set(heads.map(({ copies }) => copies)).size).toBeGreaterThan(1);
});

test("the result is plain data, and nothing stays allocated", async () => {
  const model = await load("llama");
  detectHeads(model, [textOf(40)]);
  const used = kernels.memory.used;
  const heads = detectHeads(model, [{ tokens: textOf(40), pairs: [{ query: 9, key: 2 }] }], { least: -1 });
  expect(JSON.parse(JSON.stringify(heads))).toEqual(heads);
  expect(kernels.memory.used).toBe(used);
});

test.each<[string, readonly unknown[], object, string]>([
  ["no text", [], {}, "detectHeads: texts expected 1 or more, got none"],
  ["an empty text", [[]], {}, "detectHeads: texts[0] expected 1 to 16384 tokens, got 0"],
  ["a text that is too long", [{ length: 16_385 }], {}, "detectHeads: texts[0] expected 1 to 16384 tokens, got 16385"],
  ["a token that is none", [[1], [67]], {}, "detectHeads: texts[1][0] expected an integer from 0 to 66, got 67"],
  [
    "a pair outside of the text",
    [{ tokens: [1, 2], pairs: [{ query: 2, key: 0 }] }],
    {},
    "detectHeads: texts[0].pairs[0].query expected an integer from 0 to 1, got 2",
  ],
  [
    "a key behind its query",
    [{ tokens: [1, 2], pairs: [{ query: 0, key: 1 }] }],
    {},
    "detectHeads: texts[0].pairs[0].key expected an integer from 0 to 0, got 1",
  ],
  ["a name that has a meaning", [[1]], { kinds: { mixed: "first" } }, "options.kinds expected names other than"],
  ["a kind that is none", [[1]], { kinds: { one: "next" } }, 'detectHeads: options.kinds.one expected "current" or'],
  [
    "a pattern of other tokens",
    [[1]],
    { kinds: { one: () => detectionPattern("first", [1, 2]) } },
    "detectHeads: options.kinds.one(…) expected shape [1, 1], got [2, 2]",
  ],
  ["a word that is none", [[1]], { measure: "mul" }, "measure"],
])("refuses %s", async (_, texts, options, message) => {
  const model = await load("llama");
  expect(() => detectHeads(model, texts as LabelledText[], options as DetectHeadsOptions)).toThrow(message);
});

test("heads of latent attention may refer, but have no values to copy", async () => {
  const model = await load("deepseek_v3");
  const heads = detectHeads(model, [{ tokens: [1, 2, 1], pairs: [{ query: 2, key: 0 }] }], { least: -10 });
  for (const { scores, copies, kind } of heads) {
    expect(scores.reference!.score).toBeGreaterThan(0);
    expect(copies).toBeUndefined();
    expect(kind).not.toBe("name mover");
  }
});
