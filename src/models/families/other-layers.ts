// Families of which single layers of attention are read, and no whole models: a record each, of what differs from Llama.

import type { AttentionRules, HfAttentionConfig } from "./attention-rules.ts";
import type { Fields } from "./facts.ts";
import { GPT2_FIELDS } from "./gpt2.ts";

function readDbrx(file: Fields): Partial<HfAttentionConfig> {
  const own = file.fields("attn_config");
  own?.only("clip_qkv");
  const numKvHeads = own?.count("kv_n_heads", 1) ?? 1;
  return { numKvHeads, rope: { theta: own?.number("rope_theta") ?? 10_000, pairing: "half" } };
}

export const layers: readonly AttentionRules[] = [
  {
    types: "deepseek minicpm xverse",
    gguf: { names: "arctic bailingmoe deci deepseek minicpm xverse", permuted: true },
  },
  { types: "biogpt", rope: false },
  {
    types: "dbrx",
    gguf: {},
    names: { dModel: ["d_model"], numHeads: ["n_heads"], layers: ["n_layers"] },
    more: readDbrx,
  },
  { types: "exaone", gguf: {}, names: { layers: ["num_layers", "num_hidden_layers"] } },
  { types: "flex_olmo", qkNorm: { kind: "full" }, rope: { theta: 500_000 } },
  { types: "openai-gpt", names: GPT2_FIELDS, rope: false },
  { types: "orion", gguf: { names: "codeshell orion pangu-embedded" } },

  // GGUF files alone.
  { gguf: { names: "baichuan", permuted: true, alibiLayers: 40 } },
  { gguf: { names: "bailingmoe2 grovemoe openelm" }, qkNorm: { kind: "per-head" } },
  { gguf: { names: "dream nomic-bert-moe" }, causal: false },
  { gguf: { names: "jina-bert-v2" }, rope: false, alibi: true, causal: false },
  { gguf: { names: "llada llama-embed", permuted: true }, causal: false },
  { gguf: { names: "llada-moe rnd1" }, qkNorm: { kind: "per-head" }, causal: false },
  { gguf: { names: "refact" }, rope: false, alibi: true },
  { gguf: { names: "starcoder" }, rope: false },

  // Encoders.
  {
    types:
      "audio-spectrogram-transformer data2vec-audio deit dinov2 dinov2_with_registers hubert ijepa unispeech unispeech-sat vit vit_mae vit_msn wav2vec2 yolos",
    causal: false,
    rope: false,
  },
  {
    types: "beit",
    causal: false,
    rope: false,
    only: { use_relative_position_bias: [false], use_shared_relative_position_bias: [false] },
  },
  { types: "clip_text_model", isEncoder: true, rope: false, defaults: { dModel: 512, numHeads: 8 } },
  {
    types: "clip_vision_model siglip_text_model siglip_vision_model",
    causal: false,
    rope: false,
    defaults: { dModel: 768, numHeads: 12 },
  },
  {
    types: "esm",
    causal: "is_decoder",
    only: { position_embedding_type: ["absolute", "rotary"] },
    rotates: (_layer, _windowed, _windows, facts) => facts.raw("position_embedding_type") === "rotary",
  },
  {
    types: "roformer",
    causal: "is_decoder",
    rope: { pairing: "interleaved" },
    only: { rotary_value: [false] },
  },
];

/** The `model_type` of each tower of a model, where the file of the tower does not state it. */
interface Towers {
  readonly text: string;
  readonly vision: string;
  /** Whether the text model is read if no prefix names a tower. */
  readonly textFirst?: true;
}

/** Models of several modalities: their configurations are `text_config` and `vision_config`. */
export const COMPOSITES: Readonly<Record<string, Towers>> = {
  clip: { text: "clip_text_model", vision: "clip_vision_model" },
  gemma3: { text: "gemma3_text", vision: "siglip_vision_model", textFirst: true },
  idefics3: { text: "llama", vision: "idefics3_vision", textFirst: true },
  llava: { text: "llama", vision: "clip_vision_model", textFirst: true },
  llava_next: { text: "llama", vision: "clip_vision_model", textFirst: true },
  mistral3: { text: "mistral", vision: "pixtral", textFirst: true },
  siglip: { text: "siglip_text_model", vision: "siglip_vision_model" },
  smolvlm: { text: "llama", vision: "smolvlm_vision", textFirst: true },
};
