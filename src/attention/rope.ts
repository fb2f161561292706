import { createFloats, type Tensor } from "../tensor/tensor.ts";
import {
  copyFields,
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
} from "../util/arguments.ts";
import { describe } from "../util/errors.ts";
import { cosine, sine } from "../util/math.ts";
import { MOST_DIM } from "./limits.ts";
import { type RopeScaling, ropeFrequencies } from "./rope-frequencies.ts";

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

/** Computes frequencies once, and tables whenever `fill` is called. `rope` is a result of `checkRope`. */
export function createRotary(rope: RopeWithDim): Rotary {
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
          sin[at] = sine(angle) * amplitude;
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
 * import { ropeTables } from "headwise/heads";
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
  const cos = { data: createFloats(where, "cos", shape[0] * shape[1]), shape };
  const sin = { data: createFloats(where, "sin", shape[0] * shape[1]), shape };
  createRotary(checked).fill(all, cos.data, sin.data);
  return { cos, sin };
}

const ROPE_FIELDS = ["theta", "pairing", "dim", "start", "scaling"];

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
    if (factors.length !== dim / 2)
      throw new RangeError(`${where}: ${name}.factors expected one per pair (${dim / 2}), got ${factors.length}`);
    for (const [i, factor] of factors.entries()) expectAtLeast(where, `${name}.factors[${i}]`, factor, 1);
    return { ...scaling, factors };
  }
  expectAtLeast(where, `${name}.factor`, scaling.factor, 1);
  if (kind === "ntk" && dim < 4)
    throw new RangeError(`${where}: rope.dim expected an even integer >= 4 for ntk scaling, got ${dim}`);
  if (scaling.kind === "llama3") {
    const { lowFreqFactor, highFreqFactor, originalMaxSeqLen } = scaling;
    expectFinite(where, `${name}.lowFreqFactor`, lowFreqFactor, true);
    if (!(expectFinite(where, `${name}.highFreqFactor`, highFreqFactor) > lowFreqFactor))
      throw new RangeError(
        `${where}: ${name}.highFreqFactor expected a finite number > lowFreqFactor (${lowFreqFactor}), got ${highFreqFactor}`,
      );
    expectInt(where, `${name}.originalMaxSeqLen`, originalMaxSeqLen);
  }
  if (scaling.kind === "yarn") {
    const { betaFast = 32, betaSlow = 1, mscale = 0, mscaleAllDim = 0 } = scaling;
    if (theta <= 1)
      throw new RangeError(`${where}: rope.theta expected a finite number > 1 for yarn scaling, got ${theta}`);
    expectInt(where, `${name}.originalMaxSeqLen`, scaling.originalMaxSeqLen);
    expectFinite(where, `${name}.betaSlow`, betaSlow, true);
    // Equal in Kimi K2: one step between the trained frequencies and the stretched ones.
    if (expectFinite(where, `${name}.betaFast`, betaFast) < betaSlow)
      throw new RangeError(
        `${where}: ${name}.betaFast expected a finite number >= betaSlow (${betaSlow}), got ${betaFast}`,
      );
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
