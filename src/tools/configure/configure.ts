// A decoder for a budget of parameters, a length of sequences and a place to run: each choice with its reason.

import {
  expectEven,
  expectFinite,
  expectInt,
  expectOneOf,
  expectRecord,
  readFields,
  readList,
} from "../../base/util/arguments.ts";
import { describe } from "../../base/util/errors.ts";
import { WEIGHT_FORMATS, type WeightFormat } from "../../layers/linear/formats.ts";

import { CACHE_FORMATS, type CacheFormat } from "../../layers/state/pages.ts";
import type { ModelPlan } from "../../models/load/plan-model.ts";
import { LARGEST_MEMORY } from "../../wasm/memory.ts";
import {
  anchorNear,
  type Candidate,
  PROJECTION_KINDS,
  type Projection,
  type ProjectionKind,
  planCandidates,
  type Shape,
  vocabularyName,
} from "./choose.ts";
import { predictSpeed, type Roofline, type Speed, workOf } from "./roofline.ts";

// Where a model is to run, and what that place allows.

/** Where a model runs: in a page of a desktop, of a phone, in an edge worker, or in a process of a server. */
export type Target = "browser" | "phone" | "worker" | "server";

/** What a target allows. */
interface TargetRules {
  /** Bytes of linear memory for weights, one session and a call. */
  readonly memory: number;
  /** Formats of weights to try, the first that fits is taken. */
  readonly weights: readonly WeightFormat[];
  /** Where these numbers are from. */
  readonly reason: string;
}

/** Every target. */
const TARGET_NAMES: readonly Target[] = ["browser", "phone", "worker", "server"];

/**
 * What options of several functions can be, for menus and for checks of what users wrote: formats of weights, from most to least
 * exact, and of caches, targets of `configure`, and its variants of attention. The lists cannot be changed.
 * @example
 * import { OPTION_VALUES } from "headwise/configure";
 * console.log(OPTION_VALUES.cache.join()); // f32,f16,q8,q4
 */
export const OPTION_VALUES: {
  /** Formats of weights. */
  readonly weights: readonly WeightFormat[];
  /** Formats of caches. */
  readonly cache: readonly CacheFormat[];
  /** Where a model is to run. */
  readonly target: readonly Target[];
  /** Variants of attention. */
  readonly attention: readonly ProjectionKind[];
} = /* @__PURE__ */ (() => {
  const lists = { weights: WEIGHT_FORMATS, cache: CACHE_FORMATS, target: TARGET_NAMES, attention: PROJECTION_KINDS };
  const copies = Object.entries(lists).map(([name, list]) => [name, Object.freeze([...list])]);
  return Object.freeze(Object.fromEntries(copies)) as typeof OPTION_VALUES;
})();

const TARGETS: Readonly<Record<Target, TargetRules>> = {
  browser: {
    memory: 2 ** 31,
    weights: ["q8", "q4"],
    reason:
      "half of the 4 GiB that 32-bit addresses reach, since a tab has other memory too; a download is worth 8 bits",
  },
  phone: {
    memory: 2 ** 30,
    weights: ["q8", "q4"],
    reason: "phones with 4 GiB end a tab that takes much more than one of them",
  },
  worker: {
    memory: 100 * 2 ** 20,
    weights: ["q8", "q4"],
    reason: "Cloudflare Workers have 128 MB for code, heap and linear memory",
  },
  server: {
    memory: LARGEST_MEMORY,
    weights: ["f16", "q8", "q4"],
    reason: "all that 32-bit addresses reach",
  },
};

// The options of `configure`, and their checks.

/** What to configure a decoder for. Whatever is given beyond the first three is not chosen. */
export interface ConfigureOptions {
  /** Parameters, from 10 000 to 10^12. */
  readonly parameterBudget: number;
  /** Tokens of the longest sequence. */
  readonly seqLen: number;
  /** Where it is to run. */
  readonly target: Target;
  /** The speed of a machine, as `measureRoofline` gives it, to predict the model's. Default none: no prediction. */
  readonly roofline?: Roofline | undefined;
  /** Bytes of linear memory for weights, a session and a call. Default those of the target. */
  readonly memory?: number | undefined;
  /** The width of the model, even. */
  readonly dModel?: number | undefined;
  /** Heads. Unless headDim is given too, the nearest number that divides the width is taken, with a warning. */
  readonly numHeads?: number | undefined;
  /** Heads of keys and values. The nearest number that divides the heads is taken, with a warning. */
  readonly numKvHeads?: number | undefined;
  /** Floats in a head, even. */
  readonly headDim?: number | undefined;
  /** Entries of the table of tokens. */
  readonly vocabSize?: number | undefined;
  /** The variant of attention. */
  readonly attention?: ProjectionKind | undefined;
  /** Format of all matrices. */
  readonly weights?: WeightFormat | undefined;
  /** Format of keys and values; latents have those of keys. */
  readonly cache?: CacheFormat | undefined;
}

