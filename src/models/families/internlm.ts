// InternLM 2, of which GGUF files are read whole. InternLM 3: Llama, with one flag for the biases of attention and MLP.

import type { AttentionRules } from "./attention-rules.ts";
import type { Facts } from "./facts.ts";
import type { BiasPart, Family } from "./family.ts";

const attention: AttentionRules = { types: "internlm3", defaults: { headDim: 128 } };

const attention2: AttentionRules = { types: "internlm2", gguf: { permuted: true }, fused: "grouped" };

export const layers: readonly AttentionRules[] = [attention2, attention];

const biases = (facts: Facts): readonly BiasPart[] =>
  ["attention_bias", "qkv_bias", "bias"].some((name) => facts.flag(name, false)) ? ["qkv", "o", "mlp"] : [];

export const decoders = (): Family[] => [
  { attention: attention2, gguf: { alone: true } },
  { attention, norm: { eps: 1e-5 }, biases },
];
