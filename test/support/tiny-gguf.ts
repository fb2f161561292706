// Decoders and encoders in the form of Hugging Face as GGUF files, by the rules of llama.cpp's converter: names, orders of rows, keys.

import type { Tensor } from "../../src/base/tensor/tensor.ts";
import {
  addOne,
  type Config,
  count,
  each,
  type Form,
  granite,
  headDimOf,
  headsOf,
  interleave,
  type Keys,
  kvHeadsOf,
  layersOf,
  number,
  pickRows,
  range,
  type Tensors,
  transpose,
  widthOf,
} from "./gguf-forms.ts";
import { HYBRID_FORMS } from "./gguf-hybrids.ts";
import { NEWER_FORMS } from "./gguf-newer.ts";
import { bool, bytesOf, f32, list, type Typed, text, u32, type Written, writeGguf } from "./gguf-writer.ts";

/** Biases of queries, keys and values; those of norms; all that layers and the last norm have. */
const QKV = /^attn_(q|k|v|qkv)\.bias$/;
const NORMS = /norm(_2)?\.bias$/;
const NORMS_AND_QKV = /norm(_2)?\.bias$|^attn_(q|k|v|qkv)\.bias$/;
const ALL = /^(attn|ffn|token_embd_norm|output_norm|layer_output_norm)[a-z0-9_]*\.bias$/;

/** Names of what is not in layers, and of the parts of a layer. */
const NAMES: Readonly<Record<string, string>> = {
  ...{ embed_tokens: "token_embd", wte: "token_embd", word_embeddings: "token_embd", embed_in: "token_embd" },
  ...{ wpe: "position_embd", word_embeddings_layernorm: "token_embd_norm", lm_head: "output", embed_out: "output" },
  ...{ norm: "output_norm", ln_f: "output_norm", norm_f: "output_norm" },
  ...{ final_layernorm: "output_norm", final_layer_norm: "output_norm" },
  ...{
    input_layernorm: "attn_norm",
    ln_1: "attn_norm",
    norm_1: "attn_norm",
    ln_mlp: "attn_norm",
    ln_attn: "attn_norm_2",
  },
  ...{
    post_attention_layernorm: "ffn_norm",
    ln_2: "ffn_norm",
    norm_2: "ffn_norm",
    pre_feedforward_layernorm: "ffn_norm",
  },
  ...{ post_feedforward_layernorm: "post_ffw_norm", post_mlp_layernorm: "post_ffw_norm" },
  post_self_attn_layernorm: "post_attention_norm",
  ...{ q_proj: "attn_q", k_proj: "attn_k", v_proj: "attn_v", o_proj: "attn_output", dense: "attn_output" },
  ...{
    qkv_proj: "attn_qkv",
    query_key_value: "attn_qkv",
    c_attn: "attn_qkv",
    Wqkv: "attn_qkv",
    out_proj: "attn_output",
  },
  ...{ q_norm: "attn_q_norm", k_norm: "attn_k_norm", sinks: "attn_sinks.weight", "attn.c_proj": "attn_output" },
  ...{ q_a_proj: "attn_q_a", q_a_layernorm: "attn_q_a_norm", q_b_proj: "attn_q_b", kv_b_proj: "attn_kv_b" },
  ...{ kv_a_proj_with_mqa: "attn_kv_a_mqa", kv_a_layernorm: "attn_kv_a_norm" },
  ...{ gate_proj: "ffn_gate", up_proj: "ffn_up", down_proj: "ffn_down", gate_up_proj: "ffn_up" },
  ...{ fc1: "ffn_up", c_fc: "ffn_up", dense_h_to_4h: "ffn_up", fc2: "ffn_down", c_proj: "ffn_down" },
  ...{
    dense_4h_to_h: "ffn_down",
    gate: "ffn_gate_inp",
    router: "ffn_gate_inp",
    shared_expert_gate: "ffn_gate_inp_shexp",
  },
  "gate.e_score_correction_bias": "exp_probs_b.bias",
  ...{ w1: "ffn_gate", w2: "ffn_down", w3: "ffn_up" },
};

