import { expect, test } from "vitest";
import { HeadwiseError } from "../../../../../src/base/util/errors.ts";
import { checkLatentConfig } from "../../../../../src/layers/latent/config.ts";
import { LATENTS } from "../../../../../src/models/families/index.ts";
import { fromHfLatentConfig, type HfLatentOptions } from "../../../../../src/models/weights/hf-latent.ts";

const mscale = 707 / 1000;

/** What the published file of DeepSeek-V2-Lite says of attention and around it. */
const lite = {
  model_type: "deepseek_v2",
  ...{ hidden_size: 2048, num_attention_heads: 16, num_key_value_heads: 16, num_hidden_layers: 27 },
  ...{ q_lora_rank: null, kv_lora_rank: 512, qk_nope_head_dim: 128, qk_rope_head_dim: 64, v_head_dim: 128 },
  ...{ rope_theta: 10_000, max_position_embeddings: 163_840, rms_norm_eps: 1e-6, attention_bias: false },
  ...{ attention_dropout: 0, aux_loss_alpha: 0.001, first_k_dense_replace: 1, moe_layer_freq: 1, n_group: 1 },
  ...{ routed_scaling_factor: 1, scoring_func: "softmax", topk_method: "greedy", seq_aux: true, use_cache: true },
  rope_scaling: {
    ...{ beta_fast: 32, beta_slow: 1, factor: 40, mscale, mscale_all_dim: mscale, type: "yarn" },
    original_max_position_embeddings: 4096,
  },
};
const liteConfig = {
  ...{ dModel: 2048, numHeads: 16, kvLoraRank: 512, nopeDim: 128, ropeDim: 64, valueDim: 128, normEps: 1e-6 },
  causal: true,
  rope: {
    ...{ theta: 10_000, pairing: "interleaved" },
    scaling: {
      ...{ kind: "yarn", factor: 40, originalMaxSeqLen: 4096, betaFast: 32, betaSlow: 1 },
      ...{ mscale, mscaleAllDim: mscale },
    },
  },
};

/** The same of Kimi K2, and of GLM-4.7-Flash as newer programs write it. */
const kimi = {
  model_type: "kimi_k2",
  ...{ hidden_size: 7168, num_attention_heads: 64, num_key_value_heads: 64, num_hidden_layers: 61 },
  ...{ q_lora_rank: 1536, kv_lora_rank: 512, qk_nope_head_dim: 128, qk_rope_head_dim: 64, v_head_dim: 128 },
  ...{ rope_theta: 50_000, ep_size: 1, num_nextn_predict_layers: 0, quantization_config: { quant_method: "fp8" } },
  rope_scaling: {
    ...{ beta_fast: 1, beta_slow: 1, factor: 32, mscale: 1, mscale_all_dim: 1, type: "yarn" },
    original_max_position_embeddings: 4096,
  },
};
const glm = {
  model_type: "glm4_moe_lite",
  ...{ hidden_size: 2048, num_attention_heads: 20, num_key_value_heads: 20, num_hidden_layers: 47 },
  ...{ q_lora_rank: 768, kv_lora_rank: 512, qk_nope_head_dim: 192, qk_rope_head_dim: 64, v_head_dim: 256 },
  ...{ head_dim: 64, qk_head_dim: 256, rms_norm_eps: 1e-5, partial_rotary_factor: 1, rope_interleave: true },
  ...{ mlp_layer_types: ["dense", "sparse"], is_decoder: false, pretraining_tp: 1, sliding_window: null },
  rope_parameters: { rope_theta: 1_000_000, rope_type: "default" },
};

test("DeepSeek-V2-Lite has the published scale, and an epsilon that does not come from rms_norm_eps", () => {
  const { scale, ...config } = fromHfLatentConfig(JSON.stringify(lite), { layer: 26 });
  expect(config).toStrictEqual(liteConfig);
  expect(scale).toBeCloseTo(0.114721, 6);
  expect(fromHfLatentConfig({ ...lite, rms_norm_eps: 1e-3 })).toStrictEqual({ ...config, scale });
});

test("the scale grows by the square of 0.1·mscale_all_dim·ln(factor) + 1, with yarn alone", () => {
  const scaleOf = (scaling: object | null) => fromHfLatentConfig({ ...lite, rope_scaling: scaling }).scale;
  const { mscale_all_dim, ...without } = lite.rope_scaling;
  expect(scaleOf({ ...without, mscale_all_dim: 1 })).toBeCloseTo((0.1 * Math.log(40) + 1) ** 2 / Math.sqrt(192), 12);
  for (const none of [null, without, { ...without, mscale_all_dim: 0 }, { type: "linear", factor: 4 }])
    expect(scaleOf(none)).toBeUndefined();
  expect(scaleOf({ ...without, mscale_all_dim, factor: 1 })).toBeUndefined();
});

