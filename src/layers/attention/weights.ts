// The weights of a layer of attention: their forms, sizes, options and checks.

import { expectShape } from "../../base/tensor/dtypes.ts";
import {
  cutOutputs,
  expectLayout,
  expectMatrix,
  type MatrixLayout,
  readMatrix,
  toTensor,
  type WeightTensor,
} from "../../base/tensor/matrix.ts";
import { expectNone, readFields } from "../../base/util/arguments.ts";
import { type F32Ptr, NULL, type NullPtr } from "../../wasm/abi.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { Layout, pointer } from "../../wasm/memory.ts";
import {
  type CheckedLinear,
  eachOf,
  expectActivations,
  expectFormatLoaded,
  expectFormats,
  expectVector,
  formatOf,
  type LinearSize,
  type PackedFormat,
  type PackedLinear,
  type WeightFormat,
} from "../linear/formats.ts";
import { joinLinears, type LinearPlace, modeOf, packBlock, placeLinears, storeLinear } from "../linear/products.ts";
import { type CheckedConfig, checkSinks } from "./config.ts";

// The matrices and vectors of an attention layer, by name, with their sizes. Code that checks, packs, places or counts
// them uses these lists.

/** The matrices in the order of their panels in memory: those that may be one product are adjacent. */
export const PROJECTIONS = ["q", "k", "v", "o"] as const;
export type ProjectionName = (typeof PROJECTIONS)[number];

/**
 * A value for each matrix of a layer. Without `k` and `v`, its queries attend to keys of another layer; without `o`, its outputs are
 * those of its heads.
 */
interface Projections<T> {
  readonly q: T;
  readonly k: T | undefined;
  readonly v: T | undefined;
  readonly o: T | undefined;
}

/** Outputs and inputs of each matrix. */
export function projectionSizes(config: CheckedConfig): Readonly<Record<ProjectionName, LinearSize>> {
  const { dModel, kdim, vdim, numHeads, numKvHeads, headDim, valueDim } = config;
  return {
    q: { n: numHeads * headDim, k: dModel },
    k: { n: numKvHeads * headDim, k: kdim },
    v: { n: numKvHeads * valueDim, k: vdim },
    o: { n: dModel, k: numHeads * valueDim },
  };
}

/** The vectors besides biases. */
export type VectorName = "qNorm" | "kNorm" | "slopes" | "sinks" | "extraKey" | "extraValue";

/** Floats of each vector; 0 if a layer of this configuration has none. */
export function vectorSizes(config: CheckedConfig): Readonly<Record<VectorName, number>> {
  const { qkNorm, numHeads, numKvHeads, headDim, valueDim } = config;
  const gains = (heads: number) => (qkNorm ? (qkNorm.kind === "per-head" ? headDim : heads * headDim) : 0);
  return {
    qNorm: gains(numHeads),
    kNorm: gains(numKvHeads),
    slopes: numHeads,
    sinks: numHeads,
    extraKey: numKvHeads * headDim,
    extraValue: numKvHeads * valueDim,
  };
}

/** The weights of a layer that do not depend on how queries, keys and values are stored. */
export interface CommonWeights<Matrix extends WeightTensor = WeightTensor> {
  /** Output projection [dModel, numHeads·valueDim]. */
  readonly wo: Matrix;
  /** Bias of wo, [dModel]. */
  readonly bo?: Float32Array;
  /** Gain of the RMS norm of queries: [headDim], or [numHeads·headDim] for the kind "full". */
  readonly qNorm?: Float32Array;
  /** Gain of the RMS norm of keys: [headDim], or [numKvHeads·headDim] for the kind "full". */
  readonly kNorm?: Float32Array;
  /** Attention sinks: one logit per head, [numHeads], that is part of the softmax's denominator and has no value. */
  readonly sinkLogits?: Float32Array;
  /** One more key [numKvHeads·headDim] that every query may attend, as PyTorch's add_bias_kv. Only together with biasV. */
  readonly biasK?: Float32Array;
  /** The value of that key, [numKvHeads·valueDim]. */
  readonly biasV?: Float32Array;
  /** Whether rows of a matrix are outputs ("out-in", the default) or inputs ("in-out"). */
  readonly layout?: MatrixLayout;
}

