// The families of encoders, and of models with two halves, by `model_type`.

import type { EmbedSpec } from "../spec/spec.ts";
import type { Family, Names } from "./family.ts";
import type { Fields } from "./fields.ts";

// The families of encoders, by `model_type`: what differs from Llama around attention, as in ../decoder/families.ts. Most are
// BERT with other names: layer norms after the branches were added, biases, and a norm behind the embeddings.

/** Heads for tasks, poolers, positions 0, 1, …, and heads that repeat the table of tokens: not read. */
const IGNORED_TENSORS = /* @__PURE__ */ ((parts: readonly string[]) =>
  new RegExp(parts.join(" ").replaceAll(" ", "|")))([
  "(^|\\.)position_ids$ (^|\\.)(pooler|classifier|pre_classifier|qa_outputs|seq_relationship|sop_classifier|score)\\.",
  "(^|\\.)decoder\\.weight$ (predictions|lm_head)\\.decoder\\.bias$ ^vocab_projector\\.weight$",
]);

const positions = (file: Fields, offset = 0): Partial<EmbedSpec> => ({
  positions: { offset, rows: file.count("max_position_embeddings", 512) },
});

const types = (file: Fields): Partial<EmbedSpec> => ({ types: file.count("type_vocab_size", 2) });

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

const BERT: Family = /* @__PURE__ */ (() => ({
  names: BERT_NAMES,
  norm: { kind: "layer", eps: 1e-12, field: "layer_norm_eps" },
  activation: { word: "gelu" },
  plain: true,
  embed: (file, _dModel, norm) => ({ norm, ...positions(file), ...types(file) }),
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
  ignoredTensors: IGNORED_TENSORS,
}))();

/** Positions count from the id of padding on. */
function afterPadding(file: Fields): Partial<EmbedSpec> {
  const rows = file.count("max_position_embeddings", 512);
  const padding = file.raw("pad_token_id") ?? 1;
  if (typeof padding === "number" && Number.isInteger(padding) && padding >= 0 && padding <= rows - 2)
    return positions(file, padding + 1);
  const rule = `an integer >= 0 and at most max_position_embeddings (${rows}) - 2, since positions count from it on`;
  throw file.refusal("pad_token_id", rule, padding);
}

const ROBERTA: Family = /* @__PURE__ */ (() => ({
  ...BERT,
  names: {
    ...BERT_NAMES,
    roots: ["roberta.", ""],
    head: "lm_head",
    transform: { dense: "lm_head.dense", norm: "lm_head.layer_norm" },
  },
  embed: (file, _dModel, norm) => ({ norm, ...afterPadding(file), ...types(file) }),
}))();

/** The group of layers, with weights of its own, that each layer belongs to. */
function layerGroups(file: Fields): number[] {
  const layers = file.count("num_hidden_layers", 12, 10_000);
  const groups = file.count("num_hidden_groups", 1, layers);
  return Array.from({ length: layers }, (_, layer) => Math.floor((layer * groups) / layers));
}

