// A very long prompt: how long it takes, and what memory it takes besides its keys and values.

import { attend } from "../src/entries/core.ts";
import { blockFlops, expectRows, layerOf } from "./block.ts";
import { type BuildName, loadBuild } from "./builds.ts";
import { arithmeticPeak } from "./cases.ts";
import { compare } from "./measure.ts";
import { inputRows } from "./oracle.ts";
import { type Column, fasterBuild, part } from "./part.ts";
import { longBlock } from "./shapes.ts";

interface LongRow {
  readonly shape: string;
  readonly build: BuildName;
  readonly ms: number;
  readonly gflops: number;
  /** Of the peak of arithmetic, measured right before. */
  readonly percent: number;
  /** Linear memory of the layer's weights, and what a call keeps besides them: its scratch. */
  readonly weightBytes: number;
  readonly scratchBytes: number;
  /** The most that linear memory held during the call: keys and values, scratch and weights. */
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
  for (const tokens of context.quick ? [] : longBlock.prompts) {
    const shape = `${longBlock.model} T=${tokens}`;
    if (!context.wants(shape)) continue;
    const build = await loadBuild(fasterBuild(context));
    const { host } = build;
    const [before, { attention, oracle }] = [host.usedBytes, layerOf(host, longBlock)];
    const weightBytes = host.usedBytes - before;
    const x = inputRows(tokens, longBlock.dModel);
    const out = new Float32Array(x.length);
    // The engine compiles on a short prompt; the one run that counts takes most of a minute.
    attend(attention, x.subarray(0, 256 * longBlock.dModel));
    const [peak] = await compare([arithmeticPeak(build)], context.effort);
    const start = performance.now();
    attend(attention, x, { out });
    const ms = performance.now() - start;
    expectRows("attend", out, oracle, 0, [0, tokens >> 1, tokens - 1]);
    const gflops = blockFlops(longBlock, tokens) / ms / 1e6;
    yield {
      ...{ shape, build: build.name, ms, gflops, percent: (100 * gflops) / (peak!.rate / 1e9) },
      ...{ weightBytes, scratchBytes: host.usedBytes - before - weightBytes, memoryBytes: host.memoryBytes },
    };
    host.release();
  }
});
