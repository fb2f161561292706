import { attend } from "../api/attend.ts";
import { createAttention } from "../attention/attention.ts";
import type { AttentionConfig } from "../attention/config.ts";
import type { AttentionWeights } from "../attention/weights.ts";
import { createCache } from "../cache/cache.ts";
import { createLinearWork } from "../diagnostics/linear-work.ts";
import { createRandom } from "../diagnostics/random.ts";
import type { Load } from "../diagnostics/timing.ts";
import type { WeightFormat } from "../linear/formats.ts";
import type { Tensor } from "../tensor/tensor.ts";
import type { Kernels } from "../wasm/kernels.ts";

/** A work whose memory is freed by `release`. */
interface PlacedLoad extends Load {
  release(): void;
}

/** A fixed piece of work of a benchmark. */
export interface BenchWork {
  readonly name: string;
  /** Tokens of a run. */
  readonly tokens: number;
  /** Makes the inputs once, for all kernels that run the work. */
  prepare(format: WeightFormat): (kernels: Kernels) => PlacedLoad;
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
    works: [{ name: "linear", tokens: 128, prepare: () => (kernels) => createLinearWork(kernels, 128, 768, 768) }],
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

/** Calls of `tokens` tokens after `past` tokens. */
function prepare(config: AttentionConfig, format: WeightFormat, past: number, tokens: number) {
  const weights = seedWeights(config);
  const { floats } = createRandom(2);
  const [before, x] = [floats(past * config.dModel), floats(tokens * config.dModel)];
  return (kernels: Kernels): PlacedLoad => {
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
  const { floats } = createRandom(1);
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
