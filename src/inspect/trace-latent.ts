// The stages of a layer of latent attention on the path "absorbed", and their formulas.

import type { LatentAttention } from "../api/latent-attention.ts";
import type { AttendCall } from "../forward/call.ts";
import { forward } from "../forward/forward.ts";
import { latentChunkRows, stridesOf } from "../forward/latent/scratch.ts";
import type { LatentSite, Tap } from "../forward/tap.ts";
import { createFloats, type Tensor } from "../tensor/tensor.ts";
import { copyRows } from "../util/rows.ts";
import { finish } from "../util/steps.ts";
import { NULL } from "../wasm/abi.ts";
import { type Formula, formulasOf, type StageName } from "./formulas.ts";
import { type Stage, scoreStages, sideBySide, swapAxes } from "./stage-tensors.ts";

/** The formulas of a call. What they share with other layers is that of one head of keys and values. */
export function latentFormulas(
  { config }: LatentAttention,
  call: AttendCall,
): Readonly<Partial<Record<StageName, Formula>>> {
  const { headDim, kvLoraRank, qLoraRank, nopeDim, ropeDim, latentNorm, normEps } = config;
  const shared = formulasOf({ config: { ...config, numKvHeads: 1 }, layer: { sinks: NULL, extraKey: NULL } }, call);
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
export function* latentStages(attention: LatentAttention, call: AttendCall): Generator<Stage, void, void> {
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
  yield* scoreStages(attention, call, qLen);
  yield ["sum", { s: headsOf(columnsOf(where, rows.sums, rank, 0, kvLoraRank), kvLoraRank) }];
  yield ["expand", { z: headsOf(rows.z, valueDim) }];
  yield ["merge", { z: rowsOf(rows.z, numHeads * valueDim) }];
  yield ["output", { y: rowsOf(y, dModel) }];
}

/** What a call has at each site [batch·qLen, …], as wide as in scratch, and its outputs. */
function readRows(attention: LatentAttention, call: AttendCall) {
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
  const y = finish(forward(attention, [call], { where, trace })).ys[0] as Float32Array;
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
