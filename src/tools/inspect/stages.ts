// The stages of a layer of attention as data: in words and formulas, and what they give.

import { createFloats, type Tensor } from "../../base/tensor/tensor.ts";
import { expectInt, readFields } from "../../base/util/arguments.ts";
import { tagOf } from "../../base/util/errors.ts";
import { CHUNK_ROWS, chunksOf, copyRows } from "../../base/util/rows.ts";
import { finish } from "../../base/util/steps.ts";
import { runLinear } from "../../layers/api/linear.ts";
import type { Attention } from "../../layers/attention/attention.ts";
import type { CheckedConfig } from "../../layers/attention/config.ts";
import { HEAD_PASSES, isSelf } from "../../layers/attention/head-passes.ts";
import { type HeadsLayer, normAndRotate, withoutOutputs } from "../../layers/attention/heads.ts";
import { fillTables, type Rotary } from "../../layers/attention/rope.ts";
import { type ScoreStage, scoreColumns } from "../../layers/attention/segment.ts";
import { projectionSizes } from "../../layers/attention/weights.ts";
import { LATENT_PASSES } from "../../layers/latent/latents.ts";
import { type LatentSite, type LatentsLayer, latentChunkRows, stridesOf } from "../../layers/latent/paths.ts";
import type { PackedLinear } from "../../layers/linear/formats.ts";
import type { BlockLayer, MixerCall, MixerLayer, Passes, Tap } from "../../layers/mixer/mixer.ts";
import { type AttendOptions, checkPass, expectAttention, readCall } from "../../layers/pass/call.ts";
import { forward } from "../../layers/pass/forward.ts";
import { expectModel, type Model, type PackedBlock } from "../../models/blocks/model.ts";
import { type F32Ptr, NULL, type NullPtr, RopeShape } from "../../wasm/abi.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { Layout } from "../../wasm/memory.ts";
import { expectHeads, mixerOf, viewOf } from "./views.ts";

/**
 * A stage of attention. All layers have the first nine, in this order; the others follow the stage that they are named with, in
 * layers that have them.
 *
 * | | gives |
 * |---|---|
 * | `project` | `qkv` [qLen, …] with queries, keys and values of all heads side by side; `q`, `k` and `v` if keys come from other rows |
 * | `chunk` | `q` [qLen, numHeads·headDim], `k` [kvLen, numKvHeads·headDim], `v` [kvLen, numKvHeads·valueDim] |
 * | `split` | `q`, `k`, `v` [heads, tokens, dim] |
 * | `scores` | `scores` = scale·q·k, [numHeads, qLen, columns] |
 * | `mask` | `scores` with ALiBi and `bias`, -Infinity for keys that may not be attended. Without any of these: as they were |
 * | `softmax` | `weights` [numHeads, qLen, columns]; with sinks, whose share is left out, a row sums to less than 1 |
 * | `sum` | `z` [numHeads, qLen, valueDim], the values by their weights |
 * | `merge` | `z` [qLen, numHeads·valueDim] |
 * | `output` | `y` [qLen, dModel] |
 * | `norm`, after `split` | `q`, `k` after their norm (RMS norm with `qkNorm`) |
 * | `rotate`, after `split` | `q`, `k` after RoPE |
 * | `extend`, after `split` | `k`, `v` with one more key for `biasK`, and one for `addZeroAttn` |
 * | `softcap`, after `scores` | `scores` after the softcap |
 * | `absorb`, after `split` | of latent attention: `q` [numHeads, qLen, kvLoraRank + ropeDim], multiplied with W_uk; `k` and `v` [1, kvLen, …] |
 * | `expand`, after `sum` | of latent attention: `z` [numHeads, qLen, valueDim] |
 *
 * In layers of latent attention `project` gives `q` and `kv`, `chunk` also `c` and `r` (the latent, and the key that is rotated),
 * `split` only `q`; `norm` is that of `c`, `rotate` that of `q` and `r`, and `sum` gives `s`, the latents by their weights.
 */
