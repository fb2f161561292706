// A search for the 10 most similar of 10,000 and of 100,000 vectors of 384 numbers, beside reading as many bytes.

import { createIndex, packVectors, type VectorFormat } from "../../src/retrieval/search.ts";
import { type BuildName, loadBuild } from "../lib/builds.ts";
import { readingPeak } from "../lib/limits.ts";
import { measure } from "../lib/measure.ts";
import { type Column, part } from "../lib/part.ts";
import { randomFloats } from "../lib/random.ts";

interface SearchRow {
  readonly rows: number;
  readonly format: VectorFormat;
  /** Queries of a call. */
  readonly queries: number;
  readonly build: BuildName;
  readonly ms: number;
  /** Scores a second, in millions. */
  readonly mscores: number;
  /** Bytes of vectors that are read a second, once for all queries. */
  readonly gbytes: number;
  /** Percent of the speed of reading them: median, and the range of the middle 80 %. */
  readonly percent: number;
  readonly low: number;
  readonly high: number;
}

const columns: readonly Column<SearchRow>[] = [
  ["rows", 7, (row) => row.rows.toString()],
  ["format", 6, (row) => row.format],
  ["queries", 7, (row) => row.queries.toString()],
  ["build", 7, (row) => row.build],
  ["ms", 8, ({ ms }) => ms.toPrecision(3)],
  ["Mscores/s", 9, (row) => row.mscores.toFixed(1)],
  ["GB/s", 5, (row) => row.gbytes.toFixed(1)],
  ["% of reading", 12, (row) => row.percent.toFixed(1)],
  ["spread", 9, (row) => `${row.low.toFixed(0)}-${row.high.toFixed(0)}`],
];

const DIMENSIONS = 384;
const BYTES: Readonly<Record<VectorFormat, number>> = { f32: 1536, int8: 384, binary: 48 };

export const search = part("search", columns, async function* rows(context): AsyncGenerator<SearchRow> {
  for (const buildName of context.builds)
    for (const count of context.quick ? [10_000] : [10_000, 100_000])
      for (const format of ["f32", "int8", "binary"] as const) {
        if (!context.wants(`${count} ${format}`)) continue;
        const build = await loadBuild(buildName);
        const floats = randomFloats(count * DIMENSIONS, 1);
        const vectors = Array.from({ length: count }, (_, r) => floats.subarray(r * DIMENSIONS, (r + 1) * DIMENSIONS));
        const index = createIndex(build.host, packVectors(vectors, { format }));
        const length = count * BYTES[format];
        const at = build.memory.allocate("bench", length);
        const peak = await readingPeak(build, [{ at, length }], context.effort);
        for (const queries of [1, 16]) {
          const asked = vectors.slice(0, queries);
          if (index.search(asked).some(([first], q) => first?.index !== q))
            throw new Error(
              "bench: a vector is not the most similar to itself; no time is measured for a wrong result",
            );
          const load = { work: length, run: () => void index.search(asked) };
          const { rate, ratio, low, high } = await measure(load, peak, context.effort);
          yield {
            ...{ rows: count, format, queries, build: buildName, ms: (1000 * length) / rate },
            ...{ mscores: (rate * count * queries) / length / 1e6, gbytes: rate / 1e9 },
            ...{ percent: 100 * ratio, low: 100 * low, high: 100 * high },
          };
        }
        build.host.release();
      }
});
