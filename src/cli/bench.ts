// `headwise bench`: the speed of layers, and of a whole decoder.

import { availableParallelism } from "node:os";
import { type ModelSpeed, measureModel, OPTION_VALUES, type TimedWork, timeWorks } from "../entries/configure.ts";
import {
  type AttentionConfig,
  type AttentionWeights,
  attend,
  type Build,
  createAttention,
  createCache,
  createLinear,
  type Kernels,
  linear,
  type Tensor,
  type WeightFormat,
} from "../entries/core.ts";
import { readArguments, readChoice, readThreads, UsageError } from "./args.ts";
import { findSurroundings, machineText } from "./info.ts";
import { type LoadValues, openDecoder, seededFloats, startKernels } from "./load.ts";
import { LOAD_OPTIONS, OUTPUT_OPTIONS } from "./options.ts";
import { columnsText, createProgress, print } from "./terminal.ts";

/** A work whose memory is freed by `release`. */
interface PlacedWork extends TimedWork {
  release(): void;
}

/** A fixed piece of work of a benchmark. */
interface BenchWork {
  readonly name: string;
  /** Tokens of a run. */
  readonly tokens: number;
  /** Makes the inputs once, for all kernels that run the work. */
  prepare(format: WeightFormat): (kernels: Kernels) => PlacedWork;
}

/** Works with a common name. */
interface BenchShape {
  readonly title: string;
  readonly works: readonly BenchWork[];
}

const GPT2: AttentionConfig = { dModel: 768, numHeads: 12, causal: true };
const LLAMA: AttentionConfig = {
  dModel: 2048,
  numHeads: 32,
  numKvHeads: 8,
  causal: true,
  rope: { theta: 500_000, pairing: "half" },
};

/** What is measured, by the value of --shape. */
export const BENCH_SHAPES: Readonly<Record<string, BenchShape>> = {
  linear: {
    title: "[128, 768] x [768, 768]",
    works: [{ name: "linear", tokens: 128, prepare: (format) => prepareLinear(format, 128, 768, 768) }],
  },
  gpt2: { title: "GPT-2 small, a layer", works: [prefill(GPT2, 128), prefill(GPT2, 512), decode(GPT2, 512)] },
  llama: { title: "Llama 3.2 1B, a layer", works: [prefill(LLAMA, 128), decode(LLAMA, 1024)] },
};

function prefill(config: AttentionConfig, tokens: number): BenchWork {
  return { name: `prefill ${tokens}`, tokens, prepare: (format) => prepare(config, format, 0, tokens) };
}

function decode(config: AttentionConfig, past: number): BenchWork {
  return { name: `decode at ${past}`, tokens: 1, prepare: (format) => prepare(config, format, past, 1) };
}

/** Calls on x [rows, inputs] of a layer [outputs, inputs]. */
function prepareLinear(format: WeightFormat, rows: number, outputs: number, inputs: number) {
  const floats = seededFloats(outputs);
  const [x, data, bias] = [floats(rows * inputs), floats(outputs * inputs), floats(outputs)];
  const out = new Float32Array(rows * outputs);
  return (kernels: Kernels): PlacedWork => {
    const layer = createLinear(kernels, { weight: { data, shape: [outputs, inputs] }, bias }, { weights: format });
    return {
      flops: 2 * rows * outputs * inputs,
      run: () => void linear(layer, x, { out }),
      release: () => layer.release(),
    };
  };
}

/** Calls of `tokens` tokens after `past` tokens. */
function prepare(config: AttentionConfig, format: WeightFormat, past: number, tokens: number) {
  const weights = seedWeights(config);
  const floats = seededFloats(2);
  const [before, x] = [floats(past * config.dModel), floats(tokens * config.dModel)];
  return (kernels: Kernels): PlacedWork => {
    const attention = createAttention(kernels, config, weights, { weights: format });
    const { dModel, numHeads, numKvHeads, headDim } = attention.config;
    const cache = createCache(attention, { maxSeqLen: past + tokens });
    if (past > 0) attend(attention, before, { cache });
    // Every query attends the keys up to its own position.
    const pairs = tokens * past + (tokens * (tokens + 1)) / 2;
    return {
      flops: 4 * tokens * dModel * headDim * (numHeads + numKvHeads) + 4 * numHeads * headDim * pairs,
      run() {
        attend(attention, x, { cache });
        cache.truncate(past);
      },
      release() {
        cache.release();
        attention.release();
      },
    };
  };
}

function seedWeights({ dModel, numHeads, numKvHeads = numHeads }: AttentionConfig): AttentionWeights {
  const floats = seededFloats(1);
  const matrix = (rows: number, columns: number): Tensor => {
    // The rows of y then have about the norm of those of x.
    const scale = Math.sqrt(3 / columns);
    return { data: floats(rows * columns).map((w) => w * scale), shape: [rows, columns] };
  };
  const kvRows = (dModel / numHeads) * numKvHeads;
  return {
    wq: matrix(dModel, dModel),
    wk: matrix(kvRows, dModel),
    wv: matrix(kvRows, dModel),
    wo: matrix(dModel, dModel),
  };
}

