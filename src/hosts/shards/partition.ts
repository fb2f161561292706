// Cuts layers and calls into the parts that belong to some heads.

import { PANEL } from "../../../assembly/layout.ts";
import { cutOutputs, type MatrixLayout } from "../../base/tensor/matrix.ts";
import { tagOf } from "../../base/util/errors.ts";
import type { CheckedConfig } from "../../layers/attention/config.ts";
import type { GivenMasks } from "../../layers/attention/mask.ts";
import type { CheckedWeights } from "../../layers/attention/weights.ts";
import { type CheckedLinear, panelsOf } from "../../layers/linear/formats.ts";

import type { CheckedCall } from "../../layers/mixer/mixer.ts";
import type { AttendOptions, CallOptions } from "../../layers/pass/call.ts";

/** A range begin..end: of floats, heads or columns. */
export interface Span {
  readonly begin: number;
  readonly end: number;
}

/**
 * The work of a shard: the heads that it attends with, and the columns of y that it computes from the outputs of all
 * heads.
 */
export interface Share {
  readonly kvHeads: Span;
  readonly columns: Span;
}

/** Cuts 0..total into `count` spans whose lengths differ by at most one. */
function spansOf(total: number, count: number): Span[] {
  const border = (i: number) => Math.floor((i * total) / count);
  return Array.from({ length: count }, (_, i) => ({ begin: border(i), end: border(i + 1) }));
}

const times = ({ begin, end }: Span, factor: number): Span => ({ begin: begin * factor, end: end * factor });
export const lengthOf = ({ begin, end }: Span): number => end - begin;

/**
 * The shares of `count` shards, at most numKvHeads: whole key-value heads, so that each key is stored once, and whole
 * panels of wo.
 */
export function sharesOf({ numKvHeads, dModel }: CheckedConfig, count: number): Share[] {
  const panels = spansOf(panelsOf(dModel), count);
  return spansOf(numKvHeads, count).map((kvHeads, i) => {
    const { begin, end } = times(panels[i] as Span, PANEL);
    return { kvHeads, columns: { begin, end: Math.min(end, dModel) } };
  });
}

/** The query heads of a share. */
function headsOf({ numHeads, numKvHeads }: CheckedConfig, { kvHeads }: Share): Span {
  return times(kvHeads, numHeads / numKvHeads);
}

/** The range of a share's outputs in a row of all heads' outputs. */
export function outputsOf(config: CheckedConfig, share: Share): Span {
  return times(headsOf(config, share), config.valueDim);
}

/** The configuration of the layer that consists of a share's heads. */
export function cutConfig(config: CheckedConfig, share: Share): CheckedConfig {
  const heads = headsOf(config, share);
  const slopes = config.slopes?.slice(heads.begin, heads.end);
  return { ...config, numHeads: lengthOf(heads), numKvHeads: lengthOf(share.kvHeads), slopes };
}

/** The weights of that layer, and the part of wo for the share's columns of y, all as copies. */
export function cutWeights(
  config: CheckedConfig,
  { layout, formats, fast, linears, vectors }: CheckedWeights,
  share: Share,
): { weights: CheckedWeights; wo: CheckedLinear } {
  const { headDim, valueDim } = config;
  const heads = headsOf(config, share);
  const [q, k, v] = [times(heads, headDim), times(share.kvHeads, headDim), times(share.kvHeads, valueDim)];
  // The arrays are views that were made when the weights were read: `slice` copies them, which it does not in a subclass.
  const cut = (data: Float32Array | undefined, { begin, end }: Span) => data?.slice(begin, end);
  const weights: CheckedWeights = {
    ...{ layout, formats, fast },
    linears: {
      q: cutLinear(linears.q, layout, q),
      k: cutLinear(linears.k as CheckedLinear, layout, k),
      v: cutLinear(linears.v as CheckedLinear, layout, v),
      o: undefined,
    },
    vectors: {
      qNorm: vectors.qNorm?.slice(),
      kNorm: vectors.kNorm?.slice(),
      slopes: cut(vectors.slopes, heads),
      sinks: cut(vectors.sinks, heads),
      extraKey: cut(vectors.extraKey, k),
      extraValue: cut(vectors.extraValue, v),
    },
  };
  return { weights, wo: cutLinear(linears.o as CheckedLinear, layout, share.columns) };
}

/** Outputs begin..end of a matrix of any dtype, as a copy. */
function cutLinear({ w, bias }: CheckedLinear, layout: MatrixLayout, { begin, end }: Span): CheckedLinear {
  const part = cutOutputs(w, layout, begin, end);
  return { w: { ...part, bytes: part.bytes.slice() }, bias: bias?.slice(begin, end) };
}

/** The options of a checked call, as `readCall` gave them, for a share's heads, without cache and x, all as copies. */
export function cutOptions(
  config: CheckedConfig,
  options: CallOptions & GivenMasks,
  { batch, positions, placements }: CheckedCall,
  share: Share,
): AttendOptions {
  const { append, align, kvLengths, keys, values, keep, drop, bias } = options;
  const heads = headsOf(config, share);
  // If keys and values are one array, one product projects both, so they stay one array.
  const same = values === keys && config.kdim === config.vdim;
  return {
    ...{ batch, append, align },
    kvLengths: kvLengths && placements.map(({ kvLen }) => kvLen),
    positions: options.positions && positions.slice(),
    keys: keys?.slice(),
    values: same ? undefined : values?.slice(),
    keep: keep && cutPlanes(keep.data, keep.shape, heads),
    drop: drop && cutPlanes(drop.data, drop.shape, heads),
    bias: bias && cutPlanes(bias.data, bias.shape, heads),
  };
}

/**
 * The heads' part of [batch or 1][numHeads or 1][..][..], of rank 1 to 4; all of it if it is the same for all heads. The part has rank
 * 4, because a share may have as many heads as there are sequences.
 */
function cutPlanes<T extends Uint8Array | Float32Array>(
  data: T,
  shape: readonly number[],
  heads: Span,
): { data: T; shape: readonly number[] } {
  const axis = shape.length - 3;
  const planes = shape[axis] ?? 1;
  if (planes === 1) return { data: data.slice() as T, shape };
  const plane = data.length / (planes * (shape[axis - 1] ?? 1));
  const { begin, end } = times(heads, plane);
  const cut = data.slice(0, (data.length / planes) * lengthOf(heads)) as T;
  for (let from = 0, to = 0; from < data.length; from += planes * plane, to += end - begin)
    cut.set(data.subarray(from + begin, from + end), to);
  const own = shape.map((length, i) => (i === axis ? lengthOf(heads) : length));
  return { data: cut, shape: axis === 0 ? [1, ...own] : own };
}

/** All typed arrays in a value, which may hold some more than once. */
export function arraysIn(value: unknown): ArrayBufferView[] {
  if (ArrayBuffer.isView(value)) return [value];
  if (!["Object", "Array"].includes(tagOf(value))) return [];
  return Object.values(value as object).flatMap(arraysIn);
}
