import { availableParallelism } from "node:os";
import { machineText } from "../diagnostics/doctor-text.ts";
import { type Effort, timeLoads } from "../diagnostics/timing.ts";
import { WEIGHT_FORMATS, type WeightFormat } from "../linear/formats.ts";
import { AUTO_MOST } from "../platform/workers.ts";
import type { Kernels } from "../wasm/kernels.ts";
import type { Build } from "../wasm/select-build.ts";
import { readArguments, readChoice, readThreads, UsageError } from "./args.ts";
import { benchModel, modelBenchText } from "./bench-model.ts";
import { BENCH_SHAPES, type BenchWork } from "./bench-works.ts";
import { LOAD_OPTIONS, OUTPUT_OPTIONS } from "./common-options.ts";
import { startKernels } from "./load-kernels.ts";
import { readLoading } from "./loading.ts";
import { print } from "./output.ts";
import { createProgress } from "./progress.ts";
import { findSurroundings } from "./system-info.ts";
import { columnsText } from "./text.ts";

const HELP = `headwise bench [--shape NAME ...] [--threads N|auto] [--weights FORMAT] [--json]
headwise bench FOLDER [--threads N|auto] [--weights FORMAT] [--json]

Times a linear layer, and prefill and decode of attention layers of GPT-2 small and Llama 3.2 1B, with
each build and with 1, 2, 4 ... threads. Builds and threads are timed by turns. ms and GFLOP/s are
medians; least ms and most GFLOP/s are those of the fastest sample. Relative speed is the speed
divided by that of the first row of the same work. Takes less than a minute.

With FOLDER, times the whole decoder in it (config.json, and model.safetensors or its index), or at a
URL, in each format of weights: a prompt, and a token after it, beside reading the same weights.

  --shape NAME       ${Object.keys(BENCH_SHAPES).join(", ")}; may be given more than once (default all)
  --threads N|auto   largest number of threads (default auto: one per processor, up to 8); of a
                     decoder, the number of threads (default 1)
  --weights FORMAT   format of the weights (default f32; of a decoder f32, f16, q8 and q4 in turn)
  --no-store         do not keep what is read of URLs, nor use what is kept
  --quiet            nothing on stderr but errors and warnings
  --json             print JSON`;

const OPTIONS = {
  shape: { type: "string", multiple: true },
  threads: { type: "string" },
  weights: { type: "string" },
  ...LOAD_OPTIONS,
  ...OUTPUT_OPTIONS,
} as const;

/** Time for one work with all builds and numbers of threads: a few seconds. */
const EFFORT: Effort = { warmupMs: 60, sampleMs: 10, rounds: 15, mostMs: 2500 };

/** The formats that a decoder is timed in. */
const MODEL_FORMATS: readonly WeightFormat[] = ["f32", "f16", "q8", "q4"];

interface Row {
  readonly shape: string;
  readonly work: string;
  readonly build: Build;
  readonly threads: number;
  readonly ms: number;
  readonly bestMs: number;
  readonly tokensPerSecond: number;
  readonly gflops: number;
  readonly bestGflops: number;
  /** Speed relative to the first row of the work: the median ratio over rounds. */
  readonly ofFirst: number;
}

