// A decoder for a budget of parameters, a length of sequences and a place to run: each choice with its reason.

import type { CacheFormat } from "../cache/page-layout.ts";
import type { ModelPlan } from "../decoder/plan-model.ts";
import type { WeightFormat } from "../linear/formats.ts";
import { attentionParameters, projectionsFor } from "./choose-attention.ts";
import { chooseDepth, chooseHeads, chooseVocabulary } from "./choose-shape.ts";
import { type ConfigureOptions, readConfigureOptions } from "./configure-options.ts";
import { CACHE_SHARE, type Choice, cacheShare, explainChoices, warningsOf } from "./explain.ts";
import { type Candidate, planShape, type Shape } from "./plan-shape.ts";
import { predictSpeed, type Speed } from "./roofline.ts";
import { TARGETS } from "./targets.ts";
import { workOf } from "./token-work.ts";

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
  const { parameterBudget, seqLen, roofline } = given;
  const heads = chooseHeads(parameterBudget, given);
  const { dModel } = heads;
  const { vocabSize, tied } = chooseVocabulary(parameterBudget, dModel, given.vocabSize);
  const target = TARGETS[given.target];
  const memoryLimit = given.memory ?? target.memory;
  const tables = vocabSize * dModel * (tied ? 1 : 2) + dModel;
  const planned: Candidate[] = [];
  const isFine = (each: Candidate) => each.memory.total <= memoryLimit && cacheShare(each) <= CACHE_SHARE;
  for (const weights of given.weights ? [given.weights] : target.weights)
    for (const cache of given.cache ? [given.cache] : CACHES)
      for (const projection of projectionsFor(heads, given.attention)) {
        if (planned.some(isFine)) break;
        const depth = chooseDepth(parameterBudget - tables, dModel, attentionParameters(heads, projection));
        const { numHeads, headDim } = heads;
        const shape = { dModel, numHeads, headDim, ...depth, vocabSize, tied, projection };
        planned.push(planShape(where, shape, weights, cache, seqLen));
      }
  const chosen = planned.find(isFine) ?? leastBad(planned, memoryLimit);
  const { shape, weights, cache, config, parameters, memory } = chosen;
  const speed = roofline && predictSpeed(workOf(chosen, seqLen), roofline, seqLen);
  const facts = { given, chosen, planned, memoryLimit, speed };
  return {
    ...shape,
    ...{ fused: shape.projection.kind !== "mla", weights, cache, config, parameters },
    ...{ cacheBytes: memory.sessions, memory, speed },
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
