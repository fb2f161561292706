// Models that this package does not run, by `model_type`: what their layers consist of, so that their costs are known.

import type { Fields } from "../../models/families/facts.ts";

// What mixes tokens in a layer, as counts: its parameters, the numbers that it keeps of each token, and those of its state, which
// does not grow. Formulas are those of the classes in transformers. d is the width of the model.

/** What mixes tokens in a layer. */
interface Mixer {
  readonly parameters: number;
  /** Numbers that a token adds to the cache, of keys and values. */
  readonly perToken?: number;
  /** The most tokens that are kept. */
  readonly window?: number | undefined;
  /** Numbers of the recurrent state, whatever the length of the sequence. */
  readonly state?: number;
}

/** Parameters of a projection from k to n numbers. */
const matrix = (n: number, k: number, bias = false): number => n * k + (bias ? n : 0);

/** Parameters of a gated MLP. */
const gatedMlp = (dim: number, d: number): number => 3 * dim * d;

/** Causal convolution of each of n channels over `kernel` tokens. Its state is the tokens before. */
function convolution(channels: number, kernel: number, bias: boolean): Required<Pick<Mixer, "parameters" | "state">> {
  return { parameters: channels * (kernel + (bias ? 1 : 0)), state: channels * (kernel - 1) };
}

/** Heads that attend: queries, keys, values, outputs. */
function heads(sizes: {
  d: number;
  heads: number;
  kvHeads: number;
  headDim: number;
  window?: number | undefined;
  bias?: boolean;
  biasOut?: boolean;
  /** RMS norms of each head's query and key. */
  normed?: boolean;
  /** Queries come with a gate of the same size. */
  gated?: boolean;
}): Mixer {
  const { d, kvHeads, headDim, window, bias = false, biasOut = bias, normed, gated } = sizes;
  const [q, kv] = [sizes.heads * headDim, kvHeads * headDim];
  const projections = matrix(gated ? 2 * q : q, d, bias) + 2 * matrix(kv, d, bias) + matrix(d, q, biasOut);
  return { parameters: projections + (normed ? 2 * headDim : 0), perToken: 2 * kv, window };
}

/** Mamba (Gu and Dao 2023): each of `inner` channels has a state of `stateSize` numbers. */
function mamba(sizes: {
  d: number;
  inner: number;
  stateSize: number;
  rank: number;
  kernel: number;
  bias: boolean;
  convBias: boolean;
  /** RMS norms of the step, B and C. */
  normed?: boolean;
}): Mixer {
  const { d, inner, stateSize, rank, kernel, bias, convBias, normed } = sizes;
  const conv = convolution(inner, kernel, convBias);
  const selection =
    matrix(rank + 2 * stateSize, inner) + matrix(inner, rank, true) + (normed ? rank + 2 * stateSize : 0);
  const ends = matrix(2 * inner, d, bias) + matrix(d, inner, bias);
  return {
    parameters: ends + conv.parameters + selection + inner * stateSize + inner,
    state: inner * stateSize + conv.state,
  };
}

/** Mamba-2 (Dao and Gu 2024): heads with a state [headDim, stateSize]; B and C are shared by the heads of a group. */
function mamba2(sizes: {
  d: number;
  heads: number;
  headDim: number;
  stateSize: number;
  groups: number;
  kernel: number;
  bias: boolean;
  convBias: boolean;
  /** An RMS norm before the last projection. */
  normed: boolean;
}): Mixer {
  const { d, headDim, stateSize, groups, kernel, bias, convBias, normed } = sizes;
  const inner = sizes.heads * headDim;
  const channels = inner + 2 * groups * stateSize;
  const conv = convolution(channels, kernel, convBias);
  const ends = matrix(inner + channels + sizes.heads, d, bias) + matrix(d, inner, bias);
  return {
    // Of each head: the step's bias, A, and D.
    parameters: ends + conv.parameters + 3 * sizes.heads + (normed ? inner : 0),
    state: inner * stateSize + conv.state,
  };
}

/** Gated DeltaNet (Yang 2024): a state [keyDim, valueDim] for each head of values. */
function deltaNet(sizes: {
  d: number;
  keyHeads: number;
  keyDim: number;
  valueHeads: number;
  valueDim: number;
  kernel: number;
}): Mixer {
  const { d, keyHeads, keyDim, valueHeads, valueDim, kernel } = sizes;
  const [keys, values] = [keyHeads * keyDim, valueHeads * valueDim];
  const conv = convolution(2 * keys + values, kernel, false);
  // Queries, keys, values and a gate; beta and the decay's step of each head; outputs.
  const projections = matrix(2 * keys + 2 * values, d) + matrix(2 * valueHeads, d) + matrix(d, values);
  return {
    parameters: projections + conv.parameters + 2 * valueHeads + valueDim,
    state: valueHeads * keyDim * valueDim + conv.state,
  };
}

/** The recurrent block of Griffin (De 2024): a convolution and a gated linear recurrence of `width` channels. */
function griffin(d: number, width: number, blocks: number, kernel: number): Mixer {
  const conv = convolution(width, kernel, true);
  const gates = 2 * (width * (width / blocks) + width);
  return {
    parameters: 2 * matrix(width, d, true) + matrix(d, width, true) + conv.parameters + gates + width,
    state: width + conv.state,
  };
}