const ALBERT: Family = /* @__PURE__ */ (() => ({
  ...BERT,
  names: {
    ...BERT_NAMES,
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
  embed: (file, _dModel, norm) => ({
    ...{ norm, dim: file.count("embedding_size", 128), projectLast: true },
    ...{ ...positions(file), ...types(file) },
  }),
  order: layerGroups,
  only: { ...BERT.only, inner_group_num: [1] },
  ignored: ["down_scale_factor", "gap_size", "net_structure_type", "num_memory_blocks"],
}))();

const DISTILBERT: Family = /* @__PURE__ */ (() => ({
  ...BERT,
  names: {
    ...BERT_NAMES,
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
  embed: (file, _dModel, norm) => ({ norm, ...positions(file) }),
  ignored: ["finetuning_task", "sinusoidal_pos_embds", "tie_weights_"],
}))();

const MPNET: Family = /* @__PURE__ */ (() => ({
  ...BERT,
  names: {
    ...ROBERTA.names,
    roots: ["mpnet.", ""],
    relativeBias: "encoder.relative_attention_bias",
    attention: "attention.attn.",
    projections: ["q", "k", "v", "o"],
    norms: { attentionAfter: "attention.LayerNorm", mlpAfter: "output.LayerNorm" },
  },
  embed: (file, _dModel, norm) => ({ norm, ...afterPadding(file) }),
  relativeBias: (file) => ({
    buckets: file.count("relative_attention_num_buckets", 32),
    maxDistance: 128,
    bothWays: true,
  }),
}))();

const MODERNBERT: Family = /* @__PURE__ */ (() => ({
  names: {
    embed: "embeddings.tok_embeddings",
    embedNorm: "embeddings.norm",
    attention: "attn.",
    projections: ["Wqkv", "Wo"],
    norms: { attentionPre: "attn_norm", mlpPre: "mlp_norm" },
    mlp: { gate: "Wi", down: "Wo" },
    finalNorm: "final_norm",
    head: "decoder",
    transform: { dense: "head.dense", norm: "head.norm" },
  },
  norm: { kind: "layer", eps: 1e-5, field: "norm_eps" },
  activation: { fields: ["hidden_activation"], word: "gelu" },
  embed: (_file, _dModel, norm) => ({ norm }),
  // The first layer reads what the norm of the embeddings gives.
  lacks: (layer) => (layer === 0 ? ["attentionPre"] : []),
  tied: true,
  only: { tie_word_embeddings: [true], classifier_activation: ["gelu"] },
  ignored: [
    ...["classifier_bias", "classifier_pooling", "decoder_bias", "deterministic_flash_attn", "embedding_dropout"],
    ...[
      "global_attn_every_n_layers",
      "gradient_checkpointing",
      "layer_norm_eps",
      "norm_bias",
      "position_embedding_type",
    ],
    ...["reference_compile", "repad_logits_with_grad", "sparse_pred_ignore_index", "sparse_prediction"],
  ],
  ignoredTensors: IGNORED_TENSORS,
}))();

/** The name of the first of these fields that the file has. */
const present = (file: Fields, ...names: readonly [string, ...string[]]): string =>
  names.find((name) => file.raw(name) !== undefined) ?? names[0];

const NOMIC_BERT: Family = /* @__PURE__ */ (() => ({
  names: {
    roots: ["bert.", ""],
    embed: "embeddings.word_embeddings",
    embedNorm: "emb_ln",
    types: "embeddings.token_type_embeddings",
    layers: "encoder.layers",
    attention: "attn.",
    projections: ["Wqkv", "out_proj"],
    norms: { attentionAfter: "norm1", mlpAfter: "norm2" },
    mlp: { gate: "fc12", up: "fc11", down: "fc2" },
  },
  norm: { kind: "layer", eps: 1e-12, field: "layer_norm_eps", otherField: "layer_norm_epsilon" },
  activation: { word: "silu" },
  mlpDim: (file) => file.count(present(file, "intermediate_size", "n_inner")),
  embed: (file, _dModel, norm) => ({ norm, ...types(file) }),
  finalNorm: () => false,
  tied: true,
  only: {
    activation_function: ["swiglu"],
    parallel_block: [false],
    prenorm: [false],
    rotary_scaling_factor: [],
    use_rms_norm: [false],
  },
  ignored: [
    ...[
      "dense_seq_output",
      "parallel_block_tied_norm",
      "fused_bias_fc",
      "fused_dropout_add_ln",
      "last_layer_subset",
      "max_trained_positions",
      "n_positions",
    ],
    ...["pad_vocab_size_multiple", "qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias", "reorder_and_upcast_attn"],
    ...["scale_attn_by_inverse_layer_idx", "scale_attn_weights", "use_flash_attn", "use_xentropy"],
    ...["activation", "first_dropout", "proj_to_labels", "type", "use_proj"].map((name) => `summary_${name}`),
  ],
  ignoredTensors: /(^|\.)(position_ids|(pooler|cls)\..*)$/,
}))();

export const ENCODER_FAMILIES: Readonly<Record<string, Family>> = {
  albert: ALBERT,
  bert: BERT,
  camembert: ROBERTA,
  distilbert: DISTILBERT,
  modernbert: MODERNBERT,
  mpnet: MPNET,
  nomic_bert: NOMIC_BERT,
  roberta: ROBERTA,
  "xlm-roberta": ROBERTA,
};

// The families of models with two halves, by `model_type`: that of the decoder, with that of its encoder.

/** Tables of tokens that repeat the shared one, and heads that are it. */
const REPEATED = /(^|\.)((encoder|decoder)\.embed_tokens\.weight|lm_head\.weight|proj_out\.weight)$/;

/** T5's one field of the activation: "relu", or with a gate "gated-gelu", which is tanh GELU there, "gated-silu". */
function t5Mlp(file: Fields): { readonly word: string; readonly gated: boolean } {
  const stated = file.raw("feed_forward_proj") ?? "relu";
  const word = String(stated).replace(/^gated-/, "");
  return { word: stated === "gated-gelu" ? "gelu_new" : word, gated: word !== stated };
}

/** Names of T5's MLPs, in the part of a layer with this number. */
const t5Names = (file: Fields, part: number): Partial<Names> => ({
  mlpAt: `layer.${part}.DenseReluDense`,
  mlp: t5Mlp(file).gated ? { gate: "wi_0", up: "wi_1", down: "wo" } : { up: "wi", down: "wo" },
});

const T5_BIAS = (bothWays: boolean) => (file: Fields) => ({
  buckets: file.count("relative_attention_num_buckets", 32),
  maxDistance: file.count("relative_attention_max_distance", 128),
  bothWays,
});

const T5_ENCODER: Family = {
  part: "encoder",
  names: {
    roots: [""],
    embed: "shared",
    layers: "encoder.block",
    attention: "layer.0.SelfAttention.",
    projections: ["q", "k", "v", "o"],
    norms: { attentionPre: "layer.0.layer_norm", mlpPre: "layer.1.layer_norm" },
    relativeBias: "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
    finalNorm: "encoder.final_layer_norm",
  },
  namesOf: (file) => t5Names(file, 1),
  layers: ["num_layers"],
  norm: { field: "layer_norm_epsilon" },
  mlp: t5Mlp,
  mlpDim: (file) => file.count("d_ff"),
  relativeBias: T5_BIAS(true),
  lengthField: "n_positions",
};

const isTied = (file: Fields) => file.flag("tie_word_embeddings", true);

const T5: Family = /* @__PURE__ */ (() => ({
  ...T5_ENCODER,
  part: "decoder",
  encoder: T5_ENCODER,
  names: {
    ...T5_ENCODER.names,
    layers: "decoder.block",
    cross: "layer.1.EncDecAttention.",
    norms: {
      attentionPre: "layer.0.layer_norm",
      crossPre: "layer.1.layer_norm",
      mlpPre: "layer.2.layer_norm",
    },
    relativeBias: "decoder.block.0.layer.0.SelfAttention.relative_attention_bias",
    finalNorm: "decoder.final_layer_norm",
  },
  namesOf: (file) => t5Names(file, 2),
  layers: ["num_decoder_layers", "num_layers"],
  relativeBias: T5_BIAS(false),
  // A table of tokens that is the head gives logits of products with rows that are as much shorter.
  head: (file) => ({
    scale: file.flag("scale_decoder_outputs", isTied(file)) ? 1 / Math.sqrt(file.count("d_model")) : 1,
  }),
  tied: true,
  ignored: ["dense_act_fn", "initializer_factor", "is_gated_act", "task_specific_params"],
  ignoredTensors: /(^|\.)((encoder|decoder)\.embed_tokens\.weight|EncDecAttention\.relative_attention_bias\.weight)$/,
}))();

/** Positions and factor of BART's tables, and the norm behind. */
const bartEmbed: NonNullable<Family["embed"]> = (file, dModel, norm): Partial<EmbedSpec> => ({
  ...{ norm, scale: file.flag("scale_embedding", false) ? Math.sqrt(dModel) : 1 },
  positions: { offset: 2, rows: file.count("max_position_embeddings", 1024) + 2 },
});

const BART_ENCODER: Family = {
  part: "encoder",
  names: {
    roots: ["model.", ""],
    embed: "shared",
    embedNorm: "encoder.layernorm_embedding",
    positions: "encoder.embed_positions",
    layers: "encoder.layers",
    projections: ["q_proj", "k_proj", "v_proj", "out_proj"],
    norms: { attentionAfter: "self_attn_layer_norm", mlpAfter: "final_layer_norm" },
    mlpAt: "",
    mlp: { up: "fc1", down: "fc2" },
  },
  layers: ["encoder_layers"],
  norm: { kind: "layer", eps: 1e-5, field: "" },
  activation: { fields: ["activation_function"], word: "gelu" },
  plain: true,
  mlpDim: (file) => file.count("encoder_ffn_dim", 4096),
  embed: bartEmbed,
  finalNorm: () => false,
};

const BART: Family = /* @__PURE__ */ (() => ({
  ...BART_ENCODER,
  part: "decoder",
  encoder: BART_ENCODER,
  names: {
    ...BART_ENCODER.names,
    embedNorm: "decoder.layernorm_embedding",
    positions: "decoder.embed_positions",
    layers: "decoder.layers",
    cross: "encoder_attn.",
    norms: {
      attentionAfter: "self_attn_layer_norm",
      crossAfter: "encoder_attn_layer_norm",
      mlpAfter: "final_layer_norm",
    },
    headBias: "final_logits_bias",
  },
  layers: ["decoder_layers"],
  mlpDim: (file) => file.count("decoder_ffn_dim", 4096),
  tied: true,
  only: { tie_word_embeddings: [true], normalize_before: [false], add_final_layer_norm: [false] },
  ignored: [
    ...["add_bias_logits", "early_stopping", "force_bos_token_to_be_generated", "gradient_checkpointing"],
    ...["length_penalty", "max_length", "min_length", "no_repeat_ngram_size", "normalize_embedding", "num_beams"],
    ...["num_hidden_layers", "prefix", "replacing_rate", "static_position_embeddings", "student_decoder_layers"],
    ...["student_encoder_layers", "task_specific_params"],
    ...["decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id"],
  ],
  ignoredTensors: REPEATED,
}))();

const WHISPER_ENCODER: Family = /* @__PURE__ */ (() => ({
  ...BART_ENCODER,
  names: {
    ...BART_ENCODER.names,
    roots: ["model.", ""],
    embed: "decoder.embed_tokens",
    stem: ["encoder.conv1", "encoder.conv2"],
    norms: { attentionPre: "self_attn_layer_norm", mlpPre: "final_layer_norm" },
    finalNorm: "encoder.layer_norm",
  },
  embed: (file) => ({
    channels: file.count("num_mel_bins", 80),
    positions: { offset: 0, rows: file.count("max_source_positions", 1500) },
  }),
  finalNorm: () => true,
  lengthField: "max_source_positions",
}))();

const WHISPER: Family = /* @__PURE__ */ (() => ({
  ...WHISPER_ENCODER,
  part: "decoder",
  encoder: WHISPER_ENCODER,
  names: {
    ...WHISPER_ENCODER.names,
    positions: "decoder.embed_positions",
    layers: "decoder.layers",
    cross: "encoder_attn.",
    norms: {
      attentionPre: "self_attn_layer_norm",
      crossPre: "encoder_attn_layer_norm",
      mlpPre: "final_layer_norm",
    },
    finalNorm: "decoder.layer_norm",
    head: "proj_out",
  },
  layers: ["decoder_layers"],
  mlpDim: (file) => file.count("decoder_ffn_dim", 1536),
  embed: (file) => ({ positions: { offset: 0, rows: file.count("max_target_positions", 448) } }),
  lengthField: "max_target_positions",
  tied: true,
  only: { tie_word_embeddings: [true], use_weighted_layer_sum: [false] },
  ignored: [
    ...["alignment_heads", "apply_spec_augment", "begin_suppress_tokens", "classifier_proj_size", "forced_decoder_ids"],
    ...["is_multilingual", "lang_to_id", "mask_feature_length", "mask_feature_min_masks", "mask_feature_prob"],
    ...["mask_time_length", "mask_time_min_masks", "mask_time_prob", "max_length", "median_filter_width"],
    ...["no_timestamps_token_id", "num_hidden_layers", "return_timestamps", "scale_embedding", "suppress_ids"],
    ...["suppress_ids_begin", "suppress_tokens", "task_to_id"],
  ],
  ignoredTensors: REPEATED,
}))();

export const TWO_HALVES: Readonly<Record<string, Family>> = { bart: BART, t5: T5, whisper: WHISPER };
