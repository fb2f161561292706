// Whatever a file states: its configuration is one that createAttention accepts, or the error names a field.

import { expect, test } from "vitest";
import { checkConfig } from "../../src/layers/attention/config.ts";
import { checkLatentConfig } from "../../src/layers/latent/config.ts";
import { LATENTS, LAYERS } from "../../src/models/families/index.ts";
import { planModel } from "../../src/models/load/plan-model.ts";
import { fromHfConfig } from "../../src/models/weights/hf-config.ts";
import { fromHfLatentConfig } from "../../src/models/weights/hf-latent.ts";
import { describeModel } from "../../src/tools/configure/describe-model.ts";
import { createRandom } from "../../src/tools/diagnostics/random.ts";
import { calls, sampled } from "../support/sampled.ts";
import { HYBRIDS } from "../support/tiny-models.ts";

const FIELDS = [
  ...["hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "num_hidden_layers", "n_embd", "n_head"],
  ...["d_model", "n_heads", "num_heads", "d_kv", "dim", "encoder_attention_heads", "decoder_attention_heads"],
  ...["attention_heads", "encoder_layers", "decoder_layers", "num_layers", "n_layer", "n_layers", "num_kv_heads"],
  ...["rope_theta", "rope_local_base_freq", "rotary_emb_base", "rotary_pct", "rotary_dim", "partial_rotary_factor"],
  ...["sliding_window", "sliding_window_pattern", "window_size", "local_attention", "max_window_layers"],
  ...["global_attn_every_n_layers", "use_sliding_window", "layer_types", "no_rope_layers", "no_rope_layer_interval"],
  ...["query_pre_attn_scalar", "attention_multiplier", "attn_logit_softcapping", "rms_norm_eps", "norm_eps"],
  ...["max_position_embeddings", "rope_scaling", "rope_parameters", "attention_types", "attention_layers"],
  ...["attn_config", "alibi", "multi_query", "new_decoder_architecture", "is_decoder", "full_attn_idxs"],
  ...["scale_attn_weights", "scale_attn_by_inverse_layer_idx", "use_bidirectional_attention", "v_head_dim"],
];

const INNER = [
  ...["rope_type", "type", "factor", "beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim"],
  ...["low_freq_factor", "high_freq_factor", "original_max_position_embeddings", "rope_theta", "truncate"],
  ...["partial_rotary_factor", "full_attention", "kv_n_heads", "softmax_scale", "alibi_bias_max"],
];

const HOSTILE: readonly unknown[] = [
  ...[null, true, false, 0, -0, -1, 0.1, 0.5, 1, 1.5, 2, 3, 4, 7, 8, 12, 16, 64, 4096, 65_536, 65_537],
  ...[2 ** 31 - 1, 2 ** 31, 2 ** 53, 1e38, 1e39, 1e308, 1e-50, 1e-320, 5e-324, 1e300],
  ...["", "7", "linear", "yarn", "llama3", "default", [], [0], [1, 1, 0], ["full_attention"], ["sliding_attention"]],
  ...[[["local"], 3], [[["global"], 1e300]], {}, { factor: 2 }, { rope_type: "yarn" }],
];

/** A small file of this model in which nothing is wrong. */
function fileOf(type: string): Record<string, unknown> & { model_type: string } {
  return {
    model_type: type,
    ...{
      hidden_size: 64,
      num_attention_heads: 4,
      n_embd: 64,
      n_head: 4,
      d_model: 64,
      n_heads: 4,
      num_heads: 4,
      d_kv: 16,
    },
    ...{ dim: 64, attention_heads: 4, encoder_attention_heads: 4, decoder_attention_heads: 4, head_dim: 16 },
  };
}

test("over 10 000 random files, fromHfConfig gives what createAttention accepts, or names the field", () => {
  const random = createRandom(12);
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random.next() * list.length)]!;
  const types = [...LAYERS.keys()] as string[];
  let accepted = 0;
  const files = calls(10_000, 3000);
  for (let i = 0; i < files; i++) {
    const json = fileOf(types[i % types.length]!);
    for (let changes = Math.floor(random.next() * 4); changes > 0; changes--) {
      const field = pick(FIELDS);
      const inside = /rope_(scaling|parameters)|attn_config/.test(field) && random.next() < 0.8;
      json[field] = inside
        ? Object.fromEntries(
            [...INNER.filter(() => random.next() < 0.3), "rope_type"].map((name) => [name, pick(HOSTILE)]),
          )
        : pick(HOSTILE);
      if (inside && random.next() < 0.7)
        (json[field] as { rope_type: unknown }).rope_type = pick(["yarn", "linear", "llama3"]);
    }
    const sided = LAYERS.get(json.model_type)!.sides !== undefined;
    const options = {
      ...{ layer: Math.floor(random.next() * 4), relativeBias: true },
      ...(sided && { part: pick(["encoder", "decoder", "cross"] as const) }),
    };
    let config: ReturnType<typeof fromHfConfig>;
    try {
      config = fromHfConfig(json, options);
    } catch (error) {
      const { name, message } = error as Error;
      expect(name, `${JSON.stringify(json)}: ${message}`).toMatch(/^(HeadwiseError|RangeError)$/);
      expect(message, JSON.stringify(json)).toMatch(/^fromHfConfig: \S.* expected .+, got /s);
      continue;
    }
    accepted++;
    expect(() => checkConfig("createAttention", config), JSON.stringify([json, config])).not.toThrow();
  }
  expect(accepted).toBeGreaterThan(files / 10);
});

