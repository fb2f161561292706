// What only some families compute: the same bits at once, in chunks, token by token and among others, and memory as planned.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Tensor } from "../../src/base/tensor/tensor.ts";
import type { Kernels } from "../../src/entries/core.ts";
import { forward } from "../../src/models/decoder/forward.ts";
import { createSession, exportSession, importSession } from "../../src/models/decoder/session.ts";
import { generate } from "../../src/models/generate/generate.ts";
import { generateMany } from "../../src/models/generate/generate-many.ts";
import { loadModel } from "../../src/models/load/load-model.ts";
import { planModel } from "../../src/models/load/plan-model.ts";
import { keyOf } from "../../src/models/mixers/weight.ts";
import { readDecoder } from "../../src/models/spec/read-spec.ts";
import { resolveHead, sourcesOf } from "../../src/models/spec/tensors.ts";
import { weightsOf } from "../../src/models/spec/weights.ts";

import { explainScore } from "../../src/tools/inspect/decompose.ts";
import { captureRun, forwardWith } from "../../src/tools/inspect/forward-with.ts";
import { kernelsOf, threadedKernels } from "../support/layers.ts";
import { sampled } from "../support/sampled.ts";
import { HYBRIDS, TINY, TINY_FEATURES, type TinyFeature, tinyFolder, tinyTensors } from "../support/tiny-models.ts";

let kernels: Kernels;
beforeAll(async () => {
  kernels = await kernelsOf("simd");
});
afterAll(() => kernels.release());

