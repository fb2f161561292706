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

const readBamba: Reader = (file) => {
  const { d, count, ...model } = basics(file, false);
  const attends = file.list("attn_layer_indices") ?? [];
  const recurrent = prefixedMamba2(file, true, file.count("mamba_expand", 2) * d);
  const rest = 2 * d + gatedMlp(file.count("intermediate_size"), d);
  const mixer = (i: number) => (attends.includes(i) ? attentionOf(file) : recurrent);
  return { ...model, layers: layersOf(count, (i) => ({ mixers: [mixer(i)], rest })) };
};

/** RWKV-4: layer norms, one more of which is before the first layer. */
const readRwkv: Reader = (file) => {
  const { d, count, ...model } = basics(file, false, 4);
  const mixer = rwkv(d, file.count("attention_hidden_size", d), file.count("intermediate_size", 4 * d));
  return { ...model, layers: layersOf(count, () => ({ mixers: [mixer], rest: 4 * d })) };
};

/** Every type that is known here and that `headwise/models` does not run. */
export const OTHER_MODELS: Readonly<Record<string, Reader>> = {
  bamba: readBamba,
  falcon_mamba: readMamba,
  mamba: readMamba,
  rwkv: readRwkv,
};