const SIZES = ["dModel", "numHeads", "numKvHeads", "headDim", "vocabSize"] as const;
const OPTIONS = [
  ...(["parameterBudget", "seqLen", "target", "roofline", "memory", "attention", "weights", "cache"] as const),
  ...SIZES,
] as const;

/** Throws unless the option `roofline` has positive speeds. */
function expectRoofline(where: string, roofline: Roofline): void {
  const expectSpeeds = (name: string, given: object, speeds: readonly string[]) => {
    expectRecord(where, name, given);
    for (const speed of speeds)
      expectFinite(where, `${name}.${speed}`, (given as Readonly<Record<string, unknown>>)[speed], true);
  };
  const name = "options.roofline";
  expectSpeeds(name, roofline, ["flops", "bytes"]);
  const { weights = {}, attention, other } = roofline;
  if (other !== undefined) {
    expectRecord(where, `${name}.other`, other);
    for (const part of ["layer", "pass", "row", "element"] as const)
      if (expectFinite(where, `${name}.other.${part}`, other[part]) < 0)
        throw new RangeError(`${where}: ${name}.other.${part} expected a number >= 0, got ${other[part]}`);
  }
  if (attention !== undefined) expectSpeeds(`${name}.attention`, attention, ["prompt", "token"]);
  expectRecord(where, `${name}.weights`, weights);
  for (const [format, speed] of Object.entries(weights)) {
    expectOneOf(where, `${name}.weights`, format, WEIGHT_FORMATS);
    const at = `${name}.weights.${format}`;
    expectSpeeds(at, speed, ["flops"]);
    const curve = Array.from(
      readList(where, `${at}.bytes`, speed.bytes, Infinity, (pair, i) =>
        Array.from(readList(where, `${at}.bytes[${i}]`, pair, 2), (number, j) =>
          expectFinite(where, `${at}.bytes[${i}][${j}]`, number, true),
        ),
      ),
    );
    const isAscending = curve.every((pair, i) => pair.length === 2 && (pair[0] as number) > (curve[i - 1]?.[0] ?? 0));
    if (curve.length === 0 || !isAscending)
      throw new RangeError(
        `${where}: ${at}.bytes expected 1 or more pairs [size, perSecond], ascending, got ${describe(curve)}`,
      );
  }
}

/** A copy of the options, each read once and checked. */
function readConfigureOptions(where: string, options: ConfigureOptions): ConfigureOptions {
  const given = readFields(where, "options", options, OPTIONS);
  const { attention, weights, cache, roofline, memory } = given;
  expectInt(where, "options.parameterBudget", given.parameterBudget, 10_000, 1e12);
  expectInt(where, "options.seqLen", given.seqLen);
  expectOneOf(where, "options.target", given.target, TARGET_NAMES);
  for (const name of SIZES) if (given[name] !== undefined) expectInt(where, `options.${name}`, given[name]);
  // RoPE rotates pairs of components.
  for (const name of ["dModel", "headDim"] as const)
    if (given[name] !== undefined) expectEven(where, `options.${name}`, given[name]);
  if (memory !== undefined) expectInt(where, "options.memory", memory, 1, Number.MAX_SAFE_INTEGER);
  if (attention !== undefined) expectOneOf(where, "options.attention", attention, PROJECTION_KINDS);
  if (weights !== undefined) expectOneOf(where, "options.weights", weights, WEIGHT_FORMATS);
  if (cache !== undefined) expectOneOf(where, "options.cache", cache, CACHE_FORMATS);
  if (roofline !== undefined) expectRoofline(where, roofline);
  return given;
}

// The reasons of a configuration's choices, with their rules of thumb, and its warnings.

