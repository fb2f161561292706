// Encoders and encoder-decoder models, by `model_type`. They attend in both directions and do not rotate, unless a row says
// otherwise.

import type { Rules } from "./hf-rules.ts";

/** Encoders whose decoder variant has `is_decoder`. */
const BERT: Rules = {
  causal: "is_decoder",
  rope: false,
  only: { position_embedding_type: ["absolute"] },
};

const VIT: Rules = { causal: false, rope: false };
const BASE = { dModel: 768, numHeads: 12 };

/** Encoder-decoder models whose sides state heads and layers apart. */
const BART: Rules = {
  rope: false,
  names: { dModel: ["d_model"] },
  sides: {
    encoder: { numHeads: ["encoder_attention_heads"], layers: ["encoder_layers"] },
    decoder: { numHeads: ["decoder_attention_heads"], layers: ["decoder_layers"] },
  },
};

const T5: Rules = {
  rope: false,
  names: { dModel: ["d_model"], numHeads: ["num_heads"], headDim: ["d_kv"] },
  relativeBias: true,
  scale: () => 1,
  sides: {
    encoder: { layers: ["num_layers"] },
    decoder: { layers: ["num_decoder_layers", "num_layers"] },
  },
};

export const ENCODERS: Readonly<Record<string, Rules>> = {
  albert: BERT,
  "audio-spectrogram-transformer": VIT,
  bart: BART,
  beit: {
    causal: false,
    rope: false,
    only: { use_relative_position_bias: [false], use_shared_relative_position_bias: [false] },
  },
  bert: BERT,
  blenderbot: BART,
  "blenderbot-small": BART,
  camembert: BERT,
  clip_text_model: { rope: false, defaults: { dModel: 512, numHeads: 8 } },
  clip_vision_model: { causal: false, rope: false, defaults: BASE },
  "data2vec-audio": VIT,
  "data2vec-text": BERT,
  deit: VIT,
  dinov2: VIT,
  dinov2_with_registers: VIT,
  distilbert: { causal: false, rope: false, names: { dModel: ["dim"], numHeads: ["n_heads"], layers: ["n_layers"] } },
  electra: BERT,
  ernie: BERT,
  esm: {
    causal: "is_decoder",
    only: { position_embedding_type: ["absolute", "rotary"] },
    rotates: (_layer, _windowed, file) => file.raw("position_embedding_type") === "rotary",
  },
  fsmt: BART,
  hubert: VIT,
  ijepa: VIT,
  layoutlm: BERT,
  m2m_100: BART,
  marian: BART,
  mbart: BART,
  "megatron-bert": BERT,
  modernbert: {
    causal: false,
    window: {
      tokens: 128,
      field: "local_attention",
      bothSides: true,
      slides: (layer, file) => layer % file.count("global_attn_every_n_layers", 3) !== 0,
    },
    rope: { theta: 160_000, thetaField: "global_rope_theta", local: { field: "local_rope_theta", theta: 10_000 } },
  },
  mpnet: { causal: false, rope: false, relativeBias: true },
  mt5: T5,
  "nllb-moe": BART,
  nomic_bert: {
    names: {
      dModel: ["hidden_size", "n_embd"],
      numHeads: ["num_attention_heads", "n_head"],
      layers: ["num_hidden_layers", "n_layer"],
    },
    causal: false,
    only: { causal: [false], rotary_emb_interleaved: [false], rotary_emb_scale_base: [] },
    rope: { theta: 1000, thetaField: "rotary_emb_base", shareField: "rotary_emb_fraction" },
  },
  pegasus: BART,
  plbart: BART,
  roberta: BERT,
  roformer: { causal: "is_decoder", rope: { pairing: "interleaved" }, only: { rotary_value: [false] } },
  siglip_text_model: { causal: false, rope: false, defaults: BASE },
  siglip_vision_model: { causal: false, rope: false, defaults: BASE },
  speech_to_text: BART,
  switch_transformers: T5,
  t5: T5,
  umt5: T5,
  unispeech: VIT,
  "unispeech-sat": VIT,
  vit: VIT,
  vit_mae: VIT,
  vit_msn: VIT,
  wav2vec2: VIT,
  whisper: BART,
  "xlm-roberta": BERT,
  "xlm-roberta-xl": BERT,
  yolos: VIT,
};
