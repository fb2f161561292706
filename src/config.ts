/** Which positions a query sees besides its own: `left` earlier and `right` later keys; undefined = unbounded. */
export interface Window {
  readonly left?: number;
  readonly right?: number;
}

/**
 * How RoPE frequencies are stretched beyond the trained length. Formulas and names follow the model files that use
 * them; `factor` is the stretch, `originalMaxSeqLen` the trained length in tokens.
 */
export type RopeScaling =
  | { readonly kind: "linear"; readonly factor: number }
  | { readonly kind: "ntk"; readonly factor: number }
  | {
      readonly kind: "llama3";
      readonly factor: number;
      readonly lowFreqFactor: number;
      readonly highFreqFactor: number;
      readonly originalMaxSeqLen: number;
    }
  | {
      readonly kind: "yarn";
      readonly factor: number;
      readonly originalMaxSeqLen: number;
      /** Rotations that bound the ramp; defaults 32 and 1. */
      readonly betaFast?: number;
      readonly betaSlow?: number;
      /** Multiplies cos and sin; default 0.1·ln(factor) + 1, or from `mscale` and `mscaleAllDim` where given. */
      readonly attentionFactor?: number;
      readonly mscale?: number;
      readonly mscaleAllDim?: number;
      /** Round the ramp's bounds to whole dimensions; default true. */
      readonly truncate?: boolean;
    };

/** Rotary position embedding of queries and keys. */
export interface RopeConfig {
  /** Base of the frequencies theta^(-2i/dim), e.g. 10 000 or 500 000. */
  readonly theta: number;
  /** "half" rotates (x[i], x[i + dim/2]); "interleaved" rotates (x[2i], x[2i+1]). No default: a wrong one is silent. */
  readonly pairing: "half" | "interleaved";
  /** How many leading components of a head rotate (even); default headDim. */
  readonly dim?: number;
  readonly scaling?: RopeScaling;
}

/** RMS norm of queries and keys after the projection and before RoPE. The gains are `weights.qNorm` and `kNorm`. */
export interface QkNormConfig {
  /** "per-head": gain [headDim], each head by itself. "full": gain [numHeads·headDim], all heads of a token at once. */
  readonly kind: "per-head" | "full";
  /** Added to the mean square; default 1e-6. */
  readonly eps?: number;
  /** The stored gain is w of (1 + w), as in Gemma. */
  readonly onePlus?: boolean;
}

/**
 * The shape and the rules of one attention layer.
 * @example
 * import { type AttentionConfig } from "headwise";
 * const config: AttentionConfig = { dModel: 2048, numHeads: 32, numKvHeads: 8, causal: true };
 * console.log(config.numHeads / config.numKvHeads!); // 4
 */
export interface AttentionConfig {
  /** Floats of one input row, and of one output row unless `wo` says otherwise. */
  readonly dModel: number;
  readonly numHeads: number;
  /** Heads of keys and values; must divide numHeads. Default numHeads (MHA); 1 is MQA. */
  readonly numKvHeads?: number;
  /** Floats of a query or key head. Default dModel / numHeads. */
  readonly headDim?: number;
  /** Floats of a value head. Default headDim. */
  readonly valueDim?: number;
  /** Floats of one row that keys (values) are projected from, in cross-attention. Default dModel. */
  readonly kdim?: number;
  readonly vdim?: number;
  /** Query at position p sees keys at positions <= p. Default false. */
  readonly causal?: boolean;
  readonly window?: Window;
  /** Multiplies q·k. Default 1/√headDim. */
  readonly scale?: number;
  /** Scores become softcap·tanh(score / softcap). Default off. */
  readonly softcap?: number;
  /**
   * ALiBi: adds -slope·|query position - key position| to the score. "geometric" gives the published slopes for any
   * head count; an array gives one slope a head.
   */
  readonly alibi?: "geometric" | Float32Array;
  readonly rope?: RopeConfig;
  readonly qkNorm?: QkNormConfig;
  /** One more key and value of zeros that every query may attend, as in PyTorch's add_zero_attn. */
  readonly addZeroAttn?: boolean;
}

/** An AttentionConfig with every default filled in and every rule checked. Unbounded window sides are Infinity. */
export interface CheckedConfig {
  readonly dModel: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly valueDim: number;
  readonly kdim: number;
  readonly vdim: number;
  readonly causal: boolean;
  readonly window: { readonly left: number; readonly right: number };
  readonly scale: number;
  /** 0 = off. */
  readonly softcap: number;
  /** [numHeads], or undefined. */
  readonly slopes: Float32Array | undefined;
  readonly rope: (RopeConfig & { readonly dim: number }) | undefined;
  readonly qkNorm: Required<QkNormConfig> | undefined;
  readonly addZeroAttn: boolean;
}