export type StageName =
  | "project"
  | "chunk"
  | "split"
  | "norm"
  | "rotate"
  | "extend"
  | "absorb"
  | "scores"
  | "softcap"
  | "mask"
  | "softmax"
  | "sum"
  | "expand"
  | "merge"
  | "output";

/** What a stage does, in a sentence and as a formula. */
interface Formula {
  readonly text: string;
  readonly formula: string;
}

/** Those of a call. */
type Formulas = Readonly<Partial<Record<StageName, Formula>>>;

/** A stage, with shapes of one sequence: the data has those of all, one behind the other. */
type Stage = readonly [name: StageName, tensors: Readonly<Record<string, Tensor>>];

/** The stages of the layers of a mixer. A record is given layers of its own only. */
interface LayerStages<Layer extends MixerLayer = MixerLayer> {
  /** The formulas of the stages of a call. */
  formulas(layer: Layer, call: MixerCall): Formulas;
  /** What the stages give. */
  stages(layer: Layer, call: MixerCall): Iterable<Stage>;
}

// What stages of all layers have in common.

/** From raw scores to weights on `columns` keys. */
function* scoreStages(
  parts: MixerLayer,
  passes: Passes,
  call: MixerCall,
  columns: number,
): Generator<Stage, void, void> {
  const { numHeads, softcap } = parts.config;
  const scoresAt = (stage: ScoreStage): Tensor => {
    const { maps } = finish(forward(parts, passes, [call], { where: call.where, maps: true, stage }));
    return { data: maps, shape: [numHeads, call.qLen, columns] };
  };
  yield ["scores", { scores: scoresAt(0) }];
  if (softcap > 0) yield ["softcap", { scores: scoresAt(1) }];
  yield ["mask", { scores: scoresAt(2) }];
  yield ["softmax", { weights: scoresAt(3) }];
}

/** [batch, a, b, dim] -> [batch, b, a, dim]. */
function swapAxes(where: string, x: Float32Array, batch: number, a: number, b: number, dim: number): Float32Array {
  const out = createFloats(where, "stage", x.length);
  for (let n = 0; n < batch; n++)
    for (let i = 0; i < a; i++)
      for (let j = 0; j < b; j++) {
        const from = ((n * a + i) * b + j) * dim;
        out.set(x.subarray(from, from + dim), ((n * b + j) * a + i) * dim);
      }
  return out;
}

/** `rows` rows of each part, side by side. */
function sideBySide(where: string, rows: number, parts: readonly Float32Array[]): Float32Array {
  const out = createFloats(
    where,
    "stage",
    parts.reduce((sum, { length }) => sum + length, 0),
  );
  let at = 0;
  for (const part of parts) {
    const width = part.length / rows;
    copyRows(out, at, out.length / rows, part, width, width);
    at += width;
  }
  return out;
}

// Softmax heads.

