// A layer of attention in linear memory.

import { readFields } from "../../base/util/arguments.ts";
import { type Handle, makeHandle, type Releasable } from "../../base/util/lifetime.ts";
import { type F32Ptr, NULL, type NullPtr } from "../../wasm/abi.ts";
import { expectKernels, freeing, type Kernels } from "../../wasm/kernels.ts";
import { Layout, pointer } from "../../wasm/memory.ts";
import type { PackedLinear } from "../linear/formats/format.ts";
import type { CheckedLinear } from "../linear/formats/formats.ts";
import { packBlock } from "../linear/pack.ts";
import { joinLinears, type LinearPlace, modeOf, placeLinears, storeLinear } from "../linear/products.ts";
import type { PageShape } from "../state/pages.ts";
import { type AttentionConfig, type CheckedConfig, checkConfig } from "./config.ts";
import { createRotary, type Rotary } from "./rope.ts";
import {
  type AttentionWeights,
  type CheckedWeights,
  checkWeightOptions,
  checkWeights,
  expectFormatsLoaded,
  type LayerFormats,
  PROJECTIONS,
  type Projections,
  projectionSizes,
  type VectorName,
  vectorSizes,
  WEIGHT_OPTIONS,
  type WeightOptions,
} from "./weights.ts";

/**
 * One attention layer: its configuration, and its weights packed in linear memory until `release()`.
 * @example
 * import { attend, createAttention, loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * const eye = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
 * const attention = createAttention(kernels, { dModel: 4, numHeads: 2, causal: true }, { wq: eye, wk: eye, wv: eye, wo: eye });
 * console.log(attend(attention, new Float32Array(12).fill(1)).length); // 12: three tokens of four floats
 * attention.release();
 */
export interface Attention extends Releasable, Handle {
  /** The kernels that run the layer, in whose memory its weights lie. */
  readonly kernels: Kernels;
  /** The configuration with every default filled in. */
  readonly config: CheckedConfig;
  /** The format of each packed matrix. */
  readonly formats: LayerFormats;
  /** Bytes of linear memory that the weights take. */
  readonly bytes: number;
  /** Whether `release()` was called. */
  readonly released: boolean;
  /** @internal What `createCache` and calls without a cache make pages for. */
  readonly pageShape: PageShape;
  /** @internal How the layer runs if it is not one of `createAttention`: a LayerPass (forward/forward.ts). */
  readonly pass?: object;
  /** @internal Normalises the heads of queries or keys besides, or instead of, `config.qkNorm`. */
  readonly headNorm?: HeadNorm;
  /** @internal */
  readonly layer: Layer;
  /** @internal */
  readonly rotary: Rotary | undefined;
}

/** Normalises rows of heads in linear memory, which lie `stride` floats apart, in place. */
export interface HeadNorm {
  (of: "q" | "k", at: F32Ptr, stride: number, rows: number): void;
  readonly eps: number;
  readonly q: HeadNormVectors;
  readonly k: HeadNormVectors;
}

/** Addresses of the gain and bias of the first head; those of the next lie `step` bytes behind, 0 if heads share them. */
interface HeadNormVectors {
  readonly step: number;
  readonly gain: F32Ptr;
  readonly bias: F32Ptr | NullPtr;
}

/**
 * Packs the weights of a layer into linear memory. Each matrix keeps the format it is stored in, unless `options.weights`
 * names another: one for all matrices, or one for some, as in `{ q: "q8", o: "f16" }`. The given arrays are not used later.
 * @throws TypeError or RangeError naming the argument, the rule and the value. HeadwiseError `OUT_OF_MEMORY`, `RELEASED`, or
 * `NO_QUANTIZED` for formats other than "f32" with kernels that were loaded without `quantized`. Nothing is allocated then.
 * @example
 * import { createAttention, loadKernels } from "headwise";
 * const kernels = await loadKernels();
 * const matrix = { data: new Float32Array(64 * 64), shape: [64, 64] };
 * using attention = createAttention(kernels, { dModel: 64, numHeads: 4 }, { wq: matrix, wk: matrix, wv: matrix, wo: matrix });
 * console.log(attention.config.headDim); // 16
 */
export function createAttention(
  kernels: Kernels,
  config: AttentionConfig,
  weights: AttentionWeights,
  options: WeightOptions = {},
): Attention {
  const where = "createAttention";
  expectKernels(where, kernels);
  const checked = checkConfig(where, config);
  const formats = checkWeightOptions(where, "options.", readFields(where, "options", options, WEIGHT_OPTIONS));
  const given = checkWeights(where, checked, weights, formats, kernels.quantized);
  // Again, because reading arguments may have run code of the caller's that released them.
  expectKernels(where, kernels);
  expectFormatsLoaded(where, kernels.quantized, given.formats);
  return packAttention(where, kernels, checked, given);
}

