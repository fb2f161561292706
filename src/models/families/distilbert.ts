// DistilBERT: BERT with other names, and without types.

import type { AttentionRules } from "./attention-rules.ts";
import { bert, positions } from "./bert.ts";
import type { Family } from "./family.ts";

const attention: AttentionRules = {
  types: "distilbert",
  reader: "loadEncoder",
  causal: false,
  rope: false,
  names: { dModel: ["dim"], numHeads: ["n_heads"], layers: ["n_layers"] },
};

export const layers: readonly AttentionRules[] = [attention];

export const encoders = (): Family[] => [
  bert({
    attention,
    names: {
      roots: ["distilbert.", ""],
      layers: "transformer.layer",
      projections: ["q_lin", "k_lin", "v_lin", "out_lin"],
      norms: { attentionAfter: "sa_layer_norm", mlpAfter: "output_layer_norm" },
      mlpAt: "ffn",
      mlp: { up: "lin1", down: "lin2" },
      head: "vocab_projector",
      transform: { dense: "vocab_transform", norm: "vocab_layer_norm" },
    },
    norm: { kind: "layer", eps: 1e-12, field: "" },
    activation: { fields: ["activation"], word: "gelu" },
    mlpDim: (file) => file.count("hidden_dim", 3072),
    embed: (facts, _dModel, norm) => ({ norm, ...positions(facts) }),
    ignored: ["finetuning_task", "sinusoidal_pos_embds", "tie_weights_"],
  }),
];
