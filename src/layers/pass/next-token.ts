// The next token of a cache: what does not change between tokens is checked and planned once.

import { createFloats } from "../../base/tensor/tensor.ts";
import { pointer } from "../../wasm/memory.ts";
import { planToken, repeatCalls, type TokenCalls } from "../../wasm/token-calls.ts";
import { type Attention, widthOf } from "../attention/attention.ts";
import { workFloats } from "../attention/segment.ts";
import type { Cache } from "./cache.ts";
import { type AttendCall, type AttendOptions, type GivenCall, isApart, isSelf, tokensBehind } from "./call.ts";
import { layerShape, outputRows, type PassPlaces, placePass } from "./forward.ts";
import { fillTables, runAttention } from "./steps.ts";

/** It holds addresses and no views, so that a cache that outlives its kernels keeps no memory. */
interface NextToken {
  readonly places: PassPlaces;
  /** Bytes of scratch, and the address that `calls` are planned for. */
  readonly bytes: number;
  base: number;
  calls: TokenCalls | undefined;
}

const NEXT = new WeakMap<Cache, NextToken>();

/** Prepares the tokens that follow a call, if it was one: of one sequence, whose keys come from x and do not age. */
export function prepareNext({ config, layer, pass }: Attention, call: AttendCall): void {
  const { cache } = call;
  if (!cache || pass || cache.pages.aging || call.batch * call.qLen !== 1 || !isSelf(call) || !layer.products.qkv)
    return;
  const needs = { tokens: 1, work: workFloats(cache.pages.layout), keep: 0, bias: 0, scores: 0 };
  NEXT.set(cache, { ...placePass(config, layer.formats, 1, [needs]), base: 0, calls: undefined });
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
  const { length: past } = cache;
  const width = widthOf(attention);
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
  const { memory } = kernels;
  const base = memory.scratch(where, next.bytes);
  const { places } = next;
  if (next.base !== base) next.calls = planCalls(where, attention, cache, places, base);
  next.base = base;
  if (!next.calls) return undefined;
  const floats = memory.floats();
  floats.set(x, (base + places.x) / 4);
  const run = { of: Int32Array.of(past), begin: 0, end: 1, at: 0 };
  fillTables({ attention, places: places.layer, base }, [run], (positions) => positions);
  for (const _ of repeatCalls(kernels, next.calls, past));
  const { at } = outputRows(attention, places, base);
  y.set(floats.subarray(at / 4, at / 4 + width));
  cache.advance(1);
  return given ?? y;
}

/** The calls of a token of a cache, in scratch at `base`. */
function planCalls(where: string, attention: Attention, { pages, length }: Cache, places: PassPlaces, base: number) {
  const { kernels, config } = attention;
  const shape = layerShape(attention, places.layer.stride);
  const work = { attention, shape, places: places.layer, base, stepFlops: Number.POSITIVE_INFINITY, maps: undefined };
  const x = { at: pointer.f32(base + places.x), stride: config.dModel };
  return planToken(kernels, length, (past) => {
    const tokens = tokensBehind(where, config, past, 1);
    const runs = [{ of: { tokens, pages, inStep: false }, begin: 0, end: 1, at: 0 }];
    return runAttention(work, runs, { x, out: outputRows(attention, places, base) });
  });
}
