// Where a decoder's rows can be captured and edited.

import type { CheckedConfig } from "../attention/config.ts";
import { expectModel, type Model } from "../decoder/model.ts";
import type { PackedBlock } from "../decoder/packed.ts";
import type { LayerSite } from "../decoder/rows.ts";
import type { BlockSpec } from "../models/decoder/spec.ts";
import { expectInt, expectOneOf, readList } from "../util/arguments.ts";
import { describe } from "../util/errors.ts";

/**
 * A place in the forward pass, by the names of TransformerLens. Each holds a row for every token:
 *
 * | | floats of a row |
 * |---|---|
 * | `embed` | dModel: what the first layer reads |
 * | `residPre` | dModel: the residual before the layer |
 * | `attnIn` | dModel: what attention reads, after its norm |
 * | `q`, `k`, `v` | heads·dim: queries, keys and values as projected, before norms and RoPE; of kv heads for k and v |
 * | `z` | heads·valueDim: what the heads gave, before the output projection |
 * | `attnOut` | dModel: what attention adds to the residual |
 * | `residMid` | dModel: the residual between attention and MLP; layers that run both side by side have none |
 * | `mlpIn` | dModel: what the MLP, or the experts, read, after its norm |
 * | `mlpOut` | dModel: what the MLP, or the experts, add |
 * | `residPost` | dModel: the residual behind the layer |
 *
 * In layers of latent attention, `k` is [kvLoraRank + ropeDim]: the latent, and behind it the key that is rotated, of all heads; they
 * have no `v`, because values are made of the latent too.
 */
export interface Site {
  /** Its name. */
  readonly at: LayerSite | "embed";
  /** 0 for the first layer. All sites but `embed` need one. */
  readonly layer?: number | undefined;
  /** One head of `q`, `k`, `v` or `z`. Default all. */
  readonly head?: number | undefined;
}

/** Sites or edits of one call. */
export const MOST_SITES = 65_536;

export const SITE_FIELDS: readonly (keyof Site)[] = ["at", "layer", "head"];

const NAMES = [
  ...(["embed", "residPre", "attnIn", "q", "k", "v"] as const),
  ...(["z", "attnOut", "residMid", "mlpIn", "mlpOut", "residPost"] as const),
];

/** A site that a model has: floats `from` to `from + width` of the rows there. */
export interface CheckedSite {
  readonly at: Site["at"];
  readonly layer: number;
  readonly from: number;
  readonly width: number;
}

/** Checks a site of the argument `name`. */
export function checkSite(
  where: string,
  name: string,
  { at, layer, head }: Site,
  { spec, weights }: Model,
): CheckedSite {
  expectOneOf(where, `${name}.at`, at, NAMES);
  if (at === "embed") {
    for (const [field, value] of Object.entries({ layer, head }))
      if (value !== undefined)
        throw new RangeError(`${where}: ${name}.${field} expected none at "embed", got ${value}`);
    return { at, layer: 0, from: 0, width: spec.dModel };
  }
  const index = expectInt(where, `${name}.layer`, layer, 0, spec.blocks.length - 1);
  const block = spec.blocks[index] as BlockSpec;
  const reason = reasonAgainst(at, block);
  if (reason !== undefined)
    throw new RangeError(`${where}: ${name}.at expected a site of layer ${index}, ${reason}, got ${describe(at)}`);
  const heads = headsAt(at, block, (weights.blocks[index] as PackedBlock).attention.config);
  if (!heads) {
    if (head !== undefined)
      throw new RangeError(`${where}: ${name}.head expected none at ${describe(at)}, got ${describe(head)}`);
    return { at, layer: index, from: 0, width: spec.dModel };
  }
  const { count, dim } = heads;
  if (head === undefined) return { at, layer: index, from: 0, width: count * dim };
  return { at, layer: index, from: expectInt(where, `${name}.head`, head, 0, count - 1) * dim, width: dim };
}

/**
 * Every site of a name, for sweeps: of each layer that has it, and of `q`, `k`, `v` and `z` each head.
 * @throws TypeError or RangeError naming the argument, also if no layer has the site.
 * @example
 * import { loadKernels } from "headwise";
 * import { sitesOf } from "headwise/inspect";
 * import { loadModel, models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const model = await loadModel(kernels, "model");
 * console.log(sitesOf(model, "z")[1]); // { at: 'z', layer: 0, head: 1 }
 * kernels.release();
 */
export function sitesOf(model: Model, at: Site["at"]): Site[] {
  const where = "sitesOf";
  expectModel(where, model);
  return listSites(where, "at", at, model);
}

/** `sitesOf` for the argument `name` of another function. */
export function listSites(where: string, name: string, at: Site["at"], { spec, weights }: Model): Site[] {
  expectOneOf(where, name, at, NAMES);
  if (at === "embed") return [{ at }];
  const sites = spec.blocks.flatMap((block, layer): Site[] => {
    if (reasonAgainst(at, block) !== undefined) return [];
    const heads = headsAt(at, block, (weights.blocks[layer] as PackedBlock).attention.config);
    return heads ? Array.from({ length: heads.count }, (_, head) => ({ at, layer, head })) : [{ at, layer }];
  });
  if (sites.length > 0) return sites;
  const reason = reasonAgainst(at, spec.blocks[0] as BlockSpec);
  throw new RangeError(`${where}: ${name} expected a site of the model, ${reason}, got ${describe(at)}`);
}

/** Layers of a model, each once. */
export function readLayers(where: string, name: string, layers: unknown, { spec }: Model): number[] {
  const { length } = spec.blocks;
  const read = Array.from(
    readList(where, name, layers, MOST_SITES, (layer, i) => expectInt(where, `${name}[${i}]`, layer, 0, length - 1)),
  );
  if (new Set(read).size === read.length) return read;
  throw new RangeError(`${where}: ${name} expected layers, each once, got [${read.join(", ")}]`);
}

/** Why a layer does not have a site. */
function reasonAgainst(at: Site["at"], { attention, parallel, mlp }: BlockSpec): string | undefined {
  if (at === "residMid" && parallel) return "which runs attention and MLP side by side";
  if ((at === "mlpIn" || at === "mlpOut") && !mlp) return "which has no MLP";
  if (attention.kind === "latent" && at === "v") return "whose values are made of latents";
  return undefined;
}

/** The heads of a site, and the floats of each; undefined for a site without heads. */
function headsAt(
  at: Site["at"],
  { attention }: BlockSpec,
  { numHeads, numKvHeads, headDim, valueDim }: CheckedConfig,
): { readonly count: number; readonly dim: number } | undefined {
  switch (at) {
    case "q":
      return { count: numHeads, dim: headDim };
    case "k":
      if (attention.kind === "heads") return { count: numKvHeads, dim: headDim };
      return { count: 1, dim: attention.config.kvLoraRank + attention.config.ropeDim };
    case "v":
      return { count: numKvHeads, dim: valueDim };
    case "z":
      return { count: numHeads, dim: valueDim };
    default:
      return undefined;
  }
}
