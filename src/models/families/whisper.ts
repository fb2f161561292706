// Whisper: BART's halves with norms before the branches; its encoder reads sounds, through two convolutions.

import type { AttentionRules } from "./attention-rules.ts";
import { bartAttention, bartHalf } from "./bart.ts";
import type { Family } from "./family.ts";

const attention: AttentionRules = /* @__PURE__ */ bartAttention({ types: "whisper", reader: "loadSeq2Seq" });

export const layers: readonly AttentionRules[] = [attention];

export const halves = (): Family[] => [
  bartHalf("decoder", {
    attention,
    encoder: bartHalf("encoder", {
      attention,
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
