// MiniCPM 3: latent attention with pairs that are halves, and factors on embeddings, branches and logits.

import type { LatentRules } from "./attention-rules.ts";
import type { Family } from "./family.ts";

const attention: LatentRules = {
  types: "minicpm3",
  kind: "latent",
  halves: true,
  theta: 10_000,
  qLoraRank: 768,
  valueShare: true,
};

export const decoders = (): Family[] => [
  {
    attention,
    norm: { eps: 1e-5 },
    tied: true,
    embed: (facts) => ({ scale: facts.factor("scale_emb") ?? 12 }),
    scale: (facts) => {
      const isPlain = facts.has("scale_depth") && facts.raw("scale_depth") === undefined;
      return isPlain ? 1 : (facts.factor("scale_depth") ?? 1.4) / Math.sqrt(facts.count("num_hidden_layers", 62));
    },
    head: (facts) => {
      const isPlain = facts.has("dim_model_base") && facts.raw("dim_model_base") === undefined;
      return { scale: isPlain ? 1 : facts.count("dim_model_base", 256) / facts.count("hidden_size", 2560) };
    },
  },
];
