// The families of models with two halves, by `model_type`: that of the decoder, with that of its encoder.

import type { Family, Names } from "../decoder/family.ts";
import type { EmbedSpec } from "../decoder/spec.ts";
import type { Fields } from "../hf/config-fields.ts";

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

const T5: Family = {
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
};

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

const BART: Family = {
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
};

const WHISPER_ENCODER: Family = {
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
};

const WHISPER: Family = {
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
};

export const TWO_HALVES: Readonly<Record<string, Family>> = { bart: BART, t5: T5, whisper: WHISPER };