/** `headwise bench`. */
export async function bench(args: string[], version: string): Promise<void> {
  const { values, positionals } = readArguments("bench", args, OPTIONS);
  if (values.help) return print(HELP);
  const report = <Result extends object>(result: Result, textOf: (result: Result) => string, note = "") => {
    const found = findSurroundings(version);
    const { version: headwise, ...surroundings } = found;
    if (values.json) return print(JSON.stringify({ headwise, ...surroundings, ...result }, null, 2));
    const machine = machineText(found) ?? "unknown machine";
    print(`headwise ${version}, ${surroundings.engine}, ${machine}${note}\n\n${textOf(result)}`);
  };
  const [folder, ...more] = positionals;
  if (more.length > 0) throw new UsageError(`bench: expected one folder at most, got ${positionals.length}`);
  const format = readChoice("bench", "--weights", values.weights, WEIGHT_FORMATS);
  if (folder !== undefined) {
    if (values.shape) throw new UsageError(`bench: --shape expected none beside a folder, got ${values.shape[0]}`);
    const threads = readThreads("bench", values.threads ?? "1");
    const loading = readLoading(folder, values);
    const formats = format ? [format] : MODEL_FORMATS;
    return report(await benchModel(folder, formats, threads, loading, values.quiet), modelBenchText);
  }
  const weights = format ?? "f32";
  const asked = readThreads("bench", values.threads ?? "auto");
  const most = asked === "auto" ? Math.min(AUTO_MOST, availableParallelism()) : asked;
  const { shape: names = Object.keys(BENCH_SHAPES) } = values;
  const shapes = names.map((name) => {
    const shape = Object.hasOwn(BENCH_SHAPES, name) ? BENCH_SHAPES[name] : undefined;
    if (!shape) throw new UsageError(`bench: --shape expected ${Object.keys(BENCH_SHAPES).join(", ")}, got ${name}`);
    return { name, ...shape };
  });

  const settings = await startSettings(most);
  const progress = createProgress(values.quiet ? undefined : process.stderr, () => performance.now());
  const total = shapes.reduce((sum, { works }) => sum + works.length, 0);
  const rows: Row[] = [];
  let done = 0;
  try {
    for (const { name, works } of shapes)
      for (const work of works) {
        progress.at(done++ / total, `${name} ${work.name}`);
        rows.push(...(await timeWork(name, work, weights, settings)));
      }
  } finally {
    progress.end();
    for (const kernels of settings) kernels.release();
  }
  const titles = shapes.map((shape) => `${shape.name}: ${shape.title}`).join("\n");
  report({ weights, rows }, () => `${rowsText(rows)}\n\n${titles}`, `, weights ${weights}`);
}

/** Kernels of each build that the engine has, the faster build first, with 1, 2, 4 ... threads. */
async function startSettings(most: number): Promise<Kernels[]> {
  const counts = [1];
  while (counts.at(-1)! < most) counts.push(Math.min(most, 2 * counts.at(-1)!));
  const settings: Kernels[] = [];
  try {
    for (const deterministic of [false, true])
      for (const count of counts) {
        const kernels = await startKernels(count, deterministic);
        // An engine with one build, or without threads, gives the same kernels again.
        const same = settings.some(
          ({ build, threads }) => build === kernels.build && threads.used === kernels.threads.used,
        );
        if (same) kernels.release();
        else settings.push(kernels);
      }
  } catch (error) {
    for (const kernels of settings) kernels.release();
    throw error;
  }
  return settings;
}

async function timeWork(
  shape: string,
  { name, tokens, prepare }: BenchWork,
  weights: WeightFormat,
  settings: readonly Kernels[],
): Promise<Row[]> {
  const loads = settings.map(prepare(weights));
  const rates = await timeLoads(loads, EFFORT);
  for (const load of loads) load.release();
  if (!rates) throw new Error("bench: clock expected to advance while code runs, got one that stands still");
  return rates.map(({ ms, bestMs, gflops, bestGflops, ratio }, i): Row => {
    const { build, threads } = settings[i]!;
    const tokensPerSecond = (1000 * tokens) / ms;
    return {
      ...{ shape, work: name, build, threads: threads.used },
      ...{ ms, bestMs, tokensPerSecond, gflops, bestGflops, ofFirst: ratio },
    };
  });
}

function rowsText(rows: readonly Row[]): string {
  const head = [
    ...["shape", "work", "build", "threads", "ms", "least ms", "tokens/s"],
    ...["GFLOP/s", "most GFLOP/s", "relative speed"],
  ];
  const cells = rows.map((row) => [
    ...[row.shape, row.work, row.build, `${row.threads}`],
    ...[row.ms, row.bestMs].map((ms) => (ms < 100 ? ms.toPrecision(3) : ms.toFixed(0))),
    ...[row.tokensPerSecond.toFixed(0), row.gflops.toFixed(1), row.bestGflops.toFixed(1), row.ofFirst.toFixed(2)],
  ]);
  return columnsText([head, ...cells], 3);
}