/** Names of BERT and its relatives. */
const BERT_NAMES: Readonly<Record<string, string>> = {
  ...{ position_embeddings: "position_embd", token_type_embeddings: "token_types", emb_ln: "token_embd_norm" },
  "embeddings.LayerNorm": "token_embd_norm",
  ...{ query: "attn_q", key: "attn_k", value: "attn_v", "attention.output.dense": "attn_output" },
  ...{ "attention.output.LayerNorm": "attn_output_norm", "output.LayerNorm": "layer_output_norm" },
  ...{ "intermediate.dense": "ffn_up", "output.dense": "ffn_down" },
  ...{ norm1: "attn_output_norm", norm2: "layer_output_norm", fc11: "ffn_up", fc12: "ffn_gate" },
};

const NORM_AFTER = { post_attention_layernorm: "post_attention_norm" };

/** Joint projections whose heads of queries, keys and values take turns: first all queries, then all keys, then all values. */
function sortHeads(tensors: Tensors, config: Config): void {
  const [groups, dim] = [kvHeadsOf(config), headDimOf(config)];
  const size = headsOf(config) / groups + 2;
  const heads = (from: number, to: number) =>
    range(0, groups).flatMap((group) => range((group * size + from) * dim, (group * size + to) * dim));
  const rows = [...heads(0, size - 2), ...heads(size - 2, size - 1), ...heads(size - 1, size)];
  each(tensors, ["attn_qkv"], (tensor) => pickRows(tensor, rows));
}

/** Matrices of Conv1D are [inputs, outputs]. */
function transposeAll(tensors: Tensors): void {
  each(tensors, ["attn_qkv", "attn_output", "ffn_up", "ffn_down"], (tensor, end) =>
    end === "weight" ? transpose(tensor) : tensor,
  );
}

/** The parts of wkvUp as tensors of their own, that of keys transposed. */
function splitUp(tensors: Tensors, config: Config): void {
  const [heads, rank] = [headsOf(config), count(config, "kv_lora_rank")];
  const [nope, value] = [count(config, "qk_nope_head_dim"), count(config, "v_head_dim")];
  for (const [name, tensor] of [...tensors]) {
    if (!name.endsWith("attn_kv_b.weight")) continue;
    const part = (head: number, from: number, length: number) =>
      pickRows(tensor, range(head * (nope + value) + from, head * (nope + value) + from + length));
    const all = (of: (head: number) => Tensor) =>
      Float32Array.from(range(0, heads).flatMap((head) => [...of(head).data]));
    const add = (to: string, data: Float32Array, shape: number[]) =>
      tensors.set(name.replace("kv_b", to), { data, shape });
    add(
      "k_b",
      all((head) => transpose(part(head, 0, nope))),
      [heads, rank, nope],
    );
    add(
      "v_b",
      all((head) => part(head, nope, value)),
      [heads, value, rank],
    );
    tensors.delete(name);
  }
}

/** One tensor [experts, inputs, outputs] of gates and factors in turns becomes two [experts, outputs, inputs]. */
function splitInterleaved(tensors: Tensors): void {
  const perExpert = ({ data, shape: [experts = 0, ...shape] }: Tensor, of: (tensor: Tensor) => Tensor): Tensor => {
    const size = data.length / experts;
    const parts = range(0, experts).map((e) => of({ data: data.subarray(e * size, (e + 1) * size), shape }));
    return {
      data: Float32Array.from(parts.flatMap((part) => [...part.data])),
      shape: [experts, ...(parts[0] as Tensor).shape],
    };
  };
  const everyOther = (tensor: Tensor, first: number) =>
    pickRows(
      tensor,
      range(0, (tensor.shape[0] as number) / 2).map((row) => 2 * row + first),
    );
  for (const [name, tensor] of [...tensors]) {
    const [, at = "", kind = "", bias] = /^(blk\.\d+\.)mlp\.experts\.(gate_up|down)_proj(_bias)?$/.exec(name) ?? [];
    if (kind === "") continue;
    const end = bias ? "bias" : "weight";
    const rows = bias ? tensor : perExpert(tensor, transpose);
    tensors.delete(name);
    if (kind === "down") tensors.set(`${at}ffn_down_exps.${end}`, rows);
    else
      for (const [i, part] of ["gate", "up"].entries())
        tensors.set(
          `${at}ffn_${part}_exps.${end}`,
          perExpert(rows, (own) => everyOther(own, i)),
        );
  }
}