/** A choice. */
export interface Choice {
  /** What was chosen, as the field of the configuration is called. */
  readonly what: string;
  /** Its value, for a projection in words. */
  readonly value: string | number;
  /** Why here. */
  readonly reason: string;
  /** The rule of thumb that it follows, and whose it is. */
  readonly rule: string;
}

/** A choice among candidates, to be explained. */
interface Explained {
  readonly given: ConfigureOptions;
  readonly chosen: Candidate;
  /** What was planned, in the order of preference, until one was fine. */
  readonly planned: readonly Candidate[];
  readonly memoryLimit: number;
  readonly speed: Speed | undefined;
}

/** Caches of a session should take no more of the weights than this. */
const CACHE_SHARE: number = 1 / 4;

const WIDTHS = "125M 768/12/64, 350M 1024/16/64, 1B 2048/16/128, 70B 8192/64/128 (width/heads/head size)";
const HEAD_SIZES =
  "heads of 64 or 128: below 32 scores are sums of few products, above 256 there are few heads to specialise";
const VARIANTS =
  "as many keys and values as a quarter of the weights allows: groups of 4 or 8 heads are near full attention (Ainslie 2023), then latents of 4.5 heads (DeepSeek-V2), then one head for all (Shazeer 2019)";

const percent = (share: number): string => `${share < 0.1 ? (100 * share).toPrecision(2) : (100 * share).toFixed(0)} %`;
const sizeOf = (bytes: number): string =>
  bytes < 1e9 ? `${(bytes / 1e6).toPrecision(3)} MB` : `${(bytes / 1e9).toFixed(2)} GB`;
/** Bytes of a session as a share of the weights. */
const cacheShare = ({ memory }: Candidate): number => memory.sessions / memory.weights;

/** A variant of attention in words. */
function projectionText(projection: Projection): string {
  if (projection.kind !== "mla") return `${projection.kind}, ${projection.numKvHeads} key-value heads`;
  const { kvLoraRank, qLoraRank, ropeDim } = projection;
  return `mla, latents of ${kvLoraRank} + ${ropeDim}${qLoraRank === undefined ? "" : `, of queries ${qLoraRank}`}`;
}

/** Each choice with its reason. */
function explainChoices({ given, chosen, planned, memoryLimit }: Explained): Choice[] {
  const { shape, weights, cache, memory, parameters } = chosen;
  const { dModel, numHeads, headDim, layers, mlpDim, vocabSize, tied, projection } = shape;
  const { parameterBudget, target, seqLen } = given;
  const near = anchorNear(parameterBudget);
  const asked = (name: keyof ConfigureOptions, value: unknown, reason: string) => {
    if (given[name] === undefined) return reason;
    return given[name] === value ? "as asked for" : `the nearest to ${given[name]}: ${reason}`;
  };
  const other = near
    ? `the budget is near the rule of ${near.parameters / 1e6} million`
    : "between the rules by a power of the budget, beyond them by its cube root";
  const same = planned.filter((each) => each.weights === weights && each.cache === cache);
  const before = same.slice(0, same.indexOf(chosen));
  const tooMuch = before.map((each) => `${each.shape.projection.kind} ${percent(cacheShare(each))}`).join(", ");
  const share = `caches of ${seqLen} tokens take ${percent(cacheShare(chosen))} of the weights`;
  const fits = memory.total <= memoryLimit ? "the most exact that fits" : "the smallest";
  const tables = vocabSize * dModel * (tied ? 1 : 2);
  const rows: [what: string, value: string | number, reason: string, rule: string][] = [
    ["dModel", dModel, asked("dModel", dModel, other), WIDTHS],
    ["headDim", headDim, asked("headDim", headDim, `the width of ${dModel} / ${numHeads} heads`), HEAD_SIZES],
    [
      "numHeads",
      numHeads,
      asked("numHeads", numHeads, headsReason(dModel, headDim, numHeads)),
      "the sizes of all heads add up to the width",
    ],
    [
      "projection",
      projectionText(projection),
      asked("attention", projection.kind, tooMuch === "" ? share : `${share}, where others take more: ${tooMuch}`),
      VARIANTS,
    ],
    ["fused", projection.kind === "mla" ? "separate" : "fused", ...fusedReason(projection)],
    [
      "vocabSize",
      vocabSize,
      asked(
        "vocabSize",
        vocabSize,
        `${vocabularyName(vocabSize)}, the largest whose table is at most a third of the budget`,
      ),
      tied ? "below 4 billion parameters the head is the table (Llama 3.2 1B, 3B)" : "a head of its own (Llama 3.1 8B)",
    ],
    [
      "layers",
      layers,
      `${layers} of ${countOf((parameters - tables) / layers)} come nearest to the budget`,
      "depth is what is left",
    ],
    [
      "mlpDim",
      mlpDim,
      `${(mlpDim / dModel).toFixed(2)} times the width, in steps of 64, for ${countOf(parameters)} in all`,
      "gated with SiLU, 8/3 of the width: as many weights as a plain MLP of 4 widths (Shazeer 2020)",
    ],
    [
      "weights",
      weights,
      asked("weights", weights, `${fits}: ${sizeOf(memory.total)} of ${sizeOf(memoryLimit)}`),
      `for ${target}: ${TARGETS[target].weights.join(", then ")}`,
    ],
    [
      "cache",
      cache,
      asked("cache", cache, share),
      "f16, which rounds keys by 2^-11 at most; q8 where caches are too large",
    ],
    ["memory", sizeOf(memoryLimit), asked("memory", memoryLimit, `what a ${target} allows`), TARGETS[target].reason],
  ];
  return rows.map(([what, value, reason, rule]) => ({ what, value, reason, rule }));
}

