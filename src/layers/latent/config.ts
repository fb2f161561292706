// What a layer of latent attention is given: its configuration, and its weights as they are packed.

import { type StoredTensor, storedBlock, toFloats } from "../../base/tensor/dtypes.ts";
import {
  cutOutputs,
  expectLayout,
  expectMatrix,
  type MatrixLayout,
  readMatrix,
  type WeightTensor,
} from "../../base/tensor/matrix.ts";
import { expectFlag, expectFloat32, expectInt, MOST_HEADS, readFields } from "../../base/util/arguments.ts";
import { describe } from "../../base/util/errors.ts";
import { freezeDeep } from "../../base/util/lifetime.ts";
import type { F32Ptr } from "../../wasm/abi.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { Layout, pointer } from "../../wasm/memory.ts";
import { type AttentionConfig, type CheckedConfig, checkRules } from "../attention/config.ts";
import { checkRope, type RopeConfig, type RopeWithDim } from "../attention/rope.ts";
import {
  type CheckedLinear,
  expectActivations,
  expectFormats,
  expectVector,
  FORMATS,
  formatOf,
  type LinearSize,
  type PackedFormat,
  type PackedLinear,
  type WeightFormat,
} from "../linear/formats.ts";
import { type LinearPlace, modeOf, packBlock, placeLinears, storeLinear } from "../linear/products.ts";

/**
 * The shapes and rules of one layer of latent attention (MLA): keys and values of all heads are computed from one latent per
 * token, and a part of each key that carries the position, the rotated key, is shared by all heads.
 * @example
 * import { type LatentConfig } from "headwise/latent";
 * const config: LatentConfig = {
 *   ...{ dModel: 2048, numHeads: 16, kvLoraRank: 512, nopeDim: 128, ropeDim: 64, causal: true },
 *   rope: { theta: 10_000, pairing: "interleaved" },
 * };
 * console.log(config.kvLoraRank + config.ropeDim); // 576: floats of a token in the cache
 */
export interface LatentConfig {
  /** The width of the model: floats of a row of x and of y. */
  readonly dModel: number;
  /** Heads, 1 to 65 536. */
  readonly numHeads: number;
  /** Floats of a latent. Files call it `kv_lora_rank`. */
  readonly kvLoraRank: number;
  /** Floats of a latent of queries; files call it `q_lora_rank`. Default none: queries are projected from x directly. */
  readonly qLoraRank?: number;
  /** Floats of a query or key head without position. Files call it `qk_nope_head_dim`. */
  readonly nopeDim: number;
  /** Floats of a query head with position, and of the rotated key; 0 or even. Files call it `qk_rope_head_dim`. */
  readonly ropeDim: number;
  /** Floats in a value head. Default nopeDim. */
  readonly valueDim?: number;
  /**
   * Rotary position embedding of the parts with position, all of whose components rotate, or false where these have none either.
   * Required unless ropeDim is 0.
   */
  readonly rope?: Omit<RopeConfig, "dim" | "start"> | false;
  /** RMS norm of latents, with the gains `kvNorm` and `qNorm` of the weights. Default true. */
  readonly latentNorm?: boolean;
  /** Added to the mean square of that norm. Default 1e-6. */
  readonly normEps?: number;
  /** A query at position p attends keys at positions up to p only. Default false. */
  readonly causal?: boolean;
  /** Factor on q·k, from -1e38 to 1e38 and not 0. Default 1/√(nopeDim + ropeDim). */
  readonly scale?: number;
  /** A score becomes softcap·tanh(score / softcap), for a softcap from 0 to 1e38. Default 0: no softcap. */
  readonly softcap?: number;
}

const FIELDS = [
  ...(["dModel", "numHeads", "kvLoraRank", "qLoraRank", "nopeDim", "ropeDim", "valueDim", "rope"] as const),
  ...(["latentNorm", "normEps", "causal", "scale", "softcap"] as const),
] as const;