const ids = (count: number, first = 5) => Array.from({ length: count }, (_, i) => (i * 29 + first) % 67);
const KINDS = TINY_FEATURES.gemma4_text.layer_types;
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

  const formats = sampled(["f32", "f16", "q8", "q4"] as const, 1, undefined, NAMES.indexOf(name));
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

  test("heads of the second half are subtracted from those of the first, times λ, and normalised", async () => {
    const config = { ...TINY_FEATURES.diffllama, num_hidden_layers: 1, intermediate_size: 8 };
    const tensors = new Map([...tinyTensors(config)].filter(([name]) => !name.endsWith("bias")));
    using model = await loadModel(kernels, tinyFolder(config, tensors));
    using session = createSession(model, { maxSeqLen: 16 });
    const sites = (["attnIn", "q", "k", "v", "z", "attnOut"] as const).map((at) => ({ at, layer: 0 }));
    const seen = forwardWith(session, ids(6), { capture: sites, patterns: [0] });
    const [, , , , z, attnOut] = seen.captured as Tensor[];
    const [read] = seen.captured as Tensor[];
    const of = (name: string) => tensors.get(`model.layers.0.self_attn.${name}`)?.data as Float32Array;
    const dot = (a: ArrayLike<number>, b: ArrayLike<number>) => {
      let sum = 0;
      for (let i = 0; i < a.length; i++) sum += (a[i] as number) * (b[i] as number);
      return sum;
    };
    const power = (n: number) => Math.exp(dot(of(`lambda_q${n}`), of(`lambda_k${n}`)));
    const first = 0.8 - 0.6;
    const lambda = power(1) - power(2) + first;
    const [d, dModel, token] = [12, 40, 5];
    const weight = (head: number, key: number) => seen.patterns[0]?.data[(head * 6 + token) * 6 + key] as number;
    /** Value j of head `h`, whose keys are those of group h / 2, whose values are heads of values g % 2 and g % 2 + 2. */
    const headOf = (h: number, j: number) => {
      const row = (Math.floor(h / 2) % 2) * d + (j < d ? j : 2 * d + j - d);
      const w = of("v_proj.weight").subarray(row * dModel, (row + 1) * dModel);
      return Array.from({ length: 6 }, (_, key) => {
        return weight(h, key) * dot((read as Tensor).data.subarray(key * dModel, (key + 1) * dModel), w);
      }).reduce((sum, x) => sum + x);
    };
    const outputs: number[] = [];
    for (let h = 0; h < 4; h++) {
      const less = Array.from({ length: 2 * d }, (_, j) => headOf(h, j) - lambda * headOf(h + 4, j));
      const inverse = (1 - first) / Math.sqrt(dot(less, less) / less.length + 1e-5);
      outputs.push(...less.map((x) => x * inverse));
    }
    const given = (z as Tensor).data.subarray(token * 192, token * 192 + 96);
    for (const [i, x] of outputs.entries()) expect(given[i]).toBeCloseTo(x, 4);
    const wo = of("o_proj.weight");
    for (let i = 0; i < dModel; i++)
      expect((attnOut as Tensor).data[token * dModel + i]).toBeCloseTo(
        dot(outputs, wo.subarray(i * 96, (i + 1) * 96)),
        4,
      );
    const odd = { ...config, num_attention_heads: 3, num_key_value_heads: 3 };
    expect(() => planModel(odd)).toThrow("num_key_value_heads expected an even number, got 3");
  });

  test.each([
    ["lfm2", { layer_types: ["conv", "conv", "conv"] }],
    ["jamba", { attn_layer_period: 9, attn_layer_offset: 8 }],
    ["recurrent_gemma", { block_types: ["recurrent"] }],
    ["nemotron_h", { hybrid_override_pattern: "M-MM-" }],
    ["qwen3_5_text", { layer_types: ["linear_attention", "linear_attention", "linear_attention"] }],
    ["qwen3_next", { layer_types: ["linear_attention", "linear_attention"] }],
    ["olmo_hybrid", { layer_types: ["linear_attention", "linear_attention"] }],
    ["minimax", { layer_types: ["linear_attention", "linear_attention", "linear_attention"] }],
    ["granitemoehybrid", { layer_types: ["mamba", "mamba"] }],
  ] as const)(
    "a %s whose layers are all recurrent has the same bits at once and token by token",
    async (name, more) => {
      const config = { ...HYBRIDS[name], ...more };
      using model = await loadModel(kernels, tinyFolder(config));
      using whole = createSession(model, { maxSeqLen: 300 });
      using single = createSession(model, { maxSeqLen: 300 });
      const all = forward(whole, ids(140), { rows: "all" }).logits;
      expect(all.every(Number.isFinite)).toBe(true);
      expect(ids(140).flatMap((id) => [...forward(single, [id]).logits])).toEqual([...all]);
    },
  );

  test("biases of Falcon-H1 are added where inputs have no factor, and refused by name where they have", async () => {
    const plain = HYBRIDS.falcon_h1;
    const biased = { ...plain, mlp_multipliers: [1, 1.2], attention_bias: true, mlp_bias: true, mamba_proj_bias: true };
    const config = { ...biased, projectors_bias: true };
    const tensors = tinyTensors(config);
    const names = [...tensors.keys()].filter((name) => name.startsWith("model.layers.0.") && name.endsWith("bias"));
    const ends = ["q_proj", "k_proj", "v_proj", "o_proj", "in_proj", "out_proj", "gate_proj", "up_proj", "down_proj"];
    for (const end of ends) expect(names.filter((name) => name.endsWith(`.${end}.bias`)).length).toBe(1);
    const all = await logitsOf(config, tensors);
    for (const name of names) {
      const { data, shape } = tensors.get(name) as Tensor;
      const other = new Map(tensors).set(name, { data: data.map((x) => x + 1), shape });
      // A bias of keys adds the same to all scores of a query.
      if (!name.endsWith("k_proj.bias")) expect(norm(await logitsOf(config, other), all)).toBeGreaterThan(1e-3);
    }
    for (const [field, factor] of [
      ["mlp_bias", { mlp_multipliers: [0.9, 1.2] }],
      ["attention_bias", { attention_in_multiplier: 0.9 }],
      ["mamba_proj_bias", { ssm_in_multiplier: 0.9 }],
    ] as const) {
      const own = { ...plain, mlp_multipliers: [1, 1], [field]: true };
      expect(() => planModel({ ...own, ...factor })).toThrow(
        `${field} expected false where inputs have a factor, got true`,
      );
      expect(planModel(own).weights).toBeGreaterThan(0);
    }
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

  test.each([9, 128, 130])("a query attends keys of its own chunk of %i tokens alone", async (attention_chunk_size) => {
    const config = { ...TINY_FEATURES.llama4_chunks, attention_chunk_size, max_position_embeddings: 2048 };
    const logits = async (own: Kernels, tokens: readonly number[], lengths: readonly number[]) => {
      using model = await loadModel(own, tinyFolder(config));
      using session = createSession(model, { maxSeqLen: 1500 });
      let from = 0;
      const rows = lengths.map((length) => {
        from += length;
        return forward(session, tokens.slice(from - length, from), { rows: "all" }).logits;
      });
      using restored = createSession(model, { maxSeqLen: 1500 });
      importSession(restored, exportSession(session), session.tokens);
      expect(forward(restored, [3]).logits).toEqual(forward(session, [3]).logits);
      return rows.flatMap((each) => [...each]);
    };
    const count = 3 * attention_chunk_size + 290;
    const all = await logits(kernels, ids(count), [count]);
    const pieces = [attention_chunk_size - 1, 1, 1, attention_chunk_size, 9];
    const rest = count - pieces.reduce((sum, piece) => sum + piece);
    expect(await logits(kernels, ids(count), [...pieces, rest - 20, ...Array.from({ length: 20 }, () => 1)])).toEqual(
      all,
    );
    const threaded = await threadedKernels("simd", 2);
    expect(await logits(threaded, ids(count), [count])).toEqual(all);
    threaded.release();
    // Other tokens in earlier chunks, and another one at the end of the last of these.
    const begin = 2 * attention_chunk_size;
    const others = [...ids(begin, 6), ...ids(count).slice(begin)];
    expect((await logits(kernels, others, [count])).slice(begin * 67)).toEqual(all.slice(begin * 67));
    others[begin] = 1;
    const changed = await logits(kernels, others, [count]);
    const row = begin + attention_chunk_size - 1;
    expect(changed.slice(row * 67, (row + 1) * 67)).not.toEqual(all.slice(row * 67, (row + 1) * 67));
    expect(changed.slice((row + 1) * 67)).toEqual(all.slice((row + 1) * 67));
  });

  test("weights that are read are those of the chunk, and reading changes no bit", async () => {
    for (const attention_chunk_size of [9, 128]) {
      using model = await loadModel(kernels, tinyFolder({ ...TINY_FEATURES.llama4_chunks, attention_chunk_size }));
      using session = createSession(model, { maxSeqLen: 200 });
      const plain = forward(session, ids(150), { rows: "all" }).logits;
      session.truncate(0);
      const { logits, patterns } = forwardWith(session, ids(150), { rows: "all", patterns: [1] });
      expect(logits).toEqual(plain);
      const { data } = patterns[0] as Tensor;
      for (const query of [8, 9, 100, 127, 128, 149]) {
        const row = [...data.subarray(query * 150, (query + 1) * 150)];
        const first = query - (query % attention_chunk_size);
        expect(row.map((weight) => weight > 0)).toEqual(row.map((_, key) => key >= first && key <= query));
        expect(row.reduce((sum, weight) => sum + weight)).toBeCloseTo(1, 5);
      }
      using run = captureRun(createSession(model, { maxSeqLen: 200 }), ids(150));
      const explain = (key: number) => explainScore(run, { layer: 1, head: 0, query: 130, key });
      const first = 130 - (130 % attention_chunk_size);
      expect(Number.isFinite(explain(first).score)).toBe(true);
      expect(() => explain(first - 1)).toThrow(`place.key expected an integer from ${first} to 130`);
    }
  });

  test("experts read rows times the sigmoid of their logit, and their outputs are added as they are", async () => {
    const config = { ...TINY_FEATURES.llama4_text, num_local_experts: 1, num_experts_per_tok: 1 };
    const at = "model.layers.1.feed_forward.";
    const tensors = new Map([...tinyTensors(config)].filter(([name]) => !/feed_forward.*bias/.test(name)));
    const put = (name: string, { data, shape }: Tensor, factor: number) =>
      tensors.set(at + name, { data: data.map((x) => factor * x), shape });
    const own = (name: string) => tensors.get(at + name) as Tensor;
    const [both, down, shared] = [
      own("experts.gate_up_proj"),
      own("experts.down_proj"),
      own("shared_expert.down_proj.weight"),
    ];
    // A logit of 0 halves rows, which doubled matrices make up for.
    put("router.weight", own("router.weight"), 0);
    put("experts.gate_up_proj", both, 2);
    put("shared_expert.down_proj.weight", shared, 0);
    const chosen = await logitsOf(config, tensors);
    // The same expert as the one that every token takes.
    const outputs = ({ data, shape: [, inputs = 0, all = 0] }: Tensor, from: number, rows: number): Tensor => ({
      data: Float32Array.from(
        { length: rows * inputs },
        (_, i) => data[(i % inputs) * all + from + Math.floor(i / inputs)]!,
      ),
      shape: [rows, inputs],
    });
    put("experts.down_proj", down, 0);
    put("shared_expert.gate_proj.weight", outputs(both, 0, 52), 1);
    put("shared_expert.up_proj.weight", outputs(both, 52, 52), 1);
    put("shared_expert.down_proj.weight", outputs(down, 0, 40), 1);
    expect(norm(await logitsOf(config, tensors), chosen)).toBeLessThan(1e-5);
    put("shared_expert.down_proj.weight", shared, 0);
    expect(norm(await logitsOf(config, tensors), chosen)).toBeGreaterThan(1e-2);
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
    [
      "llama4_text",
      { layer_types: ["sliding_attention", "full_attention"] },
      'layer_types of layer 0 expected "chunked_attention" or "full_attention", got "sliding_attention"',
    ],
    ["llama4_text", { attention_chunk_size: 0 }, "attention_chunk_size expected an integer >= 1, got 0"],
    ["llama4_text", { no_rope_layers: [2, 0] }, "no_rope_layers of layer 0 expected 0 or 1, got 2"],
    ["llama4_text", { attn_temperature_tuning: "on" }, 'attn_temperature_tuning expected true or false, got "on"'],
    ["llama4_text", { floor_scale: 0 }, "floor_scale expected an integer >= 1, got 0"],
    ["llama4_text", { num_experts_per_tok: 5 }, "num_experts_per_tok expected an integer from 1 to 4, got 5"],
    ["llama4_text", { interleave_moe_layer_step: 0 }, "interleave_moe_layer_step expected an integer >= 1, got 0"],
    ["phimoe", { num_experts_per_tok: 3 }, "num_experts_per_tok expected 2, since others are unsupported, got 3"],
    ["olmo", { clip_qkv: -1 }, "clip_qkv expected a number from 1e-6 to 1e6, got -1"],
    ["afmoe", { score_func: "softmax" }, 'score_func expected "sigmoid", since others are unsupported, got "softmax"'],
    ["hunyuan_v1_moe", { moe_topk: [2, 9] }, "moe_topk expected an integer from 1 to 4 a layer, got Array"],
    [
      "gemma4_unified_text",
      { num_kv_shared_layers: 1 },
      "num_kv_shared_layers expected a layer of each kind before those that share its keys, of 2, got 1",
    ],
    ["gemma4_text", { num_kv_shared_layers: 9 }, "num_kv_shared_layers expected a layer of each kind before those"],
    ["gemma4_text", { num_kv_shared_layers: -1 }, "num_kv_shared_layers expected an integer >= 0, got -1"],
    ["gemma4_text", { layer_types: KINDS.slice(0, 3) }, "layer_types"],
    [
      "gemma4_text",
      { per_layer_config: { 1: { head_dim: 16 }, 4: { head_dim: 8 } } },
      "keys of layer 4 expected those of layer 1, 2 heads of 16 floats and no window, got 2 heads of 8 floats",
    ],
    ["gemma4_text", { hidden_size_per_layer_input: 1.5 }, "hidden_size_per_layer_input expected an integer >= 0"],
    ["gemma4_text", { vocab_size_per_layer_input: 0 }, "vocab_size_per_layer_input expected an integer >= 1, got 0"],
    ["gemma3n_text", { altup_num_inputs: 17 }, "altup_num_inputs expected an integer from 1 to 16, got 17"],
    ["gemma3n_text", { altup_num_inputs: 1 }, "altup_num_inputs expected an integer from 2 to 16, got 1"],
    ["gemma3n_text", { altup_active_idx: 3 }, "altup_active_idx expected one of the 3 inputs, got 3"],
    ["gemma3n_text", { laurel_rank: 0 }, "laurel_rank expected an integer >= 1, got 0"],
    [
      "gemma3n_text",
      { activation_sparsity_pattern: [0, 0, 0, 0, 1] },
      "activation_sparsity_pattern expected a share from 0 to less than 1 for each layer, got 1",
    ],
    ["gemma3n_text", { intermediate_size: [52, 44] }, "intermediate_size expected an integer >= 1 for each layer"],
    ["gemma4_moe", { top_k_experts: 6 }, "top_k_experts expected an integer from 1 to 5, got 6"],
    ["gemma4_moe", { num_experts: null }, "num_experts expected an integer >= 1, got undefined"],
    ["gemma4_text", { use_double_wide_mlp: 2 }, "use_double_wide_mlp expected true or false, got 2"],
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
