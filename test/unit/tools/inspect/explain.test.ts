// Scores and logits split by component, against what the model itself computed. Model after model: each way in which families differ.

import { describe, expect, test } from "vitest";
import { loadKernels, type Tensor } from "../../../../src/entries/index.ts";
import {
  type CapturedRun,
  type Component,
  captureRun,
  decomposeResid,
  type Edit,
  explainScore,
  forwardWith,
  logitAttrs,
  logitLens,
  type Site,
} from "../../../../src/entries/inspect.ts";
import { latent } from "../../../../src/entries/latent.ts";
import {
  createSession,
  forward,
  loadModel,
  loadSeq2Seq,
  type Model,
  models,
  readSource,
} from "../../../../src/entries/models.ts";
import { quantized } from "../../../../src/entries/quantized.ts";
import { TINY, tinyFolder, tinyTensors } from "../../../support/tiny-models.ts";
import { seq2seqFolder } from "../../../support/tiny-seq2seq.ts";

const kernels = await loadKernels({ models, quantized, latent });
const IDS = [5, 60, 2, 33, 33, 7, 41, 8, 9, 60, 2];
const LAST = IDS.length - 1;

const SMALL = { hidden_size: 40, intermediate_size: 52, num_hidden_layers: 3, vocab_size: 67 };
const HEADS = { num_attention_heads: 5, max_position_embeddings: 128 };
/** What the tiny models lack: ALiBi, norms after the sum, narrow embeddings, norms of whole rows of queries, factors. */
const CONFIGS: Readonly<Record<string, object>> = {
  ...TINY,
  bloom: { model_type: "bloom", hidden_size: 40, n_head: 5, n_layer: 3, vocab_size: 67, seq_length: 128 },
  bloom_normed: {
    ...{ model_type: "bloom", hidden_size: 40, n_head: 5, n_layer: 3, vocab_size: 67, seq_length: 128 },
    apply_residual_connection_post_layernorm: true,
  },
  cohere: { model_type: "cohere", ...SMALL, ...HEADS, num_key_value_heads: 5, use_qk_norm: true },
  granite: {
    ...{ model_type: "granite", ...SMALL, ...HEADS, num_key_value_heads: 1, residual_multiplier: 0.3 },
    ...{ embedding_multiplier: 4, attention_multiplier: 0.2, logits_scaling: 3 },
  },
  minimax: {
    ...{ model_type: "minimax", ...SMALL, ...HEADS, num_key_value_heads: 5, num_local_experts: 3 },
    ...{
      layer_types: Array.from({ length: 3 }, () => "full_attention"),
      full_attn_alpha_factor: 1.5,
      mlp_beta_factor: 0.7,
    },
  },
  olmo2: { model_type: "olmo2", ...SMALL, ...HEADS, num_key_value_heads: 5 },
  opt: {
    ...{
      model_type: "opt",
      hidden_size: 40,
      ffn_dim: 52,
      num_hidden_layers: 3,
      vocab_size: 67,
      do_layer_norm_before: false,
    },
    ...{ ...HEADS, word_embed_proj_dim: 24 },
  },
};
const NAMES = Object.keys(CONFIGS);

const load = (name: string, weights?: "f16" | "q8" | "q4") =>
  loadModel(kernels, tinyFolder(CONFIGS[name]!), weights && { weights });
const sum = (values: Iterable<number>) => [...values].reduce((total, value) => total + value, 0);
const size = (values: Iterable<number>) => sum([...values].map(Math.abs));
const layersOf = (model: Model) => Array.from({ length: model.layers }, (_, layer) => layer);
const labels = (components: readonly Component[]) =>
  components.map(({ kind, at, layer, head }) => [kind, at, layer, head].filter((each) => each !== undefined).join(" "));

type Explained = ReturnType<typeof explainScore>;

/** A run in a session of its own, and the softmax weights of its layers. */
function runOf(model: Model, ids: readonly number[] = IDS): { run: CapturedRun; patterns: Tensor[] } {
  using session = createSession(model);
  const { patterns } = forwardWith(session, ids, { patterns: layersOf(model) });
  session.truncate(0);
  return { run: captureRun(session, ids), patterns };
}

/**
 * Differences of scores are those of the logarithms of softmax weights. Largest error and largest rounding of some scores of each
 * layer, each beside 1 + the sum of the parts' magnitudes.
 */
