// What kernels are given. The build turns each pointer alias into a TypeScript type of its own, so that the host cannot
// pass one for another, and the shape into an interface and a writer (src/wasm/abi.ts).

export type F32Ptr = usize;
export type F64Ptr = usize;
export type I32Ptr = usize;
export type U8Ptr = usize;
/** 16-bit floats, f16 or bf16. */
export type U16Ptr = usize;
/** A table of addresses, one u32 a cache page, with the page's formats in the low four bits. */
export type PagesPtr = usize;

/** The same, where 0 means that there is none. */
export type F32PtrOrNull = usize;
export type F64PtrOrNull = usize;
export type U8PtrOrNull = usize;

/**
 * One attention call for one batch row: sizes, strides (in elements) and rules. Key j lies at absolute position j;
 * query token t at position qStart + t, which may be negative. A query at position p may attend key j when
 * p - left <= j <= p + right, j < kvLen and keep allows it; causal is right = 0.
 */
@unmanaged
export class AttentionShape {
  qLen: i32;
  kvLen: i32;
  qStart: i32;
  left: i32;
  right: i32;
  numHeads: i32;
  numKvHeads: i32;
  headDim: i32;
  valueDim: i32;
  /** Floats between query tokens, and between the heads of one. */
  qStride: i32;
  qHeadStride: i32;
  outStride: i32;
  outHeadStride: i32;
  scale: f32;
  /** 0 = off. */
  softcap: f32;
  /** [numHeads]: slope·|p - j| is taken from the score. */
  slopes: F32PtrOrNull;
  /** [numHeads]: a logit that joins the denominator and has no value. */
  sinks: F32PtrOrNull;
  /** [numKvHeads][headDim] and [numKvHeads][valueDim]: one more key that every query may attend. */
  extraKey: F32PtrOrNull;
  extraValue: F32PtrOrNull;
  /** 1: one more key and value of zeros that every query may attend. */
  zeroKey: i32;
  /** Bytes [.., .., kvLen], 0 = excluded. Stride 0 repeats. Kernels may read 7 elements behind a row, here and in bias. */
  keep: U8PtrOrNull;
  keepHeadStride: i32;
  keepRowStride: i32;
  /** Floats [.., .., kvLen], added to the score; -Infinity excludes. Stride 0 repeats. */
  bias: F32PtrOrNull;
  biasHeadStride: i32;
  biasRowStride: i32;
  /** [numHeads][qLen]: where to write the log-sum-exp of each row. */
  lse: F32PtrOrNull;
  /** Bit f: there are pages with keys of format f; bit 4 + f: with values of it. What scratch holds depends on it. */
  formats: i32;
}

export type AttentionShapePtr = usize;

/** What attention_statistics measures of the rows of a call, and where its scratch has room for that. */
@unmanaged
export class StatisticsShape {
  /** Keys of each row to name, from 1 on. */
  topK: i32;
  /** The weight on keys [0, first), and on the last keys of the row's range. */
  first: i32;
  last: i32;
  /** Floats of scratch that attention_pages needs for the call: statistics lie behind, 64-byte aligned. */
  work: i32;
  /** [numHeads][qLen][STATISTICS + 2 · topK], see layout.ts. */
  rows: F32Ptr;
  /**
   * What each key receives is added to it: float64 [numHeads][receivedStride], then as many in float32 whose sum with these it is,
   * for parts that are not whole yet. A row has room for whole pages.
   */
  received: F64PtrOrNull;
  receivedStride: i32;
  /** The most pages of a tile of rows, if `received` is not null. */
  keptPages: i32;
}

export type StatisticsShapePtr = usize;

/** A product of rows with packed weights: sizes, strides in floats, and how rows and weights are stored. */
@unmanaged
export class LinearShape {
  panels: i32;
  k: i32;
  outStride: i32;
  /** Of rows of floats; rows of integers lie as quantize_rows leaves them. */
  xStride: i32;
  /** Weights of 16 bits: 1 for bf16, 0 for f16. */
  bf16: i32;
  /** Weights of 8 bits: inputs that share a scale. */
  block: i32;
  /** Rows of integers: `mode` of quantize_rows. */
  mode: i32;
  /** Weights of 4 bits: the nibble that stands for 0. */
  zero: i32;
  /** Indices into a codebook: their type in GGUF. */
  type: i32;
}

export type LinearShapePtr = usize;

/** Rows of heads to be rotated: sizes, and the floats between rows. */
@unmanaged
export class RopeShape {
  numHeads: i32;
  headDim: i32;
  /** Components of a head that are rotated, an even number; the others follow. */
  ropeDim: i32;
  /** 1: pairs are neighbours; 0: half of ropeDim apart. */
  interleaved: i32;
  stride: i32;
}

export type RopeShapePtr = usize;

