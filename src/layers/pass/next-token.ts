// The next token of a cache: what does not change between tokens is checked and planned once.

import { createFloats } from "../../base/tensor/tensor.ts";
import { finish } from "../../base/util/steps.ts";
import { pointer } from "../../wasm/memory.ts";
import type { Attention } from "../attention/attention.ts";
import { isSelf, outputRows, type PassPlaces, placePass } from "../attention/head-passes.ts";
import { isHeads, type LayerWork, layerShape, runAttention, widthOf } from "../attention/heads.ts";
import { fillTables } from "../attention/rope.ts";
import { workFloats } from "../attention/segment.ts";
import type { CallTokens } from "../mixer/mixer.ts";
import type { Cache } from "./cache.ts";
import { type AttendCall, type AttendOptions, type GivenCall, isApart, tokensBehind } from "./call.ts";

/** Bytes of scratch, and how a token works there: no views, so that a cache that outlives its kernels keeps no memory. */
interface NextToken {
  readonly bytes: number;
  readonly places: PassPlaces;
  readonly work: LayerWork;
  /** Those of the first token of a sequence. */
  readonly tokens: CallTokens;
}

const NEXT = new WeakMap<Cache, NextToken>();

/** Prepares the tokens that follow a call, if it was one: of one sequence, whose keys come from x and do not age. */
export function prepareNext(attention: Attention, call: AttendCall): void {
  const { cache, where } = call;
  if (!cache || !isHeads(attention) || cache.pages.ages || call.batch * call.qLen !== 1 || !isSelf(call)) return;
  const { config, layer } = attention;
  if (!layer.products.qkv) return;
  const needs = { tokens: 1, work: workFloats(cache.pages.layout), keep: 0, bias: 0, scores: 0 };
  const plan = placePass(config, layer.formats, 1, [needs]);
  const places = plan.places.layer;
  const shape = layerShape(attention, places.stride);
  const work = { attention, shape, places, base: 0, stepFlops: Number.POSITIVE_INFINITY, maps: undefined };
  NEXT.set(cache, { ...plan, work, tokens: tokensBehind(where, config, 0, 1) });
}

/**
 * The next token of a cache for which it is prepared. Returns undefined if the call is another one or breaks a rule, and then
 * nothing has changed.
 */
export function attendNext(
  where: string,
  attention: Attention,
  { x, options, out: given }: GivenCall<AttendOptions>,
): Float32Array | undefined {
  const { cache, out } = options;
  const next = cache && NEXT.get(cache);
  if (!next || cache?.attention !== attention) return undefined;
  const { kernels, config } = attention;
  const { length: past, pages } = cache;
  const width = widthOf(next.work.attention);
  if (
    // `options` is a copy, in which only fields that are not undefined exist.
    Object.keys(options).length > (out ? 2 : 1) ||
    kernels.released ||
    attention.released ||
    cache.released ||
    cache.holds.appending > 0 ||
    x.length !== config.dModel ||
    past >= cache.maxSeqLen ||
    (out && (out.length !== width || !isApart(out, x)))
  )
    return undefined;

  const y = out ?? createFloats(where, "y", width);
  const { places, bytes } = next;
  const base = kernels.memory.scratch(where, bytes);
  const floats = kernels.memory.floats();
  const work = { ...next.work, base };
  const placements = [{ position: past, kvLen: past + 1 }];
  const of = { tokens: { ...next.tokens, past, placements, positions: Int32Array.of(past) }, pages, inStep: false };
  const runs = [{ of, begin: 0, end: 1, at: 0 }];
  const rows = {
    x: { at: pointer.f32(base + places.x), stride: config.dModel },
    out: outputRows(next.work.attention, places, base),
  };
  floats.set(x, rows.x.at / 4);
  fillTables(work, runs, ({ tokens }) => tokens.positions);
  finish(runAttention(work, runs, rows));
  y.set(floats.subarray(rows.out.at / 4, rows.out.at / 4 + width));
  cache.commit(1);
  return given ?? y;
}
