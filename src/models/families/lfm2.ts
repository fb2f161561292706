// LFM2: gated short convolutions between layers of attention with norms of heads; with experts, chosen by sigmoids with a correction.
// LFM3: windows, a gate of each head, and norms on both sides of branches.

import type { AttentionRules, HfAttentionConfig, RecurrentRules, Shape } from "./attention-rules.ts";
import { countExperts, expertsOf, type ReadExperts, SOFTMAX } from "./experts.ts";
import { type Facts, type Fields, refusal } from "./facts.ts";
import type { Family, MlpNames, Names } from "./family.ts";
import type { RecurrentSpec } from "./recurrent.ts";
import { ownTensors } from "./recurrent.ts";

/** Layers of LFM2 that `layer_types` does not describe: older files list those with attention. */
function expectAttention(file: Fields, _shape: Shape, layer: number): Partial<HfAttentionConfig> {
  const list = file.list("full_attn_idxs");
  if (list !== undefined && !list.includes(layer))
    throw refusal("full_attn_idxs", `to contain layer ${layer}, since convolutions are unsupported`, list.join(", "));
  return {};
}

const attention: AttentionRules = {
  types: "lfm2",
  gguf: { names: "lfm2" },
  rope: { theta: 1_000_000 },
  qkNorm: { kind: "per-head", eps: 1e-5, epsField: "norm_eps" },
  more: expectAttention,
};
const attentionMoe: AttentionRules = { ...attention, types: "lfm2_moe", gguf: { names: "lfm2moe" } };

const attention3: AttentionRules = {
  types: "lfm3",
  qkNorm: { kind: "per-head", eps: 1e-5, epsField: "norm_eps" },
  rope: { theta: 1_000_000, proportional: true },
  window: { tokens: 256 },
  beside: ["use_attention_gate"],
};

export const layers: readonly AttentionRules[] = [attention, attentionMoe];

const convolution: RecurrentRules = {
  kind: "recurrent",
  read(facts) {
    const config = { dModel: facts.count("hidden_size"), taps: facts.count("conv_L_cache", 3, 16) };
    const bias = facts.flag("conv_bias", false) ? "conv.bias" : undefined;
    const names = { in: "in_proj.weight", conv: "conv.weight", out: "out_proj.weight" };
    return { kind: "recurrent", config, at: "conv.", tensors: ownTensors(config, names, bias) };
  },
};

/** A layer of a GGUF file: one without keys is a convolution. */
function ggufConvolution(keys: Facts): RecurrentSpec | undefined {
  if (keys.countOrNone("attention.head_count_kv") > 0) return undefined;
  const config = { dModel: keys.count("embedding_length"), taps: keys.count("shortconv.l_cache", undefined, 16) };
  const names = { in: "in_proj.weight", conv: "conv.weight", out: "out_proj.weight" };
  return { kind: "recurrent", config, at: "shortconv.", tensors: ownTensors(config, names, undefined, true) };
}

/** The kinds of layers: a list of words, or of the layers that attend. */
function mixer(facts: Facts, layer: number): RecurrentRules | undefined {
  const kinds = facts.list("layer_types");
  const attends = facts.list("full_attn_idxs");
  const kind = kinds ? kinds[layer] : attends && !attends.includes(layer) ? "conv" : "full_attention";
  if (kind === "full_attention" || kind === "sliding_attention") return undefined;
  if (kind === "conv") return convolution;
  throw facts.refusal("layer_types", '"conv" or "full_attention" for each layer', kinds);
}

/** The width of the MLP, of which older files state what it is made of. */
function mlpDim(file: Fields): number {
  const dim = file.count(file.raw("intermediate_size") === undefined ? "block_ff_dim" : "intermediate_size", 12_288);
  const multiplier = file.number("block_ffn_dim_multiplier") ?? 1;
  const multiple = file.count("block_multiple_of", 256);
  if (!file.flag("block_auto_adjust_ff_dim", true)) return dim;
  return multiple * Math.ceil(Math.floor(multiplier * Math.floor((2 * dim) / 3)) / multiple);
}

const MLP: MlpNames = { gate: "w1", up: "w3", down: "w2" };

const NAMES: Partial<Names> = {
  projections: ["q_proj", "k_proj", "v_proj", "out_proj"],
  norms: { attentionPre: "operator_norm", mlpPre: "ffn_norm" },
  mlpAt: "feed_forward",
  mlp: MLP,
  finalNorm: "embedding_norm",
};

const ATTENTION_NAMES = { q_norm: "q_layernorm", k_norm: "k_layernorm", o_proj: "out_proj" };

const readExperts: ReadExperts = (file, layer, mlp) => {
  const experts = countExperts(file, ["num_experts"], 32);
  const spec = {
    kind: "moe",
    experts,
    topK: file.count("num_experts_per_tok", 4, experts),
    expert: mlp(file.count("moe_intermediate_size", 1792)),
    router: {
      ...SOFTMAX,
      score: "sigmoid",
      correction: file.flag("use_expert_bias", true),
      renormalise: file.flag("norm_topk_prob", true),
      scale: file.factor("routed_scaling_factor") ?? 1,
    },
  } as const;
  return layer < Number(file.raw("num_dense_layers") ?? 2) ? undefined : spec;
};

const gguf: Family["gguf"] = { recurrent: ggufConvolution, finalNorm: "token_embd_norm" };

const norm = { field: "norm_eps", eps: 1e-5 } as const;

export const decoders = (): Family[] => [
  { attention, gguf, mixer, norm, names: NAMES, attentionNames: ATTENTION_NAMES, mlpDim, tied: true },
  {
    ...{ attention: attentionMoe, gguf, mixer, norm, names: NAMES, tied: true, attentionNames: ATTENTION_NAMES },
    mlpDim: (file) => file.count("intermediate_size", 7168),
    moe: readExperts,
    // Without dense layers, nobody reads it.
    ignored: ["intermediate_size"],
    moeNames: {
      router: "feed_forward.gate",
      correction: "feed_forward.expert_bias",
      expert: /* @__PURE__ */ expertsOf("feed_forward.experts"),
      mlp: MLP,
    },
  },
  {
    ...{ attention: attention3, mixer, norm, tied: true },
    names: {
      ...NAMES,
      projections: ["q_proj", "k_proj", "v_proj", "o_proj"],
      attentionGate: "gate_proj",
      norms: {
        attentionPre: "operator_norm",
        attentionPost: "post_operator_norm",
        mlpPre: "ffn_norm",
        mlpPost: "post_ffn_norm",
      },
    },
    heads: (facts) => (facts.flag("use_attention_gate", true) ? { gated: "per-head" } : undefined),
    lacks: (_layer, file) => (file.flag("use_sandwich_norm", true) ? [] : ["attentionPost", "mlpPost"]),
  },
];
