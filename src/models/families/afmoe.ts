// AFMoE (Trinity): norms before and on both branches, gates of attention's outputs, RoPE in layers with the window alone, and experts
// chosen by sigmoids with a correction.

import type { AttentionRules } from "./attention-rules.ts";
import { countExperts, expertsOf, type ReadExperts, SOFTMAX } from "./experts.ts";
import { type Family, GATED_MLP } from "./family.ts";

const attention: AttentionRules = {
  types: "afmoe",
  defaults: { headDim: 128 },
  qkNorm: { kind: "per-head", eps: 1e-5 },
  window: {
    tokens: 1024,
    slides: (layer, file) => (layer + 1) % file.count("global_attn_every_n_layers", 4) !== 0,
  },
  rotates: (_layer, windowed) => windowed,
};

const readExperts: ReadExperts = (file, layer, mlp) => {
  const experts = countExperts(file, ["num_experts"], 64);
  const dim = file.count("moe_intermediate_size", 1408);
  const shared = file.raw("num_shared_experts") === 0 ? 0 : file.count("num_shared_experts", 2);
  const dense = file.raw("num_dense_layers") === 0 ? 0 : file.count("num_dense_layers", 1);
  const topK = file.count("num_experts_per_tok", 6, experts);
  const scale = file.factor("route_scale") ?? 1;
  // The width of dense layers, which are not always there.
  file.raw("intermediate_size");
  return layer < dense
    ? undefined
    : {
        kind: "moe",
        ...{ experts, topK, expert: mlp(dim) },
        ...(shared > 0 && { shared: { mlp: mlp(shared * dim), gated: false } }),
        router: { ...SOFTMAX, score: "sigmoid", correction: true, scale },
      };
};

export const decoders = (): Family[] => [
  {
    attention,
    names: {
      attentionGate: "gate_proj",
      norms: {
        attentionPre: "input_layernorm",
        attentionPost: "post_attention_layernorm",
        mlpPre: "pre_mlp_layernorm",
        mlpPost: "post_mlp_layernorm",
      },
    },
    norm: { eps: 1e-5 },
    heads: () => ({ gated: true }),
    embed: (facts, dModel) => ({ scale: facts.flag("mup_enabled", false) ? Math.sqrt(dModel) : 1 }),
    moe: readExperts,
    moeNames: {
      router: "mlp.router.gate",
      correction: "mlp.expert_bias",
      expert: expertsOf("mlp.experts"),
      mlp: GATED_MLP,
      shared: "mlp.shared_experts",
    },
    only: {
      ...{ score_func: ["sigmoid"], route_norm: [true], n_group: [1], topk_group: [1] },
      ...{ num_expert_groups: [1], num_limited_groups: [1] },
    },
    ignored: ["global_attn_every_n_layers", "load_balance_coeff", "use_grouped_mm"],
    biases: (facts) => (facts.flag("attention_bias", false) ? ["qkv", "o"] : []),
  },
];
