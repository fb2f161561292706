import { formatOf, isInteger } from "../linear/formats.ts";
import { joinLinears, type Linear, type LinearPlace, modesOf, placeLinears, storeLinear } from "../linear/linear.ts";
import { stagedFloats } from "../linear/pack.ts";
import type { StoredTensor } from "../tensor/dtypes.ts";
import { expectMatrix, type MatrixLayout } from "../tensor/matrix.ts";
import { describe, expectFields, expectFloats, expectOneOf } from "../util/errors.ts";
import { type F32Ptr, NULL, type NullPtr } from "../wasm/abi.ts";
import type { Kernels } from "../wasm/kernels.ts";
import { Layout, pointer } from "../wasm/memory.ts";
import { type CheckedConfig, checkSinks } from "./config.ts";
import { separateWeights } from "./split-qkv.ts";
import { type CheckedFormats, fillFormats, type LayerFormats } from "./weight-options.ts";
import { type AttentionWeights, WEIGHT_FIELDS } from "./weights.ts";

/** A product of a chunk's rows, and the first of the parts of a row that it gives. */
export interface Projection {
  readonly linear: Linear;
  readonly part: "q" | "k" | "v";
}

/** A layer's weights in linear memory, one block. */
export interface Layer {
  readonly at: number;
  readonly bytes: number;
  readonly formats: LayerFormats;
  /** How so many rows of integers are written and multiplied: `mode` of linear_q8. */
  readonly modeOf: (rows: number) => number;
  readonly q: readonly Projection[];
  readonly k: readonly Projection[];
  readonly v: readonly Projection[];
  /** Keys and values where they are projected from rows of the same length: one product if they have one format. */
  readonly kv: readonly Projection[] | undefined;
  /** All three, where queries come from rows of that length too. */
  readonly qkv: readonly Projection[] | undefined;
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
 * Where everything lies. It depends on the configuration and the formats alone (biases, sinks and extra keys have their
 * place whether they come or not), so that the bytes are known before there are weights.
 */
export function layerLayout(
  config: CheckedConfig,
  formats: LayerFormats,
  withWo = true,
): { places: Places; bytes: number } {
  const { dModel, numHeads, numKvHeads, headDim, valueDim, kdim, vdim } = config;
  const layout = new Layout();
  const [wq, wk, wv] = placeLinears(layout, [
    [numHeads * headDim, dModel, formats.q],
    [numKvHeads * headDim, kdim, formats.k],
    [numKvHeads * valueDim, vdim, formats.v],
  ]) as [LinearPlace, LinearPlace, LinearPlace];
  const [wo] = placeLinears(layout, withWo ? [[dModel, numHeads * valueDim, formats.o]] : []);
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
  const { places, bytes } = layerLayout(config, weights.formats, weights.wo !== undefined);
  // Finding the roads of integers takes memory for a moment, so it comes before anything is held.
  const modeOf = Object.values(weights.formats).some(isInteger) ? modesOf(kernels, weights.fast) : () => 0;
  const at = memory.allocate(where, bytes);
  let staging: number | undefined;
  try {
    staging = memory.allocate(where, 4 * Math.max(...linearPlaces(places).map(stagedFloats)));
    return { ...fillLayer(kernels, config, weights, at, places, staging), at, bytes, modeOf };
  } catch (error) {
    memory.free(at);
    throw error;
  } finally {
    if (staging !== undefined) memory.free(staging);
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
  staging: number,
): Omit<Layer, "at" | "bytes" | "modeOf"> {
  const linear = (place: LinearPlace, { w, bias }: CheckedLinear) =>
    storeLinear(kernels, at, place, w, weights.layout, bias, staging);
  const vector = (name: VectorName) => {
    const data = weights.vectors[name];
    if (!data) return NULL;
    kernels.memory.f32(at + places[name], data.length).set(data);
    return pointer.f32(at + places[name]);
  };
  const q = { linear: linear(places.wq, weights.wq), part: "q" } as const;
  const k = { linear: linear(places.wk, weights.wk), part: "k" } as const;
  const v = { linear: linear(places.wv, weights.wv), part: "v" } as const;
  const joinable = config.kdim === config.vdim;
  return {
    formats: weights.formats,
    q: [q],
    k: [k],
    v: [v],
    kv: joinable ? joinProjections([k, v]) : undefined,
    qkv: joinable && config.kdim === config.dModel ? joinProjections([q, k, v]) : undefined,
    wo: places.wo && weights.wo && linear(places.wo, weights.wo),
    qNorm: vector("qNorm") as F32Ptr,
    kNorm: vector("kNorm") as F32Ptr,
    slopes: vector("slopes"),
    sinks: vector("sinks"),
    extraKey: vector("extraKey"),
    extraValue: vector("extraValue"),
  };
}

/** Neighbours of one format as one product. */
function joinProjections(all: readonly Projection[]): Projection[] {
  const joined: Projection[] = [];
  for (const { linear, part } of all) {
    const last = joined.at(-1);
    if (last?.linear.format !== linear.format) joined.push({ linear, part });
    else joined[joined.length - 1] = { ...last, linear: joinLinears(last.linear, linear) };
  }
  return joined;
}

function normGains({ qkNorm, numHeads, numKvHeads, headDim }: CheckedConfig): { qNorm: number; kNorm: number } {
  if (!qkNorm) return { qNorm: 0, kNorm: 0 };
  if (qkNorm.kind === "per-head") return { qNorm: headDim, kNorm: headDim };
  return { qNorm: numHeads * headDim, kNorm: numKvHeads * headDim };
}

export interface CheckedLinear {
  readonly w: StoredTensor;
  readonly bias: Float32Array | undefined;
}

/** Weights that fit their configuration, wqkv taken apart. Without wo, the heads' outputs are not projected. */
export interface CheckedWeights extends Record<"wq" | "wk" | "wv", CheckedLinear> {
  readonly wo: CheckedLinear | undefined;
  readonly layout: MatrixLayout;
  readonly formats: LayerFormats;
  /** Activations of 7 bits rather than 14, where weights are integers. */
  readonly fast: boolean;
  readonly vectors: Record<VectorName, Float32Array | undefined>;
}

/** Checks every weight against the configuration; nothing is copied. */
export function checkWeights(
  where: string,
  config: CheckedConfig,
  given: AttentionWeights,
  { formats, fast }: CheckedFormats,
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
    const matrix = expectMatrix(where, `w${name}`, weights[`w${name}`], layout);
    expectShape(where, `w${name}`, matrix, layout === "out-in" ? [n, k] : [k, n]);
    return { w: matrix, bias: vector(`b${name}`, weights[`b${name}`], n) };
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
  const wq = linear("q", widths.q, dModel);
  const wk = linear("k", widths.k, kdim);
  const wv = linear("v", widths.v, vdim);
  const wo = linear("o", dModel, numHeads * valueDim);
  const stored = { q: formatOf(wq.w), k: formatOf(wk.w), v: formatOf(wv.w), o: formatOf(wo.w) };
  return {
    ...{ layout, wq, wk, wv, wo, fast },
    formats: fillFormats(formats, stored),
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

function expectShape(where: string, name: string, { shape }: StoredTensor, [rows, columns]: [number, number]): void {
  if (shape[0] !== rows || shape[1] !== columns)
    throw new RangeError(`${where}: ${name} expected shape [${rows}, ${columns}], got [${shape.join(", ")}]`);
}
