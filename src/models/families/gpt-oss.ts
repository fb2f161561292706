// gpt-oss: sinks, windows in every other layer, and experts with bounded activations.

import type { AttentionRules } from "./attention-rules.ts";
import { countExperts, type ReadExperts, SOFTMAX } from "./experts.ts";
import type { Family } from "./family.ts";

const attention: AttentionRules = {
  types: "gpt_oss",
  gguf: { names: "gpt-oss", assumesWindow: true, smoothRamp: true },
  defaults: { headDim: 64 },
  rope: { theta: 150_000 },
  window: { tokens: 128, period: 2 },
};

export const layers: readonly AttentionRules[] = [attention];

const expertActivation = { kind: "swish", alpha: 1.702, limit: 7 } as const;

const readExperts: ReadExperts = (file, _layer, mlp) => {
  const experts = countExperts(file, ["num_local_experts", "num_experts"], 128);
  const { dim } = mlp(file.count("intermediate_size", 2880));
  return {
    kind: "moe",
    experts,
    topK: file.count("num_experts_per_tok", 4, experts),
    expert: {
      ...{ kind: "mlp", dim, gated: true },
      activation: {
        ...expertActivation,
        alpha: file.factor("swiglu_alpha") ?? expertActivation.alpha,
        limit: file.factor("swiglu_limit") ?? expertActivation.limit,
      },
    },
    // A softmax over the chosen logits is one over all, divided by the sum of the chosen.
    router: SOFTMAX,
  };
};

export const decoders = (): Family[] => [
  {
    attention,
    gguf: { norms: { attentionPre: "attn_norm", mlpPre: "post_attention_norm" } },
    names: { sinks: "sinks" },
    moe: readExperts,
    expertActivation,
    moeNames: {
      router: "mlp.router",
      expert: "interleaved",
      mlp: { gate: "mlp.experts.gate_up_proj", down: "mlp.experts.down_proj" },
    },
    ignored: ["initial_context_length", "experts_per_token"],
    biases: (facts) => (facts.flag("attention_bias", true) ? ["qkv", "o", "router"] : ["router"]),
  },
];
