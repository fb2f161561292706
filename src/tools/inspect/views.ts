// What tools see of layers, by the name of their mixer.

import type { CheckedConfig } from "../../layers/attention/config.ts";
import { HEAD_PASSES } from "../../layers/attention/head-passes.ts";
import type { HeadNorm, HeadsLayer } from "../../layers/attention/heads.ts";
import type { Rotary } from "../../layers/attention/rope.ts";
import { type PackedHeads, type VectorName, vectorSizes } from "../../layers/attention/weights.ts";
import { LATENT_PASSES } from "../../layers/latent/latents.ts";
import { floatKeySizes, type LatentsLayer } from "../../layers/latent/paths.ts";
import type { PackedLinear } from "../../layers/linear/formats.ts";
import type { BlockLayer, HeadSite, LayerState, MixerLayer, Passes } from "../../layers/mixer/mixer.ts";
import { recurrentVectors } from "../../layers/recurrent/config.ts";
import type { ParallelLayer } from "../../layers/recurrent/parallel.ts";
import type { RecurrentLayer } from "../../layers/recurrent/recurrent.ts";
import { createPageLayout, type PageLayout } from "../../layers/state/pages.ts";
import { NULL } from "../../wasm/abi.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { pointer } from "../../wasm/memory.ts";
import {
  addPart,
  addRounding,
  type Component,
  freezeNorm,
  kvHeadOf,
  mapParts,
  multiply,
  multiplyRows,
  normParts,
  type Part,
  readMatrix,
  scaleRows,
  sumOf,
} from "./parts.ts";

/** What tools know of any layer, whatever its mixer. */
interface MixerView<Layer extends MixerLayer = BlockLayer> {
  /** What mixes the tokens of a layer, in words. */
  name(layer: Layer): string;
  /** The packed vectors of a layer. */
  vectors(layer: Layer): readonly { readonly at: number; readonly length: number }[];
  /** `mode` of linear_q8. */
  mode(layer: Layer): number;
}

/** What tools know of the layers of a mixer with heads. A record is given layers of its own only. */
interface LayerView<Layer extends MixerLayer = MixerLayer> extends MixerView<Layer> {
  /** How calls run a layer. */
  readonly passes: Passes;
  /** The pages that rows are measured on; `cached` are those of the layer's keys. */
  measuredPages(layer: Layer, cached: PageLayout): PageLayout;
  /** The heads of each site and the floats of each, or why layers do not have the site. */
  sites(layer: Layer): Readonly<Record<HeadSite, { readonly count: number; readonly dim: number } | string>>;
  /** W_V [numKvHeads·valueDim, dModel], which leads from what the layer reads to its values. */
  values(where: string, layer: Layer): Float32Array;
  /** The parts of a query or a key in the space in which attention multiplies them, from those of what the layer reads. */
  parts(where: string, layer: Layer, side: Side, x: readonly Part[], component: Component): Part[];
}

/** The query, or the key, of a head at a token. */
interface Side {
  readonly of: "q" | "k";
  /** A query head. */
  readonly head: number;
  /** The position of the token. */
  readonly position: number;
  /** What the projections gave of the token, at the site of the queries or keys. */
  readonly row: Float32Array;
}

// Softmax heads.

/** The parts of a query or key of heads: projected, normalised and rotated. */
function headParts(
  where: string,
  { kernels, config, layer, rotary, headNorm }: HeadsLayer,
  { of, head: query, position, row }: Side,
  x: readonly Part[],
  component: Component,
): Part[] {
  const { headDim, qkNorm } = config;
  const head = of === "q" ? query : kvHeadOf(config, query);
  const linear = ownMatrix(where, layer, of);
  const [begin, end] = [head * headDim, (head + 1) * headDim];
  const own = row.subarray(begin, end);
  let parts = addRounding(projectParts(where, kernels, linear, x, begin, end, component), own);
  if (headNorm) parts = normParts(headNormOf(kernels, config, headNorm, of, head), parts, component);
  if (qkNorm) {
    const full = qkNorm.kind === "full";
    const gain = kernels.memory.f32(layer[`${of}Norm`] + (full ? 4 * begin : 0), headDim);
    parts = mapParts(parts, freezeNorm({ kind: "rms", eps: qkNorm.eps, gain }, full ? row : sumOf(parts)));
  }
  return rotateParts(parts, rotary, rotary?.start ?? 0, position);
}