/**
 * A LatentConfig after its checks, with every default filled in. The fields of CheckedConfig describe the heads that the
 * latents stand for: numKvHeads is numHeads, and headDim is nopeDim + ropeDim.
 */
export interface CheckedLatentConfig extends CheckedConfig {
  /** Floats of a latent. */
  readonly kvLoraRank: number;
  /** Floats of a latent of queries; 0 if there is none. */
  readonly qLoraRank: number;
  /** Floats of a query or key head without position. */
  readonly nopeDim: number;
  /** Floats with position. */
  readonly ropeDim: number;
  /** Whether latents are normalised. */
  readonly latentNorm: boolean;
  /** Added to the mean square. */
  readonly normEps: number;
}

/** Fills in the defaults and checks every rule. The result is frozen, and holds no array of the caller's. */
export function checkLatentConfig(where: string, given: LatentConfig): CheckedLatentConfig {
  const config = readFields(where, "config", given, FIELDS);
  const dModel = expectInt(where, "dModel", config.dModel);
  const numHeads = expectInt(where, "numHeads", config.numHeads, 1, MOST_HEADS);
  const nopeDim = expectInt(where, "nopeDim", config.nopeDim);
  const ropeDim = expectInt(where, "ropeDim", config.ropeDim, 0);
  const headDim = nopeDim + ropeDim;
  const { valueDim = nopeDim, qLoraRank, normEps = 1e-6, latentNorm = true } = config;
  const rules: Pick<AttentionConfig, "causal" | "scale" | "softcap"> = config;
  return freezeDeep({
    dModel,
    numHeads,
    kvLoraRank: expectInt(where, "kvLoraRank", config.kvLoraRank),
    qLoraRank: qLoraRank === undefined ? 0 : expectInt(where, "qLoraRank", qLoraRank),
    nopeDim,
    ropeDim,
    latentNorm: expectFlag(where, "latentNorm", latentNorm),
    normEps: expectFloat32(where, "normEps", normEps, true),
    numKvHeads: numHeads,
    headDim,
    valueDim: expectInt(where, "valueDim", valueDim),
    kdim: dModel,
    vdim: dModel,
    rope: checkLatentRope(where, config.rope, nopeDim, ropeDim),
    qkNorm: undefined,
    addZeroAttn: false,
    ...checkRules(where, rules, numHeads, headDim),
  });
}

function checkLatentRope(
  where: string,
  rope: LatentConfig["rope"],
  nopeDim: number,
  ropeDim: number,
): RopeWithDim | undefined {
  if (ropeDim === 0 || rope === false) {
    if (!rope) return undefined;
    throw new RangeError(`${where}: rope expected none for ropeDim 0, got ${describe(rope)}`);
  }
  if (rope === undefined) throw new RangeError(`${where}: rope expected for ropeDim ${ropeDim}, got undefined`);
  const given = readFields(where, "rope", rope, ["theta", "pairing", "scaling"]);
  // All components of the rotated part rotate.
  if (ropeDim % 2 !== 0) throw new RangeError(`${where}: ropeDim expected an even integer, got ${ropeDim}`);
  return { ...checkRope(where, { ...given, dim: ropeDim }, ropeDim), start: nopeDim };
}

// The weights: their forms, options and checks.

/**
 * The weights of a layer of latent attention: the names follow the paper's "down" and "up" projections, and each comment
 * gives that of DeepSeek's files. Fields of what the layer does not have are undefined. Shapes are for the layout "out-in".
 */
