// The weights of a recurrent layer: their sizes, where they lie, and how they are packed.

import type { StoredTensor } from "../../base/tensor/dtypes.ts";
import { type F32Ptr, NULL, type NullPtr } from "../../wasm/abi.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { Layout, pointer } from "../../wasm/memory.ts";
import type { LinearSize, PackedFormat, PackedLinear } from "../linear/formats/format.ts";
import { type LinearPlace, modeOf, packBlock, placeLinears, storeLinear } from "../linear/products.ts";
import { convChannels, type RecurrentConfig, scanSizes } from "./config.ts";

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
