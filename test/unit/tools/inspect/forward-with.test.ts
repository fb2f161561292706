import { describe, expect, test } from "vitest";
import { loadKernels, type Tensor } from "../../../../src/entries/index.ts";
import {
  captureRun,
  decomposeResid,
  type Edit,
  forwardWith,
  logitLens,
  meanRows,
  type Site,
} from "../../../../src/entries/inspect.ts";
import { latent } from "../../../../src/entries/latent.ts";
import { createSession, forward, loadModel, models } from "../../../../src/entries/models.ts";
import { quantized } from "../../../../src/entries/quantized.ts";
import { TINY, TINY_FEATURES, type TinyName, tinyFolder, tinyTensors } from "../../../support/tiny-models.ts";

const kernels = await loadKernels({ models, quantized, latent });
const IDS = [5, 60, 2, 33, 33, 7, 41];
const SITES = ["residPre", "q", "k", "v", "z", "attnOut", "residMid", "mlpOut", "residPost"] as const;

const load = (name: TinyName, weights: "f32" | "q8" = "f32") => loadModel(kernels, tinyFolder(TINY[name]), { weights });
const row = ({ data, shape }: Tensor, i: number) => data.subarray(i * shape[1]!, (i + 1) * shape[1]!);
const largest = (values: Float32Array) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
const distance = (a: Float32Array, b: Float32Array) => largest(a.map((value, i) => value - b[i]!)) / largest(b);

describe.each(["llama", "gemma2", "gpt2", "qwen3_moe", "gpt_oss"] as const)("%s", async (name) => {
  const model = await load(name);

  test("nothing edited gives the bits of forward, at once, in chunks and token by token, and the same rows", () => {
    using plain = createSession(model);
    const { logits } = forward(plain, IDS, { rows: "all" });
    const capture = SITES.flatMap((at): Site[] => [0, 1].map((layer) => ({ at, layer })));
    using whole = createSession(model);
    const once = forwardWith(whole, IDS, { rows: "all", capture });
    expect(once.logits).toEqual(logits);
    using pieces = createSession(model);
    const cuts = [IDS.slice(0, 3), IDS.slice(3, 4), IDS.slice(4)];
    const parts = cuts.map((ids) => forwardWith(pieces, ids, { rows: "all", capture }));
    expect(Float32Array.from(parts.flatMap((each) => [...each.logits]))).toEqual(logits);
    for (const [i, { data }] of once.captured.entries())
      expect(Float32Array.from(parts.flatMap((part) => [...part.captured[i]!.data]))).toEqual(data);
  });

  test("the residual is what the branches add, from the embedding on", () => {
    using session = createSession(model);
    const sites: Site[] = [{ at: "embed" }, ...SITES.flatMap((at) => [0, 1].map((layer) => ({ at, layer })))];
    const { captured } = forwardWith(session, IDS, { capture: sites });
    const at = (site: Site["at"], layer = 0) =>
      captured[sites.findIndex((s) => s.at === site && (s.layer ?? 0) === layer)]!;
    expect(at("residPre").data).toEqual(at("embed").data);
    expect(at("residPre", 1).data).toEqual(at("residPost").data);
    const sum = (a: Tensor, b: Tensor) => a.data.map((value, i) => value + b.data[i]!);
    for (const layer of [0, 1]) {
      expect(at("residMid", layer).data).toEqual(sum(at("residPre", layer), at("attnOut", layer)));
      expect(at("residPost", layer).data).toEqual(sum(at("residMid", layer), at("mlpOut", layer)));
    }
  });

  test("what one run captured, patched into another at every token, gives the logits of the first", () => {
    const other = IDS.map((id) => 66 - id);
    using own = createSession(model);
    const capture: Site[] = [{ at: "residPost", layer: 1 }];
    const { logits, captured } = forwardWith(own, IDS, { rows: "all", capture });
    using patched = createSession(model);
    const edits: Edit[] = [{ at: "residPost", layer: 1, set: captured[0]! }];
    expect(forwardWith(patched, other, { rows: "all", edits }).logits).toEqual(logits);
  });

  test("an edit changes its token and those that attend it, and no other", () => {
    using plain = createSession(model);
    const { logits } = forward(plain, IDS, { rows: "all" });
    using edited = createSession(model);
    const edits: Edit[] = [{ at: "attnOut", layer: 0, tokens: [3], set: 0 }];
    const changed = forwardWith(edited, IDS, { rows: "all", edits }).logits;
    const { vocabSize } = model;
    expect(changed.subarray(0, 3 * vocabSize)).toEqual(logits.subarray(0, 3 * vocabSize));
    for (const token of [3, 4])
      expect(changed.subarray(token * vocabSize, (token + 1) * vocabSize)).not.toEqual(
        logits.subarray(token * vocabSize, (token + 1) * vocabSize),
      );
  });
});

