// Hybrids and models of recurrent layers as GGUF files.

import { exp } from "../../src/base/util/math.ts";
import {
  addOne,
  type Config,
  count,
  each,
  type Form,
  granite,
  headDimOf,
  interleave,
  type Keys,
  kvHeadsOf,
  layersOf,
  number,
  pickRows,
  range,
  type Tensors,
  transpose,
} from "./gguf-forms.ts";
import { bool, list, type Typed, u32 } from "./gguf-writer.ts";

/** Rates are negative, and no logarithms; taps lose the axis of one. `column`: numbers of heads are a matrix of one column. */
function scanForm(tensors: Tensors, column: boolean): void {
  const inLayers = (end: string) => [...tensors].filter(([name]) => name.endsWith(end));
  const headsIn = (count: number) => (column ? [count, 1] : [count]);
  for (const [name, { data }] of inLayers(".ssm_a"))
    tensors.set(name, { data: data.map((rate) => -exp(rate)), shape: headsIn(data.length) });
  for (const [name, { data }] of inLayers(".ssm_d")) tensors.set(name, { data, shape: headsIn(data.length) });
  for (const [name, { data, shape }] of inLayers("conv1d.weight").concat(inLayers("conv.weight")))
    tensors.set(name, { data, shape: [shape[0] as number, shape[2] as number] });
}

/** What layers with a scan of Mamba-2 are called, below `at`. */
const mambaNames = (at: string): Readonly<Record<string, string>> => ({
  ...{ [`${at}.in_proj`]: "ssm_in", [`${at}.conv1d`]: "ssm_conv1d", [`${at}.dt_bias`]: "ssm_dt.bias" },
  ...{ [`${at}.A_log`]: "ssm_a", [`${at}.D`]: "ssm_d", [`${at}.norm`]: "ssm_norm", [`${at}.out_proj`]: "ssm_out" },
});

const MAMBA_BIASES = /^ssm_(dt|conv1d)\.bias$/;

/** The fields of scans of Mamba-2, which families name in two ways. */
function mambaSizes(config: Config) {
  const heads = count(config, "mamba_n_heads", "mamba_num_heads", "num_heads");
  return {
    ...{ heads, inner: heads * count(config, "mamba_d_head", "mamba_head_dim", "head_dim") },
    ...{ state: count(config, "mamba_d_state", "ssm_state_size", "state_size") },
    groups: count(config, "mamba_n_groups", "n_groups"),
    taps: number(config, "mamba_d_conv", "conv_kernel") ?? 4,
  };
}

function mambaKeys(config: Config): Keys {
  const { heads, inner, state, groups, taps } = mambaSizes(config);
  return {
    ...{ "ssm.conv_kernel": u32(taps), "ssm.state_size": u32(state), "ssm.group_count": u32(groups) },
    ...{ "ssm.inner_size": u32(inner), "ssm.time_step_rank": u32(heads) },
  };
}

function mambaForm(tensors: Tensors, config: Config): void {
  scanForm(tensors, true);
  const { groups } = mambaSizes(config);
  each(tensors, ["ssm_norm"], ({ data }) => ({ data, shape: [groups, data.length / groups] }));
}

const isAttention = (config: Config, layer: number): boolean =>
  /^(full_)?attention$/.test((config.layer_types as readonly string[])[layer] ?? "");

/** A number for each layer, 0 of those without what it counts. */
const perLayer = (config: Config, value: number, has: (layer: number) => boolean): Typed =>
  list(
    5,
    range(0, layersOf(config)).map((layer) => (has(layer) ? value : 0)),
  );

const hybridHeads = (config: Config): Keys => ({
  "attention.head_count_kv": perLayer(config, kvHeadsOf(config), (layer) => isAttention(config, layer)),
});

const deltaSizes = (config: Config) => ({
  ...{ heads: count(config, "linear_num_value_heads"), keyHeads: count(config, "linear_num_key_heads") },
  ...{ keyDim: count(config, "linear_key_head_dim"), valueDim: count(config, "linear_value_head_dim") },
});

