// One token on a cache: what does not change between tokens is checked and prepared once.

import { createFloats } from "../../base/tensor/tensor.ts";
import { LARGEST_INT } from "../../base/util/arguments.ts";
import { type AttentionShape, NULL, storeAttentionShape } from "../../wasm/abi.ts";
import { pointer } from "../../wasm/memory.ts";
import { type Attention, widthOf } from "../attention/attention.ts";
import { workFloats } from "../attention/segment.ts";
import type { PackedLinear } from "../linear/formats/format.ts";
import { multiply, prepareInput, type Rows } from "../linear/products.ts";
import { pageTable } from "../state/table.ts";
import type { Cache } from "./cache.ts";
import { type AttendCall, type AttendOptions, type GivenCall, isApart, isSelf } from "./call.ts";
import { layerShape, placePass } from "./forward.ts";
import { fillTables, type LayerWork, normAndRotate, storeKeys } from "./steps.ts";

type Work = Omit<LayerWork, "stepFlops" | "maps">;

interface Product {
  readonly linear: PackedLinear;
  readonly out: Rows;
}

/** The next token of a cache. It holds addresses and no views, so that a cache that outlives its kernels keeps no memory. */
interface DecodeStep {
  /** Bytes of scratch. */
  readonly bytes: number;
  /** The layer, and the address of the scratch. */
  readonly work: Work;
  /** Rows of x, of the heads' outputs, and of y. */
  readonly x: Rows;
  readonly heads: Rows;
  readonly y: Rows;
  readonly qkv: readonly Product[];
  /** Empty if the layer has no output projection. */
  readonly o: readonly Product[];
  /** What the last token had. */
  readonly shape: { -readonly [Field in keyof AttentionShape]: AttentionShape[Field] };
}

const STEPS = new WeakMap<Cache, DecodeStep>();

/** Prepares the steps that follow a call, if it was one: a token of one sequence, whose keys come from x and do not age. */
export function prepareSteps(attention: Attention, call: AttendCall): void {
  const { cache } = call;
  if (!cache || attention.pass || cache.pages.ages || call.batch * call.qLen !== 1 || !isSelf(call)) return;
  if (attention.layer.products.qkv) STEPS.set(cache, stepAt(attention, cache, 0));
}

/** A step in scratch at `base`. */
function stepAt(attention: Attention, { pages: { layout } }: Cache, base: number): DecodeStep {
  const { config, layer } = attention;
  const needs = { tokens: 1, work: workFloats(layout), keep: 0, bias: 0, scores: 0 };
  const { places, bytes } = placePass(config, layer.formats, 1, [needs]);
  const { stride, segment } = places.layer;
  const shape = layerShape(attention, stride);
  const rows = (place: number, stride: number) => ({ at: pointer.f32(base + place), stride });
  const { o } = layer.linears;
  const heads = rows(places.layer.heads, stride.heads);
  const y = o ? rows(places.y, stride.y) : heads;
  return {
    ...{ bytes, heads, y, x: rows(places.x, config.dModel) },
    work: { attention, shape, places: places.layer, base },
    qkv: (layer.products.qkv ?? []).map(({ linear, part }) => ({ linear, out: rows(places.layer[part], stride.qkv) })),
    o: o ? [{ linear: o, out: y }] : [],
    shape: {
      ...shape,
      ...{ qLen: 1, kvLen: 1, qStart: 0, formats: layout.formats, lse: pointer.f32(base + segment.lse) },
      ...{ keep: NULL, keepHeadStride: 0, keepRowStride: 0, bias: NULL, biasHeadStride: 0, biasRowStride: 0 },
    },
  };
}

/**
 * The next token of a cache whose steps are prepared. Returns undefined if the call is another one or breaks a rule, and
 * then nothing has changed.
 */
export function runStep(
  where: string,
  attention: Attention,
  { x, options, out: given }: GivenCall<AttendOptions>,
): Float32Array | undefined {
  const { cache, out } = options;
  let step = cache && STEPS.get(cache);
  if (!step || cache?.attention !== attention) return undefined;
  const { kernels, config } = attention;
  const { length: past, pages } = cache;
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
  const { memory, table } = kernels;
  const base = memory.scratch(where, step.bytes);
  if (step.work.base !== base) {
    step = stepAt(attention, cache, base);
    STEPS.set(cache, step);
  }
  const { work, shape, heads } = step;
  const { places } = work;
  const floats = memory.floats();
  floats.set(x, step.x.at / 4);
  projectRow(work, step.qkv, step.x);
  const runs = [{ of: { tokens: { where, newKeys: 1, past }, pages, inStep: false }, begin: 0, end: 1, at: 0 }];
  fillTables(work, runs, () => Int32Array.of(past));
  storeKeys(work, runs);
  normAndRotate(work, "q", 1);
  shape.qStart = past;
  shape.kvLen = past + 1;
  shape.right = Math.min(work.shape.right, LARGEST_INT - past - 1);
  const at = pointer.attentionShape(base + places.segment.shape);
  storeAttentionShape(memory.view(), at, shape);
  const [q, scratch] = [pointer.f32(base + places.q), pointer.f32(base + places.segment.work)];
  table[pages.layout.kernels.attention](heads.at, q, pageTable(pages, 0), scratch, at, 0, config.numHeads);
  projectRow(work, step.o, heads);
  y.set(floats.subarray(step.y.at / 4, step.y.at / 4 + width));
  cache.commit(1);
  return given ?? y;
}

/** Projects a row x by each of these products. */
function projectRow({ attention, places, base }: Work, products: readonly Product[], x: Rows): void {
  if (products.length === 0) return;
  const { kernels, layer } = attention;
  const linears = products.map(({ linear }) => linear);
  const input = prepareInput(kernels, linears, x, 1, layer.mode, places.linear, base);
  for (const { linear, out } of products) multiply(kernels, linear, out, input, 0, 1);
}
