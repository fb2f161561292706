import { type AttentionConfig, type AttentionWeights, createAttention, loadKernels, plan } from "../entries/index.ts";
import { createLatentAttention, latent, planLatent } from "../entries/latent.ts";
import { compareLayers } from "../entries/quantized.ts";
import { type LatentError, prepareMla } from "../entries/weights.ts";
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
  const { errors, at } = prepareMla(weights, config);
  const full = errors.length;
  const tried = ranks ?? eighths(full);
  for (const rank of tried)
    if (rank > full) throw new UsageError(`report: --ranks expected at most ${full} for this layer, got ${rank}`);
  const results = tried.map((rank, i): RankResult => {
    const version = at(rank);
    using layer = createLatentAttention(kernels, version.config, version.weights, { weights: "f32" });
    const done = (share: number) => onProgress((i + share) / tried.length);
    const { output, divergence } = compareLayers(given, layer, samples, { onProgress: done });
    const cache = planLatent(version.config, { maxSeqLen: LONG }).cache;
    return { ...(errors[rank - 1] as LatentError), ...output, divergence, tokenBytes: Math.floor(cache / LONG) };
  });
  return tableText(Math.floor(plan(config, { maxSeqLen: LONG }).cache / LONG), results);
}

/** Tokens of a cache, so many that the tables of its pages are less than a byte for each. */
const LONG = 4096;

/** Ranks from an eighth of the full one to all of it, in whole panels of 8, as caches hold latents. */
function eighths(full: number): number[] {
  const ranks = Array.from({ length: 8 }, (_, i) => Math.min(full, 8 * Math.ceil(((i + 1) * full) / 64)));
  return Array.from(new Set(ranks));
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