/**
 * `createAttention` for a checked configuration and checked weights. Without `weights.linears.o`, y holds the heads'
 * outputs: [.., numHeads·valueDim].
 */
export function packAttention(
  where: string,
  kernels: Kernels,
  config: CheckedConfig,
  weights: CheckedWeights,
  headNorm?: HeadNorm,
): Attention {
  const layer = storeLayer(where, kernels, config, weights);
  const parts = {
    kernels,
    config,
    formats: Object.freeze(layer.formats),
    bytes: layer.bytes,
    pageShape: config,
    headNorm,
    layer,
    rotary: config.rope && createRotary(config.rope),
  };
  return makeHandle<Attention>(
    "Attention",
    "createAttention",
    parts,
    ["pageShape", "headNorm", "layer", "rotary"],
    freeing(kernels, layer.at),
  );
}

/** What a pass needs of an attention. */
export type LayerParts = Pick<Attention, "kernels" | "config" | "pageShape" | "pass" | "headNorm" | "layer" | "rotary">;

/** Floats of a row of y: dModel, or numHeads·valueDim if the layer has no wo. */
export function widthOf({ config, layer }: LayerParts): number {
  return layer.linears.o ? config.dModel : config.numHeads * config.valueDim;
}

/** A projection of a chunk's rows, and the first of the parts (queries, keys, values) that it computes. */
export interface Projection {
  readonly linear: PackedLinear;
  readonly part: "q" | "k" | "v";
}

/** A layer's weights in linear memory, in one block. */
interface Layer {
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
    /** Undefined if keys and values come from rows of different lengths. */
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
 * The offsets of a layer's weights. They depend on the configuration and the formats only (absent biases, sinks and
 * extra keys have a place, too), so that the number of bytes is known before the weights are.
 */
export function layerLayout(
  config: CheckedConfig,
  formats: LayerFormats,
  withOutput = true,
): { places: Places; bytes: number } {
  const layout = new Layout();
  const sizes = projectionSizes(config);
  const place = (names: readonly (keyof typeof sizes)[]) =>
    placeLinears(
      layout,
      names.map((name) => ({ ...sizes[name], format: formats[name] })),
    );
  const [q, k, v] = place(["q", "k", "v"]) as [LinearPlace, LinearPlace, LinearPlace];
  const [o] = withOutput ? place(["o"]) : [];
  const vectors = Object.entries(vectorSizes(config)).map(([name, length]) => [name, layout.floats(length)]);
  return { places: { linears: { q, k, v, o }, vectors: Object.fromEntries(vectors) }, bytes: layout.bytes };
}

/** Packs weights into a new block. */
function storeLayer(where: string, kernels: Kernels, config: CheckedConfig, weights: CheckedWeights): Layer {
  const { places, bytes } = layerLayout(config, weights.formats, weights.linears.o !== undefined);
  // Before the layer's own allocation, because this may allocate memory temporarily.
  const mode = modeOf(kernels, Object.values(weights.formats), weights.fast);
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
): Omit<Layer, "at" | "bytes" | "mode"> {
  const store = (place: LinearPlace, { w, bias }: CheckedLinear) =>
    storeLinear(kernels, at, place, w, weights.layout, bias, staging);
  const vector = (name: VectorName) => {
    const data = weights.vectors[name];
    if (!data) return NULL;
    kernels.memory.f32(at + places.vectors[name], data.length).set(data);
    return pointer.f32(at + places.vectors[name]);
  };
  const given = weights.linears;
  const linears = {
    q: store(places.linears.q, given.q),
    k: store(places.linears.k, given.k),
    v: store(places.linears.v, given.v),
    o: places.linears.o && given.o && store(places.linears.o, given.o),
  };
  const product = (part: Projection["part"]): Projection => ({ linear: linears[part], part });
  const [q, k, v] = [product("q"), product("k"), product("v")];
  return {
    formats: weights.formats,
    linears,
    products: {
      q: [q],
      k: [k],
      v: [v],
      kv: kdim === vdim ? joinProjections([k, v]) : undefined,
      qkv: kdim === vdim && kdim === dModel ? joinProjections([q, k, v]) : undefined,
    },
    qNorm: vector("qNorm") as F32Ptr,
    kNorm: vector("kNorm") as F32Ptr,
    slopes: vector("slopes"),
    sinks: vector("sinks"),
    extraKey: vector("extraKey"),
    extraValue: vector("extraValue"),
  };
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
