// What tools see of layers of latent attention, on the path "absorbed".

import { createFloats, type Tensor } from "../../base/tensor/tensor.ts";
import { copyRows } from "../../base/util/rows.ts";
import { finish } from "../../base/util/steps.ts";
import { LATENT_PASSES } from "../../layers/latent/latents.ts";
import {
  floatKeySizes,
  type LatentSite,
  type LatentsLayer,
  latentChunkRows,
  stridesOf,
} from "../../layers/latent/paths.ts";
import type { PackedLinear } from "../../layers/linear/formats/format.ts";
import type { MixerCall, Tap } from "../../layers/mixer/mixer.ts";
import { forward } from "../../layers/pass/forward.ts";
import { createPageLayout } from "../../layers/state/pages.ts";
import { NULL } from "../../wasm/abi.ts";
import {
  type Formula,
  type Formulas,
  formulasOf,
  type LayerView,
  type Side,
  type Stage,
  scoreStages,
  sideBySide,
  swapAxes,
} from "./head-view.ts";
import {
  addRounding,
  type Component,
  freezeNorm,
  mapParts,
  normParts,
  type Part,
  projectParts,
  rotateParts,
} from "./parts.ts";
import { multiply, multiplyRows, readMatrix, scaleRows } from "./read-weights.ts";

/** The formulas of a call. What they share with other layers is that of one head of keys and values. */
function latentFormulas({ config }: LatentsLayer, call: MixerCall): Formulas {
  const { headDim, kvLoraRank, qLoraRank, nopeDim, ropeDim, latentNorm, normEps } = config;
  const shared = formulasOf(
    { config: { ...config, numKvHeads: 1 }, headNorm: undefined, layer: { sinks: NULL, extraKey: NULL } },
    call,
  );
  const down = "x · wqDownᵀ + bqDown";
  const from = qLoraRank === 0 ? "x · wqᵀ" : `${latentNorm ? "norm" : ""}(${down}) · wqUpᵀ`;
  return {
    ...shared,
    project: {
      text: `Each row of x is projected to the queries of all heads${qLoraRank > 0 ? ", through a latent of queries," : ""} and to a latent of keys and values${ropeDim > 0 ? ", with a key that is rotated" : ""}.`,
      formula: `q = ${from} + bq, kv = x · wkvDownᵀ + bkvDown`,
    },
    chunk: {
      text: ropeDim > 0 ? "The latent and the key that is rotated are separated." : "The latent is all of kv.",
      formula:
        ropeDim > 0
          ? `c = kv[:, 0 … ${kvLoraRank - 1}], r = kv[:, ${kvLoraRank} … ${kvLoraRank + ropeDim - 1}]`
          : "c = kv",
    },
    split: {
      text: "Each head gets its own columns of the queries. Latents have no heads.",
      formula: `q[h, i, :] = q[i, ${headDim}·h … ${headDim}·h + ${headDim - 1}]`,
    },
    norm: { text: "Latents are normalised.", formula: `c = c / √(mean(c²) + ${normEps}) · kvNorm` },
    rotate: {
      text: "Pairs of components of r, and of those of queries that r is multiplied by, are rotated by an angle that grows with the position.",
      formula: (shared.rotate as Formula).formula,
    },
    absorb: {
      text: "Queries are multiplied with W_uk of their head, so that latents themselves are keys and values, which all heads share.",
      formula:
        ropeDim > 0
          ? `q[h, i, :] = [q[h, i, 0 … ${nopeDim - 1}] · W_uk[h]; q[h, i, ${nopeDim} … ${headDim - 1}]], k[0, j, :] = [c[j, :]; r[j, :]], v[0, j, :] = c[j, :]`
          : "q[h, i, :] = q[h, i, :] · W_uk[h], k[0, j, :] = v[0, j, :] = c[j, :]",
    },
    sum: {
      text: "Each query gets the latents of the tokens that it attends, by their weights.",
      formula: "s[h, i, :] = Σ weights[h, i, j] · v[0, j, :] over j",
    },
    expand: {
      text: "The latents of each head are multiplied with its W_uv.",
      formula: "z[h, i, :] = s[h, i, :] · W_uv[h]ᵀ",
    },
  };
}