describe("llama", async () => {
  const tensors = tinyTensors(TINY.llama);
  const model = await loadModel(kernels, tinyFolder(TINY.llama, tensors));
  const HEAD = 12;

  test("a head that is set to 0 is a head whose columns of the output projection are 0", async () => {
    using session = createSession(model);
    const edits: Edit[] = [{ at: "z", layer: 1, head: 2, set: 0 }];
    const { logits } = forwardWith(session, IDS, { rows: "all", edits });
    const name = "model.layers.1.self_attn.o_proj.weight";
    const { data, shape } = tensors.get(name)!;
    const without = data.map((value, i) => (Math.floor((i % shape[1]!) / HEAD) === 2 ? 0 : value));
    const other = await loadModel(
      kernels,
      tinyFolder(TINY.llama, new Map([...tensors, [name, { data: without, shape }]])),
    );
    using expected = createSession(other);
    expect(logits).toEqual(forward(expected, IDS, { rows: "all" }).logits);
  });

  test("scaled queries sharpen like a scaled projection, also in q8 to its accuracy", async () => {
    const doubled = Array.from(tensors, ([name, { data, shape }]): [string, Tensor] => {
      const isQuery = name.startsWith("model.layers.0.self_attn.q_proj.");
      return [name, { data: isQuery ? data.map((x) => 2 * x) : data, shape }];
    });
    const folder = tinyFolder(TINY.llama, new Map(doubled));
    const edits: Edit[] = [{ at: "q", layer: 0, scale: 2 }];
    for (const weights of ["f32", "q8"] as const) {
      using scaled = createSession(await loadModel(kernels, folder, { weights }));
      using edited = createSession(await load("llama", weights));
      const { logits } = forward(scaled, IDS);
      expect(distance(forwardWith(edited, IDS, { edits }).logits, logits)).toBeLessThan(1e-6);
    }
  });

  test("edits of one site follow each other, and captures see what they leave", () => {
    using session = createSession(model);
    const { captured } = forwardWith(session, IDS, { capture: [{ at: "k", layer: 0, head: 1 }] });
    const mean = meanRows(captured[0]!);
    using edited = createSession(model);
    const site = { at: "k", layer: 0, head: 1 } as const;
    const edits: Edit[] = [
      { ...site, set: mean },
      { ...site, scale: 3 },
      { ...site, add: new Float32Array(HEAD).fill(1), tokens: [0, 2] },
    ];
    const after = forwardWith(edited, IDS, { edits, capture: [site] }).captured[0]!;
    expect(row(after, 1)).toEqual(mean.map((value) => value * 3));
    expect(row(after, 2)).toEqual(mean.map((value) => Math.fround(value * 3) + 1));
  });

  test("edited keys stay in the cache, and truncating forgets them", () => {
    using plain = createSession(model);
    forward(plain, IDS);
    const next = forward(plain, [9]).logits;
    using edited = createSession(model);
    forwardWith(edited, IDS, { edits: [{ at: "v", layer: 0, scale: -1 }] });
    expect(forward(edited, [9]).logits).not.toEqual(next);
    edited.truncate(0);
    forward(edited, IDS);
    expect(forward(edited, [9]).logits).toEqual(next);
  });

  test.each<[string, object, string]>([
    ["an unknown site", { capture: [{ at: "mlp", layer: 0 }] }, 'options.capture[0].at expected "embed" or'],
    ["no layer", { capture: [{ at: "z" }] }, "options.capture[0].layer expected"],
    [
      "a layer too many",
      { edits: [{ at: "z", layer: 2, set: 0 }] },
      "options.edits[0].layer expected an integer from 0 to 1, got 2",
    ],
    [
      "a head too many",
      { edits: [{ at: "k", layer: 0, head: 2, set: 0 }] },
      "options.edits[0].head expected an integer from 0 to 1, got 2",
    ],
    [
      "a head of a residual",
      { edits: [{ at: "residPre", layer: 0, head: 0, set: 0 }] },
      'head expected none at "residPre", got 0',
    ],
    [
      "nothing to do",
      { edits: [{ at: "z", layer: 0 }] },
      "options.edits[0] expected one of set, scale and add, got none",
    ],
    ["two things to do", { edits: [{ at: "z", layer: 0, set: 0, scale: 2 }] }, "got set and scale"],
    [
      "a row too short",
      { edits: [{ at: "z", layer: 0, add: new Float32Array(3) }] },
      "options.edits[0].add expected 48 floats, got 3",
    ],
    [
      "rows of other tokens",
      { edits: [{ at: "q", layer: 0, head: 0, set: { data: new Float32Array(12), shape: [1, 12] } }] },
      "expected shape [7, 12], a row for each token, got [1, 12]",
    ],
    [
      "a token too many",
      { edits: [{ at: "q", layer: 0, set: 0, tokens: [7] }] },
      "options.edits[0].tokens[0] expected an integer from 0 to 6, got 7",
    ],
    ["a token twice", { edits: [{ at: "q", layer: 0, set: 0, tokens: [1, 1] }] }, "each once, got [1, 1]"],
    [
      "NaN",
      { edits: [{ at: "q", layer: 0, scale: Number.NaN }] },
      "options.edits[0].scale expected a finite number, got NaN",
    ],
    ["a layer's pattern twice", { patterns: [1, 1] }, "options.patterns expected layers, each once, got [1, 1]"],
    ["a word that is none", { edits: [{ at: "q", layer: 0, zero: true }] }, "zero"],
  ])("refuses %s, and leaves the session as it is", (_, options, text) => {
    using session = createSession(model);
    expect(() => forwardWith(session, IDS, options)).toThrow(text);
    expect(session.length).toBe(0);
  });
});

