// XGLM: positions are waves that are computed, not read; layer norms, biases throughout, ReLU or GELU without a gate.

import type { AttentionRules } from "./attention-rules.ts";
import { ALL_BIASES, type Family, OUT_PROJ } from "./family.ts";

const attention: AttentionRules = {
  types: "xglm",
  names: { dModel: ["d_model"], numHeads: ["attention_heads"], layers: ["num_layers"] },
  rope: false,
};

export const layers: readonly AttentionRules[] = [attention];

export const decoders = (): Family[] => [
  {
    attention,
    layers: ["num_layers"],
    names: {
      projections: OUT_PROJ,
      norms: { attentionPre: "self_attn_layer_norm", mlpPre: "final_layer_norm" },
      mlpAt: "",
      mlp: { up: "fc1", down: "fc2" },
      finalNorm: "layer_norm",
    },
    norm: { kind: "layer", eps: 1e-5, field: "" },
    activation: { fields: ["activation_function"], word: "gelu" },
    plain: true,
    mlpDim: (file) => file.count("ffn_dim", 4096),
    embed: (facts, dModel) => {
      const padding = facts.raw("pad_token_id");
      return {
        scale: facts.flag("scale_embedding", true) ? Math.sqrt(dModel) : 1,
        positions: {
          ...{ offset: 2, rows: facts.count("max_position_embeddings", 2048) + 2 },
          waves: { without: typeof padding === "number" ? padding : 1 },
        },
      };
    },
    tied: true,
    only: { add_cross_attention: [false] },
    biases: ALL_BIASES,
  },
];
