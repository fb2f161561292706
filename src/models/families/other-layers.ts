// Families of which single layers of attention are read, and no whole models: a record each, of what differs from Llama.

import type { AttentionRules, HfAttentionConfig, LatentRules, Shape } from "./attention-rules.ts";
import { type Fields, refusal } from "./facts.ts";
import { GPT2_FIELDS } from "./gpt2.ts";

/** Layers of LFM2 that `layer_types` does not describe: older files list those with attention. */
function expectAttention(file: Fields, _shape: Shape, layer: number): Partial<HfAttentionConfig> {
  const list = file.list("full_attn_idxs");
  if (list !== undefined && !list.includes(layer))
    throw refusal("full_attn_idxs", `to contain layer ${layer}, since convolutions are unsupported`, list.join(", "));
  return {};
}

/** GPT-Neo lists the kind of each layer, or repeats lists of kinds. It does not scale scores. */
function slidesInGptNeo(layer: number, file: Fields): boolean {
  const repeated = (file.list("attention_types") ?? [[["global", "local"], 12]]).flatMap((each) => {
    const [kinds, times] = Array.isArray(each) ? (each as readonly unknown[]) : [];
    const most = Array.isArray(kinds) && typeof times === "number" && times >= 0 && times <= 1000 ? times : 0;
    return Array.from({ length: most }, () => kinds as readonly unknown[]).flat();
  });
  const kind = (file.list("attention_layers") ?? repeated)[layer];
  if (kind === "local" || kind === "global") return kind === "local";
  throw refusal(`attention_layers of layer ${layer}`, '"local" or "global"', kind);
}

function readDbrx(file: Fields): Partial<HfAttentionConfig> {
  const own = file.fields("attn_config");
  own?.only("clip_qkv");
  const numKvHeads = own?.count("kv_n_heads", 1) ?? 1;
  return { numKvHeads, rope: { theta: own?.number("rope_theta") ?? 10_000, pairing: "half" } };
}

export const layers: readonly AttentionRules[] = [
  {
    types: "apertus",
    gguf: {},
    qkNorm: { kind: "per-head", eps: 1e-5 },
    only: { qk_norm: [true] },
    rope: {
      theta: 12_000_000,
      scaling: {
        rope_type: "llama3",
        factor: 8,
        low_freq_factor: 1,
        high_freq_factor: 4,
        original_max_position_embeddings: 8192,
      },
    },
  },
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
  {
    types: "dots1",
    gguf: {},
    qkNorm: { kind: "per-head" },
    window: { tokens: 4096, from: 62 },
  },
  { types: "exaone", gguf: {}, names: { layers: ["num_layers", "num_hidden_layers"] } },
  {
    types: "exaone4",
    gguf: { assumesWindow: true, windowLayers: 64 },
    qkNorm: { kind: "per-head", eps: 1e-5 },
    window: { tokens: 4096, period: 4, patterned: true },
    rotates: (_layer, windowed, windows) => windowed || !windows,
  },
  { types: "flex_olmo", qkNorm: { kind: "full" }, rope: { theta: 500_000 } },
  {
    types: "gpt_neo",
    names: { numHeads: ["num_heads", "num_attention_heads"], layers: ["num_layers", "num_hidden_layers"] },
    rope: false,
    scale: () => 1,
    window: { tokens: 256, field: "window_size", slides: slidesInGptNeo },
  },
  { types: "helium", defaults: { headDim: 128 }, rope: { pairing: "interleaved", theta: 100_000 } },
  { types: "internlm2", gguf: { permuted: true }, fused: "grouped" },
  {
    types: "lfm2 lfm2_moe",
    gguf: { names: "lfm2 lfm2moe" },
    rope: { theta: 1_000_000 },
    qkNorm: { kind: "per-head", eps: 1e-5, epsField: "norm_eps" },
    more: expectAttention,
  },
  { types: "minimax", rope: { theta: 1_000_000 }, only: { sliding_window: [] } },
  { types: "nemotron", gguf: {}, rope: { share: 0.5 } },
  { types: "openai-gpt", names: GPT2_FIELDS, rope: false },
  { types: "orion", gguf: { names: "codeshell orion pangu-embedded" } },
  { types: "phimoe", gguf: {}, rope: { theta: 1_000_000 }, window: {} },
  { types: "seed_oss", gguf: {}, defaults: { headDim: 128 } },
  {
    types: "xglm",
    names: { dModel: ["d_model"], numHeads: ["attention_heads"], layers: ["num_layers"] },
    rope: false,
  },

  // GGUF files alone.
  { gguf: { names: "baichuan", permuted: true, alibiLayers: 40 } },
  { gguf: { names: "bailingmoe2 grovemoe openelm" }, qkNorm: { kind: "per-head" } },
  { gguf: { names: "dream eurobert jina-bert-v3 nomic-bert-moe" }, causal: false },
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

export const latents: readonly LatentRules[] = [{ types: "youtu", kind: "latent", statesPairing: true }];

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
