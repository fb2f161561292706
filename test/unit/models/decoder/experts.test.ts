// Mixtures of experts and norms of heads, compared with plain arithmetic in float64.

import { afterAll, beforeAll, expect, test } from "vitest";
import type { Tensor } from "../../../../src/base/tensor/tensor.ts";
import type { Kernels } from "../../../../src/entries/core.ts";
import { createSession } from "../../../../src/entries/models.ts";
import { forward } from "../../../../src/models/decoder/forward.ts";
import { loadModel } from "../../../../src/models/load/load-model.ts";
import { kernelsOf } from "../../../support/layers.ts";
import { add, linearOf, normOf, rowOf, type Tensors, type Vector, vectorOf } from "../../../support/oracle-math.ts";
import { TINY, tinyFolder, tinyTensors } from "../../../support/tiny-models.ts";

let kernels: Kernels;
beforeAll(async () => {
  kernels = await kernelsOf("simd");
});
afterAll(() => kernels.release());

const IDS = [3, 14, 15, 9, 26, 53, 58];

/** The logits of IDS, where memory that nobody has written is NaN. */
async function logitsOf(config: object, tensors: ReadonlyMap<string, Tensor>): Promise<Float32Array> {
  const at = kernels.memory.allocate("soil", 2 ** 20);
  kernels.memory.u8(at, 2 ** 20).fill(0xff);
  kernels.memory.free(at);
  using model = await loadModel(kernels, tinyFolder(config, tensors));
  using session = createSession(model, { maxSeqLen: 16 });
  return forward(session, IDS, { rows: "all" }).logits.slice();
}

/** Tensors of a model whose attention adds nothing, so that a token's logits are its own. */
function withoutAttention(config: object): Map<string, Tensor> {
  const tensors = tinyTensors(config);
  for (const [name, { data, shape }] of tensors)
    if (/self_attn\.o_proj\./.test(name)) tensors.set(name, { data: data.map(() => 0), shape });
  return tensors;
}

interface Rules {
  readonly experts: number;
  readonly topK: number;
  readonly sigmoid?: boolean;
  readonly renormalise: boolean;
  readonly scale?: number;
  /** Groups, how many of them are kept, and of how many scores a group has its own. */
  readonly groups?: readonly [number, number, number];
  /** The expert that every token takes, and whether a gate of its own scales it. */
  readonly shared?: string;
  readonly gated?: boolean;
}

const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));

function gatedMlp(tensors: Tensors, x: Vector, at: string): Vector {
  const up = linearOf(tensors, x, `${at}.up_proj`);
  const gate = linearOf(tensors, x, `${at}.gate_proj`);
  return linearOf(
    tensors,
    gate.map((each, i) => each * sigmoid(each) * (up[i] as number)),
    `${at}.down_proj`,
  );
}

/** The experts that a token takes, and the weight of each. */
function choose(tensors: Tensors, x: Vector, at: string, rules: Rules): [expert: number, weight: number][] {
  const { topK, renormalise, scale = 1, groups: [count, kept, of] = [1, 1, 1] } = rules;
  const logits = linearOf(tensors, x, `${at}.gate`);
  const powers = logits.map((each) => Math.exp(each));
  const all = powers.reduce((a, b) => a + b, 0);
  const scores = rules.sigmoid ? logits.map(sigmoid) : powers.map((each) => each / all);
  const correction = vectorOf(tensors, `${at}.gate.e_score_correction_bias`);
  const choices = scores.map((score, e) => score + (correction?.[e] ?? 0));
  const size = rules.experts / count;
  const best = (list: readonly number[], most: number) =>
    [...list.keys()].sort((a, b) => (list[b] as number) - (list[a] as number)).slice(0, most);
  const groupScores = Array.from({ length: count }, (_, g) => {
    const own = choices.slice(g * size, (g + 1) * size);
    return best(own, of).reduce((sum, e) => sum + (own[e] as number), 0);
  });
  const groups = best(groupScores, kept);
  const chosen = best(
    choices.map((choice, e) => (groups.includes(Math.floor(e / size)) ? choice : -Infinity)),
    topK,
  );
  const total = renormalise ? chosen.reduce((sum, e) => sum + (scores[e] as number), 0) : 1;
  return chosen.map((e) => [e, ((scores[e] as number) / total) * scale]);
}

/** The logits of a token that attends to nothing. */
function oracle(tensors: Tensors, id: number, layers: number, dense: number, rules: Rules): Vector {
  let x: Vector = rowOf(tensors, "model.embed_tokens", id);
  for (let i = 0; i < layers; i++) {
    const at = `model.layers.${i}.mlp`;
    const read = normOf(tensors, x, `model.layers.${i}.post_attention_layernorm`, 1e-6, false);
    if (i < dense) {
      x = add(x, gatedMlp(tensors, read, at));
      continue;
    }
    for (const [e, weight] of choose(tensors, read, at, rules))
      x = add(
        x,
        gatedMlp(tensors, read, `${at}.experts.${e}`).map((each) => weight * each),
      );
    if (!rules.shared) continue;
    const scale = rules.gated ? sigmoid(linearOf(tensors, read, `${at}.shared_expert_gate`)[0] as number) : 1;
    x = add(
      x,
      gatedMlp(tensors, read, `${at}.${rules.shared}`).map((each) => scale * each),
    );
  }
  const last = normOf(tensors, x, "model.norm", 1e-6, false);
  return linearOf(tensors, last, tensors.has("lm_head.weight") ? "lm_head" : "model.embed_tokens");
}