const LATENT_FIELDS = [
  ...["hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "qk_head_dim", "num_hidden_layers"],
  ...["q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "rms_norm_eps"],
  ...["rope_theta", "rope_interleave", "partial_rotary_factor", "max_position_embeddings", "index_topk"],
  ...["sliding_window", "layer_types", "rope_scaling", "rope_parameters", "attention_bias", "text_config"],
];

test("over 5 000 random files, fromHfLatentConfig gives what createLatentAttention accepts, or names the field", () => {
  const random = createRandom(13);
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random.next() * list.length)]!;
  const types = [...LATENTS.keys()] as string[];
  let accepted = 0;
  const files = calls(5000, 1500);
  for (let i = 0; i < files; i++) {
    const json: Record<string, unknown> = {
      ...{ model_type: types[i % types.length], hidden_size: 64, num_attention_heads: 4, rope_theta: 10_000 },
      ...{ q_lora_rank: 12, kv_lora_rank: 16, qk_nope_head_dim: 8, qk_rope_head_dim: 8, v_head_dim: 8 },
    };
    for (let changes = random.int(0, 3); changes > 0; changes--) {
      const field = pick(LATENT_FIELDS);
      const inside = /^rope_(scaling|parameters)$/.test(field) && random.next() < 0.8;
      const names = [...INNER.filter(() => random.next() < 0.3), "factor", "original_max_position_embeddings"];
      json[field] = inside
        ? {
            ...Object.fromEntries(names.map((name) => [name, pick(HOSTILE)])),
            type: pick(["yarn", "linear", "llama3"]),
          }
        : pick(HOSTILE);
    }
    let config: ReturnType<typeof fromHfLatentConfig>;
    try {
      config = fromHfLatentConfig(json, { layer: random.int(0, 3) });
    } catch (error) {
      const { name, message } = error as Error;
      expect(name, `${JSON.stringify(json)}: ${message}`).toMatch(/^(HeadwiseError|RangeError)$/);
      expect(message, JSON.stringify(json)).toMatch(/^fromHfLatentConfig: \S.* expected .+, got /s);
      continue;
    }
    accepted++;
    expect(() => checkLatentConfig("f", config), JSON.stringify([json, config])).not.toThrow();
  }
  expect(accepted).toBeGreaterThan(files / 5);
});

test("whatever a field of a model with recurrent layers is, its memory is planned, or an error names a field", () => {
  let [planned, tried] = [0, 0];
  // Those of many layers and experts take long.
  const valuesOf = (field: string) =>
    HOSTILE.filter((value) => !/layers|experts/.test(field) || !(typeof value === "number" && value > 1000));
  for (const config of sampled(Object.values(HYBRIDS), 5))
    for (const field of Object.keys(config))
      for (const value of valuesOf(field)) {
        tried++;
        try {
          expect(planModel({ ...config, [field]: value }, { maxSeqLen: 320 }).total).toBeGreaterThan(0);
          planned++;
        } catch (error) {
          const about = `${config.model_type} ${field} ${JSON.stringify(value)}`;
          expect(error, about).toMatchObject({ name: "HeadwiseError", code: "BAD_FILE" });
          expect((error as Error).message, about).toMatch(/^planModel: \S.* expected .+, got /s);
        }
      }
  expect(planned).toBeGreaterThan(calls(500, tried / 20));
});

const KIMI = HYBRIDS.kimi_linear;
const ofKimi = (fields: object) => ({ ...KIMI, linear_attn_config: { ...KIMI.linear_attn_config, ...fields } });