/** Weights whose queries, keys and values are projected by matrices of their own. */
export interface SeparateWeights<Matrix extends WeightTensor = WeightTensor> extends CommonWeights<Matrix> {
  /** Query projection [numHeads·headDim, dModel]. */
  readonly wq: Matrix;
  /** Key projection [numKvHeads·headDim, kdim]. */
  readonly wk: Matrix;
  /** Value projection [numKvHeads·valueDim, vdim]. */
  readonly wv: Matrix;
  /** Bias of wq, [numHeads·headDim]. */
  readonly bq?: Float32Array;
  /** Bias of wk, [numKvHeads·headDim]. */
  readonly bk?: Float32Array;
  /** Bias of wv, [numKvHeads·valueDim]. */
  readonly bv?: Float32Array;
  /** Not with wq, wk and wv. */
  readonly wqkv?: undefined;
  /** Not with wq, wk and wv. */
  readonly bqkv?: undefined;
}

/** Weights whose queries, keys and values are projected by one matrix. */
export interface FusedWeights<Matrix extends WeightTensor = WeightTensor> extends CommonWeights<Matrix> {
  /** The rows of wq, then wk, then wv: [(numHeads + numKvHeads)·headDim + numKvHeads·valueDim, dModel]. */
  readonly wqkv: Matrix;
  /** Bias of wqkv: bq, then bk, then bv. */
  readonly bqkv?: Float32Array;
  /** Not with wqkv. */
  readonly wq?: undefined;
  /** Not with wqkv. */
  readonly wk?: undefined;
  /** Not with wqkv. */
  readonly wv?: undefined;
  /** Not with wqkv. */
  readonly bq?: undefined;
  /** Not with wqkv. */
  readonly bk?: undefined;
  /** Not with wqkv. */
  readonly bv?: undefined;
}

/**
 * The weights of one attention layer: either `wq`, `wk` and `wv`, or the fused `wqkv`. Fields of what the layer does not have
 * are undefined. A matrix is a `Tensor`, or a stored tensor of F32, F64, F16, BF16, Q8_0 or Q4_0. Shapes are for the layout
 * "out-in"; with "in-out" every matrix is transposed, and Q8_0 and Q4_0 are not allowed.
 */
export type AttentionWeights<Matrix extends WeightTensor = WeightTensor> =
  | SeparateWeights<Matrix>
  | FusedWeights<Matrix>;

/** Every field of AttentionWeights. */
export const WEIGHT_FIELDS = [
  "wq",
  "wk",
  "wv",
  "wqkv",
  "wo",
  "bq",
  "bk",
  "bv",
  "bqkv",
  "bo",
  "qNorm",
  "kNorm",
  "sinkLogits",
  "biasK",
  "biasV",
  "layout",
] as const;

/** The format of the query, key, value and output projection of a layer. */
export type LayerFormats = Readonly<Record<"q" | "k" | "v" | "o", PackedFormat>>;

/** The formats of a layer's weights, and of the activations that integer weights are multiplied with. */
export interface WeightOptions {
  /**
   * One format for all matrices, or one for each. Default the format that a matrix is stored in: "f32" for a `Tensor` and
   * for F32 and F64, "f16" for F16, "bf16" for BF16, "q8" for Q8_0, "q4" for Q4_0. Kernels without `quantized` widen F16 and
   * BF16 to "f32": twice the memory, and the same bits, because every float16 and bfloat16 is a float32. Converting to another
   * format rounds to nearest; "f16" makes an infinity of a weight beyond 65504.
   */
  readonly weights?: WeightFormat | Partial<Readonly<Record<ProjectionName, WeightFormat>>>;
  /**
   * How rows are quantised before they are multiplied with integer weights: "exact" to 14 bits of the largest value of the
   * row, "fast" to 7 of the range of a block of inputs, or to 8 beside weights of 4 bits. docs/numerics.md states the errors. Both keep
   * the same bits in prefill, decode and any batch. Default "exact".
   */
  readonly activations?: "exact" | "fast";
}

/** Fields of WeightOptions. */
export const WEIGHT_OPTIONS = ["weights", "activations"] as const;

/** Checked WeightOptions. */
interface CheckedWeightOptions {
  /** The requested formats. */
  readonly formats: Partial<LayerFormats>;
  readonly fast: boolean;
}