function errorOf(model: Model): { error: number; rounding: number } {
  const { run, patterns } = runOf(model);
  let [error, rounding] = [0, 0];
  for (const [layer, { data, shape }] of patterns.entries())
    for (const head of [0, shape[0]! - 1])
      for (const query of [3, LAST]) {
        const weights = data.subarray((head * shape[1]! + query) * shape[2]!).subarray(0, shape[2]!);
        const explained = [query, query - 1, query - 3].map((key) => {
          const all = explainScore(run, { layer, head, query, key });
          const { parts, byQuery, byKey, components, qk, softcap, alibi, score } = all;
          const most = 1 + size(parts);
          expect(Math.abs(sum(parts) - qk) / most).toBeLessThan(1e-15);
          expect(Math.abs(sum(byQuery) - qk) / most).toBeLessThan(1e-15);
          expect(Math.abs(sum(byKey) - qk) / most).toBeLessThan(1e-15);
          expect(qk + softcap + alibi).toBe(score);
          expect([components.query.at(-1), components.key.at(-1)]).toEqual([
            { kind: "rounding" },
            { kind: "rounding" },
          ]);
          rounding = Math.max(rounding, Math.abs(byQuery.at(-1)!) / most, Math.abs(byKey.at(-1)!) / most);
          return { most, less: score - Math.log(weights[key]!) };
        });
        for (const { most, less } of explained)
          error = Math.max(error, Math.abs(less - explained[0]!.less) / (most + explained[0]!.most));
      }
  return { error, rounding };
}

describe.each(NAMES)("%s", async (name) => {
  const model = await load(name);

  test("the parts of a score sum to the score that the softmax took, within 1e-6, and rounding is within 1e-6", () => {
    const { error, rounding } = errorOf(model);
    expect(error).toBeLessThan(1e-6);
    expect(rounding).toBeLessThan(1e-6);
  });

  test("the difference of two scores is that of each of their parts", () => {
    const { run } = runOf(model);
    const place = { layer: 1, head: 1, query: LAST };
    const [a, b] = [LAST - 2, LAST - 5].map((key) => explainScore(run, { ...place, key })) as [Explained, Explained];
    const both = explainScore(run, { ...place, key: LAST - 2, minus: LAST - 5 });
    expect(both.components).toEqual(a.components);
    expect(b.components).toEqual(a.components);
    for (const field of ["score", "qk", "softcap", "alibi"] as const)
      expect(both[field]).toBeCloseTo(a[field] - b[field], 10);
    for (const field of ["parts", "byQuery", "byKey"] as const)
      for (const [i, part] of both[field].entries()) expect(part).toBeCloseTo(a[field][i]! - b[field][i]!, 10);
    expect(both.parts[both.components.key.length]).toBeCloseTo(
      a.parts[a.components.key.length]! - b.parts[b.components.key.length]!,
      10,
    );
  });

  test("the parts of a logit sum to the logit within 1e-6 of their magnitudes, and so do those of differences", () => {
    const { run } = runOf(model);
    const { softcap } = model.spec.head;
    for (const id of [0, 66]) {
      const { logit, parts } = logitAttrs(run, { token: LAST, id });
      const capped = softcap ? softcap * Math.tanh(logit / softcap) : logit;
      expect(Math.abs(capped - run.logits[id]!)).toBeLessThan(1e-6 * (1 + size(parts)));
      expect(Math.abs(parts.at(-1)!)).toBeLessThan(1e-6 * (1 + size(parts)));
    }
    const [a, b] = [7, 30].map((id) => logitAttrs(run, { token: 4, id }));
    const both = logitAttrs(run, { token: 4, id: 7, minus: 30 });
    expect(both.components).toEqual(a!.components);
    for (const [i, part] of both.parts.entries()) expect(part).toBeCloseTo(a!.parts[i]! - b!.parts[i]!, 12);
  });

  test("the parts of a residual sum to its row within 1e-6 of the largest float", () => {
    const { run } = runOf(model);
    using session = createSession(model);
    const capture = layersOf(model).map((layer): Site => ({ at: "residPre", layer }));
    const { captured } = forwardWith(session, IDS, { capture });
    for (const layer of layersOf(model)) {
      const { components, parts } = decomposeResid(run, { token: 6, layer });
      const [count, width] = parts.shape as [number, number];
      expect(components.length).toBe(count);
      const row = captured[layer]!.data.subarray(6 * width, 7 * width);
      const largest = Math.max(...row.map(Math.abs));
      for (let d = 0; d < width; d++) {
        const all = Array.from({ length: count }, (_, i) => parts.data[i * width + d]!);
        expect(Math.abs(sum(all) - row[d]!)).toBeLessThan(1e-6 * (largest + size(all)));
        expect(Math.abs(all.at(-1)!)).toBeLessThan(1e-6 * (largest + size(all)));
      }
    }
  });

  test("the lens at the last layer has the bits of the logits, and those of a residual that is patched there", () => {
    using session = createSession(model);
    const all = forward(session, IDS, { rows: "all" }).logits;
    const { run } = runOf(model);
    const { logits, logSumExp } = logitLens(run);
    const floats = all.length;
    expect(logits.shape).toEqual([model.layers, IDS.length, model.vocabSize]);
    expect(logits.data.subarray(-floats)).toEqual(all);
    const row = all.subarray(-model.vocabSize);
    expect(logSumExp.data.at(-1)!).toBeCloseTo(Math.log(sum(row.map(Math.exp))), 5);
    session.truncate(0);
    const last = model.layers - 1;
    const first = forwardWith(session, IDS, { capture: [{ at: "residPost", layer: 0 }] }).captured[0]!;
    session.truncate(0);
    const edits: Edit[] = [{ at: "residPost", layer: last, set: first }];
    expect(forwardWith(session, IDS, { rows: "all", edits }).logits).toEqual(logits.data.subarray(0, floats));
    const { logits: values, ids } = logitLens(run, { tokens: [LAST, 0], top: 2, at: "residPre" });
    expect([values.shape, ids!.length]).toEqual([[model.layers, 2, 2], model.layers * 4]);
    const own = logitLens(run, { tokens: [LAST], at: "residPre" }).logits.data.subarray(0, model.vocabSize);
    expect([...values.data.subarray(0, 2)]).toEqual([...ids!.subarray(0, 2)].map((id) => own[id]));
    expect(values.data[0]).toBe(Math.max(...own));
  });
});

