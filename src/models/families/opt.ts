// OPT: a table of positions from 2 on, layer norms before the branches or after they were added, narrower embeddings in one size.

import type { AttentionRules } from "./attention-rules.ts";
import type { Facts } from "./facts.ts";
import { ALL_BIASES, type Family, type Names, OUT_PROJ } from "./family.ts";

const attention: AttentionRules = { types: "opt", rope: false };

export const layers: readonly AttentionRules[] = [attention];

function namesOf(facts: Facts): Partial<Names> {
  const [attentionNorm, mlpNorm] = ["self_attn_layer_norm", "final_layer_norm"];
  const before = facts.flag("do_layer_norm_before", true);
  return {
    norms: before
      ? { attentionPre: attentionNorm, mlpPre: mlpNorm }
      : { attentionAfter: attentionNorm, mlpAfter: mlpNorm },
  };
}

export const decoders = (): Family[] => [
  {
    attention,
    names: {
      roots: ["model.decoder.", "decoder.", ""],
      projections: OUT_PROJ,
      mlpAt: "",
      mlp: { up: "fc1", down: "fc2" },
      finalNorm: "final_layer_norm",
    },
    namesOf,
    norm: { kind: "layer", eps: 1e-5, field: "" },
    activation: { fields: ["activation_function"], word: "relu" },
    plain: true,
    mlpDim: (file) => file.count("ffn_dim"),
    embed: (facts, dModel) => ({
      dim: facts.count("word_embed_proj_dim", dModel),
      positions: { offset: 2, rows: facts.count("max_position_embeddings", 2048) + 2 },
    }),
    finalNorm: (facts) => facts.flag("do_layer_norm_before", true) && !facts.flag("_remove_final_layer_norm", false),
    tied: true,
    only: { enable_bias: [true], layer_norm_elementwise_affine: [true] },
    ignored: ["prefix", "init_std", "layerdrop"],
    biases: ALL_BIASES,
  },
];