export interface LatentWeights<Matrix extends WeightTensor = WeightTensor> {
  /** Query projection [numHeads·(nopeDim + ropeDim), dModel], without `qLoraRank`: `q_proj`. */
  readonly wq?: Matrix;
  /** From x to the latent of queries, [qLoraRank, dModel]: `q_a_proj`. */
  readonly wqDown?: Matrix;
  /** Gain of the norm of that latent, [qLoraRank]: `q_a_layernorm`. */
  readonly qNorm?: Float32Array;
  /** From it to the queries, [numHeads·(nopeDim + ropeDim), qLoraRank]: `q_b_proj`. */
  readonly wqUp?: Matrix;
  /** From x to the latent and, behind it, the key that is rotated, [kvLoraRank + ropeDim, dModel]: `kv_a_proj_with_mqa`. */
  readonly wkvDown: Matrix;
  /** Gain of the norm of latents, [kvLoraRank]: `kv_a_layernorm`. */
  readonly kvNorm?: Float32Array;
  /**
   * From latents to the keys and the values of one head after the other, [numHeads·(nopeDim + valueDim), kvLoraRank]:
   * `kv_b_proj`.
   */
  readonly wkvUp: Matrix;
  /** Output projection [dModel, numHeads·valueDim]: `o_proj`. */
  readonly wo: Matrix;
  /** Bias of wq or wqUp. */
  readonly bq?: Float32Array;
  /** Bias of wqDown. */
  readonly bqDown?: Float32Array;
  /** Bias of wkvDown. */
  readonly bkvDown?: Float32Array;
  /** Bias of wo, [dModel]. */
  readonly bo?: Float32Array;
  /** Whether rows of a matrix are outputs ("out-in", the default) or inputs ("in-out"). */
  readonly layout?: MatrixLayout;
}

const MATRICES = ["wq", "wqDown", "wqUp", "wkvDown", "wkvUp", "wo"] as const;
const WEIGHT_FIELDS = [
  ...MATRICES,
  ...(["qNorm", "kvNorm", "bq", "bqDown", "bkvDown", "bo", "layout"] as const),
] as const;

/** The format of each packed matrix: `q` is wq or wqUp; `k` and `v` are the parts of wkvUp, a matrix for each head. */
export type LatentFormats = Readonly<Record<"qDown" | "q" | "kvDown" | "k" | "v" | "o", PackedFormat>>;
type LatentName = keyof LatentFormats;

/** The packed matrices. */
export const LATENT_MATRICES: readonly LatentName[] = ["qDown", "q", "kvDown", "k", "v", "o"];

/** The formats of a layer's weights, and whether the path "expanded" can be taken. */
export interface LatentOptions {
  /**
   * One format for all matrices, or one for some. Default the format that a matrix is stored in, by the rules of
   * `WeightOptions.weights`; for `k`, which is multiplied along its other side, "f32" where that has integers.
   */
  readonly weights?: WeightFormat | Partial<Readonly<Record<LatentName, WeightFormat>>>;
  /** As `WeightOptions.activations`. Default "exact". */
  readonly activations?: "exact" | "fast";
  /** Also pack what `path: "expanded"` of `attend` needs: numHeads·nopeDim·kvLoraRank more weights. Default false. */
  readonly expanded?: boolean;
}

/** Fields of LatentOptions. */
export const LATENT_OPTIONS = ["weights", "activations", "expanded"] as const;

/** A matrix to be packed, in its layout. */
interface LatentMatrix extends CheckedLinear, LinearSize {
  readonly layout: MatrixLayout;
  readonly format: PackedFormat;
}

/** Weights that fit the configuration, cut into the matrices that are multiplied. */
interface CheckedLatentWeights {
  readonly formats: LatentFormats;
  readonly fast: boolean;
  readonly qDown: LatentMatrix | undefined;
  readonly q: LatentMatrix;
  readonly kvDown: LatentMatrix;
  /** For each head, from a query to the part for latents: [nopeDim] -> [kvLoraRank]. */
  readonly kAbsorbed: readonly LatentMatrix[];
  /** For each head, from latents to keys: [kvLoraRank] -> [nopeDim]; none unless the layer can be expanded. */
  readonly kExpanded: readonly LatentMatrix[];
  /** For each head, from latents to values: [kvLoraRank] -> [valueDim]. */
  readonly v: readonly LatentMatrix[];
  readonly o: LatentMatrix;
  readonly qNorm: Float32Array | undefined;
  readonly kvNorm: Float32Array | undefined;
}

