// What only some families compute: the same bits at once, in chunks, token by token and among others, and memory as planned.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Kernels } from "../../src/entries/core.ts";
import { forward } from "../../src/models/decoder/forward.ts";
import { createSession } from "../../src/models/decoder/session.ts";
import { generate } from "../../src/models/generate/generate.ts";
import { generateMany } from "../../src/models/generate/generate-many.ts";
import { loadModel } from "../../src/models/load/load-model.ts";
import { planModel } from "../../src/models/load/plan-model.ts";
import { keyOf } from "../../src/models/mixers/weight.ts";
import { readDecoder } from "../../src/models/spec/read-spec.ts";
import { resolveHead, sourcesOf } from "../../src/models/spec/tensors.ts";
import { weightsOf } from "../../src/models/spec/weights.ts";
import { kernelsOf } from "../support/layers.ts";
import { sampled } from "../support/sampled.ts";
import { HYBRIDS, TINY, TINY_FEATURES, type TinyFeature, tinyFolder, tinyTensors } from "../support/tiny-models.ts";

let kernels: Kernels;
beforeAll(async () => {
  kernels = await kernelsOf("simd");
});
afterAll(() => kernels.release());

const ids = (count: number, first = 5) => Array.from({ length: count }, (_, i) => (i * 29 + first) % 67);
const NAMES = Object.keys(TINY_FEATURES) as TinyFeature[];

describe.each(NAMES)("%s", (name) => {
  const config = TINY_FEATURES[name];

  test("logits have the same bits at once, in chunks, token by token and behind a fork", async () => {
    using model = await loadModel(kernels, tinyFolder(config));
    const open = () => createSession(model, { maxSeqLen: 300 });
    const [whole, parts, single] = [open(), open(), open()];
    const all = forward(whole, ids(150), { rows: "all" }).logits;
    expect(all.every(Number.isFinite)).toBe(true);
    const pieces = [ids(150).slice(0, 37), ids(150).slice(37, 38), ids(150).slice(38)];
    expect(pieces.flatMap((piece) => [...forward(parts, piece, { rows: "all" }).logits])).toEqual([...all]);
    const last = ids(150).map((id) => forward(single, [id]).logits);
    expect(last.flatMap((row) => [...row])).toEqual([...all]);
    using fork = whole.fork();
    expect(forward(fork, [3, 4]).logits).toEqual(forward(single, [3, 4]).logits);
    for (const session of [whole, parts, single]) session.release();
  });

  test("tokens of many sequences are those of each alone", async () => {
    using model = await loadModel(kernels, tinyFolder(config));
    const prompts = [ids(20), ids(33, 2), ids(1, 7)];
    const alone: number[][] = [];
    for (const prompt of prompts) {
      const own: number[] = [];
      for await (const { id } of generate(createSession(model, { maxSeqLen: 64 }), prompt, { maxTokens: 6 }))
        own.push(id);
      alone.push(own);
    }
    const jobs = prompts.map((prompt) => ({
      session: createSession(model, { maxSeqLen: 64 }),
      ids: prompt,
      maxTokens: 6,
    }));
    const together = new Map(jobs.map((job) => [job, [] as number[]]));
    for await (const { job, token } of generateMany(jobs))
      if (token) together.get(job as (typeof jobs)[number])?.push(token.id);
    expect([...together.values()]).toEqual(alone);
  });

  const formats = sampled(["f32", "f16", "q8", "q4"] as const, 2, undefined, NAMES.indexOf(name));
  test.each(formats)("planModel is exact with weights %s", async (weights) => {
    using own = await kernelsOf("relaxed");
    for (const [rows, outputs] of [
      [1, 1],
      [40, 40],
      [200, 1],
    ] as const) {
      const plan = planModel(config, { maxSeqLen: 210, weights, rows, outputs });
      const before = own.usedBytes;
      using model = await loadModel(own, tinyFolder(config), { weights, maxSeqLen: 210 });
      expect([model.bytes, own.usedBytes - before]).toEqual([plan.weights, plan.weights]);
      using session = createSession(model, { maxSeqLen: 210 });
      forward(session, ids(rows), { rows: outputs > 1 ? "all" : "last" });
      expect(own.usedBytes).toBe(plan.total);
    }
  });

  test("each weight is in the list once, and in one tensor unless files may lack it", () => {
    const half = resolveHead(readDecoder("test", config));
    const nameOf = (weight: Parameters<typeof keyOf>[0] & { layer?: number | undefined }) =>
      `${weight.layer} ${keyOf(weight)}`;
    const weights = [...weightsOf(half.spec)];
    const held = [...sourcesOf(half, "")].flatMap((source) => source.weights.map(nameOf));
    expect(new Set(held).size).toBe(held.length);
    expect(weights.filter((each) => !each.optional && each.shape[0] > 0 && !held.includes(nameOf(each)))).toEqual([]);
    expect(new Set(weights.map(nameOf)).size).toBe(weights.length);
  });
});

