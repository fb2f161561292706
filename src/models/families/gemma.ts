// Gemma 1 to 3: gains are stored less 1 (in GGUF files, 1 is added), rows of the table are multiplied by √dModel, GELU with gates.
// From 2 on, norms also on the outputs of branches, softcaps, and windows. Gemma 4: norms of values, which may be the keys, two sizes of
// heads, of which a share rotates in full layers, and a factor on each layer; not those with embeddings for each layer or experts.

import type { HeadsMore } from "../spec/spec.ts";
import type { AttentionRules, Shape } from "./attention-rules.ts";
import type { Facts, Fields } from "./facts.ts";
import { type Family, SANDWICH_NORMS } from "./family.ts";

const attention: AttentionRules = { types: "gemma", gguf: {}, defaults: { headDim: 256 } };
const attention2: AttentionRules = {
  types: "gemma2",
  gguf: { assumesWindow: true, wideScale: 46 },
  defaults: { headDim: 256 },
  window: { tokens: 4096, period: 2 },
  softcap: 50,
  scale: rootOfScalar,
};
const attention3: AttentionRules = {
  types: "gemma3_text",
  gguf: { names: "gemma3", wideScale: 62 },
  defaults: { dModel: 2304, numHeads: 8, numKvHeads: 4, headDim: 256 },
  window: { tokens: 4096, period: 6, patterned: true },
  qkNorm: { kind: "per-head", onePlus: true },
  softcap: 0,
  scale: rootOfScalar,
  rope: { theta: 1_000_000, local: { field: "rope_local_base_freq", theta: 10_000 } },
};

const attentionVault: AttentionRules = {
  types: "vaultgemma",
  defaults: { headDim: 256 },
  window: { tokens: 4096, period: 2 },
  softcap: 50,
  scale: rootOfScalar,
};

/** Of full layers, files state other sizes for each, or for all. */
function shapeOf4(file: Fields, layer: number, windowed: boolean): Partial<Shape> {
  const own = file.fields("per_layer_config")?.fields(String(layer));
  const areKeys = file.flag("attention_k_eq_v", false);
  const [headDim, numKvHeads] = [file.raw("global_head_dim"), file.raw("num_global_key_value_heads")];
  if (own) {
    const [dim, heads] = [own.raw("head_dim"), own.raw("num_key_value_heads")];
    const [unknown] = own.unread()[0] ?? [];
    if (unknown !== undefined) throw file.refusal("per_layer_config", "sizes of heads alone", unknown);
    return {
      ...(dim !== undefined && { headDim: own.count("head_dim") }),
      ...(heads !== undefined && { numKvHeads: own.count("num_key_value_heads") }),
    };
  }
  if (windowed || file.raw("per_layer_config") !== undefined) return {};
  return {
    headDim: headDim === undefined ? 512 : file.count("global_head_dim"),
    ...(areKeys && numKvHeads !== undefined && { numKvHeads: file.count("num_global_key_value_heads") }),
  };
}
const attention4: AttentionRules = {
  types: "gemma4_text gemma4_unified_text",
  defaults: { dModel: 2304, numHeads: 8, numKvHeads: 4, headDim: 256 },
  window: {
    tokens: 1024,
    slides: (layer, file) => (layer + 1) % 6 !== 0 && layer + 1 < file.count("num_hidden_layers"),
  },
  qkNorm: { kind: "per-head" },
  scale: () => 1,
  shapeOf: shapeOf4,
  rope: { theta: 1_000_000, proportional: true },
  only: { num_kv_shared_layers: [0], use_bidirectional_attention: [false, "vision"], enable_moe_block: [false] },
};

/** Values are normalised, and in full layers they may be the keys. */
function heads4(facts: Facts, layer: number): HeadsMore {
  const isFull = facts.list("layer_types")?.[layer] === "full_attention";
  const areKeys = facts.flag("attention_k_eq_v", false) && isFull;
  return { valueNorm: { eps: facts.number("rms_norm_eps") ?? 1e-6 }, ...(areKeys && { valuesAreKeys: true }) };
}

export const layers: readonly AttentionRules[] = [attention, attention2, attention3, attentionVault];

function rootOfScalar(file: Fields): number | undefined {
  const scalar = file.factor("query_pre_attn_scalar");
  return scalar === undefined ? undefined : 1 / Math.sqrt(scalar);
}

/** The softcap of logits, `otherwise` if the file does not state it. */
const softcap = (otherwise: number) => (facts: Facts) => ({
  softcap: facts.has("final_logit_softcapping") ? (facts.factor("final_logit_softcapping") ?? 0) : otherwise,
});

const gemma = (own: Pick<Family, "attention"> & Partial<Family>): Family => ({
  gguf: {},
  norm: { onePlus: true },
  activation: { fields: ["hidden_activation", "hidden_act"], word: "gelu_pytorch_tanh" },
  embed: (_facts, dModel) => ({ scale: Math.sqrt(dModel) }),
  tied: true,
  ...own,
});

export const decoders = (): Family[] => [
  gemma({
    attention,
    activation: { fields: ["hidden_activation"], word: "gelu_pytorch_tanh" },
    ignored: ["hidden_act"],
  }),
  gemma({ attention: attention2, names: { norms: SANDWICH_NORMS }, head: softcap(30) }),
  gemma({
    attention: attention3,
    names: { norms: SANDWICH_NORMS },
    head: softcap(0),
    // Files of Google's leave them out.
    absent: { vocab_size: 262_208, intermediate_size: 9216, num_hidden_layers: 26, max_position_embeddings: 131_072 },
  }),
  gemma({
    attention: attentionVault,
    names: { norms: { attentionPre: "input_layernorm", mlpPre: "pre_feedforward_layernorm" } },
    head: softcap(30),
  }),
  gemma({
    attention: attention4,
    norm: {},
    names: { norms: SANDWICH_NORMS, layerScale: "layer_scalar" },
    heads: heads4,
    head: softcap(0),
    only: { hidden_size_per_layer_input: [0], use_double_wide_mlp: [false] },
    ignored: [
      ...["vocab_size_per_layer_input", "moe_intermediate_size", "num_experts", "top_k_experts", "attention_k_eq_v"],
      ...[
        "global_head_dim",
        "num_global_key_value_heads",
        "per_layer_config",
        "enable_moe_block",
        "num_kv_shared_layers",
      ],
    ],
  }),
];
