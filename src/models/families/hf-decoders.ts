// Decoders whose layers are self-attention, by `model_type`. A row holds what differs from Llama: GQA, RoPE that pairs the
// halves of a head, causality, no window, no norms, a scale of 1/√headDim.

import { alibiSlopes } from "../../layers/attention/config.ts";
import { type Fields, refusal } from "./fields.ts";
import type { HfAttentionConfig, NormRules, RopeRules, Rules, Shape, WindowRules } from "./hf-rules.ts";

const evenLayers = (layer: number): boolean => layer % 2 === 0;

const INTERLEAVED: RopeRules = { pairing: "interleaved" };
const PER_HEAD: NormRules = { kind: "per-head" };
const FULL: NormRules = { kind: "full" };
const NO_CLIPPING = { clip_qkv: [] };

function rootOfScalar(file: Fields): number | undefined {
  const scalar = file.factor("query_pre_attn_scalar");
  return scalar === undefined ? undefined : 1 / Math.sqrt(scalar);
}

/** Without the field, Granite's class multiplies scores by 1. */
const GRANITE: Rules = { scale: (file) => file.factor("attention_multiplier") ?? 1 };

const QWEN: WindowRules = { tokens: 4096, optIn: true, from: 28 };
const QWEN_MOE: WindowRules = {
  tokens: 4096,
  optIn: true,
  slides: (layer, file) => evenLayers(layer) && layer < file.count("max_window_layers", 28),
};

const GEMMA3: Rules = {
  defaults: { dModel: 2304, numHeads: 8, numKvHeads: 4, headDim: 256 },
  window: { tokens: 4096, period: 6 },
  qkNorm: { kind: "per-head", onePlus: true },
  softcap: 0,
  scale: rootOfScalar,
  rope: { theta: 1_000_000, local: { field: "rope_local_base_freq", theta: 10_000 } },
};

/** Whether a layer of SmolLM3 rotates: its element of the list, or else all but the last of each interval. */
function rotatesInSmolLm3(layer: number, _windowed: boolean, file: Fields): boolean {
  const list = file.list("no_rope_layers");
  const interval = file.count("no_rope_layer_interval", 4);
  const own = list?.[layer];
  if (list !== undefined && own !== 0 && own !== 1) throw refusal(`no_rope_layers of layer ${layer}`, "0 or 1", own);
  return own === undefined ? (layer + 1) % interval !== 0 : own === 1;
}

/** Layers of LFM2 that `layer_types` does not describe: older files list those with attention. */
function expectAttention(file: Fields, _shape: Shape, layer: number): Partial<HfAttentionConfig> {
  const list = file.list("full_attn_idxs");
  if (list !== undefined && !list.includes(layer))
    throw refusal("full_attn_idxs", `to contain layer ${layer}, since convolutions are unsupported`, list.join(", "));
  return {};
}

const LFM2: Rules = {
  rope: { theta: 1_000_000 },
  qkNorm: { kind: "per-head", eps: 1e-5, epsField: "norm_eps" },
  more: expectAttention,
};

const GPT2_NAMES = { dModel: ["n_embd"], numHeads: ["n_head"], layers: ["n_layer"] };