/** The stages of a call. */
function* latentStages(attention: LatentsLayer, call: MixerCall): Generator<Stage, void, void> {
  const { config } = attention;
  const { where, batch, qLen } = call;
  const { dModel, numHeads, headDim, valueDim, kvLoraRank, ropeDim, latentNorm } = config;
  const { rank, dim } = stridesOf(config);
  const { rows, y } = readRows(attention, call);
  const width = kvLoraRank + ropeDim;
  const rowsOf = (data: Float32Array, dim: number): Tensor => ({ data, shape: [qLen, dim] });
  const headsOf = (data: Float32Array, dim: number): Tensor => {
    return { data: swapAxes(where, data, batch, qLen, numHeads, dim), shape: [numHeads, qLen, dim] };
  };
  const latentsOf = (data: Float32Array) => columnsOf(where, data, width, 0, kvLoraRank);
  const rotatedOf = (data: Float32Array) => rowsOf(columnsOf(where, data, width, kvLoraRank, ropeDim), ropeDim);

  const q = rowsOf(rows.q, numHeads * headDim);
  yield ["project", { q, kv: rowsOf(rows.k, width) }];
  const c = rowsOf(latentsOf(rows.k), kvLoraRank);
  yield ["chunk", { q, c, ...(ropeDim > 0 && { r: rotatedOf(rows.k) }) }];
  yield ["split", { q: headsOf(rows.q, headDim) }];
  const latents = latentsOf(rows.latents);
  if (latentNorm) yield ["norm", { c: rowsOf(latents, kvLoraRank) }];
  if (ropeDim > 0) yield ["rotate", { q: headsOf(rows.rotated, headDim), r: rotatedOf(rows.latents) }];
  const parts = [
    columnsOf(where, rows.absorbed, dim, 0, kvLoraRank),
    columnsOf(where, rows.absorbed, dim, rank, ropeDim),
  ];
  const absorbed = sideBySide(where, batch * qLen * numHeads, parts);
  const k = { data: rows.latents, shape: [1, qLen, width] };
  yield ["absorb", { q: headsOf(absorbed, width), k, v: { data: latents, shape: [1, qLen, kvLoraRank] } }];
  yield* scoreStages(attention, LATENT_PASSES, call, qLen);
  yield ["sum", { s: headsOf(columnsOf(where, rows.sums, rank, 0, kvLoraRank), kvLoraRank) }];
  yield ["expand", { z: headsOf(rows.z, valueDim) }];
  yield ["merge", { z: rowsOf(rows.z, numHeads * valueDim) }];
  yield ["output", { y: rowsOf(y, dModel) }];
}

/** What a call has at each site [batch·qLen, …], as wide as in scratch, and its outputs. */
function readRows(attention: LatentsLayer, call: MixerCall) {
  const { kernels, config } = attention;
  const { where, batch, qLen } = call;
  const { numHeads, headDim, valueDim, kvLoraRank, ropeDim } = config;
  const { rank, dim } = stridesOf(config);
  const total = batch * qLen;
  const chunk = latentChunkRows(config, "absorbed", total);
  const [queries, latents] = [numHeads * headDim, kvLoraRank + ropeDim];
  const create = (width: number) => ({ width, data: createFloats(where, "stage", total * width), done: 0 });
  const sites: Readonly<Record<LatentSite, ReturnType<typeof create>>> = {
    ...{ q: create(queries), rotated: create(queries), k: create(latents), latents: create(latents), v: create(0) },
    ...{ absorbed: create(numHeads * dim), sums: create(numHeads * rank), z: create(numHeads * valueDim) },
  };
  const trace: Tap<LatentSite> = (name, { at, stride }) => {
    const site = sites[name];
    const count = Math.min(chunk, total - site.done);
    const from = kernels.memory.f32(at, count * stride);
    copyRows(site.data, site.done * site.width, site.width, from, stride, site.width);
    site.done += count;
  };
  const y = finish(forward(attention, LATENT_PASSES, [call], { where, trace })).ys[0] as Float32Array;
  const rows = Object.fromEntries(Object.entries(sites).map(([name, { data }]) => [name, data]));
  return { rows: rows as Record<LatentSite, Float32Array>, y };
}

/** Columns from..from + width of rows of `stride` floats. */
function columnsOf(where: string, x: Float32Array, stride: number, from: number, width: number): Float32Array {
  const out = createFloats(where, "stage", (x.length / stride) * width);
  for (let row = 0; row * stride < x.length; row++)
    out.set(x.subarray(row * stride + from, row * stride + from + width), row * width);
  return out;
}

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

export const LATENT_VIEW: LayerView<LatentsLayer> = {
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
  formulas: latentFormulas,
  stages: latentStages,
};