test("Kimi K2 and GLM-4.7-Flash have the rules of DeepSeek-V3", () => {
  expect(fromHfLatentConfig(kimi)).toMatchObject({
    ...{ dModel: 7168, numHeads: 64, qLoraRank: 1536, normEps: 1e-6 },
    rope: { theta: 50_000, pairing: "interleaved", scaling: { betaFast: 1, betaSlow: 1, factor: 32 } },
  });
  expect(fromHfLatentConfig(glm)).toStrictEqual({
    ...{ dModel: 2048, numHeads: 20, kvLoraRank: 512, qLoraRank: 768, nopeDim: 192, ropeDim: 64, valueDim: 256 },
    ...{ normEps: 1e-6, causal: true, rope: { theta: 1_000_000, pairing: "interleaved" } },
  });
});

test("pairs are interleaved, unless rope_interleave is false in a model that reads it", () => {
  const pairingOf = (fields: object) => {
    const { rope } = fromHfLatentConfig({ ...glm, ...fields });
    return rope ? rope.pairing : undefined;
  };
  expect([...LATENTS.keys()]).toEqual(["deepseek_v2", "deepseek_v3", "glm4_moe_lite", "kimi_k2", "youtu"]);
  for (const type of ["deepseek_v3", "glm4_moe_lite", "youtu"]) {
    expect(pairingOf({ model_type: type })).toBe("interleaved");
    expect(pairingOf({ model_type: type, rope_interleave: null })).toBe("interleaved");
    expect(pairingOf({ model_type: type, rope_interleave: false })).toBe("half");
  }
  for (const type of ["deepseek_v2", "kimi_k2"]) {
    expect(pairingOf({ model_type: type })).toBe("interleaved");
    expect(() => pairingOf({ model_type: type, rope_interleave: false })).toThrow(
      "fromHfLatentConfig: rope_interleave expected true, since others are unsupported, got false",
    );
  }
});

test("of a model of several modalities, text_config is read", () => {
  const whole = { model_type: "kimi_k25", text_config: kimi, vision_config: { model_type: "moonvit" } };
  expect(fromHfLatentConfig(whole)).toStrictEqual(fromHfLatentConfig(kimi));
  expect(() => fromHfLatentConfig({ ...whole, text_config: { model_type: "llama" } })).toThrow('got "llama"');
});

test("an unknown model is read by the rules of the one that `as` names", () => {
  const unknown = { ...glm, model_type: "glm_2030" };
  expect(fromHfLatentConfig(unknown, { as: "deepseek_v3" })).toStrictEqual(fromHfLatentConfig(glm));
  expect(() => fromHfLatentConfig({ ...unknown, mla_scale_q_lora: true }, { as: "deepseek_v3" })).toThrow(
    'mla_scale_q_lora expected none, since the rules of "deepseek_v3" would ignore it, got true',
  );
});

const KNOWN = '"deepseek_v2", "deepseek_v3", "glm4_moe_lite", "kimi_k2", "youtu"';
const yarn = lite.rope_scaling;

