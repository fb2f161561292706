// Apertus: xIELU with scalars of each layer, without a gate; norms of heads.

import type { AttentionRules } from "./attention-rules.ts";
import type { Family } from "./family.ts";

const attention: AttentionRules = {
  types: "apertus",
  gguf: {},
  qkNorm: { kind: "per-head", eps: 1e-5 },
  only: { qk_norm: [true] },
  rope: {
    theta: 12_000_000,
    scaling: {
      rope_type: "llama3",
      factor: 8,
      low_freq_factor: 1,
      high_freq_factor: 4,
      original_max_position_embeddings: 8192,
    },
  },
};

export const layers: readonly AttentionRules[] = [attention];

export const decoders = (): Family[] => [
  {
    attention,
    gguf: {
      activation: (keys) => {
        const scalar = (name: string) => {
          const value = keys.ofLayer(`xielu.${name}`);
          if (typeof value !== "number") throw keys.refusal(`xielu.${name}`, "a number for each layer", value);
          return value;
        };
        const [positive, negative] = [scalar("alpha_p"), scalar("alpha_n")];
        return { kind: "xielu", alpha: 1, xielu: { positive, negative, beta: scalar("beta"), eps: scalar("eps") } };
      },
    },
    names: {
      norms: { attentionPre: "attention_layernorm", mlpPre: "feedforward_layernorm" },
      mlp: { up: "up_proj", down: "down_proj" },
      xielu: {
        xieluPositive: { name: "act_fn.alpha_p", shape: [1] },
        xieluNegative: { name: "act_fn.alpha_n", shape: [1] },
        xieluBeta: { name: "act_fn.beta", shape: [] },
        xieluEps: { name: "act_fn.eps", shape: [] },
      },
    },
    norm: { eps: 1e-5 },
    activation: { word: "xielu" },
    plain: true,
    only: { post_norm: [false], mlp_bias: [false] },
  },
];
