// Phi-1, 1.5 and 2: half of a head rotates, one layer norm before both branches, biases. Phi-3: Llama with fused matrices. Phi-3.5 MoE:
// layer norms, and two experts that are chosen one after the other.

import type { AttentionRules } from "./attention-rules.ts";
import { countExperts, type ReadExperts, SOFTMAX } from "./experts.ts";
import { type Family, FUSED_MLP, HEAD_NORMS, LAYER_NORM, ONE_NORM } from "./family.ts";
import { MIXTRAL_EXPERTS } from "./mistral.ts";

const attention: AttentionRules = {
  types: "phi",
  gguf: { names: "phi2" },
  rope: { share: 0.5 },
  layerNormFlag: "qk_layernorm",
};
const attention3: AttentionRules = { types: "phi3", gguf: {}, window: {} };

const attentionMoe: AttentionRules = {
  types: "phimoe",
  gguf: {},
  rope: { theta: 1_000_000, mscales: true },
  window: {},
};

export const layers: readonly AttentionRules[] = [attention, attention3, attentionMoe];

const readExperts: ReadExperts = (file, _layer, mlp) => {
  const experts = countExperts(file, ["num_local_experts", "num_experts"], 16);
  if (experts < 2) throw file.refusal("num_local_experts", "at least the 2 of a token", experts);
  // The class chooses two, whatever the file says.
  file.only("num_experts_per_tok", 2);
  const jitter = file.raw("router_jitter_noise") === 0 ? 0 : (file.number("router_jitter_noise") ?? 0.01);
  const expert = mlp(file.count("intermediate_size", 6400));
  return { kind: "moe", experts, topK: 2, expert, router: { ...SOFTMAX, jitter } };
};

export const decoders = (): Family[] => [
  {
    attention,
    gguf: {},
    names: {
      projections: ["q_proj", "k_proj", "v_proj", "dense"],
      norms: ONE_NORM,
      mlp: { up: "fc1", down: "fc2" },
      finalNorm: "final_layernorm",
    },
    norm: LAYER_NORM,
    activation: { word: "gelu_new" },
    plain: true,
    headNorm: HEAD_NORMS,
    parallel: () => true,
    biases: () => ["qkv", "o", "mlp", "norm", "headNorm", "head"],
  },
  { attention: attention3, gguf: {}, names: { mlp: FUSED_MLP, projections: ["qkv_proj", "o_proj"] } },
  {
    attention: attentionMoe,
    norm: { kind: "layer", eps: 1e-5, field: "rms_norm_eps" },
    moe: readExperts,
    moeNames: MIXTRAL_EXPERTS,
    ignored: ["input_jitter_noise", "lm_head_bias"],
    biases: (facts) => [
      "norm",
      ...(facts.flag("attention_bias", false) ? (["qkv", "o"] as const) : []),
      ...(facts.flag("lm_head_bias", false) ? (["head"] as const) : []),
    ],
  },
];