/** RWKV-4 (Peng 2023), both of its halves: token shifts, time mix and channel mix. The state is five vectors. */
function rwkv(d: number, inner: number, mlpDim: number): Mixer {
  const time = 2 * inner + 3 * d + 3 * matrix(inner, d) + matrix(d, inner);
  const channel = 2 * d + matrix(mlpDim, d) + matrix(d, d) + matrix(d, mlpDim);
  return { parameters: time + channel, state: 3 * inner + 2 * d };
}

/** A layer: its mixers, and the parameters of everything else. */
interface LayerParts {
  readonly mixers: readonly Mixer[];
  /** Of MLP and norms. */
  readonly rest: number;
  /** Those of `rest` that a token does not take: experts. */
  readonly idle?: number;
  /** The layer attends to the keys and values of an earlier one, and keeps none. */
  readonly shares?: boolean;
}

/** A whole model. */
export interface ModelParts {
  readonly layers: readonly LayerParts[];
  /** Parameters of the table of tokens. */
  readonly embed: number;
  /** Whether the head is the table of tokens. */
  readonly tied: boolean;
  /** Parameters besides layers, table and head: of norms, and of whatever else. */
  readonly rest: number;
}

type Reader = (file: Fields) => ModelParts;

/** The fields that most files share: width, layers, the table of tokens. */
function basics(file: Fields, tied: boolean, norm = 1) {
  const d = file.count("hidden_size");
  return {
    d,
    count: file.count("num_hidden_layers", undefined, 10_000),
    embed: file.count("vocab_size") * d,
    tied: file.flag("tie_word_embeddings", tied),
    rest: norm * d,
  };
}

const layersOf = (count: number, layer: (i: number) => LayerParts): LayerParts[] =>
  Array.from({ length: count }, (_, i) => layer(i));

/** Attention of the usual fields. */
function attentionOf(file: Fields, more: Partial<Parameters<typeof heads>[0]> = {}): Mixer {
  const d = file.count("hidden_size");
  const count = file.count("num_attention_heads");
  const bias = file.flag("attention_bias", false);
  const headDim = file.raw("head_dim") === undefined ? d / count : file.count("head_dim");
  return heads({ ...{ d, heads: count, kvHeads: file.count("num_key_value_heads", count), headDim, bias }, ...more });
}

/** The kind of each layer, from a list of the file. Kinds besides `kinds` are refused. */
function kindsOf(file: Fields, name: string, count: number, kinds: readonly string[]): readonly string[] {
  const list = file.list(name);
  if (list?.length !== count) throw file.refusal(name, `a list of the ${count} layers' kinds`, file.raw(name));
  for (const kind of list) if (!kinds.includes(kind as string)) throw file.refusal(name, kinds.join(" or "), kind);
  return list as readonly string[];
}

/** Mamba of the fields that `mamba` and `falcon_mamba` have. */
const readMamba: Reader = (file) => {
  const { d, count, ...model } = basics(file, true);
  const inner = file.count("intermediate_size", file.count("expand", 2) * d);
  const stateSize = file.count("state_size", 16);
  const rank =
    file.raw("time_step_rank") === "auto" ? Math.ceil(d / 16) : file.count("time_step_rank", Math.ceil(d / 16));
  const sizes = { d, inner, stateSize, rank, kernel: file.count("conv_kernel", 4) };
  const mixer = mamba({ ...sizes, bias: file.flag("use_bias", false), convBias: file.flag("use_conv_bias", true) });
  return { ...model, layers: layersOf(count, () => ({ mixers: [mixer], rest: d })) };
};

/** Mamba-2 of fields whose names begin with "mamba_". */
function prefixedMamba2(file: Fields, normed: boolean, least: number): Mixer {
  const headCount = file.count("mamba_n_heads");
  const stated = file.raw("mamba_d_head");
  const inner = file.raw("mamba_d_ssm") === undefined ? least : file.count("mamba_d_ssm");
  return mamba2({
    ...{ d: file.count("hidden_size"), heads: headCount },
    headDim: stated === undefined || stated === "auto" ? inner / headCount : file.count("mamba_d_head"),
    ...{ stateSize: file.count("mamba_d_state"), groups: file.count("mamba_n_groups", 1), normed },
    kernel: file.count("mamba_d_conv", 4),
    ...{ bias: file.flag("mamba_proj_bias", false), convBias: file.flag("mamba_conv_bias", true) },
  });
}

