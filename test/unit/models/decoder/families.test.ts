// A tiny model of each family as transformers saves it, beside the logits that transformers gives: test/vectors/families.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Kernels } from "../../../../src/entries/core.ts";
import { planModel } from "../../../../src/entries/models.ts";
import { readDecoder } from "../../../../src/models/spec/read-spec.ts";
import type { BlockSpec, MoeSpec } from "../../../../src/models/spec/spec.ts";
import { readIndex } from "../../../conformance/case.ts";
import { runFolder } from "../../../conformance/suite.ts";
import { kernelsOf } from "../../../support/layers.ts";
import { TINY } from "../../../support/tiny-models.ts";

const folder = join(import.meta.dirname, "../../../vectors/families");

let kernels: Kernels;
beforeAll(async () => {
  kernels = await kernelsOf("simd");
});
afterAll(() => kernels.release());

test.each(readIndex(folder))("$name has the outputs of transformers", async (entry) => {
  expect(await runFolder(folder, kernels, [entry])).toMatchObject([{ state: "passed", problems: [] }]);
});

/** The configuration of a folder, with changes. */
const configOf = (name: string, changes: object = {}) => ({
  ...JSON.parse(readFileSync(join(folder, name, "config.json"), "utf8")),
  ...changes,
});
const specOf = (config: object) => readDecoder("test", config).spec;
const mlpsOf = (config: object) => specOf(config).blocks.map(({ mlp }) => mlp as MoeSpec);

test("fields that transformers does not follow change nothing", () => {
  const { text_config: text, ...beside } = configOf("gemma3-vision");
  const capped = { ...text, final_logit_softcapping: 3, attn_logit_softcapping: 5 };
  expect(specOf(capped)).toEqual({ ...specOf(text), head: { ...specOf(text).head, softcap: 3 } });
  expect(specOf({ ...beside, text_config: capped })).toEqual(specOf({ ...beside, text_config: text }));
  for (const name of ["kimi-linear", "nemotron-h"])
    expect(specOf(configOf(name, { tie_word_embeddings: true }))).toEqual(specOf(configOf(name)));
  const listed = { mlp_layer_types: ["sparse", "dense"] };
  expect(mlpsOf(configOf("glm4-moe-lite", { ...listed, first_k_dense_replace: 2 })).map(({ kind }) => kind)).toEqual([
    ...["moe", "mlp"],
  ]);
  const experts = { model_type: "qwen3_5_moe_text", num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 8 };
  const moe = configOf("qwen3.5", { ...experts, shared_expert_intermediate_size: 8 });
  expect(mlpsOf({ ...moe, norm_topk_prob: false, mlp_only_layers: [0] })).toEqual(mlpsOf(moe));
  expect(mlpsOf(moe)[0]?.router.renormalise).toBe(true);
});

test("the activation of gpt-oss, and the width that no layer of ERNIE has, are read", () => {
  const [mlp] = mlpsOf({ ...TINY.gpt_oss, swiglu_alpha: 1.5, swiglu_limit: 3 });
  expect(mlp?.expert.activation).toEqual({ kind: "swish", alpha: 1.5, limit: 3 });
  const ernie = { model_type: "ernie4_5_moe", vocab_size: 40, hidden_size: 16, num_hidden_layers: 2, moe_k: 1 };
  const all = { ...ernie, num_attention_heads: 2, moe_num_experts: 4, moe_intermediate_size: 8 };
  expect(mlpsOf({ ...all, intermediate_size: 24, moe_layer_start_index: 0 }).map(({ kind }) => kind)).toEqual([
    ...["moe", "moe"],
  ]);
});

test("the factor of LongRoPE that a file states scales cos and sin, and not the ratio of lengths", () => {
  const lists = { short_factor: [1, 1, 1, 1], long_factor: [2, 2, 2, 2], original_max_position_embeddings: 16 };
  const scaled = (more: object) => {
    const rope_parameters = { rope_type: "longrope", rope_theta: 1e4, ...lists, ...more };
    const { mixer } = specOf(configOf("arcee", { rope_parameters })).blocks[0] as BlockSpec;
    return (mixer.config as { rope: { scaling: { attentionFactor: number } } }).rope.scaling.attentionFactor;
  };
  // Of 64 tokens, four times those of training.
  expect(scaled({})).toBeCloseTo(Math.sqrt(1.5), 6);
  expect(scaled({ factor: 2 })).toBeCloseTo(Math.sqrt(1.25), 6);
  expect(scaled({ factor: 0.5 })).toBe(1);
});

test("convolutions of recurrent layers have no other activation than SiLU", () => {
  expect(() => planModel(configOf("qwen3.5", { hidden_act: "gelu" }))).toThrow(
    'planModel: hidden_act expected "silu", since layers are recurrent, got "gelu"',
  );
});

test("a dynamic scaling of RoPE changes nothing up to max_position_embeddings, and is refused beyond", () => {
  const config = configOf("arcee");
  config.rope_parameters = { rope_type: "dynamic", rope_theta: 1e4, factor: 2 };
  expect(planModel(config)).toEqual(planModel({ ...config, rope_parameters: { rope_theta: 1e4 } }));
  expect(() => planModel(config, { maxSeqLen: config.max_position_embeddings + 1 })).toThrow(
    'up to max_position_embeddings, since others are unsupported, got "dynamic"',
  );
});
