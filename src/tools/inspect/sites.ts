// Where a decoder's rows can be captured, and how they are edited.

import { checkTensor, readTensor, type Tensor } from "../../base/tensor/tensor.ts";
import { expectFloats, expectInt, expectOneOf, readFields, readList } from "../../base/util/arguments.ts";
import { describe } from "../../base/util/errors.ts";
import type { CheckedConfig } from "../../layers/attention/config.ts";
import type { BlockLayer, HeadSite } from "../../layers/mixer/mixer.ts";
import { expectModel, type LoadedModel, type Model, type PackedBlock } from "../../models/blocks/model.ts";
import type { LayerSite } from "../../models/blocks/rows.ts";
import type { BlockSpec } from "../../models/spec/spec.ts";
import { expectHeads, headsOf, mixerOf, viewOf } from "./views.ts";

/**
 * A place in the forward pass, by the names of TransformerLens. Each holds a row for every token:
 *
 * | | floats of a row |
 * |---|---|
 * | `embed` | dModel: what the first layer reads |
 * | `residPre` | dModel: the residual before the layer |
 * | `attnIn` | dModel: what attention reads, after its norm |
 * | `q`, `k`, `v` | heads·dim: queries, keys and values as projected, before norms and RoPE; of kv heads for k and v |
 * | `z` | heads·valueDim: what the heads gave, times their gates where they have some, before the output projection |
 * | `attnOut` | dModel: what attention adds to the residual |
 * | `residMid` | dModel: the residual between attention and MLP; layers that run both side by side have none |
 * | `mlpIn` | dModel: what the MLP, or the experts, read, after its norm |
 * | `mlpOut` | dModel: what the MLP, or the experts, add |
 * | `residPost` | dModel: the residual behind the layer |
 *
 * In layers of latent attention, `k` is [kvLoraRank + ropeDim]: the latent, and behind it the key that is rotated, of all heads; they
 * have no `v`, because values are made of the latent too. Recurrent layers have no heads, so none of `q`, `k`, `v` and `z`; what
 * they read and add is at `attnIn` and `attnOut`. Where heads and a recurrence lie side by side, that is the sum of both.
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

export const SITE_FIELDS = ["at", "layer", "head"] as const;

const NAMES = [
  ...(["embed", "residPre", "attnIn", "q", "k", "v"] as const),
  ...(["z", "attnOut", "residMid", "mlpIn", "mlpOut", "residPost"] as const),
];

/** A site that a model has: floats `from` to `from + width` of the rows there. */
interface CheckedSite {
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
  { spec, weights }: LoadedModel,
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
  const { attention } = weights.blocks[index] as PackedBlock;
  const reason = reasonAgainst(at, block, attention);
  if (reason !== undefined)
    throw new RangeError(`${where}: ${name}.at expected a site of layer ${index}, ${reason}, got ${describe(at)}`);
  const heads = headsAt(at, attention);
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
export function listSites(where: string, name: string, at: Site["at"], { spec, weights }: LoadedModel): Site[] {
  expectOneOf(where, name, at, NAMES);
  if (at === "embed") return [{ at }];
  const sites = spec.blocks.flatMap((block, layer): Site[] => {
    const { attention } = weights.blocks[layer] as PackedBlock;
    if (reasonAgainst(at, block, attention) !== undefined) return [];
    const heads = headsAt(at, attention);
    return heads ? Array.from({ length: heads.count }, (_, head) => ({ at, layer, head })) : [{ at, layer }];
  });
  if (sites.length > 0) return sites;
  const reason = reasonAgainst(at, spec.blocks[0] as BlockSpec, (weights.blocks[0] as PackedBlock).attention);
  throw new RangeError(`${where}: ${name} expected a site of the model, ${reason}, got ${describe(at)}`);
}

/**
 * What mixes the tokens of each layer, in words: "attention", "latent attention", or a recurrence, which has no heads: "gated
 * convolution", "gated delta rule", "linear attention", "Mamba", "Mamba-2", "gated linear recurrence". Layers that have several, side
 * by side, name each: "attention and Mamba-2".
 * @returns A name for each layer.
 * @throws TypeError unless `model` is one of loadModel. HeadwiseError `RELEASED`.
 * @example
 * import { loadKernels } from "headwise";
 * import { layerMixers } from "headwise/inspect";
 * import { loadModel, models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * console.log(layerMixers(await loadModel(kernels, "model"))[0]); // attention
 * kernels.release();
 */
export function layerMixers(model: Model): string[] {
  expectModel("layerMixers", model);
  return model.weights.blocks.map(({ attention }) => mixerOf(attention).name(attention));
}

/**
 * The configuration of a layer's attention with all defaults: heads, their sizes, window, RoPE. It cannot be changed.
 * @param layer Index of the layer, from 0.
 * @throws TypeError or RangeError naming the argument, also for a layer without heads. HeadwiseError `RELEASED`.
 * @example
 * import { loadKernels } from "headwise";
 * import { layerConfig } from "headwise/inspect";
 * import { loadModel, models } from "headwise/models";
 * const kernels = await loadKernels({ models });
 * const { numHeads, numKvHeads, headDim } = layerConfig(await loadModel(kernels, "model"), 0);
 * console.log(numHeads, numKvHeads, headDim); // 4 4 16
 * kernels.release();
 */
export function layerConfig(model: Model, layer: number): CheckedConfig {
  const where = "layerConfig";
  expectModel(where, model);
  return layerOf(where, "layer", layer, model).config;
}

/** A layer of a model that has heads. */
function layerOf(where: string, name: string, given: unknown, { weights: { blocks } }: LoadedModel): BlockLayer {
  const layer = expectInt(where, name, given, 0, blocks.length - 1);
  return expectHeads(where, name, (blocks[layer] as PackedBlock).attention, layer).layer;
}

/** Layers of a model that have heads, each once. */
export function readLayers(where: string, name: string, layers: unknown, model: LoadedModel): number[] {
  const read = Array.from(
    readList(where, name, layers, MOST_SITES, (layer, i) => {
      layerOf(where, `${name}[${i}]`, layer, model);
      return layer as number;
    }),
  );
  if (new Set(read).size === read.length) return read;
  throw new RangeError(`${where}: ${name} expected layers, each once, got [${read.join(", ")}]`);
}

/** Why a layer does not have a site. */
function reasonAgainst(at: Site["at"], { parallel, mlp }: BlockSpec, attention: BlockLayer): string | undefined {
  if (at === "residMid" && parallel) return "which runs attention and MLP side by side";
  if ((at === "mlpIn" || at === "mlpOut") && !mlp) return "which has no MLP";
  const heads = siteOf(at, attention);
  return typeof heads === "string" ? heads : undefined;
}

/** Whether layers have a site of heads. */
export const hasSite = (at: HeadSite, attention: BlockLayer): boolean => typeof siteOf(at, attention) !== "string";

/** The heads of a site, and the floats of each; undefined for a site without heads. */
function headsAt(at: Site["at"], attention: BlockLayer): { readonly count: number; readonly dim: number } | undefined {
  const heads = siteOf(at, attention);
  return typeof heads === "string" ? undefined : heads;
}

function siteOf(at: Site["at"], attention: BlockLayer) {
  if (!HEAD_SITES.includes(at)) return undefined;
  const heads = headsOf(attention);
  if (!heads) return `a ${mixerOf(attention).name(attention)} without heads`;
  return viewOf(heads.layer).sites(heads.layer)[at as HeadSite];
}

const HEAD_SITES: readonly Site["at"][] = ["q", "k", "v", "z"];

// Interventions in a forward pass, as data: what is set, scaled or added at a site.

/**
 * An intervention at a site: exactly one of `set`, `scale` and `add`. What is given as Float32Array [width] is the same for all
 * tokens, a Tensor [tokens, width] has a row for each; the width is that of the site.
 *
 * - ablate: `set: 0`, or `set` with the mean of other runs (`meanRows`);
 * - patch: `set` with what another run captured;
 * - steer: `add` with a vector.
 */
export interface Edit extends Site {
  /** Which tokens, as indices into `ids`. Default all. */
  readonly tokens?: readonly number[] | undefined;
  /** What the rows become: a number for all of their floats, a row, or a row for each token. */
  readonly set?: number | Float32Array | Tensor | undefined;
  /** What the rows are multiplied by. */
  readonly scale?: number | undefined;
  /** What is added to the rows. */
  readonly add?: Float32Array | Tensor | undefined;
}

const FIELDS = [...SITE_FIELDS, "tokens", "set", "scale", "add"] as const;
const KINDS = ["set", "scale", "add"] as const;

/** An edit that was checked: `change` is given the floats of a token at the site. */
interface CheckedEdit extends CheckedSite {
  /** Which tokens; undefined for all. */
  readonly tokens: ReadonlySet<number> | undefined;
  change(row: Float32Array, token: number): void;
}

/** Checks an edit of a call of `count` tokens. */
export function checkEdit(where: string, name: string, edit: Edit, model: LoadedModel, count: number): CheckedEdit {
  const { tokens: given, set, scale, add, ...site } = readFields(where, name, edit, FIELDS);
  const checked = checkSite(where, name, site, model);
  const kinds = KINDS.filter((kind) => ({ set, scale, add })[kind] !== undefined);
  if (kinds.length !== 1)
    throw new TypeError(`${where}: ${name} expected one of set, scale and add, got ${kinds.join(" and ") || "none"}`);
  const tokens = given && readTokens(where, `${name}.tokens`, given, count);
  const { width } = checked;
  const rows = tokens ?? Array.from({ length: count }, (_, token) => token);
  const rowsOf = (field: "set" | "add", value: unknown) => readRows(where, `${name}.${field}`, value, rows, width);
  const at = { ...checked, tokens: tokens && new Set(tokens) };
  if (scale !== undefined) {
    const factor = expectNumber(where, `${name}.scale`, scale);
    return { ...at, change: (row) => replaceFloats(row, (value) => value * factor) };
  }
  if (add !== undefined) {
    const from = rowsOf("add", add);
    return { ...at, change: (row, token) => replaceFloats(row, (value, i) => value + (from(token)[i] as number)) };
  }
  if (typeof set === "number") {
    const value = expectNumber(where, `${name}.set`, set);
    return { ...at, change: (row) => void row.fill(value) };
  }
  const from = rowsOf("set", set);
  return { ...at, change: (row, token) => row.set(from(token)) };
}

function replaceFloats(row: Float32Array, by: (value: number, i: number) => number): void {
  for (const [i, value] of row.entries()) row[i] = by(value, i);
}

function expectNumber(where: string, name: string, value: unknown): number {
  if (typeof value === "number" && Number.isFinite(value)) return value;
  throw new TypeError(`${where}: ${name} expected a finite number, got ${describe(value)}`);
}

/** Indices of a call's tokens, each once. */
export function readTokens(where: string, name: string, tokens: unknown, count: number): number[] {
  const read = Array.from(
    readList(where, name, tokens, count, (token, i) => expectInt(where, `${name}[${i}]`, token, 0, count - 1)),
  );
  if (read.length > 0 && new Set(read).size === read.length) return read;
  const rule = `1 to ${count} tokens, each once`;
  throw new RangeError(
    `${where}: ${name} expected ${rule}, got ${read.length === 0 ? "none" : `[${read.join(", ")}]`}`,
  );
}

/** The row of each token that an edit sets or adds: a copy. */
function readRows(
  where: string,
  name: string,
  value: unknown,
  tokens: readonly number[],
  width: number,
): (token: number) => Float32Array {
  if (ArrayBuffer.isView(value)) {
    const row = Float32Array.from(expectFloats(where, name, value));
    if (row.length !== width) throw new RangeError(`${where}: ${name} expected ${width} floats, got ${row.length}`);
    return () => row;
  }
  const { data, shape } = checkTensor(where, name, readTensor(where, name, value), [2]);
  if (shape[0] !== tokens.length || shape[1] !== width)
    throw new RangeError(
      `${where}: ${name} expected shape [${tokens.length}, ${width}], a row for each token, got [${shape.join(", ")}]`,
    );
  const copy = Float32Array.from(data);
  const rowOf = new Map(tokens.map((token, i) => [token, copy.subarray(i * width, (i + 1) * width)]));
  return (token) => rowOf.get(token) as Float32Array;
}
