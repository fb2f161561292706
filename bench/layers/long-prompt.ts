// A very long prompt: its time, and its memory besides keys and values.

import { attend } from "../../src/entries/core.ts";
import { type BuildName, loadBuild } from "../lib/builds.ts";
import { layerFlops } from "../lib/flops.ts";
import { arithmeticPeak } from "../lib/limits.ts";
import { compare } from "../lib/measure.ts";
import { type Column, fasterBuild, part } from "../lib/part.ts";
import { longLayer } from "../lib/shapes.ts";
import { expectRows, layerOf } from "./layer.ts";
import { inputRows } from "./oracle.ts";

interface LongRow {
  readonly shape: string;
  readonly build: BuildName;
  readonly ms: number;
  readonly gflops: number;
  /** Percent of the peak of arithmetic, which is measured just before. */
  readonly percent: number;
  /** Linear memory of the layer's weights, and of the scratch that a call needs. */
  readonly weightBytes: number;
  readonly scratchBytes: number;
  /** The largest linear memory during the call: weights, scratch, keys and values. */
  readonly memoryBytes: number;
}

const mb = (bytes: number) => (bytes / 1e6).toFixed(2);
const columns: readonly Column<LongRow>[] = [
  ["shape", 26, (row) => row.shape],
  ["build", 7, (row) => row.build],
  ["ms", 6, (row) => row.ms.toFixed(0)],
  ["GFLOP/s", 7, (row) => row.gflops.toFixed(1)],
  ["% of peak", 9, (row) => row.percent.toFixed(1)],
  ["weights MB", 10, (row) => mb(row.weightBytes)],
  ["scratch MB", 10, (row) => mb(row.scratchBytes)],
  ["memory MB", 9, (row) => mb(row.memoryBytes)],
];

export const long = part("long", columns, async function* rows(context): AsyncGenerator<LongRow> {
  for (const tokens of context.quick ? [] : longLayer.prompts) {
    const shape = `${longLayer.model} T=${tokens}`;
    if (!context.wants(shape)) continue;
    const build = await loadBuild(fasterBuild(context));
    const { host } = build;
    const [before, { attention, oracle }] = [host.usedBytes, layerOf(host, longLayer)];
    const weightBytes = host.usedBytes - before;
    const x = inputRows(tokens, longLayer.dModel);
    const out = new Float32Array(x.length);
    // The engine compiles during a short prompt, because the measured run takes most of a minute and is not repeated.
    attend(attention, x.subarray(0, 256 * longLayer.dModel));
    const [peak] = await compare([arithmeticPeak(build)], context.effort);
    const start = performance.now();
    attend(attention, x, { out });
    const ms = performance.now() - start;
    expectRows("attend", out, oracle, 0, [0, tokens >> 1, tokens - 1]);
    const gflops = layerFlops(longLayer, tokens) / ms / 1e6;
    yield {
      ...{ shape, build: build.name, ms, gflops, percent: (100 * gflops) / (peak!.rate / 1e9) },
      ...{ weightBytes, scratchBytes: host.usedBytes - before - weightBytes, memoryBytes: host.memoryBytes },
    };
    host.release();
  }
});
