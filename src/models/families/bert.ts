// BERT: layer norms after the branches were added, biases, positions and types by tables, a norm behind them. RoBERTa counts
// positions from the id of padding on. ALBERT's layers share weights in groups, and its embeddings are narrower. DistilBERT has no
// types. MPNet has a bias by relative position, and RoBERTa's positions and head. ELECTRA's embeddings are narrower, too.
// DeBERTa from its second version on has terms of scores by the distance of a query from a key, of a table that all layers project.

import type { EmbedSpec, ModelSpec, NormSpec } from "../spec/spec.ts";
import type { AttentionRules } from "./attention-rules.ts";
import type { Facts, Fields } from "./facts.ts";
import type { Family, Names } from "./family.ts";

/** Attention of BERT, whose decoder variant has `is_decoder`. */
const bertAttention = (own: AttentionRules): AttentionRules => ({
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
const albert: AttentionRules = /* @__PURE__ */ bertAttention({ types: "albert", reader: "loadEncoder" });
const distilbert: AttentionRules = {
  types: "distilbert",
  reader: "loadEncoder",
  causal: false,
  rope: false,
  names: { dModel: ["dim"], numHeads: ["n_heads"], layers: ["n_layers"] },
};
const mpnet: AttentionRules = {
  types: "mpnet",
  reader: "loadEncoder",
  causal: false,
  rope: false,
  relativeBias: true,
};

const electra: AttentionRules = /* @__PURE__ */ bertAttention({ types: "electra", reader: "loadEncoder" });

/** The terms of scores besides q·k: "c2p" of queries, "p2c" of keys. */
function termsOf(file: Facts): readonly unknown[] {
  const stated = file.raw("pos_att_type");
  const terms: readonly unknown[] = typeof stated === "string" ? stated.split("|") : (file.list("pos_att_type") ?? []);
  if (terms.length > 0 && terms.every((each) => each === "c2p" || each === "p2c")) return terms;
  throw file.refusal("pos_att_type", '"c2p", "p2c", or both', stated);
}

const deberta: AttentionRules = {
  types: "deberta-v2",
  reader: "loadEncoder",
  causal: false,
  rope: false,
  relativeBias: true,
  scale: (file) => {
    const headDim = file.count("hidden_size") / file.count("num_attention_heads");
    return 1 / Math.sqrt(headDim * (1 + termsOf(file).length));
  },
};

/** Those of which single layers are read. */
const relatives: AttentionRules = /* @__PURE__ */ bertAttention({
  types: "data2vec-text ernie layoutlm megatron-bert xlm-roberta-xl",
});

export const layers: readonly AttentionRules[] = [
  attention,
  roberta,
  albert,
  distilbert,
  mpnet,
  electra,
  deberta,
  relatives,
];

/** Heads for tasks, poolers, positions 0, 1, …, and heads that repeat the table of tokens: not read. */
export const ignoredOfEncoders = (): RegExp =>
  new RegExp(
    [
      "(^|\\.)position_ids$ (^|\\.)(pooler|classifier|pre_classifier|qa_outputs|seq_relationship|sop_classifier|score|discriminator_predictions)\\.",
      "(^|\\.)decoder\\.weight$ (predictions|lm_head)\\.decoder\\.bias$ ^vocab_projector\\.weight$",
    ]
      .join(" ")
      .replaceAll(" ", "|"),
  );

const positions = (facts: Facts): Partial<EmbedSpec> => ({
  positions: { offset: 0, rows: facts.count("max_position_embeddings", 512) },
});

/** The table of token types, of which the file states how many; 0 means none. */
export function types(facts: Facts, otherwise = 2): Partial<EmbedSpec> {
  const rows = facts.countOrNone("type_vocab_size", otherwise);
  return rows === 0 ? {} : { types: rows };
}

/** Positions count from the id of padding on. */
function afterPadding(facts: Facts, padding = facts.raw("pad_token_id") ?? 1): Partial<EmbedSpec> {
  const rows = facts.count("max_position_embeddings", 512);
  if (typeof padding === "number" && Number.isInteger(padding) && padding >= 0 && padding <= rows - 2)
    return { positions: { offset: padding + 1, rows, padding } };
  const rule = `an integer >= 0 and at most max_position_embeddings (${rows}) - 2, since positions count from it on`;
  throw facts.refusal("pad_token_id", rule, padding);
}

const BERT_NAMES: Partial<Names> = {
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
const ROBERTA_HEAD: Partial<Names> = {
  head: "lm_head",
  transform: { dense: "lm_head.dense", norm: "lm_head.layer_norm" },
};

/** A model that differs from BERT in what `own` has. */
const bert = (own: Pick<Family, "attention"> & Partial<Family>): Family => ({
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

function distances(file: Fields, norm: NormSpec): ModelSpec["distances"] {
  for (const name of ["relative_attention", "share_att_key"])
    if (!file.flag(name, false)) throw file.refusal(name, "true, since others are unsupported", file.raw(name));
  const [stated, groups] = [file.raw("max_relative_positions"), file.raw("position_buckets")];
  const isStated = (value: unknown) => value !== undefined && !(typeof value === "number" && value < 1);
  const longest = isStated(stated) ? file.count("max_relative_positions") : file.count("max_position_embeddings", 512);
  const span = isStated(groups) ? file.count("position_buckets") : longest;
  const norms = file.raw("norm_rel_ebd") ?? "none";
  if (norms !== "layer_norm" && norms !== "none") throw file.refusal("norm_rel_ebd", '"layer_norm" or "none"', norms);
  const terms = termsOf(file);
  return {
    span,
    longest: isStated(groups) ? longest : undefined,
    norm: norms === "none" ? undefined : norm,
    ofQueries: terms.includes("c2p"),
    ofKeys: terms.includes("p2c"),
  };
}

/** The group of layers, with weights of its own, that each layer of ALBERT belongs to. */
function layerGroups(file: Fields): number[] {
  const count = file.count("num_hidden_layers", 12, 10_000);
  const groups = file.count("num_hidden_groups", 1, count);
  return Array.from({ length: count }, (_, layer) => Math.floor((layer * groups) / count));
}

export const encoders = (): Family[] => [
  bert({ attention, gguf: {} }),
  bert({
    attention: roberta,
    names: { roots: ["roberta.", ""], ...ROBERTA_HEAD },
    embed: (facts, _dModel, norm) => ({ norm, ...afterPadding(facts), ...types(facts) }),
  }),
  bert({
    attention: albert,
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
  bert({
    attention: distilbert,
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
  bert({
    attention: mpnet,
    names: {
      ...ROBERTA_HEAD,
      roots: ["mpnet.", ""],
      relativeBias: "encoder.relative_attention_bias",
      attention: "attention.attn.",
      projections: ["q", "k", "v", "o"],
      norms: { attentionAfter: "attention.LayerNorm", mlpAfter: "output.LayerNorm" },
    },
    // Whatever the id of padding is.
    embed: (facts, _dModel, norm) => ({ norm, ...afterPadding(facts, 1) }),
    relativeBias: (file) => ({
      buckets: file.count("relative_attention_num_buckets", 32),
      maxDistance: 128,
      bothWays: true,
    }),
  }),
  bert({
    attention: electra,
    names: {
      roots: ["electra.", ""],
      projectIn: "embeddings_project",
      head: "generator_lm_head",
      transform: { dense: "generator_predictions.dense", norm: "generator_predictions.LayerNorm" },
    },
    embed: (facts, _dModel, norm) => ({
      ...{ norm, dim: facts.count("embedding_size", 128), projectLast: true },
      ...{ ...positions(facts), ...types(facts) },
    }),
  }),
  bert({
    attention: deberta,
    names: {
      roots: ["deberta.", ""],
      distances: "encoder.rel_embeddings",
      distancesNorm: "encoder.LayerNorm",
      projections: ["self.query_proj", "self.key_proj", "self.value_proj", "output.dense"],
    },
    attentionNames: { "self.query": "self.query_proj", "self.key": "self.key_proj", "self.value": "self.value_proj" },
    norm: { kind: "layer", eps: 1e-7, field: "layer_norm_eps" },
    embed: (facts, _dModel, norm) => ({ norm, ...types(facts, 0) }),
    distances,
    only: { tie_word_embeddings: [true], position_biased_input: [false], conv_kernel_size: [0] },
    // Of other heads, and of positions that nothing adds.
    ignoredTensors: new RegExp(
      `${ignoredOfEncoders().source}|(^|\\.)(position_embeddings|lm_predictions|mask_predictions)\\.`,
    ),
    ignored: ["legacy", "pooler_hidden_size", "pooler_hidden_act", "pooler_dropout", "conv_act", "conv_groups"],
  }),
];
