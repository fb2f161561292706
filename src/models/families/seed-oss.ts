// Seed-OSS: Llama with biases of queries, keys and values, and a flag of its own for that of outputs.

import type { AttentionRules } from "./attention-rules.ts";
import { type Family, SECOND_NORM } from "./family.ts";

const attention: AttentionRules = { types: "seed_oss", gguf: {}, defaults: { headDim: 128 } };

export const layers: readonly AttentionRules[] = [attention];

export const decoders = (): Family[] => [
  {
    attention,
    gguf: { norms: SECOND_NORM },
    ignored: ["attention_out_bias"],
    biases: (facts) => [
      ...(facts.flag("attention_bias", true) ? (["qkv"] as const) : []),
      ...(facts.flag("attention_out_bias", false) ? (["o"] as const) : []),
      ...(facts.flag("mlp_bias", false) ? (["mlp"] as const) : []),
    ],
  },
];
