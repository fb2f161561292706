// BART and its relatives: a decoder with an encoder, which state heads and layers apart; norms after the branches were added, tables
// of positions from 2 on. Whisper has norms before the branches, and its encoder reads sounds, through two convolutions. Of the
// others, single layers are read.

import type { AttentionRules } from "./attention-rules.ts";
import { type Family, OUT_PROJ } from "./family.ts";

/** Attention of both halves. */
const bartAttention = (own: AttentionRules): AttentionRules => ({
  rope: false,
  names: { dModel: ["d_model"] },
  sides: {
    encoder: { numHeads: ["encoder_attention_heads"], layers: ["encoder_layers"] },
    decoder: { numHeads: ["decoder_attention_heads"], layers: ["decoder_layers"] },
  },
  ...own,
});

const attention: AttentionRules = /* @__PURE__ */ bartAttention({ types: "bart", reader: "loadSeq2Seq" });
const whisper: AttentionRules = /* @__PURE__ */ bartAttention({ types: "whisper", reader: "loadSeq2Seq" });
const relatives: AttentionRules = /* @__PURE__ */ bartAttention({
  types: "blenderbot blenderbot-small fsmt m2m_100 marian mbart nllb-moe pegasus plbart speech_to_text",
});

export const layers: readonly AttentionRules[] = [attention, whisper, relatives];

/** Tables of tokens that repeat the shared one, and heads that are it. */
const REPEATED = /(^|\.)((encoder|decoder)\.embed_tokens\.weight|lm_head\.weight|proj_out\.weight)$/;

/** What the halves of BART and Whisper share. */
const bartHalf = (half: "encoder" | "decoder", own: Pick<Family, "attention"> & Partial<Family>): Family => ({
  part: half,
  layers: [`${half}_layers`],
  norm: { kind: "layer", eps: 1e-5, field: "" },
  activation: { fields: ["activation_function"], word: "gelu" },
  plain: true,
  tied: true,
  ignoredTensors: REPEATED,
  ...own,
  names: {
    positions: `${half}.embed_positions`,
    layers: `${half}.layers`,
    ...(half === "decoder" && { cross: "encoder_attn." }),
    roots: ["model.", ""],
    projections: OUT_PROJ,
    mlpAt: "",
    mlp: { up: "fc1", down: "fc2" },
    ...own.names,
  },
});

const bart = (half: "encoder" | "decoder", own: Partial<Family>): Family =>
  bartHalf(half, {
    attention,
    mlpDim: (file) => file.count(`${half}_ffn_dim`, 4096),
    embed: (facts, dModel, norm) => ({
      ...{ norm, scale: facts.flag("scale_embedding", false) ? Math.sqrt(dModel) : 1 },
      positions: { offset: 2, rows: facts.count("max_position_embeddings", 1024) + 2 },
    }),
    finalNorm: () => false,
    ...own,
    names: { embed: "shared", embedNorm: `${half}.layernorm_embedding`, ...own.names },
  });

export const halves = (): Family[] => [
  bart("decoder", {
    encoder: bart("encoder", {
      names: { norms: { attentionAfter: "self_attn_layer_norm", mlpAfter: "final_layer_norm" } },
    }),
    names: {
      norms: {
        attentionAfter: "self_attn_layer_norm",
        crossAfter: "encoder_attn_layer_norm",
        mlpAfter: "final_layer_norm",
      },
      headBias: "final_logits_bias",
    },
    only: { tie_word_embeddings: [true], normalize_before: [false], add_final_layer_norm: [false] },
    ignored: [
      ...["add_bias_logits", "early_stopping", "force_bos_token_to_be_generated", "gradient_checkpointing"],
      ...["length_penalty", "max_length", "min_length", "no_repeat_ngram_size", "normalize_embedding", "num_beams"],
      ...["num_hidden_layers", "prefix", "replacing_rate", "static_position_embeddings", "student_decoder_layers"],
      ...["student_encoder_layers", "task_specific_params"],
      ...["decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id"],
    ],
  }),
  bartHalf("decoder", {
    attention: whisper,
    encoder: bartHalf("encoder", {
      attention: whisper,
      names: {
        embed: "decoder.embed_tokens",
        stem: ["encoder.conv1", "encoder.conv2"],
        norms: { attentionPre: "self_attn_layer_norm", mlpPre: "final_layer_norm" },
        finalNorm: "encoder.layer_norm",
      },
      mlpDim: (file) => file.count("encoder_ffn_dim", 4096),
      embed: (facts) => ({
        channels: facts.count("num_mel_bins", 80),
        positions: { offset: 0, rows: facts.count("max_source_positions", 1500) },
      }),
      lengthField: "max_source_positions",
    }),
    names: {
      embed: "decoder.embed_tokens",
      norms: {
        attentionPre: "self_attn_layer_norm",
        crossPre: "encoder_attn_layer_norm",
        mlpPre: "final_layer_norm",
      },
      finalNorm: "decoder.layer_norm",
      head: "proj_out",
    },
    mlpDim: (file) => file.count("decoder_ffn_dim", 1536),
    embed: (facts) => ({ positions: { offset: 0, rows: facts.count("max_target_positions", 448) } }),
    lengthField: "max_target_positions",
    only: { tie_word_embeddings: [true], use_weighted_layer_sum: [false] },
    ignored: [
      ...["alignment_heads", "apply_spec_augment", "begin_suppress_tokens", "classifier_proj_size"],
      ...["forced_decoder_ids", "is_multilingual", "lang_to_id", "mask_feature_length", "mask_feature_min_masks"],
      ...["mask_feature_prob", "mask_time_length", "mask_time_min_masks", "mask_time_prob", "max_length"],
      ...["median_filter_width", "no_timestamps_token_id", "num_hidden_layers", "return_timestamps"],
      ...["scale_embedding", "suppress_ids", "suppress_ids_begin", "suppress_tokens", "task_to_id"],
    ],
  }),
];
