import { type ModelFormats, readFormats, uniformFormats } from "../decoder/model-formats.ts";
import type { WeightFormat } from "../linear/formats.ts";
import { expectInt, readFields } from "../util/arguments.ts";
import { readEncoder } from "./load-encoder.ts";
import { plannedTokens, planTexts } from "./plan-fit.ts";

/** What to plan an encoder's memory for. */
export interface EncoderPlanSizes {
  /** Formats of the weights, as `loadEncoder` takes them; parts without one are float32. Default "f32". */
  readonly weights?: WeightFormat | ModelFormats | undefined;
  /** Tokens of the longest text. Default those that the model has positions for, at most 512. */
  readonly tokens?: number | undefined;
}

/** Bytes of linear memory that an encoder takes. */
export interface EncoderPlan {
  /** Bytes that the model holds, without a head for masked tokens, which takes those of a matrix [dModel, dModel] more. */
  readonly weights: number;
  /** Bytes that calls on any number of such texts share, at most; `maskedLogits` takes those of its logits more. */
  readonly scratch: number;
  /** The sum of both. */
  readonly total: number;
}

/**
 * The memory that an encoder and its calls will take, computed from config.json before anything is loaded.
 * @param config The text of config.json, or the object it parses to.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `BAD_FILE` for a model that `loadEncoder` would refuse.
 * @example
 * import { planEncoder } from "headwise/encoders";
 * const miniLM = { model_type: "bert", hidden_size: 384, num_hidden_layers: 6, num_attention_heads: 12, intermediate_size: 1536,
 *   vocab_size: 30522, max_position_embeddings: 512 };
 * const { weights, scratch } = planEncoder(miniLM, { weights: "q8", tokens: 256 });
 * console.log(Math.round(weights / 1e6), Math.round(scratch / 1e6)); // 28 11
 */
export function planEncoder(config: string | object, sizes: EncoderPlanSizes = {}): EncoderPlan {
  const where = "planEncoder";
  const given = readFields(where, "sizes", sizes, ["weights", "tokens"]);
  const formats = readFormats(where, given.weights);
  const whole = readEncoder(where, config).spec;
  const { transform: _, ...head } = whole.head;
  const spec = { ...whole, head };
  const { tokens = plannedTokens(spec) } = given;
  expectInt(where, "tokens", tokens, 1, spec.maxSeqLen ?? Number.MAX_SAFE_INTEGER);
  return planTexts(where, spec, uniformFormats(spec, formats), tokens);
}
