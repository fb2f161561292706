// The families of decoders, by `model_type`. A row holds what differs from Llama around attention: RMS norms before attention
// and MLP, a gated MLP with SiLU, and a head of its own. What differs in attention is in ../hf/decoders.ts.

import type { Fields } from "../hf/config-fields.ts";
import {
  DEEPSEEK_MOE,
  DEEPSEEK_V3_MOE,
  GLM4_MOE,
  GPT_OSS_MOE,
  MINIMAX_M2_MOE,
  MIXTRAL_MOE,
  QWEN2_MOE,
  QWEN3_MOE,
} from "./experts.ts";
import type { Family, Names } from "./family.ts";
import { LAYER_NORM, LAYER_NORMS } from "./norms.ts";
import { PLAIN_FAMILIES } from "./plain-families.ts";

const COHERE_NORMS: Family["headNorm"] = { flag: "use_qk_norm", q: "q_norm", k: "k_norm", each: "together" };
const FUSED_MLP = { gate: "gate_up_proj", down: "down_proj" };
const GEMMA_ACTIVATION = { fields: ["hidden_activation", "hidden_act"], word: "gelu_pytorch_tanh" };
const always = () => true;
const SHARED_NORM: Pick<Family, "names" | "parallel"> = {
  names: { norms: { attentionPre: "input_layernorm" } },
  parallel: always,
};

/** Norms on the outputs of branches as well. */
const SANDWICH_NORMS: Names["norms"] = {
  attentionPre: "input_layernorm",
  attentionPost: "post_attention_layernorm",
  mlpPre: "pre_feedforward_layernorm",
  mlpPost: "post_feedforward_layernorm",
};

const GEMMA: Family = {
  norm: { onePlus: true },
  activation: GEMMA_ACTIVATION,
  embed: (_file, dModel) => ({ scale: Math.sqrt(dModel) }),
  tied: true,
};

/** The final softcap of Gemma, `otherwise` if the file does not state it. */
const finalSoftcap = (otherwise: number) => (file: Fields) => ({
  softcap: file.has("final_logit_softcapping") ? (file.factor("final_logit_softcapping") ?? 0) : otherwise,
});

const OLMO2: Family = {
  names: { norms: { attentionPost: "post_attention_layernorm", mlpPost: "post_feedforward_layernorm" } },
};

export const FAMILIES: Readonly<Record<string, Family>> = {
  ...PLAIN_FAMILIES,
  llama: {},
  cohere: {
    ...SHARED_NORM,
    norm: LAYER_NORM,
    headNorm: COHERE_NORMS,
    head: (file) => ({ scale: file.factor("logit_scale") ?? 0.0625 }),
    tied: true,
  },
  cohere2: {
    ...SHARED_NORM,
    norm: LAYER_NORM,
    head: (file) => ({ scale: file.factor("logit_scale") ?? 0.0625 }),
    tied: true,
  },
  deepseek_v2: { moe: DEEPSEEK_MOE.read, moeNames: DEEPSEEK_MOE.names },
  deepseek_v3: { moe: DEEPSEEK_V3_MOE.read, moeNames: DEEPSEEK_V3_MOE.names, ignored: ["num_nextn_predict_layers"] },
  gemma: { ...GEMMA, activation: { ...GEMMA_ACTIVATION, fields: ["hidden_activation"] }, ignored: ["hidden_act"] },
  gemma2: { ...GEMMA, names: { norms: SANDWICH_NORMS }, head: finalSoftcap(30) },
  gemma3_text: { ...GEMMA, names: { norms: SANDWICH_NORMS }, head: finalSoftcap(0) },
  glm: { names: { mlp: FUSED_MLP } },
  glm4: {
    names: {
      mlp: FUSED_MLP,
      norms: {
        attentionPre: "input_layernorm",
        attentionPost: "post_self_attn_layernorm",
        mlpPre: "post_attention_layernorm",
        mlpPost: "post_mlp_layernorm",
      },
    },
  },
  glm4_moe: { moe: GLM4_MOE.read, moeNames: GLM4_MOE.names, ignored: ["num_nextn_predict_layers", "use_qk_norm"] },
  gpt_oss: {
    names: { sinks: "sinks" },
    moe: GPT_OSS_MOE.read,
    moeNames: GPT_OSS_MOE.names,
    ignored: ["initial_context_length", "experts_per_token", "swiglu_limit"],
  },
  granite: {
    scale: (file) => file.factor("residual_multiplier") ?? 1,
    embed: (file) => ({ scale: file.factor("embedding_multiplier") ?? 1 }),
    head: (file) => ({ scale: 1 / (file.factor("logits_scaling") ?? 1) }),
  },
  minimax_m2: {
    moe: MINIMAX_M2_MOE.read,
    moeNames: MINIMAX_M2_MOE.names,
    only: { qk_norm_type: ["per_layer"], shared_intermediate_size: [0] },
    ignored: ["mtp_transformer_layers", "num_mtp_modules", "use_mtp"],
  },
  mistral: {},
  ministral: {},
  mixtral: { moe: MIXTRAL_MOE.read, moeNames: MIXTRAL_MOE.names, activation: {} },
  olmo2: OLMO2,
  olmo3: OLMO2,
  phi3: { names: { mlp: FUSED_MLP, projections: ["qkv_proj", "o_proj"] } },
  qwen2: {},
  qwen2_moe: { moe: QWEN2_MOE.read, moeNames: QWEN2_MOE.names, ignored: ["intermediate_size"] },
  qwen3: {},
  qwen3_moe: { moe: QWEN3_MOE.read, moeNames: QWEN3_MOE.names, ignored: ["intermediate_size"] },
  smollm3: { tied: true },
  stablelm: {
    namesOf: (file) => (file.flag("use_parallel_residual", false) ? (SHARED_NORM.names ?? {}) : {}),
    norm: LAYER_NORM,
    headNorm: { ...LAYER_NORMS, each: "apart" },
    parallel: (file) => file.flag("use_parallel_residual", false),
  },
};
