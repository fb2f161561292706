// What mixes tokens in a layer, as counts: its parameters, the numbers that it keeps of each token, and those of its state, which
// does not grow. Formulas are those of the classes in transformers. d is the width of the model.

/** What mixes tokens in a layer. */
export interface Mixer {
  readonly parameters: number;
  /** Numbers that a token adds to the cache, of keys and values. */
  readonly perToken?: number;
  /** The most tokens that are kept. */
  readonly window?: number | undefined;
  /** Numbers of the recurrent state, whatever the length of the sequence. */
  readonly state?: number;
}

/** Parameters of a projection from k to n numbers. */
export const matrix = (n: number, k: number, bias = false): number => n * k + (bias ? n : 0);

/** Parameters of a gated MLP. */
export const gatedMlp = (dim: number, d: number): number => 3 * dim * d;

/** Causal convolution of each of n channels over `kernel` tokens. Its state is the tokens before. */
function convolution(channels: number, kernel: number, bias: boolean): Required<Pick<Mixer, "parameters" | "state">> {
  return { parameters: channels * (kernel + (bias ? 1 : 0)), state: channels * (kernel - 1) };
}

/** Heads that attend: queries, keys, values, outputs. */
export function heads(sizes: {
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
export function mamba(sizes: {
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
export function mamba2(sizes: {
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
export function deltaNet(sizes: {
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

/** The gated convolution of LFM2. */
export function shortConv(d: number, kernel: number, bias: boolean): Mixer {
  const conv = convolution(d, kernel, bias);
  return { parameters: matrix(3 * d, d, bias) + matrix(d, d, bias) + conv.parameters, state: conv.state };
}

/** The recurrent block of Griffin (De 2024): a convolution and a gated linear recurrence of `width` channels. */
export function griffin(d: number, width: number, blocks: number, kernel: number): Mixer {
  const conv = convolution(width, kernel, true);
  const gates = 2 * (width * (width / blocks) + width);
  return {
    parameters: 2 * matrix(width, d, true) + matrix(d, width, true) + conv.parameters + gates + width,
    state: width + conv.state,
  };
}

/** RWKV-4 (Peng 2023), both of its halves: token shifts, time mix and channel mix. The state is five vectors. */
export function rwkv(d: number, inner: number, mlpDim: number): Mixer {
  const time = 2 * inner + 3 * d + 3 * matrix(inner, d) + matrix(d, inner);
  const channel = 2 * d + matrix(mlpDim, d) + matrix(d, d) + matrix(d, mlpDim);
  return { parameters: time + channel, state: 3 * inner + 2 * d };
}