function deltaKeys(config: Config): Keys {
  const { heads, keyHeads, keyDim, valueDim } = deltaSizes(config);
  return {
    "attention.recurrent_layers": list(
      7,
      range(0, layersOf(config)).map((layer) => !isAttention(config, layer)),
    ),
    "ssm.conv_kernel": u32(number(config, "linear_conv_kernel_dim") ?? 4),
    ...{ "ssm.state_size": u32(keyDim), "ssm.group_count": u32(keyHeads) },
    ...{ "ssm.inner_size": u32(heads * valueDim), "ssm.time_step_rank": u32(heads), full_attention_interval: u32(4) },
    "rope.dimension_count": u32(headDimOf(config) / 4),
    expert_shared_feed_forward_length: u32(count(config, "shared_expert_intermediate_size")),
  };
}

const DELTA_NAMES: Readonly<Record<string, string>> = {
  ...{ post_attention_layernorm: "post_attention_norm", "linear_attn.norm": "ssm_norm", conv1d: "ssm_conv1d" },
  ...{ dt_bias: "ssm_dt.bias", A_log: "ssm_a", "linear_attn.out_proj": "ssm_out" },
  ...{ in_proj_qkv: "attn_qkv", in_proj_z: "attn_gate", in_proj_b: "ssm_beta", in_proj_a: "ssm_alpha" },
  ...{ in_proj_qkvz: "qkvz", in_proj_ba: "ssm_ba" },
};

/** Gains are whole but for those of outputs of scans. Value heads take the key heads by turns. */
function deltaForm(tensors: Tensors, config: Config): void {
  const { heads, keyHeads, keyDim, valueDim } = deltaSizes(config);
  const ownNorms = [...tensors].filter(([name]) => name.endsWith("ssm_norm.weight"));
  addOne(tensors);
  for (const [name, tensor] of ownNorms) tensors.set(name, tensor);
  const group = heads / keyHeads;
  const order = range(0, heads).map((head) => (head % keyHeads) * group + Math.floor(head / keyHeads));
  const rowsOf = (dim: number, from = 0) => order.flatMap((head) => range(from + head * dim, from + (head + 1) * dim));
  const keys = 2 * keyHeads * keyDim;
  const mixed = [...range(0, keys), ...rowsOf(valueDim, keys)];
  each(tensors, ["attn_qkv", "ssm_conv1d"], (tensor) => pickRows(tensor, mixed));
  each(tensors, ["attn_gate"], (tensor) => pickRows(tensor, rowsOf(valueDim)));
  each(tensors, ["ssm_beta", "ssm_alpha", "ssm_dt"], (tensor) => pickRows(tensor, order));
  for (const [name, tensor] of tensors) if (name.endsWith(".ssm_a")) tensors.set(name, pickRows(tensor, order));
  each(tensors, ["ssm_out"], (tensor) => transpose(pickRows(transpose(tensor), rowsOf(valueDim))));
  scanForm(tensors, false);
}

/** The joint projection, in which the heads of a key follow each other, becomes two; value heads stay where they are. */
function joinedDeltaForm(tensors: Tensors, config: Config): void {
  const { heads, keyHeads, keyDim, valueDim } = deltaSizes(config);
  const own = (heads / keyHeads) * valueDim;
  const size = 2 * keyDim + 2 * own;
  const rowsAt = (at: number, rows: number) =>
    range(0, keyHeads).flatMap((head) => range(head * size + at, head * size + at + rows));
  for (const [name, tensor] of [...tensors]) {
    if (!name.endsWith(".qkvz.weight")) continue;
    const mixed = [...rowsAt(0, keyDim), ...rowsAt(keyDim, keyDim), ...rowsAt(2 * keyDim, own)];
    tensors.set(name.replace("qkvz", "attn_qkv"), pickRows(tensor, mixed));
    tensors.set(name.replace("qkvz", "attn_gate"), pickRows(tensor, rowsAt(2 * keyDim + own, own)));
    tensors.delete(name);
  }
  const ownNorms = [...tensors].filter(([name]) => name.endsWith("ssm_norm.weight"));
  addOne(tensors);
  for (const [name, tensor] of ownNorms) tensors.set(name, tensor);
  scanForm(tensors, false);
}

const DELTA = { biases: /^ssm_dt\.bias$/, names: DELTA_NAMES, keys: deltaKeys, gateRow: true } as const;

