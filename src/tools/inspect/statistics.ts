// Statistics of attention without its maps, of a layer, of the layers of a decoder, or of given queries, keys and values.

import type { Tensor } from "../../base/tensor/tensor.ts";
import { expectFlag, expectInt, readFields } from "../../base/util/arguments.ts";
import { CHUNK_ROWS } from "../../base/util/rows.ts";
import { finish, type WaitingSteps } from "../../base/util/steps.ts";
import { CHUNK_TOKENS, readHeads, runHeads, type SdpaOptions, type SdpaResult } from "../../layers/api/sdpa.ts";
import type { Attention } from "../../layers/attention/attention.ts";
import { expectPages } from "../../layers/attention/kv-state.ts";
import type { Measure } from "../../layers/attention/segment.ts";
import { ATTEND_OPTIONS, type AttendOptions, checkGiven, commit, readCall } from "../../layers/pass/call.ts";
import { forward } from "../../layers/pass/forward.ts";
import {
  expectStatistics,
  type IntTensor,
  type Measured,
  type MeasuredCall,
  measureCalls,
  type Wanted,
} from "../../layers/pass/statistics.ts";
import type { KvCache } from "../../layers/state/kv-cache.ts";
import { createPageLayout, type PageLayout, type PageShape } from "../../layers/state/pages.ts";
import type { PackedBlock } from "../../models/blocks/model.ts";
import type { ModelCall, PassSettings } from "../../models/decoder/forward.ts";
import type { Kernels } from "../../wasm/kernels.ts";
import { readLayers } from "./sites.ts";
import { expectHeads, headsOf, viewOf } from "./views.ts";

/** What to measure of attention, besides what is measured anyway. */
export interface StatisticsOptions {
  /** How many of the largest weights of a query to return, 1 to 1024. Default 1. */
  readonly topK?: number | undefined;
  /** `firstMass` is the weight on keys 0 to first - 1. Default 0. */
  readonly first?: number | undefined;
  /** `lastMass` is the weight on the last so many keys before the end of the query's range: in causal layers, its own and those
   * before it. Default 0. */
  readonly last?: number | undefined;
  /** Whether to return what each key receives. Default false. */
  readonly received?: boolean | undefined;
}

/**
 * Statistics of the softmax weights w that queries give their keys: those of maps, without the maps. [heads, qLen], or
 * [batch, heads, qLen] where `options.batch` is given or the cache has more than one sequence.
 *
 * Extra keys (`biasK`, `addZeroAttn`) and sinks take part in the softmax, and are no keys here: where a layer has them, `mass` is
 * below 1. Entropy, distance and the effective number are those of w / mass, and 0 where `mass` is below 2^-40. A query that
 * attends nothing has an `lse` of -Infinity and zeros.
 */
export interface AttentionStatistics {
  /** Log-sum-exp of the scores, with extra keys and sinks: w = e^(score - lse). */
  readonly lse: Tensor;
  /** Σ w. */
  readonly mass: Tensor;
  /** Σ w over keys 0 to `first` - 1. */
  readonly firstMass: Tensor;
  /** Σ w over the `last` keys at the end of the query's range. */
  readonly lastMass: Tensor;
  /** -Σ w ln w, in nats. Its exponential is the other effective number of keys. */
  readonly entropy: Tensor;
  /** Σ w · |position of the query - position of the key|, in keys. */
  readonly distance: Tensor;
  /** The effective number of keys, 1 / Σ w²: n for n equal weights. */
  readonly effectiveKeys: Tensor;
  /** The largest weights [heads, qLen, topK], descending; 0 where a query attends fewer keys. */
  readonly topWeights: Tensor;
  /** Their keys [heads, qLen, topK], the first key of equal weights first; -1 where a query attends fewer. */
  readonly topKeys: IntTensor;
  /** Σ w over the queries of the call [heads, kvLen], if `received`. */
  readonly received: Tensor | undefined;
}

/** The most of `topK`, and of `first` and `last`. */
const MOST_KEYS = 1024;
const FAR = 2 ** 30;

const STATISTICS_OPTIONS = ["topK", "first", "last", "received"] as const;

