// Rotary position embeddings (RoPE): configuration, frequencies with their scalings, tables.

import { createFloats, type Tensor } from "../../base/tensor/tensor.ts";
import {
  copyFields,
  expectEach,
  expectFields,
  expectFinite,
  expectFlag,
  expectFloat32,
  expectFloats,
  expectInt,
  expectOneOf,
  expectRecord,
  readFields,
  readList,
  wrongValue,
} from "../../base/util/arguments.ts";
import { describe } from "../../base/util/errors.ts";
import { cosine, ln, pow, sine } from "../../base/util/math.ts";
import type { RowRun } from "../../base/util/rows.ts";
import { RopeShape } from "../../wasm/abi.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { pointer } from "../../wasm/memory.ts";

/** The most components of a head that RoPE rotates. */
const MOST_DIM = 2 ** 16;

/** Rotary position embedding of queries and keys. */
export interface RopeConfig {
  /** Base of the frequencies theta^(-2i/dim), at least 1; models have 10 000, 500 000 and others. */
  readonly theta: number;
  /** Which components form a pair: "half" (x[i], x[i + dim/2]), "interleaved" (x[2i], x[2i + 1]). */
  readonly pairing: "half" | "interleaved";
  /** How many components of a head rotate: even. Default all from `start` on. */
  readonly dim?: number;
  /** The first component of a head that rotates; start + dim is at most headDim. Default 0. */
  readonly start?: number;
  /** Scaling for sequences beyond the trained length. Default none. */
  readonly scaling?: RopeScaling;
}

/** A RopeConfig with `dim`. */
export type RopeWithDim = RopeConfig & {
  /** How many components of a head rotate: even. */
  readonly dim: number;
};

/** The fields of each kind of scaling besides `kind`. */
const SCALINGS = {
  linear: ["factor"],
  ntk: ["factor"],
  llama3: ["factor", "lowFreqFactor", "highFreqFactor", "originalMaxSeqLen"],
  yarn: [
    "factor",
    "originalMaxSeqLen",
    "betaFast",
    "betaSlow",
    "attentionFactor",
    "mscale",
    "mscaleAllDim",
    "truncate",
  ],
  factors: ["factors", "attentionFactor"],
} as const;
export const PAIRINGS = ["half", "interleaved"] as const;

/** Computes the tables of one RopeConfig for any positions. */
export interface Rotary {
  readonly dim: number;
  /** The first rotated component. */
  readonly start: number;
  readonly pairing: RopeConfig["pairing"];
  /** Writes cos and sin [positions.length, dim/2] of integer positions from 0 to 2^31 - 1. */
  readonly fill: (positions: ArrayLike<number>, cos: Float32Array, sin: Float32Array) => void;
}

/**
 * Computes frequencies once, and tables whenever `fill` is called. `rope` is a result of `checkRope`; `backwards` for angles that are
 * their negatives.
 */
export function createRotary(rope: RopeWithDim, backwards = false): Rotary {
  const { dim, start = 0, pairing } = rope;
  const { inverse, amplitude } = ropeFrequencies(rope);
  return {
    dim,
    start,
    pairing,
    fill(positions, cos, sin) {
      for (let t = 0, at = 0; t < positions.length; t++)
        for (let i = 0; i < inverse.length; i++, at++) {
          const angle = (positions[t] as number) * (inverse[i] as number);
          cos[at] = cosine(angle) * amplitude;
          sin[at] = sine(backwards ? -angle : angle) * amplitude;
        }
    },
  };
}

/**
 * Tables of cosines and sines for `applyRope`. Angles are computed in float64: an entry is within
 * amplitude·(2^-24 + position·2^-50) of the exact value, where 2^-24 is the rounding to float32, and the amplitude is 1
 * except for "yarn".
 * @param positions Integers from 0 to 2^31 - 1, in any order.
 * @throws TypeError or RangeError naming the field or the position. HeadwiseError `OUT_OF_MEMORY`.
 * @example
 * import { ropeTables } from "headwise";
 * const { cos, sin } = ropeTables({ theta: 10_000, pairing: "half", dim: 4 }, [0, 1]);
 * console.log(cos.shape, cos.data[2]?.toFixed(4), sin.data[2]?.toFixed(4)); // [ 2, 2 ] 0.5403 0.8415: of 1 rad
 */