const readJamba: Reader = (file) => {
  const { d, count, ...model } = basics(file, false);
  const mlp = gatedMlp(file.count("intermediate_size"), d);
  const experts = file.count("num_experts", 16);
  const taken = file.count("num_experts_per_tok", 2, experts);
  const every = (name: string, period: number, offset: number) => {
    const [own, at] = [file.count(`${name}_period`, period), file.raw(`${name}_offset`) ?? offset];
    return (i: number) => i % own === at;
  };
  const [attends, hasExperts] = [every("attn_layer", 8, 4), every("expert_layer", 2, 1)];
  const recurrent = mamba({
    ...{ d, inner: file.count("mamba_expand", 2) * d, stateSize: file.count("mamba_d_state", 16), normed: true },
    ...{ rank: file.count("mamba_dt_rank", Math.ceil(d / 16)), kernel: file.count("mamba_d_conv", 4) },
    ...{ bias: file.flag("mamba_proj_bias", false), convBias: file.flag("mamba_conv_bias", true) },
  });
  const layer = (i: number): LayerParts => ({
    mixers: [attends(i) ? attentionOf(file) : recurrent],
    rest: 2 * d + (hasExperts(i) && experts > 1 ? experts * (mlp + d) : mlp),
    idle: hasExperts(i) && experts > 1 ? (experts - taken) * mlp : 0,
  });
  return { ...model, layers: layersOf(count, layer) };
};

const readBamba: Reader = (file) => {
  const { d, count, ...model } = basics(file, false);
  const attends = file.list("attn_layer_indices") ?? [];
  const recurrent = prefixedMamba2(file, true, file.count("mamba_expand", 2) * d);
  const rest = 2 * d + gatedMlp(file.count("intermediate_size"), d);
  const mixer = (i: number) => (attends.includes(i) ? attentionOf(file) : recurrent);
  return { ...model, layers: layersOf(count, (i) => ({ mixers: [mixer(i)], rest })) };
};

const readGraniteHybrid: Reader = (file) => {
  const { d, count, ...model } = basics(file, false);
  const kinds = kindsOf(file, "layer_types", count, ["mamba", "attention"]);
  const experts = file.raw("num_local_experts") === 0 ? 0 : file.count("num_local_experts", 8);
  const expert = gatedMlp(file.count("intermediate_size"), d);
  const taken = experts && file.count("num_experts_per_tok", 2, experts);
  const recurrent = prefixedMamba2(file, true, file.count("mamba_expand", 2) * d);
  const rest = 2 * d + gatedMlp(file.count("shared_intermediate_size", 1024), d) + experts * (expert + d);
  const layer = (i: number): LayerParts => ({
    mixers: [kinds[i] === "attention" ? attentionOf(file) : recurrent],
    ...{ rest, idle: (experts - taken) * expert },
  });
  return { ...model, layers: layersOf(count, layer) };
};

const readQwen3Next: Reader = (file) => {
  const { d, count, ...model } = basics(file, false);
  const interval = file.count("full_attention_interval", 4);
  const linear = deltaNet({
    ...{ d, keyHeads: file.count("linear_num_key_heads"), keyDim: file.count("linear_key_head_dim") },
    ...{ valueHeads: file.count("linear_num_value_heads"), valueDim: file.count("linear_value_head_dim") },
    kernel: file.count("linear_conv_kernel_dim", 4),
  });
  const full = attentionOf(file, { gated: true, normed: true });
  const experts = file.count("num_experts");
  const expert = gatedMlp(file.count("moe_intermediate_size"), d);
  const shared = gatedMlp(file.count("shared_expert_intermediate_size"), d) + d;
  const idle = (experts - file.count("num_experts_per_tok", undefined, experts)) * expert;
  const layer = (i: number): LayerParts => ({
    mixers: [(i + 1) % interval === 0 ? full : linear],
    ...{ rest: 2 * d + experts * (expert + d) + shared, idle },
  });
  return { ...model, layers: layersOf(count, layer) };
};

const readRecurrentGemma: Reader = (file) => {
  const { d, count, ...model } = basics(file, true);
  const kinds = file.list("block_types") ?? file.list("_block_types") ?? ["recurrent", "recurrent", "attention"];
  const width = file.count("lru_width", d);
  const dim = file.count("intermediate_size") / 2;
  const window = file.count("attention_window_size", 2048);
  const recurrent = griffin(d, width, file.count("num_attention_heads"), file.count("conv1d_width", 4));
  const rest = 2 * d + 2 * matrix(dim, d, true) + matrix(d, dim, true);
  const mixer = (i: number) =>
    kinds[i % kinds.length] === "attention" ? attentionOf(file, { window, biasOut: true }) : recurrent;
  return { ...model, layers: layersOf(count, (i) => ({ mixers: [mixer(i)], rest })) };
};

/** RWKV-4: layer norms, one more of which is before the first layer. */
const readRwkv: Reader = (file) => {
  const { d, count, ...model } = basics(file, false, 4);
  const mixer = rwkv(d, file.count("attention_hidden_size", d), file.count("intermediate_size", 4 * d));
  return { ...model, layers: layersOf(count, () => ({ mixers: [mixer], rest: 4 * d })) };
};

/** Every type that is known here and of which `headwise/models` runs no models, or those of attention alone. */
export const OTHER_MODELS: Readonly<Record<string, Reader>> = {
  bamba: readBamba,
  falcon_mamba: readMamba,
  granitemoehybrid: readGraniteHybrid,
  jamba: readJamba,
  mamba: readMamba,
  qwen3_next: readQwen3Next,
  recurrent_gemma: readRecurrentGemma,
  rwkv: readRwkv,
};