/** Checks what to measure, which was read. */
function checkWanted(where: string, name: string, given: StatisticsOptions): Wanted {
  return {
    topK: expectInt(where, `${name}.topK`, given.topK ?? 1, 1, MOST_KEYS),
    first: expectInt(where, `${name}.first`, given.first ?? 0, 0, FAR),
    last: expectInt(where, `${name}.last`, given.last ?? 0, 0, FAR),
    received: expectFlag(where, `${name}.received`, given.received),
  };
}

/** The statistics of a call, without the dimension of the batch if it is one sequence. */
function statisticsOf(measured: Measured, single: boolean): AttentionStatistics {
  const shaped = Object.entries(measured).map(([name, tensor]) => {
    return [name, tensor && { ...tensor, shape: tensor.shape.slice(single ? 1 : 0) }];
  });
  return Object.fromEntries(shaped) as AttentionStatistics;
}

// Statistics of attention in the layers of a decoder.

/** What `forwardWith` measures of attention. */
export interface LayerStatisticsOptions extends StatisticsOptions {
  /** Layers, each once. Default all that have heads. */
  readonly layers?: readonly number[] | undefined;
}

const NAME = "options.statistics";

/** Runs the pass of a call of a decoder with what measures its layers, and returns what was measured: nothing unless options are given. */
export function* measureLayers(
  where: string,
  { session, past, ids }: ModelCall,
  options: LayerStatisticsOptions | undefined,
  run: (measures?: PassSettings["measures"]) => WaitingSteps,
): WaitingSteps<AttentionStatistics[]> {
  if (options === undefined) {
    yield* run();
    return [];
  }
  const { kernels, weights } = session.model;
  const { layers: list, ...given } = readFields(where, NAME, options, ["layers", ...STATISTICS_OPTIONS]);
  const wanted = checkWanted(where, NAME, given);
  const headed = [...weights.blocks.keys()].filter((layer) =>
    headsOf((weights.blocks[layer] as PackedBlock).attention),
  );
  const layers = list === undefined ? headed : readLayers(where, `${NAME}.layers`, list, session.model);
  if (session.source)
    throw new RangeError(`${where}: ${NAME} expected a session of a decoder alone, got one of a model with two halves`);
  expectStatistics(where, kernels);
  const calls = layers.map((layer): MeasuredCall => {
    const heads = expectHeads(where, `${NAME}.layers`, (weights.blocks[layer] as PackedBlock).attention, layer);
    const attention = heads.layer;
    const { cache } = expectPages(where, heads.stateOf(session.stateOf(layer)));
    const target = { batch: 1, numHeads: attention.config.numHeads, qLen: ids.length, kvLen: past + ids.length };
    const layout = viewOf(attention).measuredPages(attention, layoutOf(cache, attention.pageShape));
    return { target, tokens: Math.min(ids.length, CHUNK_ROWS), rules: attention.config, layout };
  });
  const measured = yield* measureCalls(where, kernels, calls, wanted, (measures) =>
    run(new Map(layers.map((layer, i) => [layer, measures[i] as Measure]))),
  );
  return measured.map((one) => statisticsOf(one, true));
}

/**
 * `attend`, which also returns statistics of the attention, measured in the same pass: no matrix of qLen x kvLen is formed. y has the
 * bits of `attend`. Needs kernels of `loadKernels({ statistics })`.
 * @param attention The layer; one of latent attention takes the path "absorbed".
 * @param x Input rows [batch, qLen, dModel].
 * @throws The same errors as `attend`, and HeadwiseError `NO_STATISTICS`; the cache is then unchanged.
 * @example
 * import { createAttention, loadKernels } from "headwise";
 * import { attendWithStatistics, statistics as kernelsOfStatistics } from "headwise/inspect";
 * const kernels = await loadKernels({ statistics: kernelsOfStatistics });
 * const eye = { data: Float32Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? 1 : 0)), shape: [4, 4] };
 * const attention = createAttention(kernels, { dModel: 4, numHeads: 2, causal: true }, { wq: eye, wk: eye, wv: eye, wo: eye });
 * const { statistics } = attendWithStatistics(attention, new Float32Array(12).fill(1), {}, { topK: 2, received: true });
 * console.log(statistics.effectiveKeys.shape, statistics.topKeys.data.slice(0, 2)); // [ 2, 3 ] Int32Array(2) [ 0, -1 ]
 * kernels.release();
 */
