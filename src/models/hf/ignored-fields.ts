// Fields of config.json that change attention. A reader that ignores one would give a layer that computes something else.

import { describe } from "../../util/errors.ts";
import type { Fields } from "./config-fields.ts";
import type { HfAttentionConfig, Rules } from "./rules.ts";

/** Fields, separated by spaces, by what they announce. */
type Announced = Readonly<Record<string, string>>;

/** Fields of attention that this package does not compute, whatever the model. */
const FOREIGN: Announced = {
  "latent attention (MLA)": "kv_lora_rank q_lora_rank qk_nope_head_dim qk_rope_head_dim",
  "gates of attention": "attention_gate attn_gate attn_output_gate gated_attention use_gated_attention",
  "layers without attention":
    "attn_layer_period attn_type_list hybrid_override_pattern layers_block_type full_attn_idxs",
  "state-space layers": "mamba_d_state ssm_cfg",
  "linear attention": "linear_num_key_heads",
  "sparse attention": "index_topk sparse_config",
  "attention in chunks": "attention_chunk_size",
  "temperatures by position": "attn_temperature_tuning use_logn_attn",
  "values that are keys": "attention_k_eq_v",
  "keys that layers share": "num_kv_shared_layers",
  "sizes by layer": "per_layer_config",
};

/** Fields that some models read and others must not have. */
const DECISIVE: Announced = {
  "norms of queries and keys": "qk_layernorm qk_norm use_qk_norm",
  "factors on scores": "attention_multiplier query_pre_attn_scalar",
  "layers without RoPE": "no_rope_layer_interval no_rope_layers",
  ALiBi: "alibi use_alibi",
  softcaps: "attn_logit_softcapping",
  "limits of queries, keys and values": "clip_qkv",
  "values of another width": "v_head_dim",
};

/** What a field announces. */
function announced(table: Announced, name: string): string | undefined {
  return Object.keys(table).find((what) => table[what]!.split(" ").includes(name));
}

/** Lists of patterns, separated by spaces, as one that matches if any of them does. */
const anyOf = (...lists: readonly string[]): RegExp => new RegExp(lists.join(" ").replaceAll(" ", "|"));

/** Parts of names of fields that may change attention, for models that are read by the rules of another. */
const SUSPICIOUS = anyOf(
  "attn attention rope rotary head kv qk query (^|_)keys?(_|$) value window scal multiplier softcap",
  "lora latent rank gate alibi position causal bidirect conv ssm mamba linear recurr chunk temperature",
  "sink clip layer_types layer_config block_type indexer decoder$",
);

/** Parts of names with such a part that do not change attention. */
const HARMLESS = anyOf(
  "dropout pdrop bias$ initializer implementation max_position vocab intermediate moe expert router",
  "routed tok class cls pooler logits?_scal scale_(emb|depth|embedding) embedding_(multiplier|scale)",
  "residual_multiplier tie_ _plan$ ^mlp_ quant lm_head gate(d_act|_act) pretraining nextn keys_to_ignore",
);

/** Fields of the window and of RoPE: a model with these rules understands them, also in layers that do not read them. */
const WINDOW = ["sliding_window", "use_sliding_window", "max_window_layers", "sliding_window_pattern", "layer_types"];
const ROPE = ["rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor", "rope_local_base_freq"];

/** Whether the value states that there is no such thing: off, zero, or the same for every layer. */
const isNone = (value: unknown): boolean =>
  value === false || value === 0 || (Array.isArray(value) && value.every((each) => each === 1));

/** What the file of an unknown model announces that this package does not compute. */
export function foreignField(file: Fields): readonly [name: string, what: string] | undefined {
  for (const [name, value] of file.unread()) {
    const what = announced(FOREIGN, name);
    if (what !== undefined && !isNone(value)) return [name, what];
  }
  return undefined;
}

/**
 * Throws if the file has a field that changes attention, that nobody has read, and that is not `understood` with its value.
 * With `strict`, fields whose names could concern attention are refused too. `type` is the model whose rules were applied.
 */
export function refuseIgnored(
  file: Fields,
  type: string,
  strict: boolean,
  understood: (name: string, value: unknown) => boolean,
): void {
  for (const [name, value] of file.unread()) {
    const what = announced(FOREIGN, name) ?? announced(DECISIVE, name);
    if (what !== undefined) {
      if (isNone(value) || understood(name, value)) continue;
      throw file.refusal(name, `none, since the rules of ${describe(type)} have no ${what}`, value);
    }
    if (!strict || HARMLESS.test(name) || !SUSPICIOUS.test(name) || understood(name, value) || isOff(name, value))
      continue;
    throw file.refusal(name, `none, since the rules of ${describe(type)} would ignore it`, value);
  }
}

/** Whether a field that nobody has read states what the configuration holds, or concerns what these rules read. */
export function isUnderstood(name: string, value: unknown, config: HfAttentionConfig, rules: Rules): boolean {
  if (name === "v_head_dim") return value === config.headDim;
  if (rules.window !== undefined && WINDOW.includes(name)) return true;
  if (rules.rope !== false && ROPE.includes(name)) return true;
  if (name === "is_decoder" || name === "is_causal") return value === config.causal;
  return /^rope_interleaved?$/.test(name) && value === (config.rope?.pairing === "interleaved");
}

/** Whether the value states that there is no such thing. False may switch off what the model of the rules always has. */
function isOff(name: string, value: unknown): boolean {
  return isNone(value) && !(value === false && /rope|rotary|causal|scale|^is_decoder$/.test(name));
}