test.each(["f16", "q8", "q4"] as const)(
  "with weights of %s, the parts sum to the model's score within 1e-6; what activations lost is the rounding",
  async (weights) => {
    for (const name of ["llama", "gemma2", "gpt2", "qwen3_moe"]) {
      const { error, rounding } = errorOf(await load(name, weights));
      expect(error, name).toBeLessThan(1e-6);
      expect(rounding, name).toBeLessThan(weights === "f16" ? 1e-6 : 1e-3);
      if (weights !== "f16") expect(rounding, name).toBeGreaterThan(1e-6);
    }
  },
);

test("with integer weights, latent attention lacks the rounding of its product with W_uk only, 1e-3 at most", async () => {
  const { error, rounding } = errorOf(await load("deepseek_v3", "q8"));
  expect(error).toBeLessThan(1e-3);
  expect(rounding).toBeLessThan(5e-3);
});

test("each component has its part: of tokens, positions, heads, MLPs and biases, where a model has them", async () => {
  const explain = async (name: string) => {
    const { run } = runOf(await load(name));
    const { components } = explainScore(run, { layer: 1, head: 0, query: 5, key: 2 });
    return {
      query: labels(components.query),
      key: labels(components.key),
      logit: labels(logitAttrs(run, { token: 2, id: 0 }).components),
    };
  };
  const heads = (layer: number, count: number) => Array.from({ length: count }, (_, head) => `head ${layer} ${head}`);
  const before = ["embed", "posEmbed", ...heads(0, 3), "bias attnOut 0", "mlp 0"];
  expect(await explain("gpt2")).toEqual({
    query: [...before, "bias q 1", "rounding"],
    key: [...before, "bias k 1", "rounding"],
    logit: [...before, ...heads(1, 3), "bias attnOut 1", "mlp 1", "bias logits", "rounding"],
  });
  const moe = ["embed", ...heads(0, 4), "bias attnOut 0", "mlp 0", "bias k 1", "rounding"];
  expect((await explain("qwen3_moe")).key).toEqual(moe);
  // Norms behind the sums have biases; what comes before them is scaled by each.
  const opt = ["embed", "posEmbed", ...heads(0, 5), "bias attnOut 0", "bias residMid 0", "mlp 0", "bias residPost 0"];
  expect((await explain("opt")).query).toEqual([...opt, "bias q 1", "rounding"]);
});