const QWEN2 = { experts: 5, topK: 2, shared: "shared_expert", gated: true };
const DEEPSEEK = { experts: 8, topK: 3, sigmoid: true, shared: "shared_experts", groups: [4, 2, 2] } as const;

test.each<[string, object, number, Rules]>([
  ["qwen3_moe", TINY.qwen3_moe, 0, { experts: 5, topK: 2, renormalise: true }],
  ["qwen3_moe", { ...TINY.qwen3_moe, norm_topk_prob: false }, 0, { experts: 5, topK: 2, renormalise: false }],
  ["qwen2_moe", TINY.qwen2_moe, 0, { ...QWEN2, renormalise: true }],
  ["qwen2_moe", { ...TINY.qwen2_moe, norm_topk_prob: false }, 0, { ...QWEN2, renormalise: false }],
  ["deepseek_v3", { ...TINY.deepseek_v3, norm_topk_prob: true }, 1, { ...DEEPSEEK, renormalise: true, scale: 2.5 }],
  [
    "deepseek_v3",
    { ...TINY.deepseek_v3, norm_topk_prob: false, routed_scaling_factor: 1.5 },
    1,
    { ...DEEPSEEK, renormalise: false, scale: 1.5 },
  ],
])("experts of %s, case %#, are within 1e-5 of the largest logit of float64", async (_, config, dense, rules) => {
  const tensors = withoutAttention(config);
  const got = await logitsOf(config, tensors);
  const want = IDS.flatMap((id) => [...oracle(tensors, id, 2, dense, rules)]);
  expect(got.length).toBe(want.length);
  const most = Math.max(...want.map(Math.abs));
  const error = Math.max(...want.map((each, i) => Math.abs(each - (got[i] as number))));
  expect(error / most).toBeLessThan(1e-5);
});

test("stacked experts have their own matrices and biases: in another order they give the same logits within 1e-5, unless a part stays", async () => {
  const tensors = tinyTensors(TINY.gpt_oss);
  /** With the experts in the order 2, 0, 3, 1 in the tensors of these names. */
  const turned = (names: RegExp) => {
    const rows = [...tensors].map(([name, { data, shape }]) => {
      if (!names.test(name)) return [name, { data, shape }] as const;
      const own = data.length / 4;
      const parts = [2, 0, 3, 1].flatMap((e) => [...data.subarray(e * own, (e + 1) * own)]);
      return [name, { data: Float32Array.from(parts), shape }] as const;
    });
    return logitsOf(TINY.gpt_oss, new Map(rows));
  };
  const plain = await logitsOf(TINY.gpt_oss, tensors);
  const most = Math.max(...plain.map(Math.abs));
  const apart = (got: Float32Array) => Math.max(...got.map((x, i) => Math.abs(x - (plain[i] as number)))) / most;
  expect(apart(await turned(/mlp\.(router|experts)\./))).toBeLessThan(1e-5);
  for (const part of [/router/, /gate_up_proj$/, /gate_up_proj_bias$/, /mlp.*down_proj$/, /mlp.*down_proj_bias$/])
    expect(apart(await turned(part)), String(part)).toBeGreaterThan(1e-3);
});

const SIZES = {
  ...{ hidden_size: 40, intermediate_size: 52, num_hidden_layers: 2, vocab_size: 67, max_position_embeddings: 512 },
  ...{ num_attention_heads: 4, num_key_value_heads: 4 },
};

const STABLELM = { model_type: "stablelm", ...SIZES, qk_layernorm: true };
const COHERE = { model_type: "cohere", ...SIZES, use_qk_norm: true };

test.each([
  { config: STABLELM, name: "layernorm.norms.2", biases: true },
  { config: STABLELM, name: "layernorm.norms.2", biases: false },
  { config: COHERE, name: "norm", biases: true },
  { config: COHERE, name: "norm", biases: false },
  // So wide that what lies at the address 0 and on is not all zeros.
  { config: { ...COHERE, hidden_size: 512 }, name: "norm", biases: false },
])("$config.model_type: the norm of a head has this head's gain, biases $biases", async ({ config, name, biases }) => {
  const all = [...tinyTensors(config)];
  const tensors = new Map(all.filter(([key]) => biases || !/[qk]_(?:layer)?norm.*bias$/.test(key)));
  /** The logits if the gain of head 2 is multiplied by these powers of two, which change no other bit. */
  const scaled = (query: number, key: number) => {
    const changed = new Map(tensors);
    for (const [side, by] of [
      ["q", query],
      ["k", key],
    ] as const)
      for (const end of ["weight", "bias"]) {
        const at = `model.layers.0.self_attn.${side}_${name}.${end}`;
        const { data, shape } = tensors.get(at) ?? {};
        if (!data || !shape) continue;
        const width = config.hidden_size / 4;
        const [from, to] = data.length > width ? [2 * width, 3 * width] : [0, width];
        changed.set(at, { shape, data: data.map((each, i) => (i >= from && i < to ? by * each : each)) });
      }
    return logitsOf(config, changed);
  };
  const plain = await scaled(1, 1);
  expect(await scaled(2, 0.5)).toEqual(plain);
  expect(await scaled(0.5, 2)).toEqual(plain);
  expect(await scaled(2, 1)).not.toEqual(plain);
  expect(await scaled(1, 2)).not.toEqual(plain);
});
