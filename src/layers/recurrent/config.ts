// What a recurrent layer consists of: a projection, a causal convolution, and a scan of heads or of channels, whose state takes the
// place of keys and values.

import type { StoredTensor } from "../../base/tensor/dtypes.ts";
import { expectFlag, expectFloat32, expectInt, expectOneOf, readFields } from "../../base/util/arguments.ts";
import { describe } from "../../base/util/errors.ts";
import { type F32Ptr, NULL, type NullPtr } from "../../wasm/abi.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { Layout, pointer } from "../../wasm/memory.ts";
import type { LinearSize, PackedFormat, PackedLinear } from "../linear/formats.ts";
import { type LinearPlace, modeOf, packBlock, placeLinears, storeLinear } from "../linear/products.ts";

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
  /** Groups of outputs that are normalised by themselves: a divisor of numHeads · valueDim. */
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

const FIELDS = ["dModel", "taps", "scan", "channels"] as const;
const CHANNEL_FIELDS = ["kind", "width", "stateDim", "stepRank", "eps"] as const;
const SCAN_FIELDS = [
  ...[
    "numHeads",
    "numKeyHeads",
    "turns",
    "keyDim",
    "valueDim",
    "order",
    "delta",
    "decay",
    "steps",
    "write",
    "unitEps",
    "scale",
  ],
  ...["skip", "gate", "norm", "gateRank", "stepRank", "gateScale", "stepScale"],
] as readonly (keyof ScanConfig)[];

/** Checks a configuration. */
export function checkRecurrent(where: string, given: RecurrentConfig): RecurrentConfig {
  const { dModel, taps, scan, channels } = readFields(where, "config", given, FIELDS);
  expectInt(where, "config.dModel", dModel);
  expectInt(where, "config.taps", taps, 0, 16);
  if (channels !== undefined) {
    const own = readFields(where, "config.channels", channels, CHANNEL_FIELDS);
    expectOneOf(where, "config.channels.kind", own.kind, ["selective", "gated"]);
    for (const name of ["width", "stateDim"] as const) expectInt(where, `config.channels.${name}`, own[name]);
    expectInt(where, "config.channels.stepRank", own.stepRank, own.kind === "gated" ? 0 : 1);
    if (own.eps !== undefined) expectFloat32(where, "config.channels.eps", own.eps, true);
    if (taps < 1) throw new RangeError(`${where}: config.taps expected 1 or more with config.channels, got 0`);
    return { dModel, taps, channels: own };
  }
  if (scan === undefined) {
    if (taps < 1) throw new RangeError(`${where}: config.taps expected 1 or more without config.scan, got 0`);
    return { dModel, taps };
  }
  const own = readFields(where, "config.scan", scan, SCAN_FIELDS);
  const { numHeads, numKeyHeads, norm, unitEps } = own;
  for (const name of ["numHeads", "numKeyHeads", "keyDim", "valueDim"] as const)
    expectInt(where, `config.scan.${name}`, own[name]);
  if (numHeads % numKeyHeads !== 0)
    throw new RangeError(
      `${where}: config.scan.numKeyHeads expected a divisor of numHeads, ${numHeads}, got ${numKeyHeads}`,
    );
  expectOneOf(where, "config.scan.order", own.order, ["qkv", "vkq"]);
  expectOneOf(where, "config.scan.decay", own.decay, ["constant", "head", "channel"]);
  expectOneOf(where, "config.scan.write", own.write, ["step", "sigmoid", "double-sigmoid", "whole"]);
  if (own.gate !== undefined) expectOneOf(where, "config.scan.gate", own.gate, ["silu", "sigmoid"]);
  if (own.write === "step" && own.decay !== "head")
    throw new RangeError(`${where}: config.scan.write expected none of "step" unless decays are of heads, got "step"`);
  for (const name of ["turns", "delta", "skip"] as const) expectFlag(where, `config.scan.${name}`, own[name]);
  for (const name of ["gateRank", "stepRank"] as const) expectInt(where, `config.scan.${name}`, own[name], 0);
  for (const name of ["gateScale", "stepScale"] as const) expectFloat32(where, `config.scan.${name}`, own[name]);
  expectFloat32(where, "config.scan.scale", own.scale);
  const [low, high] = own.steps;
  if (!(low >= 0 && low <= high))
    throw new RangeError(`${where}: config.scan.steps expected 0 <= low <= high, got ${describe(own.steps)}`);
  if (unitEps !== undefined) expectFloat32(where, "config.scan.unitEps", unitEps, true);
  if (norm !== undefined) {
    expectFloat32(where, "config.scan.norm.eps", norm.eps, true);
    expectInt(where, "config.scan.norm.groups", norm.groups);
    const { values } = scanSizes(own);
    if (values % norm.groups !== 0)
      throw new RangeError(
        `${where}: config.scan.norm.groups expected a divisor of numHeads · valueDim, ${values}, got ${norm.groups}`,
      );
  }
  return { dModel, taps, scan: own };
}