const window = (config: Config): Keys => ({ "attention.sliding_window": u32(count(config, "sliding_window")) });
const gemma = (config: Config): Keys => ({
  ...window(config),
  attn_logit_softcapping: f32(count(config, "attn_logit_softcapping")),
  final_logit_softcapping: f32(count(config, "final_logit_softcapping")),
});

/** Names of what Gemma 4 has besides. */
const GEMMA4_NAMES = {
  ...{ ...NORM_AFTER, layer_scalar: "layer_output_scale.weight", embed_tokens_per_layer: "per_layer_token_embd" },
  ...{ per_layer_model_projection: "per_layer_model_proj", per_layer_projection_norm: "per_layer_proj_norm" },
  ...{ per_layer_input_gate: "inp_gate", per_layer_projection: "proj", post_per_layer_input_norm: "post_norm" },
  ...{ "router.proj": "ffn_gate_inp", "router.scale": "ffn_gate_inp.scale" },
  ...{ per_expert_scale: "ffn_down_exps.scale", pre_feedforward_layernorm_2: "pre_ffw_norm_2" },
  ...{ post_feedforward_layernorm_1: "post_ffw_norm_1", post_feedforward_layernorm_2: "post_ffw_norm_2" },
};

/** Names of what Gemma 3n has besides. */
const GEMMA3N_NAMES = {
  ...{ ...GEMMA4_NAMES, modality_router: "altup_router", router_norm: "altup_router_norm" },
  ...{ prediction_coefs: "altup_predict_coef", correction_coefs: "altup_correct_coef" },
  ...{ correct_output_scale: "altup_correct_scale.weight", linear_left: "laurel_l", linear_right: "laurel_r" },
  post_laurel_norm: "laurel_post_norm",
};

const slidesOf = (config: Config): readonly boolean[] =>
  (config.layer_types as readonly string[]).map((type) => type === "sliding_attention");

const gemma3n = (config: Config): Keys => ({
  ...{
    ...window(config),
    final_logit_softcapping: f32(30),
    "attention.sliding_window_pattern": list(7, slidesOf(config)),
  },
  ...{ "rope.freq_base_swa": f32(10_000), "attention.shared_kv_layers": u32(count(config, "num_kv_shared_layers")) },
  feed_forward_length: list(4, config.intermediate_size as readonly number[]),
  ...{
    "altup.num_inputs": u32(count(config, "altup_num_inputs")),
    "altup.active_idx": u32(count(config, "altup_active_idx")),
  },
  embedding_length_per_layer_input: u32(count(config, "hidden_size_per_layer_input")),
  activation_sparsity_scale: list(6, Array<number>(layersOf(config)).fill(Number.NEGATIVE_INFINITY)),
});

/** Matrices of the streams besides the first are one tensor. */
function stackStreams(tensors: Tensors): void {
  for (const part of ["proj", "unembd_proj"]) {
    const own = [...tensors].filter(([name]) => new RegExp(`^altup_${part}\\.\\d`).test(name));
    const data = Float32Array.from(own.flatMap(([, tensor]) => [...tensor.data]));
    tensors.set(`altup_${part}.weight`, { data, shape: [own.length, ...(own[0]?.[1].shape ?? [])] });
    for (const [name] of own) tensors.delete(name);
  }
}

