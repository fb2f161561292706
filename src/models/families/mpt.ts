// MPT: ALiBi instead of RoPE, layer norms without biases, an MLP of four times the width. Fields of attention are in an object.

import type { AttentionRules, HfAttentionConfig } from "./attention-rules.ts";
import type { Fields } from "./facts.ts";
import { type Family, LAYER_NORM_EPSILON } from "./family.ts";

const attention: AttentionRules = {
  types: "mpt",
  gguf: {},
  names: { dModel: ["d_model"], numHeads: ["n_heads"], layers: ["n_layers"] },
  rope: false,
  more: readMpt,
};

export const layers: readonly AttentionRules[] = [attention];

function readMpt(file: Fields): Partial<HfAttentionConfig> {
  const own = file.fields("attn_config");
  own?.only("alibi", true);
  own?.only("alibi_bias_max", 8);
  own?.only("attn_type", "multihead_attention");
  own?.only("clip_qkv");
  own?.only("prefix_lm", false);
  own?.only("qk_ln", false);
  return { alibi: "geometric", scale: own?.factor("softmax_scale") };
}

export const decoders = (): Family[] => [
  {
    attention,
    gguf: {},
    names: {
      roots: ["transformer.", ""],
      embed: "wte",
      layers: "blocks",
      attention: "attn.",
      projections: ["Wqkv", "out_proj"],
      norms: { attentionPre: "norm_1", mlpPre: "norm_2" },
      mlpAt: "ffn",
      mlp: { up: "up_proj", down: "down_proj" },
      finalNorm: "norm_f",
    },
    norm: LAYER_NORM_EPSILON,
    activation: { fields: [], word: "gelu" },
    plain: true,
    mlpDim: (_file, dModel) => 4 * dModel,
    lengthField: "max_seq_len",
    tied: true,
    only: { logit_scale: [], no_bias: [true], norm_type: ["low_precision_layernorm"] },
    ignored: [
      "attn_config",
      "emb_pdrop",
      "embedding_fraction",
      "expansion_ratio",
      "init_device",
      "learned_pos_emb",
      "verbose",
    ],
  },
];