test("the fields of Kimi-Linear-48B-A3B that are for other programs change nothing", () => {
  const full = [4, 8, 12, 16, 20, 24, 27];
  const layers = Array.from({ length: 27 }, (_, layer) => layer + 1);
  const own = {
    ...{ full_attn_layers: full, kda_layers: layers.filter((layer) => !full.includes(layer)) },
    ...{ head_dim: 128, num_heads: 32, short_conv_kernel_size: 4 },
  };
  const { parameters, activeParameters } = describeModel({
    ...{ model_type: "kimi_linear", hidden_size: 2304, intermediate_size: 9216, vocab_size: 163_840, head_dim: 72 },
    ...{ num_hidden_layers: 27, num_attention_heads: 32, num_key_value_heads: 32, linear_attn_config: own },
    ...{ kv_lora_rank: 512, q_lora_rank: null, qk_nope_head_dim: 128, qk_rope_head_dim: 64, v_head_dim: 128 },
    ...{ num_experts: 256, num_experts_per_token: 8, num_shared_experts: 1, moe_intermediate_size: 1024 },
    ...{ first_k_dense_replace: 1, moe_layer_freq: 1, moe_renormalize: true, moe_router_activation_func: "sigmoid" },
    ...{ num_expert_group: 1, topk_group: 1, use_grouped_topk: true, routed_scaling_factor: 2.446 },
    ...{ mla_use_nope: true, rope_theta: 10_000, rope_scaling: null, num_nextn_predict_layers: 0 },
    ...{ model_max_length: 1_048_576, rms_norm_eps: 1e-5, hidden_act: "silu", tie_word_embeddings: false },
  });
  expect([parameters, activeParameters]).toEqual([49_122_681_728, 3_484_459_904]);
});

test.each<[config: object, message: string]>([
  [
    { ...HYBRIDS.qwen3_5_text, linear_num_key_heads: 4 },
    "linear_num_key_heads expected a divisor of linear_num_value_heads, 6, got 4",
  ],
  [
    { ...HYBRIDS.qwen3_next, linear_num_value_heads: 65_537 },
    "linear_num_value_heads expected an integer from 1 to 65536, got 65537",
  ],
  [
    { ...HYBRIDS.qwen3_next, linear_conv_kernel_dim: 17 },
    "linear_conv_kernel_dim expected an integer from 1 to 16, got 17",
  ],
  [{ ...HYBRIDS.mamba2, n_groups: 4 }, "n_groups expected a divisor of num_heads, 6, got 4"],
  [
    { ...HYBRIDS.mamba2, time_step_limit: [0.9, 0.3] },
    "time_step_limit expected two numbers, of which the first is at least 0 and at most the second, got Array",
  ],
  [
    { ...HYBRIDS.falcon_h1, ssm_multipliers: [1, 1, 1, 1] },
    "ssm_multipliers expected 5 numbers from above 0 to 1e6, got Array",
  ],
  [
    { ...HYBRIDS.nemotron_h, num_hidden_layers: 4 },
    "num_hidden_layers expected 5, as hybrid_override_pattern says, got 4",
  ],
  [ofKimi({ kda_layers: [1] }), "kda_layers expected layer 3 in it or in full_attn_layers, got Array"],
  [ofKimi({ kda_layers: [1, 2, 3] }), "kda_layers expected layer 2 in it or in full_attn_layers, got Array"],
  [ofKimi({ num_heads: 0 }), "num_heads expected an integer >= 1, got 0"],
  [ofKimi({ short_conv_kernel_size: 17 }), "short_conv_kernel_size expected an integer from 1 to 16, got 17"],
  [{ ...KIMI, linear_attn_config: 7 }, "linear_attn_config expected an object, got 7"],
  [{ ...KIMI, mla_use_nope: false }, "mla_use_nope expected true, since others are unsupported, got false"],
  [
    { ...KIMI, moe_router_activation_func: "softmax" },
    'moe_router_activation_func expected "sigmoid", since others are unsupported, got "softmax"',
  ],
  [
    { ...KIMI, layer_types: ["linear_attention", "full_attention"] },
    'layer_types expected "linear_attention" or "full_attention" for each layer, got Array',
  ],
  [{ ...KIMI, mlp_layer_types: ["dense"] }, 'mlp_layer_types expected "dense" or "sparse" for each layer, got Array'],
])("%j is refused by name", (config, message) => {
  expect(() => planModel(config)).toThrow(`planModel: ${message}`);
});
