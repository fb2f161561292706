import { expect, test } from "vitest";
import { addRows, mapOf, shrink } from "../../../site/worker/inspect-maps.ts";
import { type Rules, ruledLayer } from "../../../site/worker/inspect-rules.ts";
import { loadKernels } from "../../../src/entries/index.ts";
import { forwardWith } from "../../../src/entries/inspect.ts";
import { latent } from "../../../src/entries/latent.ts";
import { createSession, loadModel, models } from "../../../src/entries/models.ts";
import { TINY, tinyFolder } from "../../support/tiny-models.ts";

const kernels = await loadKernels({ models, latent });
const IDS = Array.from({ length: 24 }, (_, i) => (i * 29 + 5) % 67);
const RUN = { edits: [], cache: "f32" } as const;
/** A window that is wider than the text leaves a layer's own rules. */
const OWN: Rules = { layer: 1, causal: true, window: 1000, first: "seen", kvHeads: 0 };

const BASE = {
  hidden_size: 40,
  intermediate_size: 52,
  num_hidden_layers: 2,
  vocab_size: 67,
  tie_word_embeddings: true,
};
const GROUPED = { ...BASE, num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 512 };
const FACTORS = { attention_multiplier: 0.7, residual_multiplier: 0.5, embedding_multiplier: 2, logits_scaling: 3 };
const CONFIGS = {
  llama: TINY.llama,
  gpt2: TINY.gpt2,
  "phi, with norms of queries and keys": TINY.phi,
  "bloom, with ALiBi": { model_type: "bloom", hidden_size: 40, n_head: 5, n_layer: 2, vocab_size: 67 },
  "mistral, with a window": { model_type: "mistral", ...GROUPED, sliding_window: 9 },
  "granite, with a scale of its own": { model_type: "granite", ...GROUPED, ...FACTORS },
};

test.each(Object.entries(CONFIGS))(
  "rules that change nothing give the weights and logits of %s within 1e-5",
  async (_, config) => {
    using model = await loadModel(kernels, tinyFolder(config));
    const { patterns, logits } = forwardWith(createSession(model), IDS, { patterns: [1] });
    const { weights, edit } = ruledLayer(model, IDS, OWN, RUN);
    const own = patterns[0]!.data;
    expect(Math.max(...weights.data.map((weight, i) => Math.abs(weight - own[i]!)))).toBeLessThan(1e-5);
    const again = forwardWith(createSession(model), IDS, { edits: [edit] }).logits;
    expect(Math.max(...again.map((logit, i) => Math.abs(logit - logits[i]!)))).toBeLessThan(1e-5);
  },
);

test.each<[string, object, Partial<Rules>, RegExp]>([
  ["a softcap", TINY.gemma2, {}, /^Layer 1 limits its scores: the switches of rules do not apply to it\.$/],
  ["sinks", TINY.gpt_oss, {}, /^Layer 1 has sinks of its own: /],
  ["norms of keys, for groups", TINY.qwen3_moe, { kvHeads: 1 }, /^Layer 1 normalises its keys, /],
  ["latent attention", TINY.deepseek_v3, {}, /^Layer 1 has latent attention, whose heads have no keys: /],
])("layers with %s are refused in a sentence", async (_, config, rules, sentence) => {
  using model = await loadModel(kernels, tinyFolder(config));
  expect(() => ruledLayer(model, IDS, { ...OWN, ...rules }, RUN)).toThrow(sentence);
});

test("maps that grow by a row have the rows of maps that are made at once, and their rasters the largest weight", () => {
  const [heads, n] = [3, 70]; // more than there is room for at first
  const weights = Float32Array.from({ length: heads * n * n }, (_, i) =>
    i % n > Math.floor(i / n) % n ? 0 : (i * 37) % 101,
  );
  const rowsOf = (from: number, to: number) => {
    const data = new Float32Array(heads * (to - from) * to);
    for (let head = 0; head < heads; head++)
      for (let i = from; i < to; i++) {
        const at = (head * n + i) * n;
        data.set(weights.subarray(at, at + to), (head * (to - from) + i - from) * to);
      }
    return { data, shape: [heads, to - from, to] };
  };
  let maps = addRows(undefined, rowsOf(0, 60), 0);
  for (let i = 60; i < n; i++) maps = addRows(maps, rowsOf(i, i + 1), i);
  for (let head = 0; head < heads; head++)
    expect(mapOf(maps, head, n)).toEqual(weights.slice(head * n * n, (head + 1) * n * n));
  const side = 7;
  const small = shrink([maps], n, side);
  const wanted = new Float32Array(heads * side * side);
  for (let head = 0; head < heads; head++)
    for (let i = 0; i < n; i++)
      for (let j = 0; j < n; j++) {
        const at = (head * side + Math.floor((i * side) / n)) * side + Math.floor((j * side) / n);
        wanted[at] = Math.max(wanted[at]!, weights[(head * n + i) * n + j]!);
      }
  expect(small).toEqual(wanted);
});
