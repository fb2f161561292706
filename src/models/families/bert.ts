// BERT, RoBERTa and their relatives: layer norms after the branches were added, biases, positions and types by tables, a norm behind
// them. RoBERTa counts positions from the id of padding on.

import type { EmbedSpec } from "../spec/spec.ts";
import type { AttentionRules } from "./attention-rules.ts";
import type { Facts } from "./facts.ts";
import type { Family, Names } from "./family.ts";

/** Attention of BERT, whose decoder variant has `is_decoder`. */
export const bertAttention = (own: AttentionRules): AttentionRules => ({
  causal: "is_decoder",
  rope: false,
  only: { position_embedding_type: ["absolute"] },
  ...own,
});

const attention: AttentionRules = /* @__PURE__ */ bertAttention({
  types: "bert",
  gguf: {},
  reader: "loadEncoder",
});
const roberta: AttentionRules = /* @__PURE__ */ bertAttention({
  types: "camembert roberta xlm-roberta",
  reader: "loadEncoder",
});

/** Those of which single layers are read. */
const relatives: AttentionRules = /* @__PURE__ */ bertAttention({
  types: "data2vec-text electra ernie layoutlm megatron-bert xlm-roberta-xl",
});

export const layers: readonly AttentionRules[] = [attention, roberta, relatives];

/** Heads for tasks, poolers, positions 0, 1, …, and heads that repeat the table of tokens: not read. */
export const ignoredOfEncoders = (): RegExp =>
  new RegExp(
    [
      "(^|\\.)position_ids$ (^|\\.)(pooler|classifier|pre_classifier|qa_outputs|seq_relationship|sop_classifier|score)\\.",
      "(^|\\.)decoder\\.weight$ (predictions|lm_head)\\.decoder\\.bias$ ^vocab_projector\\.weight$",
    ]
      .join(" ")
      .replaceAll(" ", "|"),
  );

export const positions = (facts: Facts, offset = 0): Partial<EmbedSpec> => ({
  positions: { offset, rows: facts.count("max_position_embeddings", 512) },
});

export const types = (facts: Facts): Partial<EmbedSpec> => ({ types: facts.count("type_vocab_size", 2) });

/** Positions count from the id of padding on. */
export function afterPadding(facts: Facts): Partial<EmbedSpec> {
  const rows = facts.count("max_position_embeddings", 512);
  const padding = facts.raw("pad_token_id") ?? 1;
  if (typeof padding === "number" && Number.isInteger(padding) && padding >= 0 && padding <= rows - 2)
    return positions(facts, padding + 1);
  const rule = `an integer >= 0 and at most max_position_embeddings (${rows}) - 2, since positions count from it on`;
  throw facts.refusal("pad_token_id", rule, padding);
}

export const BERT_NAMES: Partial<Names> = {
  roots: ["bert.", ""],
  embed: "embeddings.word_embeddings",
  embedNorm: "embeddings.LayerNorm",
  positions: "embeddings.position_embeddings",
  types: "embeddings.token_type_embeddings",
  layers: "encoder.layer",
  attention: "attention.",
  projections: ["self.query", "self.key", "self.value", "output.dense"],
  norms: { attentionAfter: "attention.output.LayerNorm", mlpAfter: "output.LayerNorm" },
  mlpAt: "",
  mlp: { up: "intermediate.dense", down: "output.dense" },
  head: "cls.predictions",
  transform: { dense: "cls.predictions.transform.dense", norm: "cls.predictions.transform.LayerNorm" },
};

/** RoBERTa's head: MPNet has the same. */
export const ROBERTA_HEAD: Partial<Names> = {
  head: "lm_head",
  transform: { dense: "lm_head.dense", norm: "lm_head.layer_norm" },
};

/** A model that differs from BERT in what `own` has. */
export const bert = (own: Pick<Family, "attention"> & Partial<Family>): Family => ({
  norm: { kind: "layer", eps: 1e-12, field: "layer_norm_eps" },
  activation: { word: "gelu" },
  plain: true,
  embed: (facts, _dModel, norm) => ({ norm, ...positions(facts), ...types(facts) }),
  finalNorm: () => false,
  tied: true,
  only: { tie_word_embeddings: [true], add_cross_attention: [false], is_decoder: [false] },
  ignored: [
    "finetuning_task",
    "gradient_checkpointing",
    "pooler_fc_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
  ],
  ignoredTensors: ignoredOfEncoders(),
  ...own,
  names: { ...BERT_NAMES, ...own.names },
});

export const encoders = (): Family[] => [
  bert({ attention, gguf: {} }),
  bert({
    attention: roberta,
    names: { roots: ["roberta.", ""], ...ROBERTA_HEAD },
    embed: (facts, _dModel, norm) => ({ norm, ...afterPadding(facts), ...types(facts) }),
  }),
];