test.each<[fields: object, message: string]>([
  [
    { model_type: "llama" },
    `model_type expected one of ${KNOWN}, or options.as with the one whose rules apply, got "llama"`,
  ],
  [
    { model_type: undefined },
    `model_type expected one of ${KNOWN}, or options.as with the one whose rules apply, got undefined`,
  ],
  [
    { model_type: "deepseek_v32" },
    'model_type expected attention that this package computes, got "deepseek_v32", which has latent attention (MLA) to keys that an indexer selects',
  ],
  [{ hidden_size: undefined }, "hidden_size expected an integer >= 1, got undefined"],
  [{ num_attention_heads: 0 }, "num_attention_heads expected an integer >= 1, got 0"],
  [
    { num_attention_heads: 2 ** 17, num_key_value_heads: null },
    "num_attention_heads (numHeads) expected an integer from 1 to 65536, got 131072",
  ],
  [{ q_lora_rank: undefined }, "q_lora_rank expected an integer >= 1 or null, got undefined"],
  [{ q_lora_rank: 0 }, "q_lora_rank expected an integer >= 1, got 0"],
  [{ kv_lora_rank: "512" }, 'kv_lora_rank expected an integer >= 1, got "512"'],
  [{ qk_nope_head_dim: null }, "qk_nope_head_dim expected an integer >= 1, got undefined"],
  [{ qk_rope_head_dim: 63 }, "qk_rope_head_dim (ropeDim) expected an even integer, got 63"],
  [{ v_head_dim: 1.5 }, "v_head_dim expected an integer >= 1, got 1.5"],
  [{ num_key_value_heads: 4 }, "num_key_value_heads expected 16, since others are unsupported, got 4"],
  [{ use_mla: false }, "use_mla expected true, since others are unsupported, got false"],
  [{ qk_head_dim: 128 }, "qk_head_dim expected 192, since others are unsupported, got 128"],
  [{ head_dim: 128 }, "head_dim expected 64 or 192, since others are unsupported, got 128"],
  [{ partial_rotary_factor: 0.5 }, "partial_rotary_factor expected 1, since others are unsupported, got 0.5"],
  [{ model_type: "kimi_k2", rope_theta: undefined }, "rope_theta expected a finite float32 number > 0, got undefined"],
  [{ rope_theta: 0.5 }, "rope_theta (rope.theta) expected a finite number >= 1, got 0.5"],
  [
    { rope_scaling: { ...yarn, type: "longrope" } },
    'rope scaling expected "linear", "llama3", "yarn", or with options.maxSeqLen of fromHfConfig "longrope", or "dynamic" up to max_position_embeddings, since others are unsupported, got "longrope"',
  ],
  [
    { rope_scaling: { ...yarn, llama_4_scaling_beta: 0.1 } },
    'rope scaling expected only fields that this package knows, since others may change the result, got "llama_4_scaling_beta"',
  ],
  [
    { rope_scaling: { type: "linear", factor: 2, mscale_all_dim: 1 } },
    "mscale_all_dim expected 0, since others are unsupported, got 1",
  ],
  [{ rope_scaling: { ...yarn, factor: 0.5 } }, "factor (rope.scaling.factor) expected a finite number >= 1, got 0.5"],
  [{ rope_scaling: { ...yarn, mscale_all_dim: 1e30 } }, "mscale_all_dim expected a number from 1e-6 to 1e6, got 1e+30"],
  [{ layer_types: ["sliding_attention"] }, 'layer_types of layer 0 expected "full_attention", got "sliding_attention"'],
  [
    { index_topk: 2048 },
    'index_topk expected none, since the rules of "deepseek_v2" have no sparse attention, got 2048',
  ],
  [
    { attn_output_gate: true },
    'attn_output_gate expected none, since the rules of "deepseek_v2" have no gates of attention, got true',
  ],
  [
    { sliding_window: 4096 },
    'sliding_window expected none, since the rules of "deepseek_v2" would ignore it, got 4096',
  ],
  [{ is_causal: false }, 'is_causal expected none, since the rules of "deepseek_v2" would ignore it, got false'],
  [
    { attention_multiplier: 0.5 },
    'attention_multiplier expected none, since the rules of "deepseek_v2" have no factors on scores, got 0.5',
  ],
])("%o is refused by the name of its field", (fields, message) => {
  const json = Object.fromEntries(Object.entries({ ...lite, ...fields }).filter(([, value]) => value !== undefined));
  const run = () => fromHfLatentConfig(json);
  expect(run).toThrow(HeadwiseError);
  expect(run).toThrow(`fromHfLatentConfig: ${message}`);
});

test.each<[options: HfLatentOptions, error: Error]>([
  [{ layer: 27 }, new RangeError("fromHfLatentConfig: layer expected an integer from 0 to 26, got 27")],
  [{ layer: -1 }, new RangeError("fromHfLatentConfig: layer expected an integer >= 0, got -1")],
  [{ as: 7 as never }, new TypeError("fromHfLatentConfig: options.as expected a string, got 7")],
  [
    { as: "deepseek_v3" },
    new RangeError(
      'fromHfLatentConfig: options.as expected none for "deepseek_v2", which is supported, got "deepseek_v3"',
    ),
  ],
  [{ prefix: "x" } as never, new TypeError('fromHfLatentConfig: options expected only layer, as, got "prefix"')],
])("options %o are refused", (options, error) => {
  expect(() => fromHfLatentConfig(lite, options)).toThrow(error);
});

test("options.as that is not supported is refused", () => {
  expect(() => fromHfLatentConfig({ ...lite, model_type: "x" }, { as: "llama" })).toThrow(
    new RangeError(`fromHfLatentConfig: options.as expected one of ${KNOWN}, got "llama"`),
  );
});

test("what is read passes the checks of createLatentAttention", () => {
  for (const json of [lite, kimi, glm])
    expect(checkLatentConfig("test", fromHfLatentConfig(json)).rope).toMatchObject({
      dim: 64,
      start: expect.any(Number),
    });
});