/** Why a layer has no site of keys and values. */
const SHARED = "whose keys and values are those of another layer";

/** A matrix of a layer. Throws for one without keys and values of its own. */
function ownMatrix(where: string, { linears }: PackedHeads, part: "q" | "k" | "v"): PackedLinear {
  const own = linears[part];
  if (own) return own;
  throw new RangeError(`${where}: layer expected one with w${part}, got one ${SHARED}`);
}

/** The layer norm of one head of queries or keys. */
function headNormOf({ memory }: Kernels, { headDim }: CheckedConfig, norm: HeadNorm, of: "q" | "k", head: number) {
  const { step, gain, bias } = norm[of];
  const vector = (at: number) => memory.f32(at + head * step, headDim).slice();
  return { kind: "layer", eps: norm.eps, gain: vector(gain), bias: bias === NULL ? undefined : vector(bias) } as const;
}

const HEAD_VIEW: LayerView<HeadsLayer> = {
  name: () => "attention",
  passes: HEAD_PASSES,
  vectors({ config, layer, headNorm, rules }) {
    const vectors = (Object.entries(vectorSizes(config)) as [VectorName, number][]).map(([name, length]) => {
      return { at: layer[name], length };
    });
    for (const [norm, heads] of [
      [headNorm?.q, config.numHeads],
      [headNorm?.k, config.numKvHeads],
    ] as const) {
      const length = (norm?.step === 0 ? 1 : heads) * config.headDim;
      vectors.push({ at: norm?.gain ?? NULL, length }, { at: norm?.bias ?? NULL, length });
    }
    if (rules?.pairs) vectors.push({ at: pointer.f32(rules.pairs.at), length: 1 });
    return vectors.filter(({ at }) => at !== NULL);
  },
  mode: ({ layer }) => layer.mode,
  measuredPages: (_, cached) => cached,
  sites({ config: { numHeads, numKvHeads, headDim, valueDim }, layer }) {
    const own = layer.linears.k !== undefined;
    return {
      q: { count: numHeads, dim: headDim },
      k: own ? { count: numKvHeads, dim: headDim } : SHARED,
      v: own ? { count: numKvHeads, dim: valueDim } : SHARED,
      z: { count: numHeads, dim: valueDim },
    };
  },
  values: (where, { kernels, config, layer }) =>
    readMatrix(where, kernels, ownMatrix(where, layer, "v"), 0, config.numKvHeads * config.valueDim),
  parts: headParts,
};

// Latent attention, on the path "absorbed".

/**
 * Latent attention: queries are multiplied by W_uk of their head, and so scored against latents, behind which lies the part with
 * position: [kvLoraRank + ropeDim].
 */
