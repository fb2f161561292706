import { dirname, join } from "node:path";
import { type AttentionConfig, type AttentionWeights, createAttention, loadKernels, plan } from "../entries/index.ts";
import { createLatentAttention, latent, planLatent } from "../entries/latent.ts";
import {
  compareLayers,
  type QuantizeResult,
  type QuantizeTrial,
  quantized,
  quantizeReport,
} from "../entries/quantized.ts";
import { type LatentError, openSafetensors, prepareMla, readAttentionWeights, toFloats } from "../entries/weights.ts";
import { FileError, readArguments, readChoice, readCount, UsageError } from "./args.ts";
import { aboutFile, interpretFile, isRows, readText, withFile } from "./files.ts";
import { PARTS, readLayerNumber, readRules } from "./layer.ts";
import { columnsText, createProgress, plainText, print } from "./terminal.ts";

const HELP = `headwise report MODEL.safetensors SAMPLES.safetensors [options]

Measures how each weight and cache format changes the outputs of one attention layer, compared with
float32. SAMPLES holds inputs of the layer on real text: tensors [tokens, dModel] or
[1, tokens, dModel], one per sequence.

  --config FILE   the model's config.json (default: the one beside MODEL)
  --layer N       index of the layer (default: the number in --prefix, else 0)
  --prefix TEXT   start of the names of its tensors (default model.layers.N.self_attn.)
  --part PART     which attention of an encoder-decoder model: encoder, decoder (default: found by
                  --prefix)
  --mla           instead of formats, convert the layer to latent attention of several ranks
  --ranks LIST    with --mla: ranks, such as 16,32,64 (default: eighths of that which is exact)

relative: |error| / |y|. largest: largest error / largest |y|. head: largest relative error of a head's
output. divergence: of the attention maps, in nats, mean over heads and rows. With --mla: keys, values:
|error| / |w| of their projections.`;

const OPTIONS = {
  config: { type: "string" },
  layer: { type: "string" },
  prefix: { type: "string" },
  part: { type: "string" },
  mla: { type: "boolean", default: false },
  ranks: { type: "string" },
  help: { type: "boolean", short: "h", default: false },
} as const;

/** `headwise report`. */
export async function report(args: string[]): Promise<void> {
  const { values, positionals } = readArguments("report", args, OPTIONS);
  if (values.help) return print(HELP);
  const [model, inputs, ...more] = positionals;
  if (model === undefined || inputs === undefined || more.length > 0)
    throw new UsageError(`report: expected two files, MODEL and SAMPLES, got ${positionals.length}`);
  const number = readLayerNumber("report", values.layer);
  const part = readChoice("report", "--part", values.part, PARTS);
  const ranks = values.ranks === undefined ? undefined : readRanks(values.ranks);
  if (ranks && !values.mla) throw new UsageError("report: --ranks expected --mla, got none");
  const { prefix = `model.layers.${number ?? 0}.self_attn.` } = values;

  const { config: configPath = join(dirname(model), "config.json") } = values;
  const json = await readText("report", "--config", configPath);
  const { rules, cross } = interpretFile("report", configPath, () => readRules("report", json, prefix, number, part));
  if (rules.ofLatents)
    throw new FileError(
      `report: ${configPath}: model_type expected attention that createAttention computes, got latent attention (MLA), ` +
        "which headwise run runs",
    );
  const { config } = rules;
  if (cross)
    throw new UsageError(
      `report: --prefix expected self-attention, got ${prefix}, cross-attention, which headwise run --keys runs`,
    );
  const layer = await readTensors("MODEL", model, (name) => name.startsWith(prefix));
  const { tensors } = await readTensors("SAMPLES", inputs, () => true);
  for (const { name, shape } of tensors.values())
    if (!isRows(shape, config.dModel))
      throw new FileError(
        `report: ${inputs}: ${name} expected shape [tokens, ${config.dModel}], got [${shape.join(", ")}]`,
      );
  const samples = Array.from(tensors.values(), (tensor) => toFloats(tensor));
  const weights = interpretFile("report", model, () => readAttentionWeights(layer, prefix, config));
  const progress = createProgress(process.stderr, () => performance.now());
  const onProgress = (share: number) => progress.at(share, "trials");
  let table: string;
  if (values.mla) {
    table = await mlaTable(config, weights, samples, ranks, onProgress).catch((error: unknown) => {
      throw aboutFile("report", model, error);
    });
  } else {
    // The same numbers on every engine.
    using kernels = await loadKernels({ deterministic: true, quantized });
    const attention = interpretFile("report", model, () =>
      createAttention(kernels, config, weights, { weights: "f32" }),
    );
    table = tableText(quantizeReport(attention, samples, { onProgress }));
  }
  progress.end();
  const tokens = samples.reduce((sum, { length }) => sum + length, 0) / config.dModel;
  print(`${plainText(prefix)}: ${config.numHeads} heads, ${samples.length} samples, ${tokens} tokens\n`);
  print(table);
}

