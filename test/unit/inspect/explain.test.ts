// Scores and logits split by source, against what the model itself computed. Model after model: each way in which families differ.

import { describe, expect, test } from "vitest";
import { loadKernels, type Tensor } from "../../../src/entries/index.ts";
import {
  type CapturedRun,
  captureRun,
  decomposeResid,
  type Edit,
  explainScore,
  forwardWith,
  logitAttrs,
  logitLens,
  type Site,
  type Source,
} from "../../../src/entries/inspect.ts";
import { latent } from "../../../src/entries/latent.ts";
import { createSession, forward, loadModel, type Model, models } from "../../../src/entries/models.ts";
import { quantized } from "../../../src/entries/quantized.ts";
import { TINY, tinyFolder, tinyTensors } from "../../support/tiny-models.ts";

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
  olmo2: { model_type: "olmo2", ...SMALL, ...HEADS, num_key_value_heads: 5 },
  opt: {
    ...{ model_type: "opt", hidden_size: 40, ffn_dim: 52, num_hidden_layers: 3, vocab_size: 67, do_layer_norm_before: false },
    ...{ ...HEADS, word_embed_proj_dim: 24 },
  },
};
const NAMES = Object.keys(CONFIGS);

const load = (name: string, weights?: "f16" | "q8" | "q4") =>
  loadModel(kernels, tinyFolder(CONFIGS[name]!), weights && { weights });
const sum = (values: Iterable<number>) => [...values].reduce((total, value) => total + value, 0);
const size = (values: Iterable<number>) => sum([...values].map(Math.abs));
const layersOf = (model: Model) => Array.from({ length: model.layers }, (_, layer) => layer);
const labels = (sources: readonly Source[]) =>
  sources.map((source) => Object.values({ ...source, kind: source.kind }).join(" "));

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
          const { parts, byQuery, byKey, sources, qk, softcap, alibi, score } = all;
          const most = 1 + size(parts);
          expect(Math.abs(sum(parts) - qk) / most).toBeLessThan(1e-15);
          expect(Math.abs(sum(byQuery) - qk) / most).toBeLessThan(1e-15);
          expect(Math.abs(sum(byKey) - qk) / most).toBeLessThan(1e-15);
          expect(qk + softcap + alibi).toBe(score);
          expect([sources.query.at(-1), sources.key.at(-1)]).toEqual([{ kind: "rounding" }, { kind: "rounding" }]);
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
    expect(both.sources).toEqual(a!.sources);
    for (const [i, part] of both.parts.entries()) expect(part).toBeCloseTo(a!.parts[i]! - b!.parts[i]!, 12);
  });

  test("the parts of a residual sum to its row within 1e-6 of the largest float", () => {
    const { run } = runOf(model);
    using session = createSession(model);
    const capture = layersOf(model).map((layer): Site => ({ at: "residPre", layer }));
    const { captured } = forwardWith(session, IDS, { capture });
    for (const layer of layersOf(model)) {
      const { sources, parts } = decomposeResid(run, { token: 6, layer });
      const [count, width] = parts.shape as [number, number];
      expect(sources.length).toBe(count);
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