test.each([
  ["gpt2", "transformer.wpe.weight", 0],
  ["opt", "model.decoder.embed_positions.weight", 2],
] as const)(
  "%s: posEmbed is the row of the table, and embed that of the token at any position",
  async (name, table, offset) => {
    const tensors = tinyTensors(CONFIGS[name]!);
    const model = await loadModel(kernels, tinyFolder(CONFIGS[name]!, tensors));
    using session = createSession(model);
    forward(session, [1, 2]);
    using run = captureRun(session, IDS);
    const width = model.dModel;
    const [first, second] = [3, 4].map((token) => decomposeResid(run, { token, layer: 0 }).parts.data);
    const row = 2 + 3 + offset;
    const position = tensors.get(table)!.data.slice(row * width, (row + 1) * width);
    expect(first!.slice(width, 2 * width)).toEqual(position);
    // Tokens 3 and 4 have one id.
    for (let d = 0; d < width; d++) expect(first![d]).toBeCloseTo(second![d]!, 6);
    expect(first!.slice(0, width)).not.toEqual(new Float32Array(width));
  },
);

test.each(["llama", "gpt2", "phi", "qwen2_moe", "gpt_oss", "deepseek_v3", "bloom"])(
  "%s: what attention gives loses a head's part when the head is set to 0, and the MLP's part is what it gave",
  async (name) => {
    const model = await load(name);
    const { run } = runOf(model);
    using session = createSession(model);
    const [layer, head, token] = [1, 1, 7];
    const capture = [
      { at: "attnOut", layer },
      { at: "mlpOut", layer: 0 },
    ] as const;
    const [attnOut, mlpOut] = forwardWith(session, IDS, { capture }).captured as [Tensor, Tensor];
    session.truncate(0);
    const edits: Edit[] = [{ at: "z", layer, head, tokens: [token], set: 0 }];
    const [without] = forwardWith(session, IDS, { edits, capture }).captured as [Tensor];
    const { components, parts } = decomposeResid(run, { token });
    const width = model.dModel;
    const partOf = (component: Component) => {
      const at = labels(components).indexOf(labels([component])[0]!);
      return parts.data.subarray(at * width, (at + 1) * width);
    };
    const rowOf = ({ data }: Tensor) => data.subarray(token * width, (token + 1) * width);
    const lost = rowOf(attnOut).map((value, d) => value - rowOf(without)[d]!);
    const largest = Math.max(...rowOf(attnOut).map(Math.abs));
    for (const [d, value] of partOf({ kind: "head", layer, head }).entries())
      expect(Math.abs(value - lost[d]!)).toBeLessThan(1e-6 * largest);
    expect(partOf({ kind: "mlp", layer: 0 })).toEqual(rowOf(mlpOut));
  },
);

describe("the model that was trained to repeat", async () => {
  const model = await loadModel(kernels, "model");
  const half = Array.from({ length: 20 }, (_, i) => (i * i * 7 + i * 13 + 5) % 90);
  const text = [...half, ...half];
  const { run, patterns } = runOf(model, text);
  const heads = [0, 1, 2, 3];

  test("looks at what followed a token because of the heads that look at the token before, which its patterns show", () => {
    const before = heads.map((head) =>
      sum(text.map((_, i) => (i ? patterns[0]!.data[(head * 40 + i) * 40 + i - 1]! : 0))),
    );
    for (const head of heads) {
      const { byKey, qk } = explainScore(run, { layer: 1, head, query: 30, key: 11 });
      const [first, second] = heads.sort((a, b) => before[b]! - before[a]!) as [number, number];
      expect(byKey[1 + first]! + byKey[1 + second]!).toBeGreaterThan(0.9 * qk);
    }
  });

  test("names the token to come by its second layer: the head that gives most is the one that is missed most", () => {
    const id = text[31]!;
    const { logit, parts } = logitAttrs(run, { token: 30, id });
    expect(sum(parts.subarray(5, 9))).toBeGreaterThan(0.9 * logit);
    expect(logitLens(run, { tokens: [30], top: 1 }).ids![1]).toBe(id);
    // The norm's scale is that of the row, which it keeps when the logit is multiplied by the change of its root mean square.
    const missed = heads.map((head) => {
      using session = createSession(model);
      const capture: Site[] = [{ at: "residPost", layer: 1 }];
      const whole = forwardWith(session, text.slice(0, 31), { capture });
      session.truncate(0);
      const edits: Edit[] = [{ at: "z", layer: 1, head, set: 0 }];
      const less = forwardWith(session, text.slice(0, 31), { edits, capture });
      const size = ({ captured: [resid] }: { captured: Tensor[] }) =>
        Math.sqrt(sum(resid!.data.subarray(-64).map((value) => value * value)) / 64 + 1e-5);
      const change = whole.logits[id]! - (less.logits[id]! * size(less)) / size(whole);
      expect(Math.abs(change - parts[5 + head]!)).toBeLessThan(1e-5 * logit);
      return change;
    });
    expect(missed.indexOf(Math.max(...missed))).toBe(parts.indexOf(Math.max(...parts)) - 5);
  });
});

