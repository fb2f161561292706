// OLMo Hybrid: gated delta nets with norms before their branches, between layers of attention with norms on their outputs.

import type { AttentionRules, RecurrentRules } from "./attention-rules.ts";
import type { Facts } from "./facts.ts";
import type { Family } from "./family.ts";
import { linearLayers, readDelta } from "./qwen-next.ts";
import { ownTensors, projectionsApart } from "./recurrent.ts";

const attention: AttentionRules = {
  types: "olmo_hybrid",
  qkNorm: { kind: "full" },
  rope: { theta: 500_000 },
  beside: ["linear_num_key_heads"],
};

const delta: RecurrentRules = {
  kind: "recurrent",
  read(facts) {
    const write = facts.flag("linear_allow_neg_eigval", true) ? "double-sigmoid" : "sigmoid";
    const groups = facts.count("linear_num_value_heads", 32);
    const config = readDelta(facts, { write, norm: { eps: 1e-5, groups, shared: true, gateFirst: false } });
    const own = ownTensors(config, {
      ...{ step: "a_proj.weight", write: "b_proj.weight", gate: "g_proj.weight", stepBias: "dt_bias" },
      ...{ rate: "A_log", norm: "o_norm.weight", out: "o_proj.weight" },
    });
    return { kind: "recurrent", config, at: "linear_attn.", tensors: [...projectionsApart(config), ...own] };
  },
};

const isLinear = (facts: Facts, layer: number): boolean => mixer(facts, layer) !== undefined;
const mixer = /* @__PURE__ */ linearLayers(delta);

export const decoders = (): Family[] => [
  {
    attention,
    mixer,
    names: {
      norms: {
        attentionPre: "attention_layer_norm",
        attentionPost: "feedforward_layer_norm",
        mlpPre: "feedforward_layer_norm",
        mlpPost: "post_feedforward_layernorm",
      },
    },
    lacks: (layer, file) => (isLinear(file, layer) ? ["attentionPost", "mlpPost"] : ["attentionPre", "mlpPre"]),
    ignored: [
      ...["linear_a_log_max", "linear_a_log_min", "linear_dt_init_floor", "linear_dt_max", "linear_dt_min"],
      ...["linear_conv_kernel_dim", "linear_key_head_dim", "linear_num_key_heads", "linear_num_value_heads"],
      ...["linear_value_head_dim", "full_attention_interval"],
    ],
  },
];