describe("what a config.json states is computed", () => {
  const logitsOf = async (config: object, tensors = tinyTensors(config)) => {
    using model = await loadModel(kernels, tinyFolder(config, tensors));
    using session = createSession(model, { maxSeqLen: 100 });
    return forward(session, ids(40), { rows: "all" }).logits;
  };
  const norm = (values: Float32Array, other: Float32Array) =>
    values.reduce((most, value, i) => Math.max(most, Math.abs(value - (other[i] as number))), 0);

  test("a limit that no value reaches changes no bit, and a small one does", async () => {
    const of = (clip_qkv: number | null) =>
      logitsOf({ ...TINY_FEATURES.olmo, clip_qkv }, tinyTensors(TINY_FEATURES.olmo));
    const plain = await of(null);
    expect(await of(1e5)).toEqual(plain);
    expect(norm(await of(0.1), plain)).toBeGreaterThan(1e-3);
  });

  test("a limit is behind the norms of queries and keys", async () => {
    const config = { ...TINY_FEATURES.olmo, clip_qkv: null, num_experts: 4, num_experts_per_tok: 2 };
    const of = async (clip_qkv: number | null) => {
      const tensors = tinyTensors({ ...config, model_type: "olmoe" });
      // Far beyond the limit before the norms, and within it behind them.
      for (const [name, tensor] of tensors)
        if (/self_attn\.[qk]_proj\.weight$/.test(name))
          tensors.set(name, { ...tensor, data: tensor.data.map((x) => 1e4 * x) });
      return logitsOf({ ...config, model_type: "olmoe", clip_qkv }, tensors);
    };
    expect(await of(100)).toEqual(await of(null));
  });

  test("the outputs of heads take part by the sigmoid of the gate", async () => {
    const config = TINY_FEATURES.afmoe;
    const tensors = tinyTensors(config);
    const open = new Map(
      [...tensors].map(([name, tensor]) => {
        if (!name.endsWith("self_attn.gate_proj.weight")) return [name, tensor];
        return [name, { ...tensor, data: tensor.data.map(() => 0) }];
      }),
    );
    // sigmoid(0) halves what the output projection doubles.
    const doubled = new Map(
      [...open].map(([name, tensor]) =>
        name.endsWith("o_proj.weight") ? [name, { ...tensor, data: tensor.data.map((x) => 2 * x) }] : [name, tensor],
      ),
    );
    const half = await logitsOf(config, open as typeof tensors);
    expect(norm(await logitsOf(config, doubled as typeof tensors), half)).toBeGreaterThan(1e-3);
    expect(norm(await logitsOf(config, tensors), half)).toBeGreaterThan(1e-3);
  });

  test("queries grow from the trained length on, and not before", async () => {
    const config = TINY_FEATURES.ministral3;
    const of = (beta: number, length: number) =>
      logitsOf({
        ...config,
        rope_parameters: {
          ...config.rope_parameters,
          llama_4_scaling_beta: beta,
          original_max_position_embeddings: length,
          rope_type: "default",
        },
      });
    const [plain, late, early] = [await of(0, 16), await of(0.5, 64), await of(0.5, 16)];
    expect(late).toEqual(plain);
    expect(early.subarray(0, 16 * 67)).toEqual(plain.subarray(0, 16 * 67));
    expect(norm(early.subarray(16 * 67), plain.subarray(16 * 67))).toBeGreaterThan(1e-3);
  });

  test("branches and what they are added to have factors by the kind of layer", async () => {
    const { linear_attn_alpha_factor: _, linear_attn_beta_factor: __, ...config } = HYBRIDS.minimax;
    const tensors = tinyTensors(config);
    const of = (factors: object) => logitsOf({ ...config, ...factors }, tensors);
    const plain = await of({});
    for (const kind of ["full", "linear"]) {
      const [kept, added] = [{ [`${kind}_attn_alpha_factor`]: 2 }, { [`${kind}_attn_beta_factor`]: 2 }];
      expect(norm(await of(kept), plain)).toBeGreaterThan(1e-2);
      expect(norm(await of(added), plain)).toBeGreaterThan(1e-2);
      // A norm follows, so that twice the sum is the same but for its epsilon.
      expect(norm(await of({ ...kept, ...added }), plain)).toBeLessThan(1e-3);
    }
  });

  test("a text model beside towers has the logits of the text model alone", async () => {
    const { tie_word_embeddings: _, ...text } = TINY.llama;
    const own = tinyTensors({ ...text, tie_word_embeddings: true });
    const plain = await logitsOf({ ...text, tie_word_embeddings: true }, own);
    for (const prefix of ["language_model.model.", "model.language_model.", "model.text_model."]) {
      const moved = new Map([...own].map(([name, tensor]) => [name.replace(/^model\./, prefix), tensor]));
      moved.set("vision_tower.patch.weight", { data: new Float32Array(6), shape: [2, 3] });
      const whole = { model_type: "llava", text_config: text, vision_config: {}, tie_word_embeddings: true };
      expect(await logitsOf(whole, moved)).toEqual(plain);
      const renamed = `${prefix}layers.0.self_attn.q_norm.weight`;
      const more = new Map([...moved, [renamed, { data: new Float32Array(12), shape: [12] }]]);
      await expect(logitsOf(whole, more)).rejects.toThrow(`1 unexpected: ${renamed}`);
    }
  });

  test.each<[TinyFeature | keyof typeof HYBRIDS, object, string]>([
    [
      "minimax",
      { layer_types: ["conv"] },
      'layer_types expected "full_attention" or "linear_attention" for each layer, got Array',
    ],
    ["minimax", { mlp_alpha_factor: 0 }, "mlp_alpha_factor expected a number from 1e-6 to 1e6, got 0"],
    [
      "minimax",
      { hidden_act: "gelu" },
      'hidden_act expected "silu" or "swish", since others are unsupported, got "gelu"',
    ],
    [
      "minimax",
      { num_attention_heads: 65_537, num_key_value_heads: 65_537 },
      "num_attention_heads expected an integer from 1 to 65536, got 65537",
    ],
    ["ministral3", { rope_parameters: null }, "rope_parameters expected an object, got undefined"],
    [
      "phimoe",
      { num_local_experts: 1, num_experts_per_tok: 2 },
      "num_local_experts expected at least the 2 of a token, got 1",
    ],
    ["phimoe", { num_experts_per_tok: 3 }, "num_experts_per_tok expected 2, since others are unsupported, got 3"],
    ["olmo", { clip_qkv: -1 }, "clip_qkv expected a number from 1e-6 to 1e6, got -1"],
    ["afmoe", { score_func: "softmax" }, 'score_func expected "sigmoid", since others are unsupported, got "softmax"'],
    ["hunyuan_v1_moe", { moe_topk: [2, 9] }, "moe_topk expected an integer from 1 to 4 a layer, got Array"],
    [
      "gemma4_unified_text",
      { num_kv_shared_layers: 1 },
      "num_kv_shared_layers expected 0, since others are unsupported, got 1",
    ],
    [
      "gemma4_unified_text",
      { hidden_size_per_layer_input: 8 },
      "hidden_size_per_layer_input expected 0, since others are unsupported, got 8",
    ],
    [
      "bitnet",
      { quantization_config: {} },
      "quantization_config expected a field that this package knows, or none, got Object",
    ],
  ])("%s with %o is refused by name", (name, more, message) => {
    expect(() => planModel({ ...{ ...TINY_FEATURES, ...HYBRIDS }[name], ...more })).toThrow(`planModel: ${message}`);
  });

  test("an eps of xIELU that would count is refused", async () => {
    const tensors = tinyTensors(TINY_FEATURES.apertus);
    tensors.set("model.layers.1.mlp.act_fn.eps", { data: Float32Array.of(-0.1), shape: [] });
    await expect(logitsOf(TINY_FEATURES.apertus, tensors)).rejects.toThrow(
      "eps of xIELU expected a number from -1e-5 to 1e-5",
    );
  });
});