export function attendWithStatistics(
  attention: Attention,
  x: Float32Array,
  options: AttendOptions = {},
  wanted: StatisticsOptions = {},
): {
  /** Output rows [batch, qLen, dModel]. */
  y: Float32Array;
  /** What was measured of the attention. */
  statistics: AttentionStatistics;
} {
  const where = "attendWithStatistics";
  const given = readCall(where, x, options, ATTEND_OPTIONS);
  const measured = checkWanted(where, "wanted", readFields(where, "wanted", wanted, STATISTICS_OPTIONS));
  const call = checkGiven(where, attention, given);
  const { kernels, config, pageShape } = attention;
  expectStatistics(where, kernels);
  const { target, cache } = call;
  const layout = viewOf(attention).measuredPages(attention, layoutOf(cache, pageShape));
  const measuredCall = { target, tokens: Math.min(target.qLen, CHUNK_ROWS), rules: config, layout };
  let y = call.given;
  const steps = measureCalls(where, kernels, [measuredCall], measured, function* ([measure]) {
    const { ys } = yield* forward(attention, attention.passes, [call], { where, measure: measure as Measure });
    y ??= ys[0] as Float32Array;
  });
  const [all] = finish(steps);
  commit([call]);
  const single = given.options.batch === undefined && call.batch === 1;
  return { y: y as Float32Array, statistics: statisticsOf(all as Measured, single) };
}

/**
 * `scaledDotProductAttention`, which also returns statistics of the attention, measured in the same pass. The other results have the
 * same bits. Needs kernels of `loadKernels({ statistics })`.
 * @param q Queries, k keys and v values as `scaledDotProductAttention` takes them.
 * @throws The same errors as `scaledDotProductAttention`, and HeadwiseError `NO_STATISTICS`; a cache is then unchanged.
 * @example
 * import { loadKernels } from "headwise";
 * import { scaledDotProductAttentionWithStatistics, statistics as kernelsOfStatistics } from "headwise/inspect";
 * const kernels = await loadKernels({ statistics: kernelsOfStatistics });
 * const q = { data: Float32Array.of(1, 0, 0, 1), shape: [1, 2, 2] };
 * const { statistics } = scaledDotProductAttentionWithStatistics(kernels, q, q, q, { causal: true });
 * console.log(statistics.distance.shape, statistics.distance.data[0]); // [ 1, 2 ] 0
 * kernels.release();
 */
export function scaledDotProductAttentionWithStatistics(
  kernels: Kernels,
  q: Tensor,
  k: Tensor,
  v: Tensor,
  options: SdpaOptions = {},
  wanted: StatisticsOptions = {},
): SdpaResult & {
  /** What was measured of the attention. */
  readonly statistics: AttentionStatistics;
} {
  const where = "scaledDotProductAttentionWithStatistics";
  const measured = checkWanted(where, "wanted", readFields(where, "wanted", wanted, STATISTICS_OPTIONS));
  const { call, tensors } = readHeads(where, kernels, [q, k, v], options);
  expectStatistics(where, kernels);
  const { target, rules, sizes, cache } = call;
  const shape = { numKvHeads: sizes.keys.heads, headDim: sizes.keys.dim, valueDim: sizes.values.dim };
  const layout = layoutOf(cache, shape);
  const tokens = Math.min(target.qLen, CHUNK_TOKENS);
  let result: SdpaResult | undefined;
  // biome-ignore lint/correctness/useYield: it is a single step.
  const steps = measureCalls(where, kernels, [{ target, tokens, rules, layout }], measured, function* ([measure]) {
    result = runHeads(kernels, call, tensors, measure);
  });
  const [all] = finish(steps);
  return { ...(result as SdpaResult), statistics: statisticsOf(all as Measured, sizes.queries.rank === 3) };
}

/** The layout of the pages of a cache, or of those that a call without one makes. */
function layoutOf(cache: KvCache | undefined, shape: PageShape): PageLayout {
  return cache?.pages.layout ?? createPageLayout(shape);
}
