// MPNet: BERT with a bias by relative position, and RoBERTa's positions and head.

import type { AttentionRules } from "./attention-rules.ts";
import { afterPadding, bert, ROBERTA_HEAD } from "./bert.ts";
import type { Family } from "./family.ts";

const attention: AttentionRules = {
  types: "mpnet",
  reader: "loadEncoder",
  causal: false,
  rope: false,
  relativeBias: true,
};

export const layers: readonly AttentionRules[] = [attention];

export const encoders = (): Family[] => [
  bert({
    attention,
    names: {
      ...ROBERTA_HEAD,
      roots: ["mpnet.", ""],
      relativeBias: "encoder.relative_attention_bias",
      attention: "attention.attn.",
      projections: ["q", "k", "v", "o"],
      norms: { attentionAfter: "attention.LayerNorm", mlpAfter: "output.LayerNorm" },
    },
    embed: (facts, _dModel, norm) => ({ norm, ...afterPadding(facts) }),
    relativeBias: (file) => ({
      buckets: file.count("relative_attention_num_buckets", 32),
      maxDistance: 128,
      bothWays: true,
    }),
  }),
];
