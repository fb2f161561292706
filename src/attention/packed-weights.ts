import {
  joinLinears,
  type LinearPlace,
  modeOf,
  type PackedLinear,
  placeLinears,
  storeLinear,
} from "../linear/linear.ts";
import type { CheckedLinear } from "../linear/options.ts";
import { packBlock } from "../linear/pack.ts";
import { type F32Ptr, NULL, type NullPtr } from "../wasm/abi.ts";
import type { Kernels } from "../wasm/kernels.ts";
import { Layout, pointer } from "../wasm/memory.ts";
import type { CheckedWeights } from "./check-weights.ts";
import type { CheckedConfig } from "./config.ts";
import { PROJECTIONS, type Projections, projectionSizes, type VectorName, vectorSizes } from "./layer-sizes.ts";
import type { LayerFormats } from "./weight-options.ts";

/** A projection of a chunk's rows, and the first of the parts (queries, keys, values) that it computes. */
export interface Projection {
  readonly linear: PackedLinear;
  readonly part: "q" | "k" | "v";
}

/** A layer's weights in linear memory, in one block. */
export interface Layer {
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
export function storeLayer(where: string, kernels: Kernels, config: CheckedConfig, weights: CheckedWeights): Layer {
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