/** Sizes of full layers, and with "_swa" of those with a window; a list where layers differ. */
function gemma4(config: Config): Keys {
  const [layers, shared] = [layersOf(config), count(config, "num_kv_shared_layers")];
  const [dim, fullDim] = [headDimOf(config), count(config, "global_head_dim")];
  const widths = range(0, layers).map(
    (layer) => (config.use_double_wide_mlp && layer >= layers - shared ? 2 : 1) * count(config, "intermediate_size"),
  );
  const { full_attention: full, sliding_attention: sliding } = config.rope_parameters as Record<string, Config>;
  return {
    ...{ ...window(config), final_logit_softcapping: f32(count(config, "final_logit_softcapping")) },
    "attention.sliding_window_pattern": list(7, slidesOf(config)),
    ...{ "attention.key_length": u32(fullDim), "attention.value_length": u32(fullDim) },
    ...{ "attention.key_length_swa": u32(dim), "attention.value_length_swa": u32(dim) },
    ...{ "rope.dimension_count": u32(fullDim), "rope.dimension_count_swa": u32(dim) },
    "rope.freq_base": f32(count(full as Config, "rope_theta")),
    "rope.freq_base_swa": f32(count(sliding as Config, "rope_theta")),
    ...{ "attention.shared_kv_layers": u32(shared), feed_forward_length: list(4, widths) },
    embedding_length_per_layer_input: u32(count(config, "hidden_size_per_layer_input")),
    "attention.head_count_kv": list(
      4,
      (config.layer_types as readonly string[]).map(
        (type) => (type === "full_attention" && number(config, "num_global_key_value_heads")) || kvHeadsOf(config),
      ),
    ),
    ...(config.top_k_experts ? { expert_used_count: u32(count(config, "top_k_experts")) } : {}),
  };
}

/** Names of experts, and divisors of the frequencies of full layers, of which the last ones do not rotate. */
function changeGemma4(tensors: Tensors, config: Config): void {
  for (const [name, tensor] of [...tensors]) {
    const [, at, part] = /^(blk\.\d+\.)experts\.(gate_up|down)_proj$/.exec(name) ?? [];
    if (part === undefined) continue;
    tensors.delete(name);
    tensors.set(`${at}ffn_${part}_exps.weight`, tensor);
  }
  const pairs = count(config, "global_head_dim") / 2;
  const { full_attention: full } = config.rope_parameters as Record<string, Config>;
  const turning = Math.floor(count(full as Config, "partial_rotary_factor") * pairs);
  const data = Float32Array.from(range(0, pairs), (pair) => (pair < turning ? 1 : 1e30));
  tensors.set("rope_freqs.weight", { data, shape: [pairs] });
}

const cohere = (config: Config): Keys => ({ logit_scale: f32(count(config, "logit_scale")) });
const longFactors = (config: Config): readonly (readonly [string, readonly number[]])[] => {
  const scaling = (config.rope_scaling ?? {}) as Readonly<Record<string, readonly number[]>>;
  return (["long", "short"] as const).flatMap((kind) => {
    const own = scaling[`${kind}_factor`];
    return own ? [[`rope_factors_${kind}.weight`, own] as const] : [];
  });
};