export function ropeTables(
  rope: RopeWithDim,
  positions: ArrayLike<number>,
): {
  /** Cosines [positions.length, dim/2]. */
  cos: Tensor;
  /** Sines, of the same shape. */
  sin: Tensor;
} {
  const where = "ropeTables";
  const given = readFields(where, "rope", rope, ROPE_FIELDS);
  const checked = checkRope(where, given, expectInt(where, "rope.dim", given.dim, 2, MOST_DIM));
  const all = readList(where, "positions", positions, Infinity, (position, t) =>
    expectInt(where, `positions[${t}]`, position, 0),
  );
  const shape = [all.length, checked.dim / 2] as const;
  const table = (name: string) => ({ data: createFloats(where, name, shape[0] * shape[1]), shape });
  const [cos, sin] = [table("cos"), table("sin")];
  createRotary(checked).fill(all, cos.data, sin.data);
  return { cos, sin };
}

const ROPE_FIELDS = ["theta", "pairing", "dim", "start", "scaling"] as const;

/** Checks every rule. Returns a copy of `rope` with `dim` filled in (default headDim - start). */
export function checkRope(where: string, given: RopeConfig, headDim: number): RopeWithDim {
  const rope = readFields(where, "rope", given, ROPE_FIELDS);
  // Below 1 a pair would rotate by more than a radian per position, and angles would have no bound.
  const theta = expectAtLeast(where, "rope.theta", expectFinite(where, "rope.theta", rope.theta, true), 1);
  const start = rope.start === undefined ? 0 : expectInt(where, "rope.start", rope.start, 0, headDim - 2);
  const { pairing, dim = headDim - start } = rope;
  if (!PAIRINGS.includes(pairing))
    throw new RangeError(
      `${where}: rope.pairing expected "half" or "interleaved" (no default), got ${describe(pairing)}`,
    );
  const room = headDim - start;
  if (!Number.isInteger(dim) || dim < 2 || dim > Math.min(room, MOST_DIM) || dim % 2 !== 0) {
    const most = room > MOST_DIM ? MOST_DIM : `${start === 0 ? "headDim" : "headDim - start"} (${room})`;
    throw wrongValue(where, "rope.dim", `an even integer from 2 to ${most}`, dim);
  }
  const scaling = rope.scaling === undefined ? undefined : checkScaling(where, rope.scaling, theta, dim);
  const checked = { theta, pairing, dim, ...(start > 0 && { start }), ...(scaling && { scaling }) };
  // Whatever the numbers of a scaling are, tables must hold what is finite.
  const { inverse, amplitude } = ropeFrequencies(checked);
  // That on cos and sin is on queries and keys.
  expectFloat32(where, "rope.scaling: the factor on scores", amplitude * amplitude, true);
  for (const frequency of inverse) expectFinite(where, "rope.scaling: each frequency", frequency);
  return checked;
}