function scaleGpt2(file: Fields, { headDim }: Shape, layer: number): Partial<HfAttentionConfig> {
  const byLayer = file.flag("scale_attn_by_inverse_layer_idx", false);
  const byWidth = file.flag("scale_attn_weights", true);
  const scale = (byWidth ? 1 / Math.sqrt(headDim) : 1) / (byLayer ? layer + 1 : 1);
  return byWidth && !byLayer ? {} : { scale };
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

function readFalcon(file: Fields, { numHeads, headDim }: Shape): Partial<HfAttentionConfig> {
  const grouped = file.flag("new_decoder_architecture", false);
  const shared = !grouped && file.flag("multi_query", true);
  const numKvHeads = shared ? 1 : file.count("num_kv_heads", numHeads);
  const own = { numKvHeads, fused: shared ? "qkv" : "grouped" } as const;
  if (!file.flag("alibi", false)) return own;
  // Falcon adds the bias before it scales scores.
  return { ...own, rope: undefined, alibi: alibiSlopes(numHeads).map((slope) => slope * (1 / Math.sqrt(headDim))) };
}

function readMpt(file: Fields): Partial<HfAttentionConfig> {
  const own = file.fields("attn_config");
  own?.only("alibi", true);
  own?.only("alibi_bias_max", 8);
  own?.only("attn_type", "multihead_attention");
  own?.only("clip_qkv");
  own?.only("prefix_lm", false);
  own?.only("qk_ln", false);
  return { alibi: "geometric", scale: own?.factor("softmax_scale") };
}

function readDbrx(file: Fields): Partial<HfAttentionConfig> {
  const own = file.fields("attn_config");
  own?.only("clip_qkv");
  const numKvHeads = own?.count("kv_n_heads", 1) ?? 1;
  return { numKvHeads, rope: { theta: own?.number("rope_theta") ?? 10_000, pairing: "half" } };
}

export const DECODERS: Readonly<Record<string, Rules>> = {
  llama: {},
  apertus: {
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
  arcee: {},
  biogpt: { rope: false },
  bloom: {
    names: {
      dModel: ["hidden_size", "n_embed"],
      numHeads: ["n_head", "num_attention_heads"],
      layers: ["n_layer", "num_hidden_layers"],
    },
    rope: false,
    fused: "grouped",
    more: () => ({ alibi: "geometric" }),
  },
  cohere: { rope: INTERLEAVED, layerNormFlag: "use_qk_norm" },
  cohere2: {
    rope: INTERLEAVED,
    layerNormFlag: "use_qk_norm",
    window: { tokens: 4096, period: 4 },
    rotates: (_layer, windowed) => windowed,
  },
  dbrx: { names: { dModel: ["d_model"], numHeads: ["n_heads"], layers: ["n_layers"] }, more: readDbrx },
  deepseek: {},
  dots1: { qkNorm: PER_HEAD, window: { tokens: 4096, from: 62 } },
  ernie4_5: { rope: { pairing: "interleaved", theta: 500_000 } },
  ernie4_5_moe: { rope: { pairing: "interleaved", theta: 500_000 } },
  exaone: { names: { layers: ["num_layers", "num_hidden_layers"] } },
  exaone4: {
    qkNorm: { kind: "per-head", eps: 1e-5 },
    window: { tokens: 4096, period: 4 },
    rotates: (_layer, windowed, file) =>
      windowed || (file.has("sliding_window") && file.raw("sliding_window") === undefined),
  },
  falcon: {
    names: { numHeads: ["num_attention_heads", "n_head"], layers: ["num_hidden_layers", "n_layer"] },
    more: readFalcon,
  },
  flex_olmo: { qkNorm: FULL, rope: { theta: 500_000 } },
  gemma: { defaults: { headDim: 256 } },
  gemma2: {
    defaults: { headDim: 256 },
    window: { tokens: 4096, slides: evenLayers },
    softcap: 50,
    scale: rootOfScalar,
  },
  gemma3_text: GEMMA3,
  glm: { defaults: { headDim: 128 }, rope: { pairing: "interleaved", share: 0.5 } },
  glm4: { defaults: { headDim: 128 }, rope: { pairing: "interleaved", share: 0.5 } },
  glm4_moe: { rope: { share: 0.5 }, qkNorm: { kind: "per-head", eps: 1e-5, flag: "use_qk_norm" } },
  gpt2: { names: GPT2_NAMES, rope: false, more: scaleGpt2 },
  gpt_neo: {
    names: { numHeads: ["num_heads", "num_attention_heads"], layers: ["num_layers", "num_hidden_layers"] },
    rope: false,
    scale: () => 1,
    window: { tokens: 256, field: "window_size", slides: slidesInGptNeo },
  },
  gpt_neox: {
    rope: { share: 0.25, shareField: "rotary_pct", thetaField: "rotary_emb_base", oddDim: true },
    fused: "grouped",
  },
  gpt_oss: {
    defaults: { headDim: 64 },
    rope: { theta: 150_000 },
    window: { tokens: 128, slides: evenLayers },
  },
  gptj: { names: GPT2_NAMES, rope: { pairing: "interleaved", dimField: "rotary_dim" } },
  granite: GRANITE,
  granitemoe: GRANITE,
  granitemoeshared: GRANITE,
  helium: { defaults: { headDim: 128 }, rope: { pairing: "interleaved", theta: 100_000 } },
  internlm2: { fused: "grouped" },
  lfm2: LFM2,
  lfm2_moe: LFM2,
  minicpm: {},
  minimax: { rope: { theta: 1_000_000 }, only: { sliding_window: [] } },
  minimax_m2: {
    defaults: { headDim: 128 },
    qkNorm: FULL,
    only: { use_qk_norm: [true] },
    rope: { theta: 5_000_000, dimField: "rotary_dim" },
  },
  ministral: { window: { tokens: 4096 } },
  mistral: { window: { tokens: 4096 } },
  mixtral: { window: {}, rope: { theta: 1_000_000 } },
  mpt: { names: { dModel: ["d_model"], numHeads: ["n_heads"], layers: ["n_layers"] }, rope: false, more: readMpt },
  nemotron: { rope: { share: 0.5 } },
  olmo: { only: NO_CLIPPING },
  olmo2: { qkNorm: { kind: "full", eps: 1e-5 } },
  olmo3: {
    qkNorm: { kind: "full", eps: 1e-5 },
    window: { tokens: 4096, slides: (layer) => (layer + 1) % 4 !== 0 },
    rope: { localUnscaled: true },
  },
  olmoe: { qkNorm: { kind: "full", eps: 1e-5 }, only: NO_CLIPPING },
  "openai-gpt": { names: GPT2_NAMES, rope: false },
  opt: { rope: false },
  orion: {},
  phi: { rope: { share: 0.5 }, layerNormFlag: "qk_layernorm" },
  phi3: { window: {} },
  phimoe: { rope: { theta: 1_000_000 }, window: {} },
  qwen2: { window: QWEN },
  qwen2_moe: { window: QWEN_MOE },
  qwen3: { defaults: { headDim: 128 }, window: QWEN, qkNorm: PER_HEAD },
  qwen3_moe: { window: { tokens: 4096, optIn: true }, qkNorm: PER_HEAD },
  seed_oss: { defaults: { headDim: 128 } },
  smollm3: {
    rope: { theta: 2_000_000 },
    rotates: rotatesInSmolLm3,
    window: { optIn: true, slides: (layer, file) => !rotatesInSmolLm3(layer, false, file) },
  },
  stablelm: { rope: { share: 0.25 }, layerNormFlag: "qk_layernorm" },
  starcoder2: { window: {} },
  xglm: {
    names: { dModel: ["d_model"], numHeads: ["attention_heads"], layers: ["num_layers"] },
    rope: false,
  },
  xverse: {},
};
