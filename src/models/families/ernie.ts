// ERNIE 4.5: Llama with interleaved pairs; and with experts, chosen by a softmax to which a correction is added.

import type { AttentionRules } from "./attention-rules.ts";
import { DEEPSEEK_EXPERTS } from "./deepseek.ts";
import { type ReadExperts, SOFTMAX } from "./experts.ts";
import type { Facts } from "./facts.ts";
import type { BiasPart, Family } from "./family.ts";

const attention: AttentionRules = {
  types: "ernie4_5",
  gguf: {},
  rope: { pairing: "interleaved", theta: 500_000 },
};
const attentionMoe: AttentionRules = {
  types: "ernie4_5_moe",
  gguf: { names: "ernie4_5-moe" },
  rope: { pairing: "interleaved", theta: 500_000 },
};

export const layers: readonly AttentionRules[] = [attention, attentionMoe];

/** Experts are in every n-th layer of a range. */
const readExperts: ReadExperts = (file, layer, mlp) => {
  const experts = file.count("moe_num_experts", 64);
  const dim = file.count("moe_intermediate_size", 1536);
  const shared = file.raw("moe_num_shared_experts") === 0 ? 0 : file.count("moe_num_shared_experts", 2);
  const [first, last] = [Number(file.raw("moe_layer_start_index") ?? 1), Number(file.raw("moe_layer_end_index") ?? -1)];
  const isWithin = layer >= first && (last === -1 || layer <= last);
  // The least sum that weights are divided by. Their sum is larger: the chosen are the largest of a softmax.
  file.raw("moe_norm_min");
  const topK = file.count("moe_k", 6, experts);
  // The width of layers without experts, which are not always there.
  file.raw("intermediate_size");
  return isWithin && (layer + 1) % file.count("moe_layer_interval", 1) === 0
    ? {
        kind: "moe",
        ...{ experts, topK, expert: mlp(dim) },
        ...(shared > 0 && { shared: { mlp: mlp(shared * dim), gated: false } }),
        router: { ...SOFTMAX, correction: true },
      }
    : undefined;
};

const biases = (facts: Facts): readonly BiasPart[] => (facts.flag("use_bias", false) ? ["qkv", "o", "mlp"] : []);

export const decoders = (): Family[] => [
  { attention, gguf: {}, tied: true, biases },
  {
    attention: attentionMoe,
    gguf: {},
    tied: true,
    moe: readExperts,
    moeNames: { ...DEEPSEEK_EXPERTS, correction: "mlp.moe_statics.e_score_correction_bias", correctionRow: true },
    biases,
  },
];