function latentParts(
  where: string,
  { kernels, config, latents, rotary }: LatentsLayer,
  { of, head, position, row: all }: Side,
  x: readonly Part[],
  component: Component,
): Part[] {
  const { headDim, nopeDim, kvLoraRank, qLoraRank, ropeDim, normEps: eps } = config;
  const project = (linear: PackedLinear, parts: readonly Part[], begin: number, end: number) =>
    projectParts(where, kernels, linear, parts, begin, end, component);
  const normOf = (at: number | undefined, length: number) =>
    at && ({ kind: "rms", eps, gain: kernels.memory.f32(at, length).slice(), bias: undefined } as const);
  if (of === "k") {
    const parts = addRounding(project(latents.kvDown, x, 0, kvLoraRank + ropeDim), all);
    const norm = normOf(latents.kvNorm, kvLoraRank);
    const normed = norm ? freezeNorm(norm, all.subarray(0, kvLoraRank)) : (row: Float64Array) => row;
    const keys = mapParts(parts, (row) => join(normed(row.subarray(0, kvLoraRank)), row.subarray(kvLoraRank)));
    return rotateParts(keys, rotary, kvLoraRank, position);
  }
  let from = x;
  if (latents.qDown) {
    from = project(latents.qDown, x, 0, qLoraRank);
    const norm = normOf(latents.qNorm, qLoraRank);
    if (norm) from = normParts(norm, from, component);
  }
  const [begin, end] = [head * headDim, (head + 1) * headDim];
  const own = all.subarray(begin, end);
  const queries = rotateParts(addRounding(project(latents.q, from, begin, end), own), rotary, nopeDim, position);
  const plain = queries.map(({ row }) => row.subarray(0, nopeDim));
  const absorbed = multiplyRows(where, kernels, latents.kAbsorbed[head] as PackedLinear, plain, 0, kvLoraRank);
  return queries.map(({ component, row }, i) => {
    return { component, row: join(absorbed[i] as Float64Array, row.subarray(nopeDim)) };
  });
}

function join(first: Float64Array, second: Float64Array): Float64Array {
  const joined = new Float64Array(first.length + second.length);
  joined.set(first);
  joined.set(second, first.length);
  return joined;
}

/** The products of each head's values of a latent with what a latent is of the residual. */
function readLatentValues(where: string, { kernels, config, latents }: LatentsLayer): Float32Array {
  const { dModel, kvLoraRank, valueDim } = config;
  const down = readMatrix(where, kernels, latents.kvDown, 0, kvLoraRank);
  const all = new Float32Array(config.numHeads * valueDim * dModel);
  for (const [head, matrix] of latents.v.entries()) {
    const own = readMatrix(where, kernels, matrix, 0, valueDim);
    if (latents.kvNorm) scaleRows(own, kernels.memory.f32(latents.kvNorm, kvLoraRank));
    all.set(multiply(kernels, own, down, dModel, "in-out"), head * valueDim * dModel);
  }
  return all;
}

const LATENT_VIEW: LayerView<LatentsLayer> = {
  name: () => "latent attention",
  passes: LATENT_PASSES,
  vectors({ config, latents: { qNorm, kvNorm } }) {
    return [
      ...(qNorm ? [{ at: qNorm, length: config.qLoraRank }] : []),
      ...(kvNorm ? [{ at: kvNorm, length: config.kvLoraRank }] : []),
    ];
  },
  mode: ({ latents }) => latents.mode,
  measuredPages: ({ config }) => createPageLayout(floatKeySizes(config)),
  sites({ config: { numHeads, headDim, valueDim, kvLoraRank, ropeDim } }) {
    return {
      q: { count: numHeads, dim: headDim },
      k: { count: 1, dim: kvLoraRank + ropeDim },
      v: "whose values are made of latents",
      z: { count: numHeads, dim: valueDim },
    };
  },
  values: readLatentValues,
  parts: latentParts,
};

/** What tools know of layers with heads, by the name of their mixer. */
const VIEWS: Readonly<Record<string, LayerView>> = { heads: HEAD_VIEW, latents: LATENT_VIEW };

/** What tools know of a layer with heads. */
export function viewOf({ kind }: MixerLayer): LayerView {
  const view = VIEWS[kind];
  if (!view)
    throw new RangeError(`attention expected a layer of ${Object.keys(VIEWS).join(" or ")}, got one of ${kind}`);
  return view;
}

// Layers without heads, and those that have heads beside something else.

const RECURRENT_VIEW: MixerView<RecurrentLayer> = {
  name({ recurrent: { scan, channels } }) {
    if (channels) return channels.kind === "gated" ? "gated linear recurrence" : "Mamba";
    if (!scan) return "gated convolution";
    if (scan.delta) return "gated delta rule";
    return scan.write === "step" ? "Mamba-2" : "linear attention";
  },
  vectors({ recurrent, packed }) {
    const sizes = Object.entries(recurrentVectors(recurrent)) as [keyof typeof packed.vectors, readonly number[]][];
    return sizes.map(([name, shape]) => ({
      at: packed.vectors[name],
      length: shape.reduce((product, size) => product * size, 1),
    }));
  },
  mode: ({ packed }) => packed.mode,
};