/** Keys and values [token][kvHead][dim] as append_f32 takes and gather_f32 gives them: sizes, and strides in floats. */
@unmanaged
export class CacheShape {
  numKvHeads: i32;
  headDim: i32;
  valueDim: i32;
  kStride: i32;
  kHeadStride: i32;
  vStride: i32;
  vHeadStride: i32;
}

export type CacheShapePtr = usize;

/** Rows that are normalised: their length, the floats between them, and what is added to the variance. */
@unmanaged
export class NormShape {
  n: i32;
  stride: i32;
  eps: f32;
}

export type NormShapePtr = usize;

/** Rows of an activation: its kind (ACT_ in layout.ts), the rows' length, and the floats between them. */
@unmanaged
export class ActivationShape {
  kind: i32;
  n: i32;
  outStride: i32;
  gateStride: i32;
  upStride: i32;
  /** Of ACT_SWISH: x · sigmoid(alpha · x). */
  alpha: f32;
  /** Above 0: gate is at most this, up lies within it on both sides, and 1 is added to up. */
  limit: f32;
}

export type ActivationShapePtr = usize;

/** A table of embeddings [n, k] in panels of some format (WEIGHT_ in layout.ts), and what its rows are multiplied by. */
@unmanaged
export class EmbedShape {
  n: i32;
  k: i32;
  format: i32;
  /** Weights of 8 bits: inputs that share a scale. */
  block: i32;
  scale: f32;
}

export type EmbedShapePtr = usize;

/** How a router chooses experts: see route_f32. */
@unmanaged
export class RouteShape {
  experts: i32;
  topK: i32;
  /** Floats between the logits of tokens. */
  stride: i32;
  /** 1: scores are sigmoids; 0: a softmax. */
  sigmoid: i32;
  /** Groups of experts, 1 if there are none, and how many of them take part. */
  groups: i32;
  keepGroups: i32;
  /** 1: a group counts by the sum of its two largest choices; 0: by the largest. */
  pairs: i32;
  /** 1: the weights of a token add up to `scale`. */
  renormalise: i32;
  scale: f32;
}

export type RouteShapePtr = usize;

/** Queries beside rows of an index: see score_rows. */
@unmanaged
export class ScoreShape {
  /** SCORE_DOT and its like. */
  mode: i32;
  queries: i32;
  rowBytes: i32;
  /** Dimensions of bits; others need none. */
  dimensions: i32;
  /** Floats between the scores of queries. */
  stride: i32;
}

export type ScoreShapePtr = usize;

/** Rows of a causal convolution: see causal_conv_f32. */
@unmanaged
export class ConvShape {
  rows: i32;
  channels: i32;
  /** Rows that an output is made of, with its own. */
  taps: i32;
  xStride: i32;
  outStride: i32;
  /** 1: SiLU of the sums. */
  silu: i32;
  /** The state before the first row; it may be the one that is left. */
  from: F32Ptr;
  before: F32PtrOrNull;
  after: F32PtrOrNull;
}

export type ConvShapePtr = usize;

/** Rows of steps and decays: see decay_f32. */
@unmanaged
export class DecayShape {
  n: i32;
  xStride: i32;
  outStride: i32;
  low: f32;
  high: f32;
}

export type DecayShapePtr = usize;

/** Rows of heads with a state each: see linear_attention_f32. */
@unmanaged
export class LinearAttentionShape {
  rows: i32;
  keyDim: i32;
  valueDim: i32;
  /** Heads that follow each other and share a query and a key; 0: heads take those of `keyHeads` by turns. */
  group: i32;
  keyHeads: i32;
  keyStride: i32;
  valueStride: i32;
  outStride: i32;
  /** 1: the delta rule. */
  delta: i32;
  scale: f32;
  /** The states before the first row; they may be those that are left. */
  from: F32Ptr;
  decay: F32Ptr;
  /** Floats between the decays of rows; 0 where all rows have the same. */
  decayStride: i32;
  /** 1: a decay for each component of a key. */
  perChannel: i32;
  beta: F32PtrOrNull;
  betaStride: i32;
  skip: F32PtrOrNull;
}

export type LinearAttentionShapePtr = usize;

/** Rows of channels with a state each: see channel_scan_f32. */
@unmanaged
export class ChannelScanShape {
  rows: i32;
  channels: i32;
  stateDim: i32;
  /** Floats between rows of x and out. */
  stride: i32;
  stepStride: i32;
  keyStride: i32;
  /** 1: the first row is that of its sequence. */
  first: i32;
  /** The states before the first row; they may be those that are left. */
  from: F32Ptr;
  rate: F32Ptr;
  q: F32PtrOrNull;
  k: F32PtrOrNull;
  write: F32PtrOrNull;
  skip: F32PtrOrNull;
}

export type ChannelScanShapePtr = usize;