test.each(["llama", "gemma2", "gpt_oss"] as const)(
  "%s: patterns are those of the heads: weights times values are z",
  async (name) => {
    const model = await load(name);
    using session = createSession(model);
    forward(session, IDS.slice(0, 2));
    const long = Array.from({ length: 300 }, (_, i) => (i * 31) % 67);
    const { patterns, captured } = forwardWith(session, long, {
      patterns: [0, 1],
      capture: [
        { at: "z", layer: 0 },
        { at: "v", layer: 0 },
      ],
    });
    expect(patterns.map(({ shape }) => shape)).toEqual([
      [4, 300, 302],
      [4, 300, 302],
    ]);
    using whole = createSession(model);
    const all = forwardWith(whole, [...IDS.slice(0, 2), ...long], { capture: [{ at: "v", layer: 0 }] }).captured[0]!;
    const [z] = captured as [Tensor];
    for (const head of [0, 3])
      for (const token of [0, 1, 128, 255, 256, 299]) {
        const weights = patterns[0]!.data.subarray((head * 300 + token) * 302, (head * 300 + token + 1) * 302);
        expect(weights.subarray(token + 3).every((weight) => weight === 0)).toBe(true);
        const want = Float32Array.from({ length: 12 }, (_, d) =>
          weights.reduce((sum, weight, key) => sum + weight * all.data[key * 24 + (head >> 1) * 12 + d]!, 0),
        );
        expect(distance(row(z, token).subarray(head * 12, head * 12 + 12), want)).toBeLessThan(1e-5);
      }
  },
);

test("patterns of latent attention have the same bits at once and in chunks, rows that sum to 1, and leave the logits", async () => {
  const model = await load("deepseek_v3");
  using plain = createSession(model);
  const long = Array.from({ length: 300 }, (_, i) => (i * 31) % 67);
  const { logits } = forward(plain, long, { rows: "all" });
  using whole = createSession(model);
  const once = forwardWith(whole, long, { rows: "all", patterns: [1, 0] });
  expect(once.logits).toEqual(logits);
  using pieces = createSession(model);
  forward(pieces, long.slice(0, 170));
  const { patterns } = forwardWith(pieces, long.slice(170), { patterns: [0] });
  expect(patterns[0]!.shape).toEqual([4, 130, 300]);
  for (const head of [0, 3])
    for (const token of [170, 255, 256, 299]) {
      const at = (head * 300 + token) * 300;
      const weights = once.patterns[1]!.data.subarray(at, at + 300);
      expect(weights.reduce((sum, weight) => sum + weight, 0)).toBeCloseTo(1, 5);
      expect(weights.subarray(token + 1).every((weight) => weight === 0)).toBe(true);
      const own = (head * 130 + token - 170) * 300;
      expect(patterns[0]!.data.subarray(own, own + 300)).toEqual(weights);
    }
});