/**
 * Checks the fields of WeightOptions, each of which is read once; callers check for unknown fields. `path` is the prefix of
 * names in errors.
 */
export function checkWeightOptions(
  where: string,
  path: string,
  { weights, activations }: WeightOptions,
): CheckedWeightOptions {
  const fast = expectActivations(where, `${path}activations`, activations);
  return { formats: expectFormats(where, `${path}weights`, weights, PROJECTIONS), fast };
}

/** `expectFormatLoaded` for each format of a layer. */
export function expectFormatsLoaded(where: string, quantized: boolean, formats: LayerFormats, loader?: string): void {
  for (const [part, format] of Object.entries(formats))
    expectFormatLoaded(where, quantized, `w${part}`, format, loader);
}

/** Outputs of q, k and v, and the length of the rows that all three project. */
interface FusedSizes {
  readonly q: number;
  readonly k: number;
  readonly v: number;
  readonly inputs: number;
}

/**
 * Weights with separate wq, wk and wv: unchanged, or with wqkv (outputs of q, then k, then v) and bqkv split. Parts are
 * views where they are contiguous, else copies.
 * @param prefix The beginning of names in errors.
 * @param sizesOf The expected sizes, given those of the matrix.
 */
export function separateWeights(
  where: string,
  prefix: string,
  weights: AttentionWeights,
  layout: MatrixLayout,
  sizesOf: (outputs: number, inputs: number) => FusedSizes,
): SeparateWeights {
  const { wqkv, bqkv, ...rest } = weights;
  if (wqkv === undefined) {
    expectNone(where, `${prefix}bqkv`, bqkv, "without wqkv");
    return weights as SeparateWeights;
  }
  for (const name of ["wq", "wk", "wv", "bq", "bk", "bv"] as const)
    expectNone(where, prefix + name, rest[name], "beside wqkv");
  const matrix = expectMatrix(where, `${prefix}wqkv`, wqkv, layout);
  const [rows, columns] = matrix.shape as [number, number];
  const outIn = layout === "out-in";
  const { q, k, v, inputs } = outIn ? sizesOf(rows, columns) : sizesOf(columns, rows);
  const total = q + k + v;
  expectShape(where, `${prefix}wqkv`, matrix.shape, outIn ? [total, inputs] : [inputs, total]);
  const bias = expectVector(where, `${prefix}bqkv`, bqkv, total);

  const part = (begin: number, width: number): WeightTensor => {
    const cut = cutOutputs(matrix, layout, begin, begin + width);
    return "dtype" in wqkv ? cut : toTensor(cut);
  };
  return {
    ...rest,
    wq: part(0, q),
    wk: part(q, k),
    wv: part(q + k, v),
    bq: bias?.subarray(0, q),
    bk: bias?.subarray(q, q + k),
    bv: bias?.subarray(q + k),
  };
}

/** Weights that fit the configuration, wqkv split into wq, wk and wv. */
export interface CheckedWeights {
  readonly linears: Projections<CheckedLinear>;
  readonly layout: MatrixLayout;
  readonly formats: LayerFormats;
  /** Whether activations have 7 or 8 bits instead of 14 where weights are integers. */
  readonly fast: boolean;
  /** Whether what matrices multiply is rounded to 8 bits before: of whole models alone. */
  readonly rounded?: boolean | undefined;
  readonly vectors: Record<VectorName, Float32Array | undefined>;
}

/** A copy of the weights' fields and of those of each matrix, each read once. Nothing is checked but what is read. */
function readWeights(where: string, weights: AttentionWeights): AttentionWeights {
  // One type of both forms: which fields stand beside each other is checked later.
  const read: { -readonly [Name in (typeof WEIGHT_FIELDS)[number]]?: AttentionWeights[Name] } = readFields(
    where,
    "weights",
    weights,
    WEIGHT_FIELDS,
  );
  for (const name of ["wq", "wk", "wv", "wqkv", "wo"] as const)
    if (read[name] !== undefined) read[name] = readMatrix(where, name, read[name]);
  return read as AttentionWeights;
}

/**
 * Checks every weight against the configuration, and formats against the kernels, which support others than float32 if
 * `quantized`. Nothing is copied. All is read before anything is checked, because reading may run code of the caller's. `own` are the
 * matrices that the layer has.
 */