/** The formulas of a call on a layer. h is a head, i a query, j a key; a colon stands for all of an axis. */
function formulasOf(
  {
    config,
    layer,
    headNorm,
  }: Pick<HeadsLayer, "config" | "headNorm"> & {
    readonly layer: Pick<HeadsLayer["layer"], "sinks" | "extraKey">;
  },
  call: MixerCall,
): Formulas {
  const { numHeads, numKvHeads, headDim, valueDim, scale, softcap, qkNorm, rope, addZeroAttn } = config;
  const group = numHeads / numKvHeads;
  const joint = isSelf(call);
  const [q, k] = [numHeads * headDim, numKvHeads * headDim];
  const kvHead = group === 1 ? "h" : numKvHeads === 1 ? "0" : `⌊h / ${group}⌋`;
  const shared = group === 1 ? "" : ` ${group} query heads share a head of keys and values.`;
  const [sinks, hasExtra] = [layer.sinks !== NULL, layer.extraKey !== NULL];
  return {
    project: {
      text: joint
        ? "Each row of x is projected to the queries, keys and values of all heads, in one product."
        : "Queries are projected from the rows of x, keys and values from rows of their own.",
      formula: joint
        ? "qkv = x · [wq; wk; wv]ᵀ + [bq; bk; bv]"
        : "q = x · wqᵀ + bq, k = keys · wkᵀ + bk, v = values · wvᵀ + bv",
    },
    chunk: {
      text: joint
        ? "The columns of queries, keys and values are separated."
        : "Queries, keys and values are separate already.",
      formula: joint
        ? `q = qkv[:, 0 … ${q - 1}], k = qkv[:, ${q} … ${q + k - 1}], v = qkv[:, ${q + k} … ${q + k + numKvHeads * valueDim - 1}]`
        : "q, k, v",
    },
    split: {
      text: "Each head gets its own columns of each row.",
      formula:
        headDim === valueDim
          ? `q[h, i, :] = q[i, ${headDim}·h … ${headDim}·h + ${headDim - 1}], k and v likewise`
          : `q[h, i, :] = q[i, ${headDim}·h … ${headDim}·h + ${headDim - 1}], k likewise, v with ${valueDim} columns a head`,
    },
    norm: {
      text: `Queries and keys are normalised, ${qkNorm?.kind === "full" ? "all heads of a token at once" : "each head by itself"}.`,
      formula: headNorm
        ? `q = (q − mean(q)) / √(var(q) + ${headNorm.eps}) · gain + bias, k likewise`
        : `q = q / √(mean(q²) + ${qkNorm?.eps}) · ${qkNorm?.onePlus ? "(1 + gain)" : "gain"}, k likewise`,
    },
    rotate: {
      text: "Pairs of components are rotated by an angle that grows with the position, so that scores depend on distances.",
      formula: `(a, b) = (a·cos − b·sin, b·cos + a·sin), angle of pair n = position · ${rope?.theta}^(−2n / ${rope?.dim})${rope?.scaling ? `, scaled (${rope.scaling.kind})` : ""}`,
    },
    extend: {
      text: "Every query may also attend keys that belong to no token.",
      formula: `k = [${["k", ...(hasExtra ? ["biasK"] : []), ...(addZeroAttn ? ["0"] : [])].join("; ")}], v likewise`,
    },
    scores: {
      text: `How well each query matches each key: a dot product, times 1/√headDim or the layer's scale.${shared}`,
      formula: `scores[h, i, j] = ${Number(scale.toPrecision(4))} · q[h, i, :] · k[${kvHead}, j, :]`,
    },
    softcap: {
      text: "Scores are limited to ± the softcap, smoothly.",
      formula: `scores = ${softcap} · tanh(scores / ${softcap})`,
    },
    mask: maskFormula(config, call),
    softmax: {
      text: `The scores of each query become weights that sum to 1${sinks ? ", less the share of the head's sink, which has no value" : ""}. A query with no key to attend gives zeros.`,
      formula: sinks
        ? "weights[h, i, j] = e^scores[h, i, j] / (e^sink[h] + Σ e^scores[h, i, :])"
        : "weights[h, i, j] = e^scores[h, i, j] / Σ e^scores[h, i, :]",
    },
    sum: {
      text: "Each query gets the values of the keys that it attends, by their weights.",
      formula: `z[h, i, :] = Σ weights[h, i, j] · v[${kvHead}, j, :] over j`,
    },
    merge: {
      text: "What the heads give lies side by side again.",
      formula: `z[i, ${valueDim}·h … ${valueDim}·h + ${valueDim - 1}] = z[h, i, :]`,
    },
    output: {
      text: "The output projection mixes what the heads give.",
      formula: "y = z · woᵀ + bo",
    },
  };
}

/** What is added to scores, and which keys are excluded. */
function maskFormula({ causal, window, slopes }: CheckedConfig, { masks, placements }: MixerCall): Formula {
  const excluded = [
    ...(causal ? ["j > i"] : window.right < Infinity ? [`j > i + ${window.right}`] : []),
    ...(window.left < Infinity ? [`j < i − ${window.left}`] : []),
    ...masks.keep.map(({ drops }) => (drops ? "drop[h, i, j]" : "not keep[h, i, j]")),
  ];
  const changed = `scores[h, i, j]${slopes ? " − slope[h] · |i − j|" : ""}${masks.bias ? " + bias[h, i, j]" : ""}`;
  const { position = 0 } = placements[0] ?? {};
  const start = position === 0 ? "" : `, with the first query at i = ${position}`;
  if (excluded.length > 0)
    return {
      text: "Keys that a query may not attend get a score of minus infinity, hence no weight.",
      formula: `scores[h, i, j] = −∞ where ${excluded.join(" or ")}, else ${changed}${start}`,
    };
  const text = slopes
    ? "Scores fall with the distance."
    : masks.bias
      ? "The bias is added to the scores."
      : "Nothing is masked: scores stay as they are.";
  return { text, formula: `scores[h, i, j] = ${changed}${slopes ? start : ""}` };
}

