// A decoder for a budget of parameters, a length of sequences and a place to run: each choice with its reason.

import type { CacheFormat } from "../cache/page-layout.ts";
import { readFormats, uniformFormats } from "../decoder/model-formats.ts";
import { type ModelPlan, planSpec } from "../decoder/plan-model.ts";
import type { WeightFormat } from "../linear/formats.ts";
import { countDecoder } from "../models/decoder/count-tensors.ts";
import { type Decoder, readDecoder } from "../models/decoder/read-spec.ts";
import { fieldsOf } from "../models/hf/config-fields.ts";
import { attentionParameters, type Projection, projectionsFor } from "./choose-attention.ts";
import { chooseDepth, chooseHeads, chooseVocabulary } from "./choose-shape.ts";
import { type ConfigureOptions, readConfigureOptions } from "./configure-options.ts";
import { CACHE_SHARE, type Choice, cacheShare, explainChoices, warningsOf } from "./explain.ts";
import { predictSpeed, type Speed } from "./roofline.ts";
import { TARGETS } from "./targets.ts";
import { workOf } from "./token-work.ts";

/** The sizes of a decoder. */
export interface Shape {
  readonly dModel: number;
  readonly numHeads: number;
  /** Floats in a head. */
  readonly headDim: number;
  readonly layers: number;
  /** Floats between the projections of the MLP, which is gated. */
  readonly mlpDim: number;
  readonly vocabSize: number;
  /** Whether the head is the table of tokens. */
  readonly tied: boolean;
  readonly projection: Projection;
}

/** A shape in formats, and what it takes. */
export interface Candidate {
  readonly shape: Shape;
  readonly weights: WeightFormat;
  readonly cache: CacheFormat;
  readonly config: Readonly<Record<string, unknown>>;
  readonly decoder: Decoder;
  readonly parameters: number;
  readonly memory: ModelPlan;
}

/** A decoder for a budget. */
export interface Configuration extends Shape, Pick<Candidate, "weights" | "cache" | "parameters"> {
  /**
   * Whether queries, keys and values are best one matrix, as heads of one format are: their rows are read once, with the bits of
   * separate matrices. Latents have matrices of their own.
   */
  readonly fused: boolean;
  /** The fields of config.json, as `planModel` and `loadModel` take it. */
  readonly config: Candidate["config"];
  /** Bytes of the caches of a session. */
  readonly cacheBytes: number;
  /** Linear memory of weights, a session and a call: what `planModel` gives for `config`, `weights` and `cache`. */
  readonly memory: ModelPlan;
  /** What the given roofline predicts, on one thread. */
  readonly speed: Speed | undefined;
  /** Each choice, why it was made, and the rule of thumb that it follows. */
  readonly choices: readonly Choice[];
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
  const candidates = (given.weights ? [given.weights] : target.weights).flatMap((weights) =>
    (given.cache ? [given.cache] : CACHES).flatMap((cache) =>
      projectionsFor(heads, given.attention).map((projection) => {
        const depth = chooseDepth(parameterBudget - tables, dModel, attentionParameters(heads, projection));
        const { numHeads, headDim } = heads;
        const shape = { dModel, numHeads, headDim, ...depth, vocabSize, tied, projection };
        return planShape(where, shape, weights, cache, seqLen);
      }),
    ),
  );
  const chosen = bestOf(candidates, memoryLimit);
  const { shape, weights, cache, config, parameters, memory } = chosen;
  const speed = roofline && predictSpeed(workOf(chosen, seqLen), roofline, seqLen);
  const facts = { given, chosen, candidates, memoryLimit, speed };
  return {
    ...shape,
    ...{ fused: shape.projection.kind !== "mla", weights, cache, config, parameters },
    ...{ cacheBytes: memory.sessions, memory, speed },
    ...{ choices: explainChoices(facts), warnings: warningsOf(facts) },
  };
}

/**
 * The first candidate that fits into so many bytes with caches of at most their share. Without one, that of the smallest caches which
 * fits; and if none fits, the first in the smallest format of weights with caches of their share.
 */
function bestOf(candidates: readonly Candidate[], bytes: number): Candidate {
  const fitting = candidates.filter(({ memory }) => memory.total <= bytes);
  const isModest = (each: Candidate) => cacheShare(each) <= CACHE_SHARE;
  const [smallest] = [...fitting].sort((a, b) => cacheShare(a) - cacheShare(b));
  const last = candidates.at(-1) as Candidate;
  const compact = candidates.find((each) => each.weights === last.weights && isModest(each));
  return fitting.find(isModest) ?? smallest ?? compact ?? last;
}

/** A shape in formats, planned for one session. */
export function planShape(
  where: string,
  shape: Shape,
  weights: WeightFormat,
  cache: CacheFormat,
  seqLen: number,
): Candidate {
  const config = configOf(shape, seqLen);
  const decoder = readDecoder(where, config, seqLen);
  const { parameters } = countDecoder(decoder, fieldsOf("config.json", config, where));
  const formats = uniformFormats(decoder.spec, readFormats(where, weights));
  const memory = planSpec(where, decoder.spec, formats, { maxSeqLen: seqLen, format: cache });
  return { shape, weights, cache, config, decoder, parameters, memory };
}

/** The config.json of a shape: that of a Llama, or of a DeepSeek-V2 without experts. */
function configOf(shape: Shape, seqLen: number): Candidate["config"] {
  const { dModel, numHeads, headDim, layers, mlpDim, vocabSize, tied, projection } = shape;
  const common = {
    ...{ hidden_size: dModel, intermediate_size: mlpDim, num_hidden_layers: layers, num_attention_heads: numHeads },
    ...{ vocab_size: vocabSize, max_position_embeddings: seqLen, rope_theta: 10_000, tie_word_embeddings: tied },
  };
  if (projection.kind !== "mla")
    return { model_type: "llama", ...common, num_key_value_heads: projection.numKvHeads, head_dim: headDim };
  const { kvLoraRank, qLoraRank = null, nopeDim, ropeDim, valueDim } = projection;
  return {
    ...{ model_type: "deepseek_v2", ...common, num_key_value_heads: numHeads, kv_lora_rank: kvLoraRank },
    ...{ q_lora_rank: qLoraRank, qk_nope_head_dim: nopeDim, qk_rope_head_dim: ropeDim, v_head_dim: valueDim },
    first_k_dense_replace: layers,
  };
}