function deepseek(config: Config): Keys {
  const [nope, rope, value] = ["qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"].map((name) => count(config, name));
  const rank = count(config, "kv_lora_rank");
  return {
    // Those of latents; the heads' own have the suffix.
    ...{ "attention.key_length": u32(rank + rope!), "attention.value_length": u32(rank) },
    ...{ "attention.key_length_mla": u32(nope! + rope!), "attention.value_length_mla": u32(value!) },
    "attention.head_count_kv": u32(1),
    ...(config.q_lora_rank ? { "attention.q_lora_rank": u32(count(config, "q_lora_rank")) } : {}),
    ...{ "attention.kv_lora_rank": u32(rank), "rope.dimension_count": u32(rope!) },
    ...{ leading_dense_block_count: u32(count(config, "first_k_dense_replace")) },
    ...{ expert_shared_count: u32(count(config, "n_shared_experts")) },
    expert_weights_scale: f32(number(config, "routed_scaling_factor") ?? 1),
    ...{ expert_group_count: u32(count(config, "n_group")), expert_group_used_count: u32(count(config, "topk_group")) },
    ...(config.model_type === "deepseek_v3"
      ? { expert_gating_func: u32(2), expert_weights_norm: bool(true) }
      : { expert_gating_func: u32(1), expert_weights_norm: bool(false) }),
  };
}

/** Positions of RoBERTa count from 2 on; files have the rows from there. */
function dropFirstPositions(tensors: Tensors): void {
  const table = tensors.get("position_embd.weight") as Tensor;
  tensors.set("position_embd.weight", pickRows(table, range(2, table.shape[0] as number)));
}

const BERT: Form = {
  biases: /./,
  ...{ architecture: "bert", norm: "layer", names: BERT_NAMES },
  keys: () => ({ "attention.causal": bool(false), pooling_type: u32(1) }),
};

/** By `model_type`. */
const FORMS: Readonly<Record<string, Form>> = {
  ...HYBRID_FORMS,
  ...NEWER_FORMS,
  arcee: { architecture: "arcee", change: interleave },
  bert: BERT,
  bitnet: { architecture: "bitnet", names: { attn_sub_norm: "attn_sub_norm", ffn_sub_norm: "ffn_sub_norm" } },
  bloom: { biases: ALL, architecture: "bloom", change: sortHeads, norm: "layer" },
  cohere: { architecture: "command-r", keys: cohere, norm: "layer" },
  cohere2: { architecture: "cohere2", keys: (config) => ({ ...cohere(config), ...window(config) }), norm: "layer" },
  deepseek_v2: { architecture: "deepseek2", keys: deepseek, change: splitUp },
  deepseek_v3: { architecture: "deepseek2", keys: deepseek, change: splitUp },
  ernie4_5: { architecture: "ernie4_5" },
  falcon: { biases: NORMS, architecture: "falcon", change: sortHeads, norm: "layer" },
  gemma: { architecture: "gemma", change: addOne },
  gemma2: { architecture: "gemma2", keys: gemma, change: addOne, names: NORM_AFTER },
  eurobert: { architecture: "eurobert" },
  "gemma-embedding": { architecture: "gemma-embedding", keys: window, change: addOne, names: NORM_AFTER },
  jina_embeddings_v3: { ...BERT, architecture: "jina-bert-v3" },
  gemma3_text: { architecture: "gemma3", keys: window, change: addOne, names: NORM_AFTER },
  gemma3n_text: { architecture: "gemma3n", keys: gemma3n, change: stackStreams, names: GEMMA3N_NAMES },
  gemma4_text: { architecture: "gemma4", keys: gemma4, change: changeGemma4, names: GEMMA4_NAMES },
  glm: { biases: QKV, architecture: "chatglm" },
  glm4: { biases: QKV, architecture: "glm4" },
  gpt2: { biases: ALL, architecture: "gpt2", change: transposeAll, norm: "layer" },
  gpt_neox: {
    biases: ALL,
    architecture: "gptneox",
    keys: (config) => ({ use_parallel_residual: bool(config.use_parallel_residual !== false) }),
    change: sortHeads,
    norm: "layer",
  },
  gpt_oss: { biases: /./, architecture: "gpt-oss", keys: window, change: splitInterleaved, names: NORM_AFTER },
  granite: { biases: /^(attn|ffn)_[a-z]+\.bias$/, architecture: "granite", keys: granite, change: interleave },
  granitemoe: { biases: /^attn_[a-z]+\.bias$/, architecture: "granitemoe", keys: granite, change: interleave },
  llama: { biases: /^(attn|ffn)_[a-z]+\.bias$/, architecture: "llama", change: interleave },
  mistral: { biases: /^(attn|ffn)_[a-z]+\.bias$/, architecture: "llama", change: interleave },
  mixtral: { biases: /^attn_[a-z]+\.bias$/, architecture: "llama", change: interleave },
  mpt: { biases: ALL, architecture: "mpt", keys: () => ({ "attention.max_alibi_bias": f32(8) }), norm: "layer" },
  nomic_bert: { biases: NORMS, ...BERT, architecture: "nomic-bert" },
  olmo2: { architecture: "olmo2", names: NORM_AFTER },
  olmo3: {
    architecture: "olmo2",
    names: NORM_AFTER,
    keys: (config) => ({
      ...window(config),
      "attention.sliding_window_pattern": list(
        7,
        range(0, layersOf(config)).map((layer) => layer % 4 !== 3),
      ),
    }),
  },
  olmoe: { architecture: "olmoe" },
  phi: { biases: /./, architecture: "phi2", norm: "layer" },
  phi3: { architecture: "phi3", keys: (config) => (config.sliding_window ? window(config) : {}) },
  qwen2: { biases: QKV, architecture: "qwen2" },
  qwen2_moe: {
    biases: QKV,
    architecture: "qwen2moe",
    keys: (config) => ({
      expert_shared_feed_forward_length: u32(count(config, "shared_expert_intermediate_size")),
    }),
  },
  qwen3: { architecture: "qwen3" },
  qwen3_moe: { architecture: "qwen3moe" },
  roberta: { ...BERT, change: dropFirstPositions },
  smollm3: { architecture: "smollm3", change: interleave },
  stablelm: {
    biases: NORMS_AND_QKV,
    architecture: "stablelm",
    keys: (config) => ({ use_parallel_residual: bool(config.use_parallel_residual === true) }),
    norm: "layer",
  },
  starcoder2: { biases: ALL, architecture: "starcoder2", norm: "layer" },
};