/** The option --ranks: integers with commas between them. */
function readRanks(text: string): number[] {
  return text.split(",").map((rank) => readCount("report", "--ranks", rank, 1, 2 ** 31 - 1));
}

/** The tensors of a safetensors file with wanted names. */
function readTensors(name: string, path: string, isWanted: (tensor: string) => boolean) {
  return withFile("report", name, path, async (source) => {
    const { metadata, tensors, readAll } = await openSafetensors(source);
    return { metadata, tensors: await readAll([...tensors.keys()].filter(isWanted)) };
  });
}

function tableText(results: readonly QuantizeResult[]): string {
  const head = [
    "weights",
    "cache",
    "weights KB",
    "cache KB",
    "relative",
    "largest",
    "1 - cosine",
    "head",
    "divergence",
  ];
  const rows = results.map(({ trial, weightBytes, cacheBytes, output, heads }) => [
    ...namesOf(trial),
    ...[weightBytes, cacheBytes].map((bytes) => (bytes / 1000).toFixed(1)),
    ...[output.relative, output.largest, 1 - output.cosine].map(numberText),
    numberText(Math.max(...heads.map(({ relative }) => relative))),
    numberText(heads.reduce((sum, { divergence }) => sum + divergence, 0) / heads.length),
  ]);
  return columnsText([head, ...rows], 2);
}

const numberText = (value: number) => (value === 0 ? "0" : value.toExponential(1));

/** The formats of a trial as words, one for weights and one for the cache. */
function namesOf({ weights = "f32", cache = "f32" }: QuantizeTrial): [string, string] {
  const nameOf = (formats: object | string) =>
    typeof formats === "string"
      ? formats
      : Object.entries(formats)
          .flatMap(([part, format]) => (format === "f32" ? [] : [`${part} ${format}`]))
          .join(" ");
  return [nameOf(weights), nameOf(cache)];
}

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
async function mlaTable(
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
  return ranksText(Math.floor(plan(config, { maxSeqLen: LONG }).cache / LONG), results);
}

/** Tokens of a cache, so many that the tables of its pages are less than a byte for each. */
const LONG = 4096;

/** Ranks from an eighth of the full one to all of it, in whole panels of 8, as caches hold latents. */
function eighths(full: number): number[] {
  const ranks = Array.from({ length: 8 }, (_, i) => Math.min(full, 8 * Math.ceil(((i + 1) * full) / 64)));
  return Array.from(new Set(ranks));
}

function ranksText(before: number, results: readonly RankResult[]): string {
  const head = ["rank", "keys", "values", "relative", "largest", "divergence", "bytes a token", "of before"];
  const rows = results.map(({ rank, key, value, relative, largest, divergence, tokenBytes }) => [
    ...[String(rank), ...[key, value, relative, largest, divergence].map(numberText)],
    ...[String(tokenBytes), `${((100 * tokenBytes) / before).toFixed(1)} %`],
  ]);
  const given = ["before", "", "", "", "", "", String(before), "100.0 %"];
  return columnsText([head, given, ...rows], 1);
}