export function checkWeights(
  where: string,
  config: CheckedConfig,
  all: AttentionWeights,
  { formats, fast }: CheckedWeightOptions,
  quantized: boolean,
  own: readonly ProjectionName[] = PROJECTIONS,
): CheckedWeights {
  const given = readWeights(where, all);
  const layout = expectLayout(where, given.layout);
  const { dModel, kdim, vdim } = config;
  if (given.wqkv !== undefined && (kdim !== dModel || vdim !== dModel))
    throw new RangeError(`${where}: wqkv expected kdim and vdim equal to dModel (${dModel}), got ${kdim} and ${vdim}`);
  const sizes = projectionSizes(config);
  const widths = { q: sizes.q.n, k: sizes.k.n, v: sizes.v.n, inputs: dModel };
  const weights = separateWeights(where, "", given, layout, () => widths);

  const vector = (name: string, value: unknown, length: number) => expectVector(where, name, value, length);
  const linear = (name: ProjectionName): CheckedLinear => {
    const { n, k } = sizes[name];
    const matrix = expectMatrix(where, `w${name}`, weights[`w${name}`], layout);
    expectShape(where, `w${name}`, matrix.shape, layout === "out-in" ? [n, k] : [k, n]);
    return { w: matrix, bias: vector(`b${name}`, weights[`b${name}`], n) };
  };
  const lengths = vectorSizes(config);
  const gain = (name: "qNorm" | "kNorm") => {
    if (!config.qkNorm) expectNone(where, name, weights[name], "without config.qkNorm");
    if (!config.qkNorm || (name === "kNorm" && !own.includes("k"))) return undefined;
    const data = vector(name, weights[name], lengths[name]);
    if (!data)
      throw new RangeError(`${where}: ${name} expected ${lengths[name]} floats for config.qkNorm, got undefined`);
    return config.qkNorm.onePlus ? data.map((w) => 1 + w) : data;
  };
  const extraKey = vector("biasK", weights.biasK, lengths.extraKey);
  const extraValue = vector("biasV", weights.biasV, lengths.extraValue);
  if ((extraKey === undefined) !== (extraValue === undefined))
    throw new RangeError(
      `${where}: biasK and biasV expected both or neither, got ${extraKey ? "biasK" : "biasV"} alone`,
    );
  const linears = eachOf(PROJECTIONS, (name) => (own.includes(name) ? linear(name) : undefined));
  const formatIn = (name: ProjectionName) =>
    linears[name] ? (formats[name] ?? formatOf(linears[name].w, quantized)) : "f32";
  return {
    ...{ layout, fast },
    linears: { ...linears, q: linears.q as CheckedLinear },
    formats: eachOf(PROJECTIONS, formatIn),
    vectors: {
      qNorm: gain("qNorm"),
      kNorm: gain("kNorm"),
      slopes: config.slopes,
      sinks:
        weights.sinkLogits === undefined
          ? undefined
          : checkSinks(where, "sinkLogits", weights.sinkLogits, config.numHeads),
      extraKey,
      extraValue,
    },
  };
}

// The weights of a layer in linear memory.

/** A projection of a chunk's rows, and the first of the parts (queries, keys, values) that it computes. */
export interface Projection {
  readonly linear: PackedLinear;
  readonly part: "q" | "k" | "v";
}

/** A layer's weights in linear memory, in one block. */
export interface PackedHeads {
  readonly at: number;
  readonly bytes: number;
  readonly formats: LayerFormats;
  /** `mode` of linear_q8. */
  readonly mode: number;
  readonly linears: Projections<PackedLinear>;
  /** The projections of the same input rows. Neighbours of one format are one product. */
  readonly products: {
    readonly q: readonly Projection[];
    readonly k: readonly Projection[];
    readonly v: readonly Projection[];
    /** Undefined if keys and values come from rows of different lengths, or the layer has none. */
    readonly kv: readonly Projection[] | undefined;
    /** Undefined if queries, keys and values do. */
    readonly qkv: readonly Projection[] | undefined;
  };
  readonly qNorm: F32Ptr;
  readonly kNorm: F32Ptr;
  readonly slopes: F32Ptr | NullPtr;
  readonly sinks: F32Ptr | NullPtr;
  readonly extraKey: F32Ptr | NullPtr;
  readonly extraValue: F32Ptr | NullPtr;
}

