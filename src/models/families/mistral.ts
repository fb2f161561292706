// Mistral, Ministral and Mixtral: Llama with a window; Mixtral has experts. Their GGUF files are those of Llama.

import type { AttentionRules } from "./attention-rules.ts";
import { countExperts, expertsOf, type ReadExperts, SOFTMAX } from "./experts.ts";
import type { Family, MoeNames } from "./family.ts";

const attention: AttentionRules = {
  types: "mistral ministral",
  gguf: { names: "mistral3", permuted: true },
  window: { tokens: 4096 },
};
const mixtral: AttentionRules = { types: "mixtral", window: {}, rope: { theta: 1_000_000 } };

export const layers: readonly AttentionRules[] = [attention, mixtral];

const readExperts: ReadExperts = (file, _layer, mlp) => {
  const experts = countExperts(file, ["num_local_experts", "num_experts"], 8);
  const expert = mlp(file.count("intermediate_size"));
  return { kind: "moe", experts, topK: file.count("num_experts_per_tok", 2, experts), expert, router: SOFTMAX };
};

export const MIXTRAL_EXPERTS: MoeNames = {
  router: "block_sparse_moe.gate",
  expert: /* @__PURE__ */ expertsOf("block_sparse_moe.experts"),
  mlp: { gate: "w1", up: "w3", down: "w2" },
};

export const decoders = (): Family[] => [
  { attention },
  { attention: mixtral, moe: readExperts, moeNames: MIXTRAL_EXPERTS },
];