/** What the sizes of the matrices are made of, for messages. */
const SHAPES = {
  wq: "numHeads·(nopeDim + ropeDim) outputs, dModel inputs",
  wqDown: "qLoraRank outputs, dModel inputs",
  wqUp: "numHeads·(nopeDim + ropeDim) outputs, qLoraRank inputs",
  wkvDown: "kvLoraRank + ropeDim outputs, dModel inputs",
  wkvUp: "numHeads·(nopeDim + valueDim) outputs, kvLoraRank inputs",
  wo: "dModel outputs, numHeads·valueDim inputs",
} as const;

/** Outputs and inputs of the matrices as they are given. */
export function latentMatrixSizes(
  config: CheckedLatentConfig,
): Readonly<Record<(typeof MATRICES)[number], LinearSize>> {
  const { dModel, numHeads, headDim, kvLoraRank, qLoraRank, nopeDim, ropeDim, valueDim } = config;
  return {
    wq: { n: numHeads * headDim, k: dModel },
    wqDown: { n: qLoraRank, k: dModel },
    wqUp: { n: numHeads * headDim, k: qLoraRank },
    wkvDown: { n: kvLoraRank + ropeDim, k: dModel },
    wkvUp: { n: numHeads * (nopeDim + valueDim), k: kvLoraRank },
    wo: { n: dModel, k: numHeads * valueDim },
  };
}

/** Checks every weight against the configuration. All is read before anything is checked. */
export function checkLatentWeights(
  where: string,
  config: CheckedLatentConfig,
  all: LatentWeights,
  { weights: requested, activations, expanded }: LatentOptions,
  quantized: boolean,
): CheckedLatentWeights {
  const given: Record<string, unknown> = { ...readFields(where, "weights", all, WEIGHT_FIELDS) };
  for (const name of MATRICES) if (given[name] !== undefined) given[name] = readMatrix(where, name, given[name]);
  const layout = expectLayout(where, given.layout);
  const chosen = expectFormats(where, "options.weights", requested, LATENT_MATRICES);
  const fast = expectActivations(where, "options.activations", activations);
  const { kvLoraRank, qLoraRank, latentNorm } = config;

  const unused = qLoraRank > 0 ? (["wq"] as const) : (["wqDown", "wqUp", "qNorm", "bqDown"] as const);
  for (const name of unused)
    if (given[name] !== undefined) {
      const rule = qLoraRank > 0 ? "with config.qLoraRank, which takes wqDown and wqUp" : "without config.qLoraRank";
      throw new RangeError(`${where}: ${name} expected none ${rule}, got ${describe(given[name])}`);
    }
  const sizes = latentMatrixSizes(config);
  const matrix = (name: (typeof MATRICES)[number], biasName?: string): CheckedLinear & LinearSize => {
    const { n, k } = sizes[name];
    const w = expectMatrix(where, name, given[name], layout);
    const [rows, columns] = layout === "out-in" ? [n, k] : [k, n];
    if (w.shape[0] !== rows || w.shape[1] !== columns)
      throw new RangeError(
        `${where}: ${name} expected shape [${rows}, ${columns}] (${SHAPES[name]}), got [${w.shape.join(", ")}]`,
      );
    return { w, n, k, bias: biasName === undefined ? undefined : expectVector(where, biasName, given[biasName], n) };
  };
  const gain = (name: "qNorm" | "kvNorm", length: number) => {
    const data = expectVector(where, name, given[name], length);
    if (latentNorm !== (data !== undefined)) {
      const rule = latentNorm ? `${length} floats, or latentNorm: false` : "none with latentNorm: false";
      throw new RangeError(`${where}: ${name} expected ${rule}, got ${describe(given[name])}`);
    }
    return data;
  };
  const qDown = qLoraRank > 0 ? matrix("wqDown", "bqDown") : undefined;
  const q = matrix(qLoraRank > 0 ? "wqUp" : "wq", "bq");
  const kvDown = matrix("wkvDown", "bkvDown");
  const up = matrix("wkvUp");
  const o = matrix("wo", "bo");

  const formats = chooseFormats(chosen, { qDown, q, kvDown, o }, up, quantized);
  const packed = (name: LatentName, linear: Sizeable): LatentMatrix => ({ ...linear, layout, format: formats[name] });
  return {
    formats,
    fast,
    qDown: qDown && packed("qDown", qDown),
    q: packed("q", q),
    kvDown: packed("kvDown", kvDown),
    ...cutUp(config, up, layout, expanded === true, packed),
    o: packed("o", o),
    qNorm: qLoraRank > 0 ? gain("qNorm", qLoraRank) : undefined,
    kvNorm: gain("kvNorm", kvLoraRank),
  };
}

