import { PAGE } from "../../assembly/layout.ts";
import { loadKernels } from "../entries/index.ts";
import { latent } from "../entries/latent.ts";
import { attendWithMaps } from "../layers/api/attend.ts";
import { createLatentAttention } from "../layers/api/latent.ts";
import { type Attention, createAttention } from "../layers/attention/attention.ts";
import { type AttentionConfig, checkConfig } from "../layers/attention/config.ts";
import type { AttentionWeights } from "../layers/attention/weights.ts";
import { encodeFormats, pageBytes } from "../layers/state/pages.ts";
import { type LatentError, prepareMla } from "../models/weights/convert-mla.ts";
import { DeviationSum, divergence } from "../tools/diagnostics/quantize-report.ts";
import { UsageError } from "./args.ts";
import { columnsText } from "./terminal.ts";

/** What a rank costs and saves. */
interface RankResult extends LatentError {
  /** |error| / |y|, and the largest error / the largest |y|, over all samples. */
  readonly relative: number;
  readonly largest: number;
  /** Of the attention maps, in nats, the mean over heads and rows. */
  readonly divergence: number;
  /** Bytes of a token in a cache of float32. */
  readonly tokenBytes: number;
}

/** A layer as latent attention of some ranks, on samples of its inputs: a table. */
export async function mlaTable(
  config: AttentionConfig,
  weights: AttentionWeights,
  samples: readonly Float32Array[],
  ranks: readonly number[] | undefined,
  onProgress: (share: number) => void,
): Promise<string> {
  // The same numbers on every engine.
  using kernels = await loadKernels({ deterministic: true, latent });
  using given = createAttention(kernels, config, weights, { weights: "f32" });
  const { full, errors, at } = prepareMla(checkConfig("convertToMla", config), weights);
  const tried = ranks ?? eighths(full);
  for (const rank of tried)
    if (rank > full) throw new UsageError(`report: --ranks expected at most ${full} for this layer, got ${rank}`);
  const trials = tried.map((rank) => ({ rank, ...at(rank), output: new DeviationSum(), divergence: 0, tokenBytes: 0 }));
  let rows = 0;
  // Sample by sample, because maps are large.
  for (const [s, x] of samples.entries()) {
    const { y, maps } = attendWithMaps(given, x);
    rows += maps.shape.slice(0, -1).reduce((all, length) => all * length, 1);
    for (const [i, trial] of trials.entries()) {
      using layer = createLatentAttention(kernels, trial.config, trial.weights, { weights: "f32" });
      const other = attendWithMaps(layer, x);
      trial.output.add(y, other.y, 0, y.length);
      trial.divergence += divergence(maps.data, other.maps.data, 0, maps.data.length);
      trial.tokenBytes = tokenBytesOf(layer);
      onProgress((s * trials.length + i + 1) / (trials.length * samples.length));
    }
  }
  const results = trials.map(({ rank, output, divergence, tokenBytes }) => ({
    ...{ ...(errors[rank - 1] as LatentError), ...output.result() },
    ...{ divergence: divergence / rows, tokenBytes },
  }));
  return tableText(tokenBytesOf(given), results);
}

/** Ranks from an eighth of the full one to all of it, in whole panels of 8, as caches hold latents. */
function eighths(full: number): number[] {
  const ranks = Array.from({ length: 8 }, (_, i) => Math.min(full, 8 * Math.ceil(((i + 1) * full) / 64)));
  return Array.from(new Set(ranks));
}

function tokenBytesOf({ pageShape }: Attention): number {
  return pageBytes(pageShape, encodeFormats({ keys: "f32", values: "f32" })) / PAGE;
}

function tableText(before: number, results: readonly RankResult[]): string {
  const head = ["rank", "keys", "values", "relative", "largest", "divergence", "bytes a token", "of before"];
  const rows = results.map(({ rank, key, value, relative, largest, divergence, tokenBytes }) => [
    ...[String(rank), ...[key, value, relative, largest, divergence].map(numberText)],
    ...[String(tokenBytes), `${((100 * tokenBytes) / before).toFixed(1)} %`],
  ]);
  const given = ["before", "", "", "", "", "", String(before), "100.0 %"];
  return columnsText([head, given, ...rows], 1);
}

const numberText = (value: number) => (value === 0 ? "0" : value.toExponential(1));
