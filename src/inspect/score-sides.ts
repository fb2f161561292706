// A query and a key as sums of parts by component, in the space in which attention multiplies them.

import type { LatentAttention } from "../api/latent-attention.ts";
import type { Attention, HeadNorm } from "../attention/attention.ts";
import type { CheckedConfig } from "../attention/config.ts";
import type { Rotary } from "../attention/rope.ts";
import type { PackedBlock } from "../decoder/packed.ts";
import type { PackedLinear } from "../linear/linear.ts";
import { NULL } from "../wasm/abi.ts";
import type { Kernels } from "../wasm/kernels.ts";
import { type CapturedRun, rowAt } from "./captured-run.ts";
import { readParts } from "./decompose.ts";
import { addPart, addRounding, type Component, freezeNorm, mapParts, normParts, type Part, sumOf } from "./parts.ts";
import { isLatent, kvHeadOf, multiplyRows } from "./read-weights.ts";

/** The query, or the key, of a head at a token. */
export interface Side {
  readonly of: "q" | "k";
  readonly layer: number;
  /** A query head. */
  readonly head: number;
  readonly token: number;
}

/** The parts of a side, from those of the residual before the layer: of a head's query or key, normalised and rotated. */
export function sideParts(where: string, run: CapturedRun, side: Side, resid: readonly Part[]): Part[] {
  const { layer, of } = side;
  const { attention } = run.model.weights.blocks[layer] as PackedBlock;
  const component: Component = { kind: "bias", at: of, layer };
  const x = readParts(run.model, layer, resid, component);
  return isLatent(attention)
    ? latentParts(where, run, attention, side, x, component)
    : headParts(where, run, attention, side, x, component);
}

function headParts(
  where: string,
  run: CapturedRun,
  attention: Attention,
  { of, layer, head: query, token }: Side,
  x: readonly Part[],
  component: Component,
): Part[] {
  const { kernels } = run.model;
  const { config, rotary, headNorm } = attention;
  const { headDim, qkNorm } = config;
  const head = of === "q" ? query : kvHeadOf(config, query);
  const linear = attention.layer.linears[of];
  const [begin, end] = [head * headDim, (head + 1) * headDim];
  const all = rowAt(run, of, layer, token);
  const own = all.subarray(begin, end);
  let parts = addRounding(projectParts(where, kernels, linear, x, begin, end, component), own);
  if (headNorm) parts = normParts(headNormOf(kernels, config, headNorm, of, head), parts, component);
  if (qkNorm) {
    const full = qkNorm.kind === "full";
    const gain = kernels.memory.f32(attention.layer[`${of}Norm`] + (full ? 4 * begin : 0), headDim);
    parts = mapParts(parts, freezeNorm({ kind: "rms", eps: qkNorm.eps, gain }, full ? all : sumOf(parts)));
  }
  return rotate(parts, rotary, rotary?.start ?? 0, run.past + token);
}

/**
 * Latent attention: queries are multiplied by W_uk of their head, and so scored against latents, behind which lies the part with
 * position: [kvLoraRank + ropeDim].
 */
function latentParts(
  where: string,
  run: CapturedRun,
  { config, latents, rotary }: LatentAttention,
  { of, layer, head, token }: Side,
  x: readonly Part[],
  component: Component,
): Part[] {
  const { kernels } = run.model;
  const { headDim, nopeDim, kvLoraRank, qLoraRank, ropeDim, normEps: eps } = config;
  const position = run.past + token;
  const project = (linear: PackedLinear, parts: readonly Part[], begin: number, end: number) =>
    projectParts(where, kernels, linear, parts, begin, end, component);
  const normOf = (at: number | undefined, length: number) =>
    at && ({ kind: "rms", eps, gain: kernels.memory.f32(at, length).slice(), bias: undefined } as const);
  if (of === "k") {
    const all = rowAt(run, of, layer, token);
    const parts = addRounding(project(latents.kvDown, x, 0, kvLoraRank + ropeDim), all);
    const norm = normOf(latents.kvNorm, kvLoraRank);
    const normed = norm ? freezeNorm(norm, all.subarray(0, kvLoraRank)) : (row: Float64Array) => row;
    const keys = mapParts(parts, (row) => join(normed(row.subarray(0, kvLoraRank)), row.subarray(kvLoraRank)));
    return rotate(keys, rotary, kvLoraRank, position);
  }
  let from = x;
  if (latents.qDown) {
    from = project(latents.qDown, x, 0, qLoraRank);
    const norm = normOf(latents.qNorm, qLoraRank);
    if (norm) from = normParts(norm, from, component);
  }
  const [begin, end] = [head * headDim, (head + 1) * headDim];
  const own = rowAt(run, of, layer, token).subarray(begin, end);
  const queries = rotate(addRounding(project(latents.q, from, begin, end), own), rotary, nopeDim, position);
  const plain = queries.map(({ row }) => row.subarray(0, nopeDim));
  const absorbed = multiplyRows(where, kernels, latents.kAbsorbed[head] as PackedLinear, plain, 0, kvLoraRank);
  return queries.map(({ component, row }, i) => {
    return { component, row: join(absorbed[i] as Float64Array, row.subarray(nopeDim)) };
  });
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

/** The layer norm of one head of queries or keys. */
function headNormOf({ memory }: Kernels, { headDim }: CheckedConfig, norm: HeadNorm, of: "q" | "k", head: number) {
  const { step, gain, bias } = norm[of];
  const vector = (at: number) => memory.f32(at + head * step, headDim).slice();
  return { kind: "layer", eps: norm.eps, gain: vector(gain), bias: bias === NULL ? undefined : vector(bias) } as const;
}

/** Parts rotated as at a position, from component `start` on. */
function rotate(parts: readonly Part[], rotary: Rotary | undefined, start: number, position: number): Part[] {
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

function join(first: Float64Array, second: Float64Array): Float64Array {
  const joined = new Float64Array(first.length + second.length);
  joined.set(first);
  joined.set(second, first.length);
  return joined;
}