/** Each expert's matrices and biases as one tensor. */
function stackExperts(tensors: Tensors): void {
  const stacks = new Map<string, Tensor[]>();
  for (const [name, tensor] of [...tensors]) {
    const [, at = "", expert = "", part = "", end = ""] = /^(blk\.\d+\.)experts\.(\d+)\.(\w+)\.(\w+)$/.exec(name) ?? [];
    if (expert === "") continue;
    const to = `${at}${part}_exps.${end}`;
    const stack = stacks.get(to) ?? [];
    stack[Number(expert)] = tensor;
    stacks.set(to, stack);
    tensors.delete(name);
  }
  for (const [name, stack] of stacks) {
    const data = Float32Array.from(stack.flatMap((tensor) => [...tensor.data]));
    tensors.set(name, { data, shape: [stack.length, ...(stack[0] as Tensor).shape] });
  }
}

function rename(name: string, { names }: Form): string {
  const [, layer, path = ""] = /(?:^|\.)(?:layers|layer|h|blocks)\.(\d+)\.(.*)$/.exec(name) ?? [];
  const whole = layer === undefined ? name : path;
  const [, body = "", end = ""] = /^(.*?)(\.(?:weight|bias))?$/.exec(whole) ?? [];
  const at = layer === undefined ? "" : `blk.${layer}.`;
  if (/(^|\.)experts\.(gate_up|down)_proj(_bias)?$/.test(body)) return `${at}${body}${end}`;
  const parts = body.split(".");
  const [, stream, number] = /altup_(projections|unembed_projections)\.(\d+)$/.exec(body) ?? [];
  if (stream !== undefined) return `altup_${stream === "projections" ? "proj" : "unembd_proj"}.${number}${end}`;
  const known = { ...NAMES, ...names };
  const own = known[body] ?? known[parts.slice(-2).join(".")] ?? known[parts.at(-1) as string];
  if (own === undefined) throw new Error(`${name} has no name in GGUF`);
  const [, expert] = /experts\.(\d+)\./.exec(body) ?? [];
  if (expert !== undefined) return `${at}experts.${expert}.${own}${end}`;
  return `${at}${own}${/shared_experts?\./.test(body) ? "_shexp" : ""}${end}`;
}