// `headwise bench FOLDER`: the speed of a whole decoder in each format of weights, beside reading them.

/** The speed in one format. */
interface ModelRow extends Omit<ModelSpeed, "tokens"> {
  readonly weights: WeightFormat;
  /** Of linear memory. */
  readonly bytes: number;
  readonly loadMs: number;
}

/** What was timed. */
interface ModelFacts extends Pick<Kernels, "build" | "threads"> {
  readonly type: string;
  readonly layers: number;
  /** Of the prompt, and before the decoded token. */
  readonly tokens: number;
}

/** The speed in all formats; without facts if memory had room for none. */
interface ModelBench extends Partial<ModelFacts> {
  readonly rows: readonly ModelRow[];
  /** Formats that memory has no room for, and why. */
  readonly leftOut: readonly { readonly weights: WeightFormat; readonly reason: string }[];
}

/** Loads a decoder in each format after the other, and times a prompt and a token. */
export async function benchModel(
  folder: string,
  formats: readonly WeightFormat[],
  threads: number | "auto",
  loading: LoadValues,
): Promise<ModelBench> {
  const progress = createProgress(loading.quiet ? undefined : process.stderr, () => performance.now());
  const rows: ModelRow[] = [];
  const leftOut: ModelBench["leftOut"][number][] = [];
  let facts: ModelFacts | undefined;
  try {
    for (const [i, weights] of formats.entries()) {
      progress.at(i / formats.length, weights);
      try {
        const { opened, model, kernels, loadMs } = await openDecoder("bench", folder, loading, { weights, threads });
        using _ = opened;
        const { tokens, ...speed } = await measureModel(model).catch(aboutClock);
        const { build, threads: used } = kernels;
        facts = { type: model.type, layers: model.layers, tokens, build, threads: used };
        rows.push({ weights, bytes: model.bytes, loadMs, ...speed });
      } catch (error) {
        const full = [error, (error as Error).cause].find((each) => Object(each).code === "OUT_OF_MEMORY");
        if (full === undefined) throw error;
        leftOut.push({ weights, reason: (full as Error).message });
      }
    }
    return { ...facts, rows, leftOut };
  } finally {
    progress.end();
  }
}

/** An error of what measures as one of the command. */
function aboutClock(error: unknown): never {
  const { code, message = "" } = Object(error) as { code?: string; message?: string };
  throw code === "NO_CLOCK" ? new Error(message.replace(/^\w+/, "bench"), { cause: error }) : error;
}

/** The rows as a table, and the formats that were left out. */
export function modelBenchText({ type, layers, tokens, build, threads, rows, leftOut }: ModelBench): string {
  const head = ["weights", "MB", "load ms", "prompt tokens/s", "decode tokens/s", "reading tokens/s", "of reading"];
  const cells = rows.map((row) => [
    ...[row.weights, (row.bytes / 1e6).toFixed(1), row.loadMs.toFixed(0), row.prefillTokensPerSecond.toFixed(1)],
    ...[row.decodeTokensPerSecond.toFixed(1), row.readingTokensPerSecond.toFixed(1)],
    `${(100 * row.ofReading).toFixed(0)} %`,
  ]);
  const lines = leftOut.map(({ weights, reason }) => `${weights} was left out: ${reason}`);
  if (threads === undefined) return lines.join("\n");
  const title = `${type}, ${layers} layers, prompt of ${tokens} tokens, build ${build}, threads ${threads.used}`;
  return [`${title}\n`, columnsText([head, ...cells], 1), ...lines].join("\n");
}

const HELP = `headwise bench [--shape NAME ...] [--threads N|auto] [--weights FORMAT] [--json]
headwise bench FOLDER [--threads N|auto] [--weights FORMAT] [--json]

Times a linear layer, and prefill and decode of attention layers of GPT-2 small and Llama 3.2 1B, with
each build and with 1, 2, 4 ... threads. Builds and threads are timed by turns. ms and GFLOP/s are
medians; least ms and most GFLOP/s are those of the fastest sample. Relative speed is the speed
divided by that of the first row of the same work. Takes less than a minute.

With FOLDER, also a GGUF file, a URL, or "owner/name" of a model on a hub, times a whole decoder in each format of weights: a prompt, and a token after it, beside reading the same weights.

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

/** As many threads as "auto" makes at most. */
const AUTO_MOST = 8;

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
    print(`headwise ${version}, ${surroundings.engine}, ${machineText(found)}${note}\n\n${textOf(result)}`);
  };
  const [folder, ...more] = positionals;
  if (more.length > 0) throw new UsageError(`bench: expected one folder at most, got ${positionals.length}`);
  const format = readChoice("bench", "--weights", values.weights, OPTION_VALUES.weights);
  if (folder !== undefined) {
    if (values.shape) throw new UsageError(`bench: --shape expected none beside a folder, got ${values.shape[0]}`);
    const threads = readThreads("bench", values.threads ?? "1");
    const formats = format ? [format] : MODEL_FORMATS;
    return report(await benchModel(folder, formats, threads, values), modelBenchText);
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
  const placed = settings.map(prepare(weights));
  const rates = await timeWorks(placed).catch(aboutClock);
  for (const work of placed) work.release();
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