/** The stages of a call on a layer of `createAttention`. */
function* headStages(attention: HeadsLayer, call: MixerCall): Generator<Stage, void, void> {
  const { kernels, config, layer, rotary, headNorm } = attention;
  const { where, x, keys, values, batch, qLen, newKeys: kvLen, positions, keyPositions } = call;
  const { dModel, numHeads, numKvHeads, headDim, valueDim } = config;
  const sizes = {
    q: { heads: numHeads, len: qLen, dim: headDim },
    k: { heads: numKvHeads, len: kvLen, dim: headDim },
    v: { heads: numKvHeads, len: kvLen, dim: valueDim },
  };
  const rowsOf = (part: Projected, data: Float32Array): Tensor => {
    const { heads, len, dim } = sizes[part];
    return { data, shape: [len, heads * dim] };
  };
  const headsOf = (part: Projected, data: Float32Array): Tensor => {
    const { heads, len, dim } = sizes[part];
    return { data: swapAxes(where, data, batch, len, heads, dim), shape: [heads, len, dim] };
  };

  const [q, k, v] = [
    projectPart(where, attention, "q", x),
    projectPart(where, attention, "k", keys),
    projectPart(where, attention, "v", values),
  ];
  const chunk = { q: rowsOf("q", q), k: rowsOf("k", k), v: rowsOf("v", v) };
  const width = (numHeads + numKvHeads) * headDim + numKvHeads * valueDim;
  yield [
    "project",
    isSelf(call) ? { qkv: { data: sideBySide(where, batch * qLen, [q, k, v]), shape: [qLen, width] } } : chunk,
  ];
  yield ["chunk", chunk];
  const split = { q: headsOf("q", q), k: headsOf("k", k), v: headsOf("v", v) };
  yield ["split", split];
  const placed = (by: Rotary | undefined) => ({
    q: headsOf("q", placeHeads(where, attention, by, "q", q, positions)),
    k: headsOf("k", placeHeads(where, attention, by, "k", k, keyPositions)),
  });
  if (config.qkNorm || headNorm) yield ["norm", placed(undefined)];
  if (rotary) yield ["rotate", placed(rotary)];

  const columns = scoreColumns(kvLen, layer.extraKey !== NULL, config.addZeroAttn);
  if (columns > kvLen) {
    const extend = (tensor: Tensor, extra: F32Ptr | NullPtr) =>
      extendKeys(where, kernels, batch, tensor, extra, columns);
    yield ["extend", { k: extend(placed(rotary).k, layer.extraKey), v: extend(split.v, layer.extraValue) }];
  }

  yield* scoreStages(attention, HEAD_PASSES, call, columns);

  const z = finish(forward(withoutOutputs(attention), HEAD_PASSES, [call], { where })).ys[0] as Float32Array;
  yield [
    "sum",
    { z: { data: swapAxes(where, z, batch, qLen, numHeads, valueDim), shape: [numHeads, qLen, valueDim] } },
  ];
  yield ["merge", { z: { data: z, shape: [qLen, numHeads * valueDim] } }];
  const y = finish(forward(attention, HEAD_PASSES, [call], { where })).ys[0] as Float32Array;
  yield ["output", { y: { data: y, shape: [qLen, dModel] } }];
}

type Projected = "q" | "k" | "v";