const countOf = (parameters: number): string =>
  parameters < 1e9 ? `${(parameters / 1e6).toPrecision(3)} million` : `${(parameters / 1e9).toPrecision(3)} billion`;

function headsReason(dModel: number, headDim: number, numHeads: number): string {
  const quotient = `the width of ${dModel} / ${headDim} floats in a head`;
  return numHeads * headDim === dModel ? quotient : `${quotient}, rounded`;
}

function fusedReason(projection: Projection): [reason: string, rule: string] {
  if (projection.kind === "mla") return ["latents are projected in two steps", "as in DeepSeek-V2"];
  return ["one matrix reads each row once, with the bits of three", "fused unless parts have formats of their own"];
}

/** What is doubtful about a configuration. */
function warningsOf({ given, chosen, memoryLimit, speed }: Explained): string[] {
  const { shape, memory, parameters } = chosen;
  const { dModel, numHeads, headDim, vocabSize, tied, projection } = shape;
  const kvHeads = projection.kind === "mla" ? given.numKvHeads : projection.numKvHeads;
  const off = parameters / given.parameterBudget - 1;
  const table = (vocabSize * dModel * (tied ? 1 : 2)) / parameters;
  const found: [isSo: boolean, text: string][] = [
    [headDim < 32, `heads of ${headDim} are below 32: scores of so few products separate keys poorly`],
    [headDim > 256, `heads of ${headDim} are above 256: fewer heads specialise`],
    [
      given.numHeads !== undefined && given.numHeads !== numHeads,
      `${given.numHeads} heads do not divide a width of ${dModel} into even sizes: ${numHeads} do`,
    ],
    [
      given.numKvHeads !== undefined && given.numKvHeads !== kvHeads,
      `${given.numKvHeads} key-value heads do not divide ${numHeads} heads: ${kvHeads} do`,
    ],
    [
      projection.kind === "mla" && given.numKvHeads !== undefined,
      `latents have no key-value heads: ${given.numKvHeads} are not used`,
    ],
    [
      given.attention !== undefined && given.attention !== projection.kind,
      `${projectionText(projection)} of ${numHeads} heads, are not ${given.attention}`,
    ],
    [
      numHeads * headDim !== dModel,
      `${numHeads} heads of ${headDim} floats are ${numHeads * headDim} floats together, which differs from the width of ${dModel}`,
    ],
    [
      memory.total > memoryLimit,
      `${sizeOf(memory.total)} of linear memory exceed the ${sizeOf(memoryLimit)} ${given.memory === undefined ? `of a ${given.target}` : "that are given"}, in every format that was tried`,
    ],
    [
      cacheShare(chosen) > CACHE_SHARE,
      `caches of ${given.seqLen} tokens take ${percent(cacheShare(chosen))} of the weights, more than a quarter`,
    ],
    [table > 0.5, `the table of tokens has ${percent(table)} of the parameters`],
    [
      Math.abs(off) > 0.05,
      `${countOf(parameters)} parameters are ${percent(Math.abs(off))} ${off < 0 ? "below" : "above"} the budget`,
    ],
    [
      speed !== undefined && speed.decodeTokensPerSecond < 5,
      `${speed?.decodeTokensPerSecond.toPrecision(2)} tokens a second are slower than reading`,
    ],
  ];
  return found.flatMap(([isSo, text]) => (isSo ? [text] : []));
}

