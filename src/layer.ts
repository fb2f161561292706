import { type F32Ptr, NULL, type NullPtr } from "./abi.ts";
import { type CheckedConfig, checkSinks } from "./config.ts";
import { describe, expectFields, expectFloats, expectOneOf } from "./errors.ts";
import { separateWeights } from "./fused.ts";
import type { Kernels } from "./kernels.ts";
import { joinLinears, type Linear, type LinearPlace, placeLinears, stagedFloats, storeLinear } from "./linear.ts";
import { Layout, pointer } from "./memory.ts";
import type { MatrixLayout } from "./pack.ts";
import { expectTensor, type Tensor } from "./tensor.ts";
import { type AttentionWeights, WEIGHT_FIELDS } from "./weights.ts";

/** A layer's weights in linear memory, one block. */
export interface Layer {
  readonly at: number;
  readonly bytes: number;
  readonly wq: Linear;
  readonly wk: Linear;
  readonly wv: Linear;
  /** wk and wv as one, where keys and values are projected from rows of the same length. */
  readonly wkv: Linear | undefined;
  /** All three as one, where queries come from rows of that length too. */
  readonly wqkv: Linear | undefined;
  /** None in a layer that gives its heads' outputs as they are. */
  readonly wo: Linear | undefined;
  readonly qNorm: F32Ptr;
  readonly kNorm: F32Ptr;
  readonly slopes: F32Ptr | NullPtr;
  readonly sinks: F32Ptr | NullPtr;
  readonly extraKey: F32Ptr | NullPtr;
  readonly extraValue: F32Ptr | NullPtr;
}

type VectorName = "qNorm" | "kNorm" | "slopes" | "sinks" | "extraKey" | "extraValue";
type Places = Record<"wq" | "wk" | "wv", LinearPlace> & { wo: LinearPlace | undefined } & Record<VectorName, number>;

/**
 * Where everything lies. It depends on the configuration alone (biases, sinks and extra keys have their place whether
 * they come or not), so that the bytes are known before there are weights.
 */
export function layerLayout(config: CheckedConfig, withWo = true): { places: Places; bytes: number } {
  const { dModel, numHeads, numKvHeads, headDim, valueDim, kdim, vdim } = config;
  const layout = new Layout();
  const [wq, wk, wv] = placeLinears(layout, [
    [numHeads * headDim, dModel],
    [numKvHeads * headDim, kdim],
    [numKvHeads * valueDim, vdim],
  ]) as [LinearPlace, LinearPlace, LinearPlace];
  const [wo] = placeLinears(layout, withWo ? [[dModel, numHeads * valueDim]] : []);
  const gains = normGains(config);
  const places = {
    wq,
    wk,
    wv,
    wo,
    qNorm: layout.floats(gains.qNorm),
    kNorm: layout.floats(gains.kNorm),
    slopes: layout.floats(numHeads),
    sinks: layout.floats(numHeads),
    extraKey: layout.floats(numKvHeads * headDim),
    extraValue: layout.floats(numKvHeads * valueDim),
  };
  return { places, bytes: layout.bytes };
}

/** Packs weights into a new block. */
export function storeLayer(where: string, kernels: Kernels, config: CheckedConfig, weights: CheckedWeights): Layer {
  const { memory } = kernels;
  const { places, bytes } = layerLayout(config, weights.wo !== undefined);
  const at = memory.allocate(where, bytes);
  try {
    const staging = memory.allocate(where, 4 * Math.max(...linearPlaces(places).map(stagedFloats)));
    const layer = fillLayer(kernels, config, weights, at, places, bytes, staging);
    memory.free(staging);
    return layer;
  } catch (error) {
    memory.free(at);
    throw error;
  }
}

function linearPlaces({ wq, wk, wv, wo }: Places): LinearPlace[] {
  return wo ? [wq, wk, wv, wo] : [wq, wk, wv];
}

function fillLayer(
  kernels: Kernels,
  config: CheckedConfig,
  weights: CheckedWeights,
  at: number,
  places: Places,
  bytes: number,
  staging: number,
): Layer {
  const linear = (place: LinearPlace, { w, bias }: CheckedLinear) =>
    storeLinear(kernels, at, place, w, weights.layout, bias, staging);
  const vector = (name: VectorName) => {
    const data = weights.vectors[name];
    if (!data) return NULL;
    kernels.memory.f32(at + places[name], data.length).set(data);
    return pointer.f32(at + places[name]);
  };
  const wq = linear(places.wq, weights.wq);
  const wk = linear(places.wk, weights.wk);
  const wv = linear(places.wv, weights.wv);
  const joinable = config.kdim === config.vdim;
  return {
    at,
    bytes,
    wq,
    wk,
    wv,
    wkv: joinable ? joinLinears(wk, wv) : undefined,
    wqkv: joinable && config.kdim === config.dModel ? joinLinears(wq, wk, wv) : undefined,
    wo: places.wo && weights.wo && linear(places.wo, weights.wo),
    qNorm: vector("qNorm") as F32Ptr,
    kNorm: vector("kNorm") as F32Ptr,
    slopes: vector("slopes"),
    sinks: vector("sinks"),
    extraKey: vector("extraKey"),
    extraValue: vector("extraValue"),
  };
}