type Sizeable = CheckedLinear & LinearSize;

/** The chosen formats, and for the rest those that the matrices are stored in. */
function chooseFormats(
  chosen: Partial<LatentFormats>,
  { qDown, q, kvDown, o }: Readonly<Record<"q" | "kvDown" | "o", Sizeable> & { qDown: Sizeable | undefined }>,
  up: Sizeable,
  quantized: boolean,
): LatentFormats {
  const stored = ({ w }: Sizeable) => formatOf(w, quantized);
  return {
    qDown: qDown ? (chosen.qDown ?? stored(qDown)) : "f32",
    q: chosen.q ?? stored(q),
    kvDown: chosen.kvDown ?? stored(kvDown),
    k: chosen.k ?? (FORMATS[stored(up)].integers ? "f32" : stored(up)),
    v: chosen.v ?? stored(up),
    o: chosen.o ?? stored(o),
  };
}

/** The matrices of each head in wkvUp. */
function cutUp(
  { numHeads, nopeDim, valueDim, kvLoraRank }: CheckedLatentConfig,
  { w: up }: Sizeable,
  layout: MatrixLayout,
  expanded: boolean,
  packed: (name: "k" | "v", linear: Sizeable) => LatentMatrix,
): Pick<CheckedLatentWeights, "kAbsorbed" | "kExpanded" | "v"> {
  const perHead = nopeDim + valueDim;
  const heads = Array.from({ length: numHeads }, (_, head) => head * perHead);
  const part = (from: number, to: number, n: number, k: number): Sizeable => ({
    ...{ w: cutOutputs(up, layout, from, to), bias: undefined, n, k },
  });
  const keysOf = (begin: number, n: number, k: number) => part(begin, begin + nopeDim, n, k);
  const turned = layout === "out-in" ? "in-out" : "out-in";
  return {
    // The rows of W_uk of a head are its inputs here.
    kAbsorbed: heads.map((begin) => {
      const keys = packed("k", keysOf(begin, kvLoraRank, nopeDim));
      return { ...keys, w: floatsOf(keys.w), layout: turned };
    }),
    kExpanded: expanded ? heads.map((begin) => packed("k", keysOf(begin, nopeDim, kvLoraRank))) : [],
    v: heads.map((begin) => packed("v", part(begin + nopeDim, begin + perHead, valueDim, kvLoraRank))),
  };
}

/** A matrix that can be read along either side: blocks of integers as floats. */
function floatsOf(w: StoredTensor): StoredTensor {
  if (!storedBlock(w.dtype)) return w;
  const data = toFloats(w);
  return { ...w, dtype: "F32", bytes: new Uint8Array(data.buffer, data.byteOffset, data.byteLength) };
}

// The weights in linear memory.

/** A value for each packed matrix; where there is one for each head, an array. */
interface Matrices<T> {
  readonly qDown: T | undefined;
  readonly q: T;
  readonly kvDown: T;
  readonly kAbsorbed: readonly T[];
  readonly kExpanded: readonly T[];
  readonly v: readonly T[];
  readonly o: T;
}

/** A layer's weights in linear memory, in one block. */
export interface PackedLatents extends Matrices<PackedLinear> {
  readonly at: number;
  readonly bytes: number;
  readonly formats: LatentFormats;
  /** `mode` of linear_q8. */
  readonly mode: number;
  /** Gains of the norms; undefined if latents are not normalised. */
  readonly qNorm: F32Ptr | undefined;
  readonly kvNorm: F32Ptr | undefined;
}