/** Keys that every family has. */
function commonKeys(config: Config, form: Form): Keys {
  const heads = headsOf(config);
  const share = number(config, "partial_rotary_factor", "rotary_pct");
  const dim = headDimOf(config);
  const eps = count(config, "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps");
  const [experts, used] = [
    number(config, "num_experts", "num_local_experts", "n_routed_experts"),
    number(config, "num_experts_per_tok"),
  ];
  const width = number(
    config,
    "moe_intermediate_size",
    ...(config.model_type === "gpt_oss" ? ["intermediate_size"] : []),
  );
  const wide = number(config, "intermediate_size", "n_inner") ?? 4 * widthOf(config);
  return {
    vocab_size: u32(count(config, "vocab_size")),
    context_length: u32(count(config, "max_position_embeddings", "n_positions", "max_seq_len", "seq_length")),
    ...{ embedding_length: u32(widthOf(config)), block_count: u32(layersOf(config)), feed_forward_length: u32(wide) },
    ...{ "attention.head_count": u32(heads), "attention.head_count_kv": u32(kvHeadsOf(config)) },
    ...(number(config, "head_dim") ? { "attention.key_length": u32(dim), "attention.value_length": u32(dim) } : {}),
    [`attention.layer_norm_${form.norm === "layer" ? "" : "rms_"}epsilon`]: f32(eps),
    ...(share === undefined ? {} : { "rope.dimension_count": u32(Math.trunc(share * dim)) }),
    ...(number(config, "rope_theta", "rotary_emb_base")
      ? { "rope.freq_base": f32(count(config, "rope_theta", "rotary_emb_base")) }
      : {}),
    ...(experts === undefined ? {} : { expert_count: u32(experts) }),
    ...(used === undefined ? {} : { expert_used_count: u32(used) }),
    ...(width === undefined ? {} : { expert_feed_forward_length: u32(width) }),
    ...scalingKeys(config),
  };
}

function scalingKeys(config: Config): Keys {
  const scaling = (config.rope_scaling ?? {}) as Config;
  const type = scaling.rope_type ?? scaling.type;
  const original =
    number(scaling, "original_max_position_embeddings") ?? number(config, "original_max_position_embeddings");
  const trained: Keys = original === undefined ? {} : { "rope.scaling.original_context_length": u32(original) };
  const factor = count(scaling, "factor");
  if (type === "linear") return { "rope.scaling.type": text("linear"), "rope.scaling.factor": f32(factor) };
  if (type === "yarn") {
    const mscale = number(scaling, "mscale_all_dim");
    return {
      ...{ "rope.scaling.type": text("yarn"), "rope.scaling.factor": f32(factor), ...trained },
      ...(mscale === undefined ? {} : { "rope.scaling.yarn_log_multiplier": f32(0.1 * mscale) }),
    };
  }
  if (type !== "longrope") return {};
  const grown = count(config, "max_position_embeddings") / (original as number);
  const attention = Math.sqrt(1 + Math.log(grown) / Math.log(original as number));
  return { ...trained, "rope.scaling.attn_factor": f32(attention) };
}