/** Gates and factors of one matrix become two. */
function splitMlp(tensors: Tensors): void {
  for (const [name, tensor] of [...tensors]) {
    if (!name.endsWith(".input_linear.weight")) continue;
    const rows = tensor.shape[0] as number;
    tensors.set(name.replace("input_linear", "ffn_gate"), pickRows(tensor, range(0, rows / 2)));
    tensors.set(name.replace("input_linear", "ffn_up"), pickRows(tensor, range(rows / 2, rows)));
    tensors.delete(name);
  }
}

/** The parts of Nemotron-H, by the letters of its layers. */
const isPart = (config: Config, letter: string) => (layer: number) =>
  String(config.hybrid_override_pattern)[layer] === letter;

const LFM2_NAMES: Readonly<Record<string, string>> = {
  ...{ operator_norm: "attn_norm", ffn_norm: "ffn_norm", embedding_norm: "token_embd_norm" },
  ...{ "conv.in_proj": "shortconv.in_proj", "conv.conv": "shortconv.conv", "conv.out_proj": "shortconv.out_proj" },
  ...{ q_layernorm: "attn_q_norm", k_layernorm: "attn_k_norm", "feed_forward.gate": "ffn_gate_inp" },
  expert_bias: "exp_probs_b.bias",
};

const lfm2Keys = (config: Config): Keys => ({
  ...hybridHeads(config),
  "shortconv.l_cache": u32(number(config, "conv_L_cache") ?? 3),
});

/** By `model_type`. */
export const HYBRID_FORMS: Readonly<Record<string, Form>> = {
  falcon_h1: {
    ...{ architecture: "falcon-h1", biases: MAMBA_BIASES, keys: mambaKeys, change: mambaForm },
    names: { ...mambaNames("mamba"), pre_ff_layernorm: "ffn_norm" },
  },
  granitemoehybrid: {
    ...{ architecture: "granitehybrid", biases: MAMBA_BIASES },
    names: { ...mambaNames("mamba"), output_linear: "ffn_down", input_linear: "input_linear" },
    keys: (config) => ({
      ...{ ...granite(config), ...mambaKeys(config), ...hybridHeads(config) },
      feed_forward_length: u32(count(config, "shared_intermediate_size")),
      "rope.scaling.finetuned": bool(config.position_embedding_type === "rope"),
    }),
    change: (tensors, config) => {
      interleave(tensors, config);
      mambaForm(tensors, config);
      splitMlp(tensors);
    },
  },
  lfm2: { architecture: "lfm2", names: LFM2_NAMES, keys: lfm2Keys, change: (tensors) => scanForm(tensors, false) },
  lfm2_moe: {
    ...{ architecture: "lfm2moe", names: LFM2_NAMES, change: (tensors) => scanForm(tensors, false) },
    keys: (config) => ({
      ...lfm2Keys(config),
      ...{ expert_gating_func: u32(2), leading_dense_block_count: u32(count(config, "num_dense_layers")) },
    }),
  },
  mamba2: {
    ...{ architecture: "mamba2", biases: MAMBA_BIASES, change: mambaForm },
    keys: (config) => ({ ...mambaKeys(config), feed_forward_length: u32(0) }),
    names: { ...mambaNames("mixer"), embeddings: "token_embd", norm: "attn_norm", norm_f: "output_norm" },
  },
  nemotron_h: {
    ...{ architecture: "nemotron_h", biases: MAMBA_BIASES, change: mambaForm },
    names: { ...mambaNames("mixer"), embeddings: "token_embd", norm: "attn_norm", norm_f: "output_norm" },
    keys: (config) => ({
      ...mambaKeys(config),
      feed_forward_length: perLayer(config, count(config, "intermediate_size"), isPart(config, "-")),
      "attention.head_count_kv": perLayer(config, kvHeadsOf(config), isPart(config, "*")),
    }),
  },
  qwen3_5_moe_text: { ...DELTA, architecture: "qwen35moe", change: deltaForm },
  qwen3_5_text: { ...DELTA, architecture: "qwen35", change: deltaForm },
  qwen3_next: { ...DELTA, architecture: "qwen3next", change: joinedDeltaForm },
};