test("a run of a session that has read tokens has their positions", async () => {
  const model = await load("llama");
  const { run } = runOf(model);
  using session = createSession(model);
  forward(session, IDS.slice(0, 4));
  using later = captureRun(session, IDS.slice(4));
  expect([later.past, later.ids, session.length]).toEqual([4, IDS.slice(4), IDS.length]);
  expect(explainScore(later, { layer: 1, head: 2, query: 5, key: 0 })).toEqual(
    explainScore(run, { layer: 1, head: 2, query: 9, key: 4 }),
  );
  expect(later.logits).toEqual(run.logits);
});

test("a query and a key of one token, and a layer without earlier ones", async () => {
  const { run } = runOf(await load("llama"));
  const { components, byQuery, qk } = explainScore(run, { layer: 0, head: 3, query: 2, key: 2 });
  expect(labels(components.query)).toEqual(["embed", "bias q 0", "rounding"]);
  expect(byQuery[0]! + byQuery[1]!).toBeCloseTo(qk, 5);
});

describe("refuses", async () => {
  const model = await load("gemma2");
  const { run } = runOf(
    model,
    Array.from({ length: 14 }, (_, i) => i),
  );
  const place = { layer: 0, head: 0, query: 12, key: 12 };

  test.each<[string, () => unknown, string]>([
    [
      "a run of another kind",
      () => explainScore({} as CapturedRun, place),
      "explainScore: run expected what captureRun gives",
    ],
    [
      "a layer too many",
      () => explainScore(run, { ...place, layer: 2 }),
      "place.layer expected an integer from 0 to 1, got 2",
    ],
    [
      "a head too many",
      () => explainScore(run, { ...place, head: 4 }),
      "place.head expected an integer from 0 to 3, got 4",
    ],
    [
      "a later key",
      () => explainScore(run, { ...place, key: 13 }),
      "place.key expected an integer from 4 to 12, got 13",
    ],
    [
      "another key that is not seen",
      () => explainScore(run, { ...place, minus: 13 }),
      "place.minus expected an integer from 4 to 12, got 13",
    ],
    ["a key outside of the window", () => explainScore(run, { ...place, key: 3 }), "from 4 to 12, got 3"],
    [
      "a token too many",
      () => explainScore(run, { ...place, query: 14 }),
      "place.query expected an integer from 0 to 13, got 14",
    ],
    [
      "a misspelt field",
      () => explainScore(run, { ...place, keys: 3 } as never),
      "place expected only layer, head, query, key, minus",
    ],
    [
      "an id too many",
      () => logitAttrs(run, { token: 0, id: 67 }),
      "logitAttrs: place.id expected an integer from 0 to 66, got 67",
    ],
    [
      "minus an id below 0",
      () => logitAttrs(run, { token: 0, id: 6, minus: -1 }),
      "place.minus expected an integer from 0 to 66",
    ],
    [
      "a residual of no layer",
      () => decomposeResid(run, { token: 0, layer: 2 }),
      "decomposeResid: place.layer expected",
    ],
    [
      "a site that is none",
      () => logitLens(run, { at: "mlpOut" as never }),
      'logitLens: options.at expected "residPre" or',
    ],
    ["a token twice", () => logitLens(run, { tokens: [1, 1] }), "options.tokens expected 1 to 14 tokens, each once"],
    ["more than there are", () => logitLens(run, { top: 68 }), "options.top expected an integer from 1 to 67, got 68"],
  ])("%s", (_, call, text) => {
    expect(call).toThrow(text);
  });

  test("what was released, and no session", async () => {
    const own = await load("phi");
    const { run } = runOf(own);
    expect(() => logitLens(run, { at: "residMid" })).toThrow("layer 0, which runs attention and MLP side by side");
    own.release();
    expect(() => explainScore(run, place)).toThrow("explainScore: model was released");
    run.release();
    expect(() => explainScore(run, place)).toThrow("explainScore: run was released");
    expect(() => captureRun({} as never, IDS)).toThrow("captureRun: session expected what createSession gives");
    const session = await readSource(await loadSeq2Seq(kernels, seq2seqFolder("t5")), [1, 2]);
    expect(() => captureRun(session, [0])).toThrow("captureRun: session expected one without an encoder");
  });
});