/** The divisors of frequencies that files of Llama 3 have instead of a scaling. */
function llama3Factors(config: Config): readonly (readonly [string, readonly number[]])[] {
  const scaling = (config.rope_scaling ?? {}) as Config;
  if (scaling.rope_type !== "llama3") return [];
  const [dim, theta] = [headDimOf(config), number(config, "rope_theta") ?? 10_000];
  const [factor, low, high] = ["factor", "low_freq_factor", "high_freq_factor"].map((name) => count(scaling, name));
  const original = count(scaling, "original_max_position_embeddings");
  const factors = range(0, dim / 2).map((i) => {
    const length = 2 * Math.PI * theta ** ((2 * i) / dim);
    if (length < original / high!) return 1;
    if (length > original / low!) return factor!;
    const smooth = (original / length - low!) / (high! - low!);
    return 1 / ((1 - smooth) / factor! + smooth);
  });
  return [["rope_freqs.weight", factors]];
}

/** Tensors without those that no file of the family has. `as` is another family. */
export function realTensors(
  config: object,
  given: ReadonlyMap<string, Tensor>,
  as?: string,
): ReadonlyMap<string, Tensor> {
  const form = FORMS[as ?? ((config as Config).model_type as string)] as Form;
  const isReal = (name: string) => {
    const own = rename(name, form).replace(/^blk\.\d+\./, "");
    return !/(\.bias|_proj_bias)$/.test(own) || own.startsWith("exp_probs_b") || (form.biases?.test(own) ?? false);
  };
  return new Map([...given].filter(([name]) => isReal(name)));
}

/** A file's keys and tensors, for tests that change them. */
export interface GgufModel {
  readonly metadata: Record<string, Typed>;
  readonly tensors: Written[];
}

/** The keys and tensors of the GGUF file of a decoder. `as` is another family, by whose rules the file is made. */
export function ggufModel(config: object, given: ReadonlyMap<string, Tensor>, as?: string): GgufModel {
  const fields = config as Config;
  const form = FORMS[as ?? (fields.model_type as string)] as Form;
  const real = realTensors(config, given, as);
  const tensors: Tensors = new Map(Array.from(real, ([name, tensor]) => [rename(name, form), tensor]));
  form.change?.(tensors, fields);
  stackExperts(tensors);
  each(tensors, ["ffn_gate_inp_shexp"], ({ data }) => ({
    data,
    shape: form.gateRow ? [1, data.length] : [data.length],
  }));
  for (const [name, factors] of [...llama3Factors(fields), ...longFactors(fields)])
    tensors.set(name, { data: Float32Array.from(factors), shape: [factors.length] });
  const keys = { ...commonKeys(fields, form), ...form.keys?.(fields) };
  return {
    metadata: {
      "general.architecture": text(form.architecture),
      "tokenizer.ggml.model": text("none"),
      ...Object.fromEntries(Object.entries(keys).map(([key, value]) => [`${form.architecture}.${key}`, value])),
    },
    tensors: Array.from(tensors, ([name, { data, shape }]) => ({ name, type: 0, shape, bytes: bytesOf(data) })),
  };
}

/** The bytes of a decoder's GGUF file. */
export function tinyGguf(config: object, tensors: ReadonlyMap<string, Tensor>, as?: string): Uint8Array<ArrayBuffer> {
  return writeGguf(ggufModel(config, tensors, as));
}

/** Keys of a WordPiece vocabulary of `size` tokens: "the", "cat", "s" and "sat" are 4 to 7, and 2 and 3 stand around a text. */
export function wordPieceKeys(size: number): Readonly<Record<string, Typed>> {
  const words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁the", "▁cat", "s", "▁sat"];
  const unused = range(words.length, size).map((id) => `[unused${id}]`);
  return {
    "tokenizer.ggml.model": text("bert"),
    "tokenizer.ggml.tokens": list(8, [...words, ...unused]),
    "tokenizer.ggml.token_type": list(5, [3, 2, 3, 3, ...Array<number>(size - 4).fill(1)]),
    ...{ "tokenizer.ggml.bos_token_id": u32(2), "tokenizer.ggml.seperator_token_id": u32(3) },
  };
}
