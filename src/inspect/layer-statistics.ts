// Statistics of attention in the layers of a decoder.

import type { PackedBlock } from "../decoder/packed.ts";
import type { ModelCall, PassSettings } from "../decoder/pass.ts";
import type { Measure } from "../forward/attend-segment.ts";
import { expectStatistics, type MeasuredCall, measureCalls, measuredPages } from "../forward/measure.ts";
import { readFields } from "../util/arguments.ts";
import { CHUNK_ROWS } from "../util/rows.ts";
import { readLayers } from "./sites.ts";
import {
  type AttentionStatistics,
  checkWanted,
  STATISTICS_OPTIONS,
  type StatisticsOptions,
  statisticsOf,
} from "./statistics.ts";

/** What `forwardWith` measures of attention. */
export interface LayerStatisticsOptions extends StatisticsOptions {
  /** Layers, each once. Default all. */
  readonly layers?: readonly number[] | undefined;
}

const NAME = "options.statistics";

/** Runs the pass of a call with what measures its layers, and returns what was measured: nothing unless options are given. */
export function measureLayers(
  where: string,
  { session, past, ids }: ModelCall,
  options: LayerStatisticsOptions | undefined,
  run: (measures: PassSettings["measures"]) => void,
): AttentionStatistics[] {
  if (options === undefined) return [];
  const { kernels, spec, weights } = session.model;
  const { layers: list, ...given } = readFields(where, NAME, options, ["layers", ...STATISTICS_OPTIONS]);
  const wanted = checkWanted(where, NAME, given);
  const layers =
    list === undefined ? [...spec.blocks.keys()] : readLayers(where, `${NAME}.layers`, list, session.model);
  if (session.source)
    throw new RangeError(`${where}: ${NAME} expected a session of a decoder alone, got one of a model with two halves`);
  expectStatistics(where, kernels);
  const calls = layers.map((layer): MeasuredCall => {
    const { attention } = weights.blocks[layer] as PackedBlock;
    const { pages } = session.caches[layer] as (typeof session.caches)[number];
    const target = { batch: 1, numHeads: attention.config.numHeads, qLen: ids.length, kvLen: past + ids.length };
    const layout = measuredPages(attention, pages.layout);
    return { target, tokens: Math.min(ids.length, CHUNK_ROWS), rules: attention.config, layout };
  });
  const measured = measureCalls(where, kernels, calls, wanted, (measures) =>
    run(new Map(layers.map((layer, i) => [layer, measures[i] as Measure]))),
  );
  return measured.map((one) => statisticsOf(one, true));
}