interface Places {
  readonly linears: Projections<LinearPlace>;
  readonly vectors: Readonly<Record<VectorName, number>>;
}

/**
 * The offsets of a layer's weights, of which `own` are its matrices. They depend on the configuration and the formats only (absent
 * biases, sinks and extra keys have a place, too), so that the number of bytes is known before the weights are.
 */
export function layerLayout(
  config: CheckedConfig,
  formats: LayerFormats,
  own: readonly ProjectionName[] = PROJECTIONS,
): { places: Places; bytes: number } {
  const layout = new Layout();
  const sizes = projectionSizes(config);
  const place = (names: readonly ProjectionName[]) =>
    placeLinears(
      layout,
      names.filter((name) => own.includes(name)).map((name) => ({ ...sizes[name], format: formats[name] })),
    );
  const [q, k, v] = place(["q", "k", "v"]) as [LinearPlace, LinearPlace | undefined, LinearPlace | undefined];
  const [o] = place(["o"]);
  const vectors = Object.entries(vectorSizes(config)).map(([name, length]) => [name, layout.floats(length)]);
  return { places: { linears: { q, k, v, o }, vectors: Object.fromEntries(vectors) }, bytes: layout.bytes };
}

/** Packs weights into a new block. */
export function storeLayer(
  where: string,
  kernels: Kernels,
  config: CheckedConfig,
  weights: CheckedWeights,
): PackedHeads {
  const own = PROJECTIONS.filter((name) => weights.linears[name]);
  const { places, bytes } = layerLayout(config, weights.formats, own);
  // Before the layer's own allocation, because this may allocate memory temporarily.
  const mode = modeOf(kernels, Object.values(weights.formats), weights.fast, weights.rounded);
  const sizes = PROJECTIONS.flatMap((name) => places.linears[name] ?? []);
  const fill = (at: number, staging: number) => fillLayer(kernels, config, weights, at, places, staging);
  return { ...packBlock(where, kernels, bytes, sizes, fill), mode };
}

function fillLayer(
  kernels: Kernels,
  { dModel, kdim, vdim }: CheckedConfig,
  weights: CheckedWeights,
  at: number,
  places: Places,
  staging: number,
): Omit<PackedHeads, "at" | "bytes" | "mode"> {
  const vector = (name: VectorName) => storeFloats(kernels, at + places.vectors[name], weights.vectors[name]);
  const linears = eachOf(PROJECTIONS, (name) => {
    const [place, own] = [places.linears[name], weights.linears[name]];
    return place && own && storeLinear(kernels, at, place, own.w, weights.layout, own.bias, staging);
  });
  const product = (part: Projection["part"]): Projection[] => {
    const linear = linears[part];
    return linear ? [{ linear, part }] : [];
  };
  const [q, k, v] = [product("q"), product("k"), product("v")];
  const joins = linears.k && kdim === vdim;
  return {
    formats: weights.formats,
    linears: { ...linears, q: linears.q as PackedLinear },
    products: {
      ...{ q, k, v },
      kv: joins ? joinProjections([...k, ...v]) : undefined,
      qkv: joins && kdim === dModel ? joinProjections([...q, ...k, ...v]) : undefined,
    },
    ...(eachOf(Object.keys(weights.vectors) as VectorName[], vector) as Pick<PackedHeads, VectorName>),
  };
}

/** Copies floats to an address; without any, the pointer is NULL. */
export function storeFloats({ memory }: Kernels, at: number, data: Float32Array | undefined): F32Ptr | NullPtr {
  if (!data) return NULL;
  memory.f32(at, data.length).set(data);
  return pointer.f32(at);
}

/** Joins neighbours of one format to one product. */
function joinProjections(all: readonly Projection[]): Projection[] {
  const joined: Projection[] = [];
  for (const { linear, part } of all) {
    const last = joined.at(-1);
    if (last?.linear.format !== linear.format) joined.push({ linear, part });
    else joined[joined.length - 1] = { ...last, linear: joinLinears(last.linear, linear) };
  }
  return joined;
}