function normGains({ qkNorm, numHeads, numKvHeads, headDim }: CheckedConfig): { qNorm: number; kNorm: number } {
  if (!qkNorm) return { qNorm: 0, kNorm: 0 };
  if (qkNorm.kind === "per-head") return { qNorm: headDim, kNorm: headDim };
  return { qNorm: numHeads * headDim, kNorm: numKvHeads * headDim };
}

export interface CheckedLinear {
  readonly w: Float32Array;
  readonly bias: Float32Array | undefined;
}

/** Weights that fit their configuration, wqkv taken apart. Without wo, the heads' outputs are not projected. */
export interface CheckedWeights extends Record<"wq" | "wk" | "wv", CheckedLinear> {
  readonly wo: CheckedLinear | undefined;
  readonly layout: MatrixLayout;
  readonly vectors: Record<VectorName, Float32Array | undefined>;
}

/** Checks every weight against the configuration; nothing is copied. */
export function checkWeights(
  where: string,
  config: CheckedConfig,
  given: AttentionWeights,
): CheckedWeights & { readonly wo: CheckedLinear } {
  expectFields(where, "weights", given, WEIGHT_FIELDS);
  const { layout = "out-in" } = given;
  expectOneOf(where, "weights.layout", layout, ["out-in", "in-out"]);
  const { dModel, numHeads, numKvHeads, headDim, valueDim, kdim, vdim } = config;
  if (given.wqkv !== undefined && (kdim !== dModel || vdim !== dModel))
    throw new RangeError(`${where}: wqkv expected kdim and vdim equal to dModel (${dModel}), got ${kdim} and ${vdim}`);
  const widths = { q: numHeads * headDim, k: numKvHeads * headDim, v: numKvHeads * valueDim };
  const weights = separateWeights(where, "", given, layout, () => ({ ...widths, inputs: dModel }));

  const vector = (name: string, value: unknown, length: number): Float32Array | undefined => {
    if (value === undefined) return undefined;
    const data = expectFloats(where, name, value);
    if (data.length !== length) throw new RangeError(`${where}: ${name} expected ${length} floats, got ${data.length}`);
    return data;
  };
  const linear = (name: "q" | "k" | "v" | "o", n: number, k: number): CheckedLinear => {
    const matrix = expectTensor(where, `w${name}`, weights[`w${name}`], [2]);
    expectShape(where, `w${name}`, matrix, layout === "out-in" ? [n, k] : [k, n]);
    return { w: matrix.data, bias: vector(`b${name}`, weights[`b${name}`], n) };
  };
  const gains = normGains(config);
  const gain = (name: "qNorm" | "kNorm") => {
    if (!config.qkNorm && weights[name] !== undefined)
      throw new RangeError(`${where}: ${name} expected none without config.qkNorm, got ${describe(weights[name])}`);
    if (!config.qkNorm) return undefined;
    const data = vector(name, weights[name], gains[name]);
    if (!data)
      throw new RangeError(`${where}: ${name} expected ${gains[name]} floats for config.qkNorm, got undefined`);
    return config.qkNorm.onePlus ? data.map((w) => 1 + w) : data;
  };
  const extraKey = vector("biasK", weights.biasK, widths.k);
  const extraValue = vector("biasV", weights.biasV, widths.v);
  if ((extraKey === undefined) !== (extraValue === undefined))
    throw new RangeError(
      `${where}: biasK and biasV expected both or neither, got ${extraKey ? "biasK" : "biasV"} alone`,
    );
  return {
    layout,
    wq: linear("q", widths.q, dModel),
    wk: linear("k", widths.k, kdim),
    wv: linear("v", widths.v, vdim),
    wo: linear("o", dModel, numHeads * valueDim),
    vectors: {
      qNorm: gain("qNorm"),
      kNorm: gain("kNorm"),
      slopes: config.slopes,
      sinks:
        weights.sinkLogits === undefined ? undefined : checkSinks(where, "sinkLogits", weights.sinkLogits, numHeads),
      extraKey,
      extraValue,
    },
  };
}

function expectShape(where: string, name: string, { shape }: Tensor, [rows, columns]: [number, number]): void {
  if (shape[0] !== rows || shape[1] !== columns)
    throw new RangeError(`${where}: ${name} expected shape [${rows}, ${columns}], got [${shape.join(", ")}]`);
}