// The weights: their sizes, where they lie, and how they are packed.

/**
 * The matrices of a layer: "in" gives the rows B, C and x of a gated convolution, or what a scan reads; "step" and "gate" have another
 * one before them where they are of low rank; "write" gives what values are written times. "select" gives the features of steps, keys
 * and queries of a selective scan of channels.
 */
export const RECURRENT_MATRICES = ["in", "gateDown", "gate", "stepDown", "select", "step", "write", "out"] as const;
export type RecurrentMatrix = (typeof RECURRENT_MATRICES)[number];

/**
 * The vectors of a layer. Rates are of heads, also where each component of a key has a step; constant decays are rates. Of channels,
 * `rate` has the rates of each; `stepNorm`, `keyNorm` and `queryNorm` are gains.
 */
const RECURRENT_VECTORS = [
  "conv",
  "convBias",
  "stepBias",
  "rate",
  "skip",
  "norm",
  "stepNorm",
  "keyNorm",
  "queryNorm",
] as const;
export type RecurrentVector = (typeof RECURRENT_VECTORS)[number];

/** Outputs and inputs of the matrices that a layer has. */
export function recurrentSizes({
  dModel,
  scan,
  channels: own,
}: RecurrentConfig): Readonly<Partial<Record<RecurrentMatrix, LinearSize>>> {
  if (own) {
    const { width, stepRank, stateDim } = own;
    const isSelective = own.kind === "selective";
    return {
      ...{ in: { n: width, k: dModel }, gate: { n: width, k: dModel } },
      ...(isSelective && { select: { n: stepRank + 2 * stateDim, k: width } }),
      step: { n: width, k: isSelective ? stepRank : width },
      ...(!isSelective && { write: { n: width, k: width } }),
      out: { n: dModel, k: width },
    };
  }
  if (!scan) return { in: { n: 3 * dModel, k: dModel }, out: { n: dModel, k: dModel } };
  const { channels, values, decays } = scanSizes(scan);
  const { gate, gateRank, stepRank, decay, write, numHeads } = scan;
  return {
    in: { n: channels, k: dModel },
    ...(gate && gateRank > 0 && { gateDown: { n: gateRank, k: dModel } }),
    ...(gate && { gate: { n: values, k: gateRank || dModel } }),
    ...(decay !== "constant" && stepRank > 0 && { stepDown: { n: stepRank, k: dModel } }),
    ...(decay !== "constant" && { step: { n: decays, k: stepRank || dModel } }),
    ...(/sigmoid/.test(write) && { write: { n: numHeads, k: dModel } }),
    out: { n: dModel, k: values },
  };
}

/** The shapes of the vectors that a layer has: of `conv`, the taps of each channel. */
export function recurrentVectors(
  config: RecurrentConfig,
): Readonly<Partial<Record<RecurrentVector, readonly number[]>>> {
  const { dModel, taps, scan, channels: own } = config;
  const sizes = scan && scanSizes(scan);
  const channels = sizes ? sizes.channels : (own?.width ?? dModel);
  return {
    ...(taps > 0 && { conv: [channels, taps], convBias: [channels] }),
    ...(own && {
      rate: [own.width, own.stateDim],
      ...(own.kind === "selective" && { skip: [own.width] }),
      ...(own.eps !== undefined && { stepNorm: [own.stepRank], keyNorm: [own.stateDim], queryNorm: [own.stateDim] }),
    }),
    ...(scan &&
      sizes && {
        ...(scan.decay !== "constant" && { stepBias: [sizes.decays] }),
        rate: [scan.numHeads],
        ...(scan.skip && { skip: [scan.numHeads] }),
        ...(scan.norm && { norm: [scan.norm.shared ? sizes.values / scan.norm.groups : sizes.values] }),
      }),
  };
}

/** What a layer is packed of, of the shapes that `recurrentSizes` and `recurrentVectors` give. Biases may be absent. */
export interface RecurrentWeights {
  readonly matrices: Readonly<Partial<Record<RecurrentMatrix, StoredTensor>>>;
  readonly biases: Readonly<Partial<Record<RecurrentMatrix, Float32Array>>>;
  readonly vectors: Readonly<Partial<Record<RecurrentVector, Float32Array>>>;
}

/** Where a layer's weights lie in its block. */
interface RecurrentPlaces {
  readonly linears: ReadonlyMap<RecurrentMatrix, LinearPlace>;
  readonly vectors: ReadonlyMap<RecurrentVector | "unit", number>;
  readonly bytes: number;
}