/** A decoder for a budget. */
export interface Configuration extends Shape {
  /** Format of all matrices. */
  readonly weights: WeightFormat;
  /** Format of keys and values. */
  readonly cache: CacheFormat;
  /** Parameters of the whole model. */
  readonly parameters: number;
  /**
   * Whether queries, keys and values are best one matrix, as heads of one format are: their rows are read once, with the bits of
   * separate matrices. Latents have matrices of their own.
   */
  readonly fused: boolean;
  /** The fields of config.json, as `planModel` and `loadModel` take it. */
  readonly config: Readonly<Record<string, unknown>>;
  /** Bytes of the caches of a session. */
  readonly cacheBytes: number;
  /** Linear memory of weights, a session and a call: what `planModel` gives for `config`, `weights` and `cache`. */
  readonly memory: ModelPlan;
  /** Whether that fits `options.memory`, or what the target allows. */
  readonly fits: boolean;
  /** What the given roofline predicts, on one thread. */
  readonly speed: Speed | undefined;
  /** Each choice, why it was made, and the rule of thumb that it follows. */
  readonly choices: readonly Choice[];
  /** What is doubtful, in words. */
  readonly warnings: readonly string[];
}

const CACHES: readonly CacheFormat[] = ["f16", "q8"];

/**
 * Sizes of a decoder for a budget: heads, groups of keys or latents, layers, MLP and vocabulary, formats of weights and caches, and
 * what all that costs. Attention is the variant with the most keys and values whose caches take at most a quarter of the weights;
 * formats are the most exact of the target's that fit its memory. The result depends on the options alone.
 * @throws TypeError or RangeError naming the option.
 * @example
 * import { configure } from "headwise/configure";
 * const { dModel, numHeads, headDim, projection, weights, parameters } =
 *   configure({ parameterBudget: 125e6, seqLen: 2048, target: "browser" });
 * console.log(dModel, numHeads, headDim, projection.kind, weights); // 768 12 64 gqa q8
 * console.log(Math.abs(parameters - 125e6) < 2e6); // true
 */
export function configure(options: ConfigureOptions): Configuration {
  const where = "configure";
  const given = readConfigureOptions(where, options);
  const { seqLen, roofline } = given;
  const target = TARGETS[given.target];
  const memoryLimit = given.memory ?? target.memory;
  const isFine = (each: Candidate) => each.memory.total <= memoryLimit && cacheShare(each) <= CACHE_SHARE;
  const formats = {
    weights: given.weights ? [given.weights] : target.weights,
    caches: given.cache ? [given.cache] : CACHES,
  };
  const planned = planCandidates(where, given, formats, isFine);
  const chosen = planned.find(isFine) ?? leastBad(planned, memoryLimit);
  const { shape, weights, cache, config, parameters, memory } = chosen;
  const speed = roofline && predictSpeed(workOf(chosen, seqLen), roofline, seqLen);
  const facts = { given, chosen, planned, memoryLimit, speed };
  return {
    ...shape,
    ...{ fused: shape.projection.kind !== "mla", weights, cache, config, parameters },
    ...{ cacheBytes: memory.sessions, memory, fits: memory.total <= memoryLimit, speed },
    ...{ choices: explainChoices(facts), warnings: warningsOf(facts) },
  };
}

/**
 * Of candidates none of which is fine: that of the smallest caches which fits into so many bytes; if none fits, the first in the
 * smallest format of weights whose caches take no more than their share.
 */
function leastBad(planned: readonly Candidate[], bytes: number): Candidate {
  const fitting = planned.filter(({ memory }) => memory.total <= bytes);
  const [smallest] = fitting.sort((a, b) => cacheShare(a) - cacheShare(b));
  const last = planned.at(-1) as Candidate;
  return smallest ?? planned.find((each) => each.weights === last.weights && cacheShare(each) <= CACHE_SHARE) ?? last;
}
