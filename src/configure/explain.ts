// The reasons of a configuration's choices, with their rules of thumb, and its warnings.

import type { Projection } from "./choose-attention.ts";
import { anchorNear, vocabularyName } from "./choose-shape.ts";
import type { ConfigureOptions } from "./configure-options.ts";
import type { Candidate } from "./plan-shape.ts";
import type { Speed } from "./roofline.ts";
import { TARGETS } from "./targets.ts";

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
export interface Explained {
  readonly given: ConfigureOptions;
  readonly chosen: Candidate;
  /** What was planned, in the order of preference, until one was fine. */
  readonly planned: readonly Candidate[];
  readonly memoryLimit: number;
  readonly speed: Speed | undefined;
}

/** Caches of a session should take no more of the weights than this. */
export const CACHE_SHARE: number = 1 / 4;

const WIDTHS = "125M 768/12/64, 350M 1024/16/64, 1B 2048/16/128, 70B 8192/64/128 (width/heads/head size)";
const HEAD_SIZES =
  "heads of 64 or 128: below 32 scores are sums of few products, above 256 there are few heads to specialise";
const VARIANTS =
  "as many keys and values as a quarter of the weights allows: groups of 4 or 8 heads are near full attention (Ainslie 2023), then latents of 4.5 heads (DeepSeek-V2), then one head for all (Shazeer 2019)";

const percent = (share: number): string => `${share < 0.1 ? (100 * share).toPrecision(2) : (100 * share).toFixed(0)} %`;
const sizeOf = (bytes: number): string =>
  bytes < 1e9 ? `${(bytes / 1e6).toPrecision(3)} MB` : `${(bytes / 1e9).toFixed(2)} GB`;
/** Bytes of a session as a share of the weights. */
export const cacheShare = ({ memory }: Candidate): number => memory.sessions / memory.weights;

/** A variant of attention in words. */
export function projectionText(projection: Projection): string {
  if (projection.kind !== "mla") return `${projection.kind}, ${projection.numKvHeads} key-value heads`;
  const { kvLoraRank, qLoraRank, ropeDim } = projection;
  return `mla, latents of ${kvLoraRank} + ${ropeDim}${qLoraRank === undefined ? "" : `, of queries ${qLoraRank}`}`;
}

/** Each choice with its reason. */
export function explainChoices({ given, chosen, planned, memoryLimit }: Explained): Choice[] {
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
export function warningsOf({ given, chosen, memoryLimit, speed }: Explained): string[] {
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