const PARALLEL_VIEW: MixerView<ParallelLayer> = {
  name: ({ parts }) => parts.map(({ layer }) => mixerOf(layer).name(layer)).join(" and "),
  vectors: ({ parts }) => parts.flatMap(({ layer }) => mixerOf(layer).vectors(layer)),
  mode: ({ parts }) => Math.max(...parts.map(({ layer }) => mixerOf(layer).mode(layer))),
};

const MIXERS: Readonly<Record<string, MixerView>> = {
  ...(VIEWS as Readonly<Record<string, MixerView>>),
  recurrent: RECURRENT_VIEW as MixerView,
  parallel: PARALLEL_VIEW as MixerView,
};

/** What tools know of any layer: there is a record for each mixer of models. */
export const mixerOf = ({ kind }: MixerLayer): MixerView => MIXERS[kind] as MixerView;

/** The heads of a layer. */
export interface LayerHeads {
  /** The layer of heads, which in most models is all that mixes tokens. */
  readonly layer: BlockLayer;
  /** What its outputs are multiplied by before others are added, and whether there are others. */
  readonly scale: number;
  readonly isPart: boolean;
  /** What the heads keep of a sequence, out of the state of the layer. */
  stateOf(state: LayerState): LayerState;
}

/** The heads of a layer; undefined without any. */
export function headsOf(layer: BlockLayer): LayerHeads | undefined {
  if (layer.kind in VIEWS) return { layer, scale: 1, isPart: false, stateOf: (state) => state };
  const { parts = [] } = layer as Partial<ParallelLayer>;
  const i = parts.findIndex((part) => part.layer.kind in VIEWS);
  const part = parts[i];
  return part && { ...part, isPart: true, stateOf: (state) => state.parts?.[i] as LayerState };
}

/** The heads of layer `index` of a model, where `name` is that index as an argument. Throws for a layer without any. */
export function expectHeads(where: string, name: string, layer: BlockLayer, index: number): LayerHeads {
  const heads = headsOf(layer);
  if (heads) return heads;
  throw new RangeError(
    `${where}: ${name} expected a layer with heads of attention, got ${index}: ${mixerOf(layer).name(layer)}`,
  );
}

/** Outputs begin..end of a projection of each part; its bias is a part of `component`. */
function projectParts(
  where: string,
  kernels: Kernels,
  linear: PackedLinear,
  parts: readonly Part[],
  begin: number,
  end: number,
  component: Component,
): Part[] {
  const rows = parts.map(({ row }) => row);
  const ys = multiplyRows(where, kernels, linear, rows, begin, end);
  const projected = parts.map(({ component }, i): Part => ({ component, row: ys[i] as Float64Array }));
  const bias = Float64Array.from(kernels.memory.f32(linear.bias + 4 * begin, end - begin));
  return bias.some((value) => value !== 0) ? addPart(projected, component, bias) : projected;
}

/** Parts rotated as at a position, from component `start` on. */
function rotateParts(parts: readonly Part[], rotary: Rotary | undefined, start: number, position: number): Part[] {
  if (!rotary) return [...parts];
  const { dim, pairing, fill } = rotary;
  const half = dim / 2;
  const [cos, sin] = [new Float32Array(half), new Float32Array(half)];
  fill([position], cos, sin);
  return mapParts(parts, (row) => {
    const rotated = row.slice();
    for (let i = 0; i < half; i++) {
      const [a, b] = pairing === "half" ? [start + i, start + i + half] : [start + 2 * i, start + 2 * i + 1];
      const [x, y, c, s] = [row[a] as number, row[b] as number, cos[i] as number, sin[i] as number];
      rotated[a] = x * c - y * s;
      rotated[b] = y * c + x * s;
    }
    return rotated;
  });
}
