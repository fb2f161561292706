// nanochat: RMS norms without gains, also of embeddings, and of heads behind RoPE, which rotates the other way.

import type { AttentionRules } from "./attention-rules.ts";
import type { Family } from "./family.ts";

const attention: AttentionRules = { types: "nanochat", qkNorm: { kind: "per-head" } };

export const decoders = (): Family[] => [
  {
    attention,
    names: { mlp: { up: "fc1", down: "fc2" } },
    norm: { bare: true },
    heads: () => ({ normsLast: true, bare: true, backwards: true }),
    activation: { word: "relu2" },
    plain: true,
    embed: (_facts, _dModel, norm) => ({ norm }),
    head: (facts) => ({
      softcap: facts.has("final_logit_softcapping") ? (facts.factor("final_logit_softcapping") ?? 0) : 15,
    }),
  },
];
