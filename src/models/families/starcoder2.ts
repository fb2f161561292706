// StarCoder2: layer norms, an MLP without gate, biases.

import type { AttentionRules } from "./attention-rules.ts";
import type { Family } from "./family.ts";

const attention: AttentionRules = { types: "starcoder2", gguf: {}, window: {} };

export const layers: readonly AttentionRules[] = [attention];

export const decoders = (): Family[] => [
  {
    attention,
    gguf: {},
    names: { mlp: { up: "c_fc", down: "c_proj" } },
    norm: { kind: "layer", eps: 1e-5, field: "norm_epsilon" },
    activation: { word: "gelu_pytorch_tanh" },
    plain: true,
    tied: true,
    biases: (facts) => (facts.flag("use_bias", true) ? ["qkv", "o", "mlp", "norm"] : ["norm"]),
  },
];
