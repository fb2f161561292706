// What a recurrent layer consists of: a projection, a causal convolution, and a scan of heads or of channels, whose state takes the
// place of keys and values.

import { expectFloat32, expectInt } from "../../base/util/arguments.ts";
import { describe } from "../../base/util/errors.ts";

/**
 * A recurrent layer of `dModel` features. Without a scan it is a gated convolution: the projection gives rows B, C and x of dModel
 * channels each, and the layer's output is the projection of C · conv(B · x). With `scan` or `channels`, the convolution goes over the
 * projected rows that the scan reads.
 */
export interface RecurrentConfig {
  readonly dModel: number;
  /** Rows that an output of the convolution is made of, its own among them. 0: there is none. */
  readonly taps: number;
  readonly scan?: ScanConfig;
  readonly channels?: ChannelsConfig;
}

/**
 * A scan of channels, each with a state of its own, by `channel_scan_f32`; what it needs besides is projected of the convolved rows.
 * "selective" is that of Mamba: one projection gives the features of steps, keys and queries. "gated" is RG-LRU, without these.
 */
export interface ChannelsConfig {
  readonly kind: "selective" | "gated";
  readonly width: number;
  /** Numbers of a channel's state; 1 of gated ones. */
  readonly stateDim: number;
  /** Features that steps are projected of; 0 of gated ones, whose steps are projected of the rows themselves. */
  readonly stepRank: number;
  /** Epsilon of RMS norms of the features of steps, of keys and of queries; undefined: there are none. */
  readonly eps: number | undefined;
}

/**
 * Linear attention, row after row, in heads with a state S [keyDim, valueDim] each: S = decay · S + k · (write · w)ᵀ, where w is v,
 * or by the delta rule v - kᵀ S; its output is scale · qᵀ S + skip · v. Gated delta nets, Mamba-2 (whose B, C and x are keys,
 * queries and values) and linear attention with constant decays are such scans.
 */
export interface ScanConfig {
  readonly numHeads: number;
  /** Heads of queries and keys, each of which numHeads / numKeyHeads heads share. */
  readonly numKeyHeads: number;
  /** Heads take queries and keys by turns; false: those that share them follow each other. */
  readonly turns: boolean;
  readonly keyDim: number;
  readonly valueDim: number;
  /** The order of the channels that the projection gives: queries, keys and values, or values, keys and queries. */
  readonly order: "qkv" | "vkq";
  /** Whether a key's value replaces what the state holds for that key, instead of being added. */
  readonly delta: boolean;
  /** Decays are constants of heads, or computed from the row: one of each head, or of each component of its keys. */
  readonly decay: "constant" | "head" | "channel";
  /** What steps lie within, which determine decays: decay = exp(-rate · step). */
  readonly steps: readonly [low: number, high: number];
  /** Values are written times the step, times the sigmoid of a projection (twice it, if that is allowed), or as they are. */
  readonly write: "step" | "sigmoid" | "double-sigmoid" | "whole";
  /** Queries and keys are divided by their length, with this below the root; undefined: they are not. */
  readonly unitEps: number | undefined;
  readonly scale: number;
  /** Whether values are added to the outputs, times a number of each head. */
  readonly skip: boolean;
  /** What the outputs are multiplied by: an activation of one more projection. */
  readonly gate: "silu" | "sigmoid" | undefined;
  readonly norm: ScanNorm | undefined;
  /** Features between the two matrices of the gate's projection, and of that of steps; 0: each is one matrix. */
  readonly gateRank: number;
  readonly stepRank: number;
  /** What the projected gates and steps are multiplied by. */
  readonly gateScale: number;
  readonly stepScale: number;
}

/** RMS norm of a scan's outputs. */
export interface ScanNorm {
  readonly eps: number;
  /** Groups of outputs that are normalised by themselves. */
  readonly groups: number;
  /** Whether all groups have the same gains. */
  readonly shared: boolean;
  /** Whether the gate comes before it. */
  readonly gateFirst: boolean;
}

/** Sizes of a scan's rows, in floats. */
interface ScanSizes {
  /** Queries, or keys, of a row. */
  readonly keys: number;
  readonly values: number;
  /** What the convolution goes over. */
  readonly channels: number;
  /** Where queries, keys and values begin in a row. */
  readonly q: number;
  readonly k: number;
  readonly v: number;
  /** Decays of a row. */
  readonly decays: number;
  /** A state of all heads. */
  readonly state: number;
}

export function scanSizes({ numHeads, numKeyHeads, keyDim, valueDim, order, decay }: ScanConfig): ScanSizes {
  const [keys, values] = [numKeyHeads * keyDim, numHeads * valueDim];
  const [q, k, v] = order === "qkv" ? [0, keys, 2 * keys] : [values + keys, values, 0];
  return {
    ...{ keys, values, channels: 2 * keys + values, q, k, v },
    decays: decay === "channel" ? numHeads * keyDim : numHeads,
    state: numHeads * keyDim * 4 * Math.ceil(valueDim / 4),
  };
}

/** The channels that the convolution goes over: of a multiple of four, as rows of projections have. */
export function convChannels({ dModel, scan, channels }: RecurrentConfig): number {
  return 4 * Math.ceil((scan ? scanSizes(scan).channels : (channels?.width ?? dModel)) / 4);
}

/** Checks the numbers of a configuration, which are those of a file; whoever read that chose the words and flags. */
export function checkRecurrent(where: string, config: RecurrentConfig): RecurrentConfig {
  const { dModel, taps, scan, channels: own } = config;
  expectInt(where, "config.dModel", dModel);
  expectInt(where, "config.taps", taps, scan ? 0 : 1, 16);
  if (own) {
    for (const name of ["width", "stateDim"] as const) expectInt(where, `config.channels.${name}`, own[name]);
    expectInt(where, "config.channels.stepRank", own.stepRank, own.kind === "gated" ? 0 : 1);
    if (own.eps !== undefined) expectFloat32(where, "config.channels.eps", own.eps, true);
  }
  if (!scan) return config;
  const { numHeads, numKeyHeads, norm, unitEps } = scan;
  for (const name of ["numHeads", "numKeyHeads", "keyDim", "valueDim"] as const)
    expectInt(where, `config.scan.${name}`, scan[name]);
  if (numHeads % numKeyHeads !== 0)
    throw new RangeError(
      `${where}: config.scan.numKeyHeads expected a divisor of numHeads, ${numHeads}, got ${numKeyHeads}`,
    );
  for (const name of ["gateRank", "stepRank"] as const) expectInt(where, `config.scan.${name}`, scan[name], 0);
  for (const name of ["gateScale", "stepScale"] as const) expectFloat32(where, `config.scan.${name}`, scan[name]);
  expectFloat32(where, "config.scan.scale", scan.scale);
  const [low, high] = scan.steps;
  if (!(low >= 0 && low <= high))
    throw new RangeError(`${where}: config.scan.steps expected 0 <= low <= high, got ${describe(scan.steps)}`);
  if (unitEps !== undefined) expectFloat32(where, "config.scan.unitEps", unitEps, true);
  if (norm !== undefined) {
    expectFloat32(where, "config.scan.norm.eps", norm.eps, true);
    expectInt(where, "config.scan.norm.groups", norm.groups);
    const { values } = scanSizes(scan);
    if (values % norm.groups !== 0)
      throw new RangeError(
        `${where}: config.scan.norm.groups expected a divisor of numHeads · valueDim, ${values}, got ${norm.groups}`,
      );
  }
  return config;
}
