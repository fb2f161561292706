// ALBERT: BERT whose layers share weights in groups, with narrower embeddings.

import type { AttentionRules } from "./attention-rules.ts";
import { bert, bertAttention, positions, types } from "./bert.ts";
import type { Fields } from "./facts.ts";
import type { Family } from "./family.ts";

const attention: AttentionRules = /* @__PURE__ */ bertAttention({ types: "albert", reader: "loadEncoder" });

export const layers: readonly AttentionRules[] = [attention];

/** The group of layers, with weights of its own, that each layer belongs to. */
function layerGroups(file: Fields): number[] {
  const count = file.count("num_hidden_layers", 12, 10_000);
  const groups = file.count("num_hidden_groups", 1, count);
  return Array.from({ length: count }, (_, layer) => Math.floor((layer * groups) / count));
}

export const encoders = (): Family[] => [
  bert({
    attention,
    names: {
      roots: ["albert.", ""],
      projectIn: "encoder.embedding_hidden_mapping_in",
      layers: "encoder.albert_layer_groups",
      attention: "albert_layers.0.attention.",
      projections: ["query", "key", "value", "dense"],
      norms: {
        attentionAfter: "albert_layers.0.attention.LayerNorm",
        mlpAfter: "albert_layers.0.full_layer_layer_norm",
      },
      mlpAt: "albert_layers.0",
      mlp: { up: "ffn", down: "ffn_output" },
      head: "predictions",
      transform: { dense: "predictions.dense", norm: "predictions.LayerNorm" },
    },
    activation: { word: "gelu_new" },
    embed: (facts, _dModel, norm) => ({
      ...{ norm, dim: facts.count("embedding_size", 128), projectLast: true },
      ...{ ...positions(facts), ...types(facts) },
    }),
    order: layerGroups,
    only: { tie_word_embeddings: [true], add_cross_attention: [false], is_decoder: [false], inner_group_num: [1] },
    ignored: ["down_scale_factor", "gap_size", "net_structure_type", "num_memory_blocks"],
  }),
];
