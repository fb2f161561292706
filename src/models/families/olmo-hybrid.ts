// OLMo Hybrid: gated delta nets with norms before their branches, between layers of attention with norms on their outputs.

import { recurrentVectors } from "../../layers/recurrent/weights.ts";
import type { AttentionRules, RecurrentRules } from "./attention-rules.ts";
import type { Facts } from "./facts.ts";
import type { Family } from "./family.ts";
import { linearLayers, readDelta, type ScanLayer } from "./qwen-next.ts";
import { ownTensors, type RecurrentTensor } from "./recurrent.ts";

const attention: AttentionRules = {
  types: "olmo_hybrid",
  qkNorm: { kind: "full" },
  rope: { theta: 500_000 },
  beside: ["linear_num_key_heads"],
};

/** Queries, keys and values have a projection and a convolution of their own. */
function apart(config: ScanLayer): RecurrentTensor[] {
  const { numHeads, numKeyHeads, keyDim, valueDim } = config.scan;
  const [, taps = 0] = recurrentVectors(config).conv ?? [];
  const keys = numKeyHeads * keyDim;
  const parts = [
    { name: "q", rows: keys, to: 0 },
    { name: "k", rows: keys, to: keys },
    { name: "v", rows: numHeads * valueDim, to: 2 * keys },
  ];
  return parts.flatMap(({ name, rows, to }): RecurrentTensor[] => [
    { name: `${name}_proj.weight`, shape: [rows, config.dModel], parts: [{ of: "in", rows, to }] },
    { name: `${name}_conv1d.weight`, shape: [rows, 1, taps], parts: [{ of: "conv", rows, to }] },
  ]);
}

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
    return { kind: "recurrent", config, at: "linear_attn.", tensors: [...apart(config), ...own] };
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