test("the queries and keys of latent attention are its projections: edited ones change z as scaled weights would", async () => {
  const tensors = tinyTensors(TINY.deepseek_v3);
  const doubled = Array.from(tensors, ([name, { data, shape }]): [string, Tensor] => {
    return [
      name,
      {
        data: /layers\.0\.self_attn\.(q_b_proj|kv_a_proj_with_mqa)\./.test(name) ? data.map((x) => 2 * x) : data,
        shape,
      },
    ];
  });
  const [model, other] = [
    await load("deepseek_v3"),
    await loadModel(kernels, tinyFolder(TINY.deepseek_v3, new Map(doubled))),
  ];
  const edits: Edit[] = [
    { at: "q", layer: 0, scale: 2 },
    { at: "k", layer: 0, scale: 2 },
  ];
  using edited = createSession(model);
  using scaled = createSession(other);
  expect(forwardWith(edited, IDS, { rows: "all", edits }).logits).toEqual(forward(scaled, IDS, { rows: "all" }).logits);
  edited.truncate(0);
  const { captured } = forwardWith(edited, IDS, {
    capture: [
      { at: "k", layer: 0 },
      { at: "q", layer: 0, head: 1 },
    ],
  });
  expect(captured.map(({ shape }) => shape)).toEqual([
    [7, 24],
    [7, 20],
  ]);
});

test("the residual behind a layer of attention alone is that behind attention", async () => {
  const model = await loadModel(kernels, "model");
  using session = createSession(model);
  const sites: Site[] = ["residMid", "residPost"].map((at) => ({ at: at as "residPost", layer: 1 }));
  const [middle, post] = forwardWith(session, IDS, { capture: sites }).captured;
  expect(post).toEqual(middle);
  expect(largest(post!.data)).toBeGreaterThan(0);
});

test("layers that run attention and MLP side by side have no residual between them", async () => {
  using session = createSession(await load("phi"));
  expect(() => forwardWith(session, IDS, { capture: [{ at: "residMid", layer: 0 }] })).toThrow("side by side");
  const { captured } = forwardWith(session, IDS, { capture: [{ at: "mlpOut", layer: 0 }] });
  expect(captured[0]!.shape).toEqual([IDS.length, 40]);
});

test("heads of latent attention are captured and edited, their values are refused", async () => {
  const model = await load("deepseek_v3");
  using session = createSession(model);
  expect(() => forwardWith(session, IDS, { capture: [{ at: "v", layer: 0 }] })).toThrow("values are made of latents");
  expect(() => forwardWith(session, IDS, { capture: [{ at: "k", layer: 0, head: 1 }] })).toThrow("from 0 to 0, got 1");
  const heads = [0, 1, 2, 3].map((head): Edit => ({ at: "z", layer: 1, head, set: 0 }));
  const { captured, logits } = forwardWith(session, IDS, {
    edits: heads,
    capture: [
      { at: "attnOut", layer: 1 },
      { at: "z", layer: 0 },
    ],
  });
  // The bias of the output projection is all that is left.
  const [bias, ...others] = IDS.map((_, i) => row(captured[0]!, i));
  for (const other of others) expect(other).toEqual(bias);
  expect(captured[1]!.shape).toEqual([IDS.length, 40]);
  using without = createSession(model);
  expect(forwardWith(without, IDS, { edits: [{ at: "attnOut", layer: 1, set: bias! }] }).logits).toEqual(logits);
});

test.each(["gemma4_text", "gemma3n_text"] as const)(
  "%s: layers that attend the keys of others have none to see, and their residual is no sum",
  async (name) => {
    const model = await loadModel(kernels, tinyFolder(TINY_FEATURES[name]));
    using session = createSession(model);
    expect(() => forwardWith(session, IDS, { capture: [{ at: "k", layer: 4 }] })).toThrow("those of another layer");
    const { captured, logits } = forwardWith(session, IDS, { capture: [{ at: "q", layer: 4 }], patterns: [4] });
    expect(captured[0]!.shape[0]).toBe(IDS.length);
    using other = createSession(model);
    expect(logits).toEqual(forward(other, IDS, { rows: "all" }).logits.slice(-logits.length));
    using third = createSession(model);
    using run = captureRun(third, IDS);
    expect(() => decomposeResid(run, { token: 1 })).toThrow("decomposeResid: model expected one without");
    if (name === "gemma3n_text")
      expect(() => logitLens(run)).toThrow("model expected one row of a token between layers");
  },
);
