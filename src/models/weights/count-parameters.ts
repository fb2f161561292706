import { expectOneOf, expectRecord, readFields, readList } from "../../base/util/arguments.ts";
import { describe } from "../../base/util/errors.ts";
import { type AttentionConfig, checkConfig } from "../../layers/attention/config.ts";
import { PROJECTIONS, projectionSizes, vectorSizes } from "../../layers/attention/weights.ts";
import { checkLatentConfig, type LatentConfig, latentMatrixSizes } from "../../layers/latent/config.ts";

import type { LinearSize } from "../../layers/linear/formats.ts";

/** A bias of the weights of `createAttention` or `createLatentAttention`. */
export type BiasName = "bq" | "bk" | "bv" | "bo" | "bqDown" | "bkvDown";

/** Options of `countParameters`. */
export interface CountParametersOptions {
  /**
   * Biases to count: true for those of all matrices that can have one, or their names. Default false: none, as configurations do
   * not say which there are.
   */
  readonly biases?: boolean | readonly BiasName[];
}

/** How many numbers the weights of a layer have. */
export interface ParameterCounts {
  /** Of each matrix, bias and gain of a norm, by its name in the weights, such as `wq`. */
  readonly parts: Readonly<Record<string, number>>;
  /** Their sum. */
  readonly total: number;
}

const WHERE = "countParameters";

/**
 * Counts the parameters of a layer of attention or of latent attention: matrices, the gains of its norms, and the biases that
 * `options` names. `sinkLogits`, `biasK` and `biasV`, which few layers have, are not counted.
 * @throws TypeError or RangeError naming the argument, also for biases that such a layer does not have.
 * @example
 * import { countParameters } from "headwise/weights";
 * const heads = { dModel: 512, numHeads: 8 };
 * console.log(countParameters(heads, { biases: true }).total); // 1050624: 4·512·512 + 4·512
 * console.log(countParameters({ ...heads, numKvHeads: 1 }).total); // 589824: 44 % less than 4·512·512
 * console.log(countParameters({ ...heads, kvLoraRank: 64, nopeDim: 64, ropeDim: 0 }).parts.wkvDown); // 32768: 64·512
 */
export function countParameters(
  config: AttentionConfig | LatentConfig,
  options: CountParametersOptions = {},
): ParameterCounts {
  expectRecord(WHERE, "config", config);
  const { matrices, biases, gains } = "kvLoraRank" in config ? latentParts(config) : attentionParts(config);
  const { biases: given = false } = readFields(WHERE, "options", options, ["biases"]);
  const known = Object.keys(biases) as BiasName[];
  if (typeof given !== "boolean" && !Array.isArray(given))
    throw new TypeError(`${WHERE}: options.biases expected true, false or an array of names, got ${describe(given)}`);
  const read = (name: unknown, i: number) => expectOneOf(WHERE, `options.biases[${i}]`, name, known);
  const names =
    typeof given === "boolean"
      ? known.filter(() => given)
      : Array.from(readList(WHERE, "options.biases", given, Infinity, read));
  const sizes = Object.entries(matrices).map(([name, { n, k }]) => [name, n * k] as const);
  // A name that is given twice counts once.
  const counted = Array.from(new Set(names), (name) => [name, biases[name] as number] as const);
  const parts = Object.fromEntries([...sizes, ...Object.entries(gains), ...counted]);
  return { parts, total: Object.values(parts).reduce((sum, size) => sum + size, 0) };
}

/** The sizes of what a layer has, and of the biases that it can have. */
interface Parts {
  readonly matrices: Readonly<Record<string, LinearSize>>;
  readonly biases: Readonly<Partial<Record<BiasName, number>>>;
  readonly gains: Readonly<Record<string, number>>;
}

function attentionParts(given: AttentionConfig): Parts {
  const config = checkConfig(WHERE, given);
  const sizes = projectionSizes(config);
  const { qNorm, kNorm } = vectorSizes(config);
  return {
    matrices: Object.fromEntries(PROJECTIONS.map((name) => [`w${name}`, sizes[name]])),
    biases: Object.fromEntries(PROJECTIONS.map((name) => [`b${name}`, sizes[name].n])),
    gains: config.qkNorm ? { qNorm, kNorm } : {},
  };
}

function latentParts(given: LatentConfig): Parts {
  const config = checkLatentConfig(WHERE, given);
  const { qLoraRank, kvLoraRank, latentNorm } = config;
  const { wq, wqDown, wqUp, wkvDown, wkvUp, wo } = latentMatrixSizes(config);
  const common = { wkvDown, wkvUp, wo };
  return {
    matrices: qLoraRank > 0 ? { wqDown, wqUp, ...common } : { wq, ...common },
    biases: { bq: wq.n, ...(qLoraRank > 0 && { bqDown: wqDown.n }), bkvDown: wkvDown.n, bo: wo.n },
    gains: latentNorm ? { ...(qLoraRank > 0 && { qNorm: qLoraRank }), kvNorm: kvLoraRank } : {},
  };
}