/** `batch` times keys or values [heads, len, dim] with the layer's own one, and one of zeros, up to `columns` of them. */
function extendKeys(
  where: string,
  { memory }: Kernels,
  batch: number,
  { data, shape }: Tensor,
  extra: F32Ptr | NullPtr,
  columns: number,
): Tensor {
  const [heads, len, dim] = shape as [number, number, number];
  const out = createFloats(where, "stage", batch * heads * columns * dim);
  copyRows(out, 0, columns * dim, data, len * dim, len * dim);
  if (extra !== NULL)
    for (let row = 0; row < batch * heads; row++) {
      const own = memory.f32(extra, heads * dim).subarray((row % heads) * dim, ((row % heads) + 1) * dim);
      out.set(own, (row * columns + len) * dim);
    }
  return { data: out, shape: [heads, columns, dim] };
}

/** Rows x [rows, inputs] times the layer's wq, wk or wv, plus the bias: [rows, heads·dim]. */
function projectPart(
  where: string,
  { kernels, config, layer }: HeadsLayer,
  part: "q" | "k" | "v",
  x: Float32Array,
): Float32Array {
  const { n: outputs, k: inputs } = projectionSizes(config)[part];
  const packed = layer.linears[part] as PackedLinear;
  const linear = { kernels, packed, mode: layer.mode, outputs, inputs, format: packed.format };
  return finish(runLinear({ where, layer: linear, rows: x.length / inputs, x, out: undefined }));
}

/**
 * Projected queries or keys [rows, heads·headDim], normalised as the layer does it, and rotated to the RoPE `positions` [rows] with
 * `rotary`.
 */
function placeHeads(
  where: string,
  layer: HeadsLayer,
  rotary: Rotary | undefined,
  part: "q" | "k",
  projected: Float32Array,
  positions: Int32Array,
): Float32Array {
  const { kernels, config } = layer;
  const { memory } = kernels;
  const width = (part === "q" ? config.numHeads : config.numKvHeads) * config.headDim;
  const rows = projected.length / width;
  const chunk = Math.min(rows, CHUNK_ROWS);
  const half = (rotary?.dim ?? 0) / 2;
  const out = createFloats(where, part, projected.length);
  const layout = new Layout();
  const x = layout.floats(chunk * width);
  const [cos, sin] = [layout.floats(chunk * half), layout.floats(chunk * half)];
  const places = { q: x, k: x, cos, sin, ropeShape: layout.take(RopeShape.bytes), stride: { qkv: width } };
  const attention = { kernels, config, rotary, layer: layer.layer, headNorm: layer.headNorm, rules: layer.rules };
  const work = { attention, places, base: memory.scratch(where, layout.bytes) };
  for (const [begin, end] of chunksOf(rows, CHUNK_ROWS)) {
    const inMemory = memory.f32(work.base + x, (end - begin) * width);
    inMemory.set(projected.subarray(begin * width, end * width));
    fillTables(work, [{ of: positions, begin, end, at: 0 }], (all) => all);
    normAndRotate(work, part, end - begin);
    out.set(inMemory, begin * width);
  }
  return out;
}

const HEAD_STAGES: LayerStages<HeadsLayer> = { formulas: formulasOf, stages: headStages };

// Latent attention, on the path "absorbed".

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
  if (config.rope) yield ["rotate", { q: headsOf(rows.rotated, headDim), r: rotatedOf(rows.latents) }];
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

const LATENT_STAGES: LayerStages<LatentsLayer> = { formulas: latentFormulas, stages: latentStages };

/** The stages of layers by the name of their mixer. */
const STAGES: Readonly<Record<string, LayerStages>> = { heads: HEAD_STAGES, latents: LATENT_STAGES };

// All stages of a layer.

/** Options of `traceAttention`: those of `attend` that do not concern a cache, padding or where y is written. */
export type TraceOptions = Pick<
  AttendOptions,
  "batch" | "keys" | "values" | "align" | "keep" | "drop" | "bias" | "positions"
>;

const OPTIONS = [
  ...(["batch", "keys", "values", "align"] as const),
  ...(["keep", "drop", "bias", "positions"] as const),
] as const;

/** A layer of a whole decoder. */
export interface ModelLayer {
  /** What `loadModel` gave. */
  readonly model: Model;
  /** 0 for the first layer. */
  readonly layer: number;
}

