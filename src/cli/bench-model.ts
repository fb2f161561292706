// `headwise bench FOLDER`: the speed of a whole decoder in each format of weights, beside reading them.

import { forward } from "../decoder/forward.ts";
import type { Model } from "../decoder/model.ts";
import type { PackedMlp } from "../decoder/packed.ts";
import { createSession } from "../decoder/session.ts";
import { startStream } from "../diagnostics/stream.ts";
import { type Effort, timeLoads } from "../diagnostics/timing.ts";
import { panelBytes, panelsOf, type WeightFormat } from "../linear/formats.ts";
import type { Kernels } from "../wasm/kernels.ts";
import { loadDecoder, startDecoderKernels } from "./load-decoder.ts";
import type { Loading } from "./loading.ts";
import { expectModelPath } from "./model-path.ts";
import { createProgress } from "./progress.ts";
import { columnsText } from "./text.ts";

/** Time for one format: some seconds, for large models more. */
const EFFORT: Effort = { warmupMs: 60, sampleMs: 10, rounds: 9, mostMs: 4000 };
/** Tokens of the prompt, and before the decoded token. */
const TOKENS = 128;

/** The speed in one format. */
interface ModelRow {
  readonly weights: WeightFormat;
  /** Of linear memory. */
  readonly bytes: number;
  readonly loadMs: number;
  readonly prefillTokensPerSecond: number;
  readonly decodeTokensPerSecond: number;
  /** Of one thread that does nothing but read the weights of a token. */
  readonly readingTokensPerSecond: number;
  /** Decoding relative to reading: the median ratio over rounds. */
  readonly ofReading: number;
}

/** The speed in all formats. */
export interface ModelBench extends Pick<Kernels, "build" | "threads"> {
  readonly type: string;
  readonly layers: number;
  /** Of the prompt, and before the decoded token. */
  readonly tokens: number;
  readonly rows: readonly ModelRow[];
  /** Formats that memory has no room for, and why. */
  readonly leftOut: readonly { readonly weights: WeightFormat; readonly reason: string }[];
}

/** Loads a decoder in each format after the other, and times a prompt and a token. */
export async function benchModel(
  folder: string,
  formats: readonly WeightFormat[],
  threads: number | "auto",
  loading: Loading,
  quiet: boolean,
): Promise<ModelBench> {
  await expectModelPath("bench", folder);
  const kernels = await startDecoderKernels(threads, false);
  const progress = createProgress(quiet ? undefined : process.stderr, () => performance.now());
  const rows: ModelRow[] = [];
  const leftOut: ModelBench["leftOut"][number][] = [];
  let facts = { type: "", layers: 0, tokens: 0 };
  try {
    for (const [i, weights] of formats.entries()) {
      progress.at(i / formats.length, weights);
      try {
        const loaded = await loadDecoder("bench", kernels, folder, { weights }, loading);
        using model = loaded.model;
        const tokens = Math.max(1, Math.min(TOKENS, (model.maxSeqLen ?? TOKENS + 1) - 1));
        facts = { type: model.type, layers: model.layers, tokens };
        rows.push({ weights, bytes: model.bytes, loadMs: loaded.loadMs, ...(await timeModel(model, tokens)) });
      } catch (error) {
        const full = [error, (error as Error).cause].find((each) => Object(each).code === "OUT_OF_MEMORY");
        if (full === undefined) throw error;
        leftOut.push({ weights, reason: (full as Error).message });
      }
    }
    const { build, threads: used } = kernels;
    return { ...facts, build, threads: used, rows, leftOut };
  } finally {
    progress.end();
    kernels.release();
  }
}

async function timeModel(model: Model, tokens: number) {
  const prompt = Array.from({ length: tokens }, (_, i) => (i * 7919) % model.vocabSize);
  using read = createSession(model, { maxSeqLen: tokens + 1 });
  using prompted = createSession(model, { maxSeqLen: tokens + 1 });
  forward(read, prompt);
  const bytes = tokenBytes(model);
  const decode = {
    flops: bytes,
    run() {
      forward(read, [1 % model.vocabSize], { top: 1 });
      read.truncate(tokens);
    },
  };
  const prefill = {
    flops: bytes * tokens,
    run() {
      forward(prompted, prompt, { top: 1 });
      prompted.truncate(0);
    },
  };
  const rates = await timeLoads([startStream(bytes), decode, prefill], EFFORT);
  if (!rates) throw new Error("bench: clock expected to advance while code runs, got one that stands still");
  const [reading, one, many] = rates as [(typeof rates)[0], (typeof rates)[0], (typeof rates)[0]];
  return {
    prefillTokensPerSecond: (1000 * tokens) / many.ms,
    decodeTokensPerSecond: 1000 / one.ms,
    readingTokensPerSecond: 1000 / reading.ms,
    ofReading: one.ratio,
  };
}

/** Bytes of weights that a token reads: not the table of tokens, unless it is the head, and the experts that are chosen. */
function tokenBytes({ bytes, weights }: Model): number {
  const { embed, positions, head, blocks } = weights;
  const tables = [head.w === embed.at ? undefined : embed, positions];
  const ofTables = tables.reduce(
    (sum, table) => sum + (table ? panelsOf(table.rows) * panelBytes(table.format, table.dim) : 0),
    0,
  );
  const ofExperts = blocks.reduce((sum, { moe }) => {
    const each = moe?.experts.reduce((all, expert) => all + mlpBytes(expert), 0) ?? 0;
    return sum + (moe ? each * (1 - moe.topK / moe.experts.length) : 0);
  }, 0);
  return Math.round(bytes - ofTables - ofExperts);
}

function mlpBytes({ inputs, down }: PackedMlp): number {
  return [...inputs, down].reduce((sum, { format, panels, k }) => sum + panels * panelBytes(format, k), 0);
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
  const facts = rows.length > 0 ? `${type}, ${layers} layers, prompt of ${tokens} tokens, ` : "";
  const title = `${facts}build ${build}, threads ${threads.used}`;
  return [`${title}\n`, columnsText([head, ...cells], 1), ...lines].join("\n");
}
