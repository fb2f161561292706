// A layer of latent attention in linear memory, and the pages of its cache.

import { LATENT_PAGES } from "../../../assembly/layout.ts";
import type { F32Ptr } from "../../wasm/abi.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { Layout, pointer } from "../../wasm/memory.ts";
import { type LinearSize, type PackedFormat, type PackedLinear, wholePanels } from "../linear/formats/format.ts";
import { packBlock } from "../linear/pack.ts";
import { type LinearPlace, modeOf, placeLinears, storeLinear } from "../linear/products.ts";
import { expectIntegerDim } from "../state/formats.ts";
import type { PageKind, PageShape } from "../state/pages.ts";
import type { CheckedLatentConfig } from "./config.ts";
import type { CheckedLatentWeights, LatentFormats, LatentMatrix } from "./weights.ts";

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
export interface LatentLayer extends Matrices<PackedLinear> {
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
): LatentLayer {
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

// Pages of latents: latents as the keys of one head, and as its values the keys that are rotated.

export const LATENT_KIND: PageKind = {
  flag: LATENT_PAGES,
  kernels: {
    append: "append_latents",
    gather: "gather_latents",
    attention: "attention_latents",
    // On keys that were gathered.
    scores: "scores_f32",
  },
  keyComponents: wholePanels,
  checkStages(where, path) {
    throw new RangeError(`${where}: ${path} expected one format for latent attention, got stages`);
  },
  checkFormats(where, path, { keys, values }, { headDim, valueDim }) {
    expectIntegerDim(where, path, "kvLoraRank or ropeDim", Math.max(headDim, valueDim), keys);
    if (keys !== values || keys === "q4")
      throw new RangeError(
        `${where}: ${path} expected "f32", "f16" or "q8" for latent attention, got keys "${keys}" and values "${values}"`,
      );
  },
};

/** What the pages of the cache of a layer hold. */
export function latentPageShape({ kvLoraRank, ropeDim }: CheckedLatentConfig): PageShape {
  return { numKvHeads: 1, headDim: kvLoraRank, valueDim: ropeDim, kind: LATENT_KIND };
}