/** The offsets of a layer's weights, which depend on the configuration and the formats only. */
export function recurrentLayout(
  config: RecurrentConfig,
  formatOf: (matrix: RecurrentMatrix) => PackedFormat,
): RecurrentPlaces {
  const layout = new Layout();
  const linears = new Map<RecurrentMatrix, LinearPlace>();
  for (const [name, size] of Object.entries(recurrentSizes(config)) as [RecurrentMatrix, LinearSize][])
    linears.set(name, placeLinears(layout, [{ ...size, format: formatOf(name) }])[0] as LinearPlace);
  const vectors = new Map<RecurrentVector | "unit", number>();
  for (const [name, length] of packedLengths(config)) vectors.set(name, layout.floats(length));
  return { linears, vectors, bytes: layout.bytes };
}

/** Vectors that are stored [channels, width] and packed [width, channels]: taps, and rates of the components of a channel's state. */
const isTurned = (name: RecurrentVector | "unit", { channels }: RecurrentConfig): boolean =>
  name === "conv" || (name === "rate" && channels !== undefined);

/** Floats of the vectors as kernels read them. */
function* packedLengths(config: RecurrentConfig): Generator<[RecurrentVector | "unit", number], void> {
  const { scan } = config;
  const channels = convChannels(config);
  for (const [name, [n, k = 1]] of Object.entries(recurrentVectors(config)) as [RecurrentVector, [number, number?]][]) {
    if (isTurned(name, config)) yield [name, k * channels];
    else if (name === "convBias" || (name === "skip" && config.channels)) yield [name, channels];
    else yield [name, name === "rate" && scan?.decay === "channel" ? scanSizes(scan).decays : n * k];
  }
  if (scan?.unitEps !== undefined) yield ["unit", scan.keyDim];
}

/** The vectors as kernels read them; zeros where they are not given. */
function* packedVectors(
  config: RecurrentConfig,
  given: RecurrentWeights["vectors"],
): Generator<[RecurrentVector | "unit", Float32Array], void> {
  const { scan } = config;
  const channels = convChannels(config);
  for (const [name, length] of packedLengths(config)) {
    const data = new Float32Array(length);
    const own = (name !== "unit" && given[name]) || new Float32Array();
    // The gain that makes a norm of mean squares divide by the length.
    if (name === "unit") data.fill(1 / Math.sqrt(length));
    else if (isTurned(name, config)) {
      // Channels are 0 up to a multiple of four.
      const width = length / channels;
      for (const [i, value] of own.entries()) data[(i % width) * channels + Math.floor(i / width)] = value;
    } else if (name === "rate" && scan?.decay === "channel")
      for (const [head, rate] of own.entries()) data.fill(rate, head * scan.keyDim, (head + 1) * scan.keyDim);
    else data.set(own);
    yield [name, data];
  }
}

/** A layer's weights in linear memory, in one block. */
export interface PackedRecurrent {
  readonly at: number;
  readonly bytes: number;
  readonly linears: Readonly<Partial<Record<RecurrentMatrix, PackedLinear>>> &
    Readonly<Record<"in" | "out", PackedLinear>>;
  readonly vectors: Readonly<Record<RecurrentVector | "unit", F32Ptr | NullPtr>>;
  /** `mode` of linear_q8. */
  readonly mode: number;
}

/** Packs weights into a new block. */
export function packRecurrent(
  where: string,
  kernels: Kernels,
  config: RecurrentConfig,
  { matrices, biases, vectors }: RecurrentWeights,
  { formatOf, fast }: { readonly formatOf: (matrix: RecurrentMatrix) => PackedFormat; readonly fast: boolean },
): PackedRecurrent {
  const places = recurrentLayout(config, formatOf);
  const formats = Array.from(places.linears.values(), ({ format }) => format);
  // Before the layer's own allocation, because this may allocate memory temporarily.
  const mode = modeOf(kernels, formats, fast);
  return packBlock(where, kernels, places.bytes, [...places.linears.values()], (at, staging) => {
    const linears = Array.from(places.linears, ([name, place]) => [
      name,
      storeLinear(kernels, at, place, matrices[name], "out-in", biases[name], staging),
    ]);
    const addresses = Object.fromEntries([...RECURRENT_VECTORS, "unit"].map((name) => [name, NULL as number]));
    for (const [name, data] of packedVectors(config, vectors)) {
      const to = at + (places.vectors.get(name) as number);
      kernels.memory.f32(to, data.length).set(data);
      addresses[name] = pointer.f32(to);
    }
    return { linears: Object.fromEntries(linears), vectors: addresses as PackedRecurrent["vectors"], mode };
  });
}
