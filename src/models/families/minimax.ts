// MiniMax-M2: norms over all heads, a part of which rotates; experts as in Mixtral, chosen by sigmoids with a correction.

import type { AttentionRules } from "./attention-rules.ts";
import { countExperts, type ReadExperts, SOFTMAX } from "./experts.ts";
import type { Family } from "./family.ts";
import { MIXTRAL_EXPERTS } from "./mistral.ts";

const attention: AttentionRules = {
  types: "minimax_m2",
  gguf: { names: "minimax-m2" },
  defaults: { headDim: 128 },
  qkNorm: { kind: "full" },
  only: { use_qk_norm: [true] },
  rope: { theta: 5_000_000, dimField: "rotary_dim" },
};

export const layers: readonly AttentionRules[] = [attention];

const readExperts: ReadExperts = (file, _layer, mlp) => {
  file.only("scoring_func", "sigmoid");
  file.only("use_routing_bias", true);
  const kinds = file.list("attn_type_list");
  if (kinds?.some((kind) => kind !== 1)) throw file.refusal("attn_type_list", "1 for each layer, or none", kinds);
  const experts = countExperts(file, ["num_local_experts", "num_experts"], 256);
  return {
    kind: "moe",
    experts,
    topK: file.count("num_experts_per_tok", 8, experts),
    expert: mlp(file.count("intermediate_size")),
    router: { ...SOFTMAX, score: "sigmoid", correction: true },
  };
};

export const decoders = (): Family[] => [
  {
    attention,
    gguf: {},
    moe: readExperts,
    moeNames: { ...MIXTRAL_EXPERTS, correction: "block_sparse_moe.e_score_correction_bias" },
    only: { qk_norm_type: ["per_layer"], shared_intermediate_size: [0] },
    ignored: ["mtp_transformer_layers", "num_mtp_modules", "use_mtp"],
  },
];
