// A shape in formats: its config.json, and what it takes.

import type { CacheFormat } from "../cache/page-layout.ts";
import { readFormats, uniformFormats } from "../decoder/model-formats.ts";
import { type ModelPlan, planSpec } from "../decoder/plan-model.ts";
import type { WeightFormat } from "../linear/formats.ts";
import { countDecoder } from "../models/decoder/count-tensors.ts";
import { readDecoder } from "../models/decoder/read-spec.ts";
import { fieldsOf } from "../models/hf/config-fields.ts";
import type { Projection } from "./choose-attention.ts";

/** The sizes of a decoder. */
export interface Shape {
  /** The width: floats of a row between layers. */
  readonly dModel: number;
  /** Heads of queries. */
  readonly numHeads: number;
  /** Floats in a head. */
  readonly headDim: number;
  /** Layers, each of attention and an MLP. */
  readonly layers: number;
  /** Floats between the projections of the MLP, which is gated. */
  readonly mlpDim: number;
  /** Entries of the table of tokens. */
  readonly vocabSize: number;
  /** Whether the head is the table of tokens. */
  readonly tied: boolean;
  /** The variant of attention. */
  readonly projection: Projection;
}

/** A shape in formats, and what it takes. */
export interface Candidate {
  readonly shape: Shape;
  readonly weights: WeightFormat;
  readonly cache: CacheFormat;
  readonly config: Readonly<Record<string, unknown>>;
  readonly parameters: number;
  readonly memory: ModelPlan;
}

/** A shape in formats, planned for one session: all layers are equal, so what the second one adds is what each further one does. */
export function planShape(
  where: string,
  shape: Shape,
  weights: WeightFormat,
  cache: CacheFormat,
  seqLen: number,
): Candidate {
  const { layers } = shape;
  const formats = readFormats(where, weights);
  const [one, two] = [1, 2].map((layers) => {
    const config = configOf({ ...shape, layers }, seqLen);
    const decoder = readDecoder(where, config, seqLen);
    const { parameters } = countDecoder(decoder, fieldsOf("config.json", config, where));
    const sizes = { maxSeqLen: seqLen, format: cache };
    return { parameters, ...planSpec(where, decoder.spec, uniformFormats(decoder.spec, formats), sizes) };
  }) as [Planned, Planned];
  const all = (name: keyof Planned) => one[name] + (layers - 1) * (two[name] - one[name]);
  return {
    ...{ shape, weights, cache, config: configOf(shape, seqLen), parameters: all("parameters") },
    memory: { weights: all("weights"), sessions: all("sessions"), scratch: all("scratch"), total: all("total") },
  };
}

type Planned = ModelPlan & Pick<Candidate, "parameters">;

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
