// GLM-4 and 4.5: half of a head rotates; gate and factor in one matrix, or experts as in DeepSeek-V3. GLM-4.7-Flash has latent
// attention.

import type { AttentionRules, LatentRules } from "./attention-rules.ts";
import { DEEPSEEK_EXPERTS, readDeepSeek, sigmoidRouter } from "./deepseek.ts";
import type { ReadExperts } from "./experts.ts";
import type { Facts } from "./facts.ts";
import { type BiasPart, type Family, FUSED_MLP, SECOND_NORM } from "./family.ts";

const attention: AttentionRules = {
  types: "glm",
  gguf: { names: "chatglm" },
  defaults: { headDim: 128 },
  rope: { pairing: "interleaved", share: 0.5 },
};
const attention4: AttentionRules = {
  types: "glm4",
  gguf: {},
  defaults: { headDim: 128 },
  rope: { pairing: "interleaved", share: 0.5 },
};
const attentionMoe: AttentionRules = {
  types: "glm4_moe",
  gguf: { names: "glm4moe" },
  rope: { share: 0.5 },
  qkNorm: { kind: "per-head", eps: 1e-5, flag: "use_qk_norm" },
};

export const layers: readonly AttentionRules[] = [attention, attention4, attentionMoe];
const attentionLite: LatentRules = { types: "glm4_moe_lite", kind: "latent", statesPairing: true };

export const latents: readonly LatentRules[] = [attentionLite];

/** Which layers have experts, a list says, whatever `first_k_dense_replace` is beside it; by default all but the first. */
const readLite: ReadExperts = (file, layer, mlp) => {
  const kinds = file.list("mlp_layer_types");
  const kind = kinds?.[layer] ?? (layer === 0 ? "dense" : "sparse");
  if (kind !== "dense" && kind !== "sparse")
    throw file.refusal(`mlp_layer_types of layer ${layer}`, '"dense" or "sparse"', kind);
  if (kinds === undefined) file.only("first_k_dense_replace", 1);
  const read = readDeepSeek((from) => sigmoidRouter(from, { scale: 1.8, groups: 1, keepGroups: 1 }), {
    ...{ experts: 64, dim: 1536, shared: 1, topK: 4 },
  });
  const experts = read(file, kinds ? Number.MAX_SAFE_INTEGER : Math.max(layer, 1), mlp);
  return kind === "sparse" ? experts : undefined;
};

const biases = (facts: Facts): readonly BiasPart[] => (facts.flag("attention_bias", false) ? ["qkv"] : []);

export const decoders = (): Family[] => [
  { attention, gguf: {}, names: { mlp: FUSED_MLP }, biases },
  {
    attention: attention4,
    gguf: {},
    names: {
      mlp: FUSED_MLP,
      norms: {
        attentionPre: "input_layernorm",
        attentionPost: "post_self_attn_layernorm",
        mlpPre: "post_attention_layernorm",
        mlpPost: "post_mlp_layernorm",
      },
    },
    biases,
  },
  {
    attention: attentionMoe,
    gguf: { norms: SECOND_NORM },
    moe: readDeepSeek((file) => sigmoidRouter(file, { scale: 1, groups: 1, keepGroups: 1 }), {
      experts: 128,
      dim: 1408,
      shared: 1,
    }),
    moeNames: DEEPSEEK_EXPERTS,
    ignored: ["num_nextn_predict_layers", "use_qk_norm"],
    biases,
  },
  {
    attention: attentionLite,
    norm: { eps: 1e-5 },
    moe: readLite,
    moeNames: DEEPSEEK_EXPERTS,
    only: { topk_method: ["noaux_tc"], scoring_func: ["sigmoid"] },
    ignored: ["num_nextn_predict_layers", "mlp_layer_types", "first_k_dense_replace"],
  },
];
