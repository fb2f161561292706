// The frequencies of RoPE with their scalings, as the model files that use them define them.

import { ln, pow } from "../util/math.ts";

/**
 * How RoPE frequencies are lowered for sequences beyond the trained length, by the formulas and names of the model files.
 * Rotations are those that a pair makes within the trained length, `originalMaxSeqLen` tokens.
 */
export type RopeScaling =
  | {
      /** Divides every frequency. */
      readonly kind: "linear";
      /** At least 1. */
      readonly factor: number;
    }
  | {
      /** Multiplies theta by factor^(dim/(dim - 2)). */
      readonly kind: "ntk";
      /** At least 1. */
      readonly factor: number;
    }
  | {
      /** Divides the frequency of each pair by a factor of its own, as GGUF files of Llama 3 and LongRoPE do. */
      readonly kind: "factors";
      /** One per pair, [dim/2], at least 1. */
      readonly factors: Float32Array;
      /** Factor on cos and sin, above 0, whose square, which scores take, float32 holds. Default 1. */
      readonly attentionFactor?: number;
    }
  | {
      /** Divides by `factor` up to `lowFreqFactor` rotations, by 1 from `highFreqFactor` on, and blends in between. */
      readonly kind: "llama3";
      /** At least 1. */
      readonly factor: number;
      /** Rotations, above 0. */
      readonly lowFreqFactor: number;
      /** Rotations, above lowFreqFactor. */
      readonly highFreqFactor: number;
      /** Trained length in tokens. */
      readonly originalMaxSeqLen: number;
    }
  | {
      /** YaRN: as "llama3" from `betaSlow` to `betaFast` rotations, blended by the index of the pair. */
      readonly kind: "yarn";
      /** At least 1. */
      readonly factor: number;
      /** Trained length in tokens. */
      readonly originalMaxSeqLen: number;
      /** Rotations from which a frequency is kept. Default 32. */
      readonly betaFast?: number;
      /** Rotations up to which a frequency is divided by `factor`. Default 1. */
      readonly betaSlow?: number;
      /** Factor on cos and sin. Default g(mscale) / g(mscaleAllDim), or g(1) unless both are above 0: see mscale. */
      readonly attentionFactor?: number;
      /** Scale s in g(s) = 0.1·s·ln(factor) + 1. Default 0. */
      readonly mscale?: number;
      /** The same in the divisor. Default 0. */
      readonly mscaleAllDim?: number;
      /** Round the bounds of the blended pairs to integers. Default true. */
      readonly truncate?: boolean;
    };

type Llama3Scaling = Extract<RopeScaling, { kind: "llama3" }>;
type YarnScaling = Extract<RopeScaling, { kind: "yarn" }>;

/** Radians per position for each pair, [dim/2] (at most 1), and the factor on cos and sin. */
export function ropeFrequencies(rope: {
  readonly theta: number;
  readonly dim: number;
  readonly scaling?: RopeScaling;
}): { inverse: Float64Array; amplitude: number } {
  const { theta, dim, scaling } = rope;
  const inverse = Float64Array.from({ length: dim / 2 }, (_, i) => pow(theta, (-2 * i) / dim));
  switch (scaling?.kind) {
    case undefined:
      return { inverse, amplitude: 1 };
    case "linear":
      return { inverse: inverse.map((f) => f / scaling.factor), amplitude: 1 };
    case "ntk":
      // (theta·factor^(dim/(dim - 2)))^(-2i/dim) as a product, so that a large base cannot overflow.
      return { inverse: inverse.map((f, i) => f * pow(scaling.factor, (-2 * i) / (dim - 2))), amplitude: 1 };
    case "factors":
      return {
        inverse: inverse.map((f, i) => f / (scaling.factors[i] as number)),
        amplitude: scaling.attentionFactor ?? 1,
      };
    case "llama3":
      return { inverse: inverse.map((f) => stretch(f, scaling.factor, llama3Keeps(f, scaling))), amplitude: 1 };
    case "yarn": {
      const [low, high] = yarnRamp(theta, dim, scaling);
      const keeps = (i: number) => 1 - clamp((i - low) / (high - low), 0, 1);
      return {
        inverse: inverse.map((f, i) => stretch(f, scaling.factor, keeps(i))),
        amplitude: yarnAmplitude(scaling),
      };
    }
  }
}

/** Interpolates between the stretched frequency (keeps = 0) and the trained one (keeps = 1). */
function stretch(frequency: number, factor: number, keeps: number): number {
  return (1 - keeps) * (frequency / factor) + keeps * frequency;
}

/**
 * How much of the trained frequency a pair keeps, from its rotations within the trained length: 1 from highFreqFactor
 * rotations on, 0 up to lowFreqFactor.
 */
function llama3Keeps(frequency: number, scaling: Llama3Scaling): number {
  const { lowFreqFactor, highFreqFactor, originalMaxSeqLen } = scaling;
  const rotations = (originalMaxSeqLen * frequency) / (2 * Math.PI);
  return clamp((rotations - lowFreqFactor) / (highFreqFactor - lowFreqFactor), 0, 1);
}

/** The pairs between which frequencies change from trained to stretched: those with betaFast and betaSlow rotations. */
function yarnRamp(theta: number, dim: number, scaling: YarnScaling): [low: number, high: number] {
  const { originalMaxSeqLen, betaFast = 32, betaSlow = 1, truncate = true } = scaling;
  // theta^(-2i/dim)·originalMaxSeqLen = 2pi·rotations, solved for i.
  const pairOf = (rotations: number) => (dim * ln(originalMaxSeqLen / (rotations * 2 * Math.PI))) / (2 * ln(theta));
  const [first, last] = [pairOf(betaFast), pairOf(betaSlow)];
  const low = Math.max(truncate ? Math.floor(first) : first, 0);
  const high = Math.min(truncate ? Math.ceil(last) : last, dim - 1);
  // Models are trained with these bounds, and with this step if they are equal, even if the length is so short that
  // they cross.
  return [low, low === high ? high + 0.001 : high];
}

function yarnAmplitude({ factor, attentionFactor, mscale, mscaleAllDim }: YarnScaling): number {
  if (attentionFactor !== undefined) return attentionFactor;
  const grown = (scale: number) => 0.1 * scale * ln(factor) + 1;
  // If either is missing or 0, the default applies, as model files expect.
  return mscale && mscaleAllDim ? grown(mscale) / grown(mscaleAllDim) : grown(1);
}

function clamp(x: number, min: number, max: number): number {
  return Math.min(Math.max(x, min), max);
}