type Sized = LinearSize & { readonly format: PackedFormat };

/** Outputs, inputs and format of each matrix. */
export function latentSizes(config: CheckedLatentConfig, formats: LatentFormats, expanded: boolean): Matrices<Sized> {
  const { dModel, numHeads, headDim, kvLoraRank, qLoraRank, nopeDim, ropeDim, valueDim } = config;
  const each = (heads: number, size: Sized) => Array.from({ length: heads }, () => size);
  return {
    qDown: qLoraRank > 0 ? { n: qLoraRank, k: dModel, format: formats.qDown } : undefined,
    q: { n: numHeads * headDim, k: qLoraRank || dModel, format: formats.q },
    kvDown: { n: kvLoraRank + ropeDim, k: dModel, format: formats.kvDown },
    kAbsorbed: each(numHeads, { n: kvLoraRank, k: nopeDim, format: formats.k }),
    kExpanded: each(expanded ? numHeads : 0, { n: nopeDim, k: kvLoraRank, format: formats.k }),
    v: each(numHeads, { n: valueDim, k: kvLoraRank, format: formats.v }),
    o: { n: dModel, k: numHeads * valueDim, format: formats.o },
  };
}

/** The offsets of a layer's weights, which depend on the configuration and the formats only. */
export function latentLayout(
  config: CheckedLatentConfig,
  formats: LatentFormats,
  expanded: boolean,
): { places: Matrices<LinearPlace>; qNorm: number; kvNorm: number; bytes: number } {
  const layout = new Layout();
  const place = (sizes: readonly Sized[]) => (sizes.length > 0 ? placeLinears(layout, sizes) : []);
  const { qDown, q, kvDown, kAbsorbed, kExpanded, v, o } = latentSizes(config, formats, expanded);
  const one = (size: Sized) => place([size])[0] as LinearPlace;
  const places = {
    qDown: qDown && one(qDown),
    q: one(q),
    kvDown: one(kvDown),
    kAbsorbed: place(kAbsorbed),
    kExpanded: place(kExpanded),
    v: place(v),
    o: one(o),
  };
  const [qNorm, kvNorm] = [layout.floats(config.qLoraRank), layout.floats(config.kvLoraRank)];
  return { places, qNorm, kvNorm, bytes: layout.bytes };
}

/** Packs weights into a new block. */
export function storeLatent(
  where: string,
  kernels: Kernels,
  config: CheckedLatentConfig,
  weights: CheckedLatentWeights,
): PackedLatents {
  const { formats, fast } = weights;
  const { places, qNorm, kvNorm, bytes } = latentLayout(config, formats, weights.kExpanded.length > 0);
  // Before the layer's own allocation, because this may allocate memory temporarily.
  const mode = modeOf(kernels, Object.values(formats), fast);
  const sizes = Object.values(places)
    .flat()
    .filter((place) => place !== undefined);
  return packBlock(where, kernels, bytes, sizes, (at, staging) => {
    const store = (place: LinearPlace, { w, layout, bias }: LatentMatrix) =>
      storeLinear(kernels, at, place, w, layout, bias, staging);
    const all = (name: "kAbsorbed" | "kExpanded" | "v") =>
      weights[name].map((matrix, head) => store(places[name][head] as LinearPlace, matrix));
    const vector = (data: Float32Array | undefined, offset: number) => {
      if (!data) return undefined;
      kernels.memory.f32(at + offset, data.length).set(data);
      return pointer.f32(at + offset);
    };
    return {
      ...{ formats, mode },
      qDown: places.qDown && weights.qDown && store(places.qDown, weights.qDown),
      q: store(places.q, weights.q),
      kvDown: store(places.kvDown, weights.kvDown),
      kAbsorbed: all("kAbsorbed"),
      kExpanded: all("kExpanded"),
      v: all("v"),
      o: store(places.o, weights.o),
      qNorm: vector(weights.qNorm, qNorm),
      kvNorm: vector(weights.kvNorm, kvNorm),
    };
  });
}