function checkScaling(where: string, given: RopeScaling, theta: number, dim: number): RopeScaling {
  const name = "rope.scaling";
  expectRecord(where, name, given);
  const kind = expectOneOf(where, `${name}.kind`, given.kind, Object.keys(SCALINGS) as (keyof typeof SCALINGS)[]);
  expectFields(where, name, given, ["kind", ...SCALINGS[kind]]);
  const scaling = { kind, ...copyFields(given, SCALINGS[kind]) } as RopeScaling;
  const { attentionFactor } = scaling as { readonly attentionFactor?: number };
  if (attentionFactor !== undefined) expectFinite(where, `${name}.attentionFactor`, attentionFactor, true);
  if (scaling.kind === "factors") {
    const factors = expectFloats(where, `${name}.factors`, scaling.factors).slice();
    expectEach(where, `${name}.factors`, factors, dim / 2, "one per pair");
    for (const [i, factor] of factors.entries()) expectAtLeast(where, `${name}.factors[${i}]`, factor, 1);
    return { ...scaling, factors };
  }
  expectAtLeast(where, `${name}.factor`, scaling.factor, 1);
  if (kind === "ntk" && dim < 4) throw wrongValue(where, "rope.dim", "an even integer >= 4 for ntk scaling", dim);
  if (scaling.kind === "llama3") {
    const { lowFreqFactor, highFreqFactor, originalMaxSeqLen } = scaling;
    expectFinite(where, `${name}.lowFreqFactor`, lowFreqFactor, true);
    const high = `${name}.highFreqFactor`;
    if (!(expectFinite(where, high, highFreqFactor) > lowFreqFactor))
      throw wrongValue(where, high, `a finite number > lowFreqFactor (${lowFreqFactor})`, highFreqFactor);
    expectInt(where, `${name}.originalMaxSeqLen`, originalMaxSeqLen);
  }
  if (scaling.kind === "yarn") {
    const { betaFast = 32, betaSlow = 1, mscale = 0, mscaleAllDim = 0 } = scaling;
    if (theta <= 1) throw wrongValue(where, "rope.theta", "a finite number > 1 for yarn scaling", theta);
    expectInt(where, `${name}.originalMaxSeqLen`, scaling.originalMaxSeqLen);
    expectFinite(where, `${name}.betaSlow`, betaSlow, true);
    // Equal in Kimi K2: one step between the trained frequencies and the stretched ones.
    const fast = `${name}.betaFast`;
    if (expectFinite(where, fast, betaFast) < betaSlow)
      throw wrongValue(where, fast, `a finite number >= betaSlow (${betaSlow})`, betaFast);
    expectAtLeast(where, `${name}.mscale`, mscale, 0);
    expectAtLeast(where, `${name}.mscaleAllDim`, mscaleAllDim, 0);
    expectFlag(where, `${name}.truncate`, scaling.truncate);
  }
  return scaling;
}

function expectAtLeast(where: string, name: string, value: unknown, min: number): number {
  if (typeof value === "number" && value >= min && value < Infinity) return value;
  throw wrongValue(where, name, `a finite number >= ${min}`, value);
}

// The frequencies of RoPE with their scalings, as the model files that use them define them.

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

// RoPE on rows in linear memory.

/** A layer, and the offsets of what its rotations need in the scratch at `base`. */
interface RotaryWork {
  readonly attention: { readonly kernels: Kernels; readonly rotary: Rotary | undefined };
  readonly places: {
    /** [rows, rope.dim / 2] each. */
    readonly cos: number;
    readonly sin: number;
    /** What describes heads to the kernel that rotates them. */
    readonly ropeShape: number;
  };
  readonly base: number;
}

/** Writes cos and sin for the positions of the runs. */
export function fillTables<Of>(
  {
    attention: { kernels, rotary },
    places,
    base,
  }: Omit<RotaryWork, "places"> & { readonly places: Pick<RotaryWork["places"], "cos" | "sin"> },
  runs: readonly RowRun<Of>[],
  positionsOf: (of: Of) => Int32Array,
): void {
  if (!rotary) return;
  const half = rotary.dim / 2;
  for (const { of, begin, end, at } of runs) {
    const table = (place: number) => kernels.memory.f32(base + place + 4 * at * half, (end - begin) * half);
    rotary.fill(positionsOf(of).subarray(begin, end), table(places.cos), table(places.sin));
  }
}

/** Rotates `heads` heads of each row by these tables, in place; the first rotated component of the first lies at `x`. */
export function rotateHeads(
  { attention: { kernels, rotary }, places, base }: RotaryWork,
  x: number,
  heads: number,
  headDim: number,
  stride: number,
  rows: number,
): void {
  if (!rotary) return;
  const shape = pointer.ropeShape(base + places.ropeShape);
  RopeShape.store(kernels.memory.view(), shape, {
    numHeads: heads,
    headDim,
    ropeDim: rotary.dim,
    interleaved: rotary.pairing === "interleaved" ? 1 : 0,
    stride,
  });
  const [cos, sin] = [pointer.f32(base + places.cos), pointer.f32(base + places.sin)];
  kernels.table.rope_f32(pointer.f32(x), cos, sin, shape, 0, rows);
}
