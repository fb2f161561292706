// Falcon: BLOOM's names, RoPE or ALiBi, keys of one head or of groups; norms are one, two side by side, or as in Llama.

import { alibiSlopes } from "../../layers/attention/config.ts";
import type { AttentionRules, HfAttentionConfig, Shape } from "./attention-rules.ts";
import { BLOOM_NAMES } from "./bloom.ts";
import type { Facts, Fields } from "./facts.ts";
import { type Family, LAYER_NORM_EPSILON, type Names, ONE_NORM } from "./family.ts";

const attention: AttentionRules = {
  types: "falcon",
  gguf: {},
  names: { numHeads: ["num_attention_heads", "n_head"], layers: ["num_hidden_layers", "n_layer"] },
  more: readFalcon,
};

export const layers: readonly AttentionRules[] = [attention];

function readFalcon(file: Fields, { numHeads, headDim }: Shape): Partial<HfAttentionConfig> {
  const grouped = file.flag("new_decoder_architecture", false);
  const shared = !grouped && file.flag("multi_query", true);
  const numKvHeads = shared ? 1 : file.count("num_kv_heads", numHeads);
  const own = { numKvHeads, fused: shared ? "qkv" : "grouped" } as const;
  if (!file.flag("alibi", false)) return own;
  // Falcon adds the bias before it scales scores.
  return { ...own, rope: undefined, alibi: alibiSlopes(numHeads).map((slope) => slope * (1 / Math.sqrt(headDim))) };
}

function namesOf(facts: Facts): Partial<Names> {
  const grouped = facts.flag("new_decoder_architecture", false);
  const count = facts.raw("num_ln_in_parallel_attn") === undefined ? 2 : facts.count("num_ln_in_parallel_attn");
  if (grouped && count === 2) return { norms: { attentionPre: "ln_attn", mlpPre: "ln_mlp" } };
  return grouped || facts.flag("parallel_attn", true) ? { norms: ONE_NORM } : {};
}

export const decoders = (): Family[] => [
  {
    attention,
    gguf: {},
    names: { ...BLOOM_NAMES, mlpAt: "mlp" },
    namesOf,
    norm: LAYER_NORM_EPSILON,
    activation: { fields: ["activation"], word: "gelu" },
    plain: true,
    mlpDim: (file, dModel) => file.count("ffn_hidden_size", 4 * dModel),
    parallel: (facts) => facts.flag("new_decoder_architecture", false) || facts.flag("parallel_attn", true),
    tied: true,
    ignored: ["multi_query", "num_ln_in_parallel_attn", "parallel_attn"],
    biases: (facts) => (facts.flag("bias", false) ? ["qkv", "o", "mlp", "norm"] : ["norm"]),
  },
];