/** One stage of attention, as plain data. */
export interface AttentionStage {
  /** One of nine that all layers have, or of six that some have besides. */
  readonly name: StageName;
  /** What the stage does, in a sentence. */
  readonly text: string;
  /** The same as a formula, with the numbers of the layer. Biases that it lacks are zeros. */
  readonly formula: string;
  /** What the stage gives, by the letters of the formula. */
  readonly tensors: Readonly<Record<string, Tensor>>;
}

/**
 * The stages of an attention layer on x, one after the other, each with its formula and what it gives: to step through, forwards and
 * backwards. They come from the layer's own kernels and weights, in the formats that these have. `z` and `y` have the bits of
 * `attend`, `weights` those of `attendWithMaps`. Each stage is what its formula makes of the stage before within rounding.
 *
 * It takes memory for all stages at once, three times numHeads·qLen·kvLen floats or more, and some times as long as `attend`.
 * @param attention A layer of `createAttention` or of `createLatentAttention`, or one of a decoder. Those of latent attention are
 * traced on the path "absorbed", where latents are the keys and values of all heads.
 * @param x Input rows [batch, qLen, dModel]: for a decoder's layer, what `forwardWith` captures at "attnIn" of all tokens. Then y
 * is what it captures at "attnOut", before the norm of attention's output that some models have.
 * @returns The stages. Shapes begin with batch where `options.batch` is given.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `OUT_OF_MEMORY` or `RELEASED`.
 * @example
 * import { createAttention, loadKernels } from "headwise";
 * import { traceAttention } from "headwise/inspect";
 * const kernels = await loadKernels();
 * const eye = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
 * const attention = createAttention(kernels, { dModel: 4, numHeads: 2, causal: true }, { wq: eye, wk: eye, wv: eye, wo: eye });
 * const stages = traceAttention(attention, Float32Array.of(1, 0, 0, 0, 0, 1, 0, 0));
 * console.log(stages.map(({ name }) => name).join(" ")); // project chunk split scores mask softmax sum merge output
 * console.log(stages[5]?.formula, stages[5]?.tensors.weights?.shape); // weights[h, i, j] = e^scores[h, i, j] / Σ e^scores[h, i, :] [ 2, 2, 2 ]
 * kernels.release();
 */
export function traceAttention(
  attention: Attention | ModelLayer,
  x: Float32Array,
  options: TraceOptions = {},
): AttentionStage[] {
  const where = "traceAttention";
  const given = readCall(where, x, options, OPTIONS);
  const layer = layerOf(where, attention);
  expectAttention(where, layer);
  const view = viewOf(layer);
  const call = checkPass(where, layer, view.passes, given);
  const lead = given.options.batch === undefined ? [] : [call.batch];
  const { formulas, stages } = STAGES[layer.kind] as (typeof STAGES)[string];
  const texts = formulas(layer, call);
  return Array.from(stages(layer, call), ([name, tensors]): AttentionStage => {
    const batched = Object.entries(tensors).map(([letter, { data, shape }]) => [
      letter,
      { data, shape: [...lead, ...shape] },
    ]);
    return { name, ...(texts[name] as NonNullable<(typeof texts)[StageName]>), tensors: Object.fromEntries(batched) };
  });
}

function layerOf(where: string, attention: Attention | ModelLayer): Attention | BlockLayer {
  if (tagOf(attention) === "Model")
    throw new TypeError(`${where}: attention expected { model, layer } for a layer of a model, got Model`);
  if (attention === null || typeof attention !== "object" || !("model" in attention)) return attention;
  const { model, layer } = readFields(where, "attention", attention, ["model", "layer"]);
  expectModel(where, model);
  const { blocks } = model.weights;
  const index = expectInt(where, "attention.layer", layer, 0, blocks.length - 1);
  const { attention: own } = blocks[index] as PackedBlock;
  const heads = expectHeads(where, "attention.layer", own, index);
  if (!heads.isPart) return own;
  throw new RangeError(
    `${where}: attention.layer expected one of attention alone, got ${index}: ${mixerOf(own).name(own)}`,
  );
}
