// The choices of a configuration: variants of attention, and sizes for a number of parameters.

import { ln, pow } from "../../base/util/math.ts";
import type { AttentionConfig } from "../../layers/attention/config.ts";
import type { LatentConfig } from "../../layers/latent/config.ts";
import type { WeightFormat } from "../../layers/linear/formats.ts";
import type { CacheFormat } from "../../layers/state/pages.ts";
import { fieldsOf } from "../../models/families/facts.ts";
import { type ModelPlan, planSpec, readFormats, uniformFormats } from "../../models/load/plan-model.ts";
import { readDecoder } from "../../models/spec/read-spec.ts";
import { countDecoder } from "../../models/spec/tensors.ts";
import { countParameters } from "../../models/weights/count-parameters.ts";

// The variants of attention for a number of heads, from the most to the least cache.

/** The heads of a layer, and the number of those of keys and values if it is given. */
interface Heads {
  readonly dModel: number;
  readonly numHeads: number;
  readonly headDim: number;
  readonly numKvHeads: number | undefined;
}

/** How queries, keys and values are projected. */
export type Projection =
  | {
      /** Keys and values for each head, for each group of heads, or one for all. */
      readonly kind: "mha" | "gqa" | "mqa";
      /** Heads of keys and values. */
      readonly numKvHeads: number;
    }
  | {
      /** Keys and values of all heads from one latent. */
      readonly kind: "mla";
      /** Floats of a latent. */
      readonly kvLoraRank: number;
      /** Floats of a latent of queries; undefined if they are projected directly. */
      readonly qLoraRank: number | undefined;
      /** Floats of a query or key head without position. */
      readonly nopeDim: number;
      /** Floats with position. */
      readonly ropeDim: number;
      /** Floats of a value head. */
      readonly valueDim: number;
    };

/** A variant of attention. */
export type ProjectionKind = Projection["kind"];
export const PROJECTION_KINDS: readonly ProjectionKind[] = ["mha", "gqa", "mqa", "mla"];

/** Latents of queries pay from this width on: DeepSeek-V2 has them, the Lite model of 2048 does not. */
const QUERY_LATENTS_FROM = 4096;
/** Heads to a group: four as in Llama 3.1 8B, eight as in Llama 3.1 70B. */
const GROUPS = [4, 8];

/** Latents of DeepSeek-V2 (2.1.4): four heads' worth, half a head's of rotated key, which equals 2.25 groups. */
function latents(dModel: number, headDim: number): Projection {
  return {
    kind: "mla",
    kvLoraRank: 4 * headDim,
    qLoraRank: dModel >= QUERY_LATENTS_FROM ? 12 * headDim : undefined,
    nopeDim: headDim,
    // Even, as pairs of components rotate.
    ropeDim: 2 * Math.ceil(headDim / 4),
    valueDim: headDim,
  };
}

/** Heads whose keys and values are of so many groups. */
function grouped(numHeads: number, numKvHeads: number): Projection {
  return { kind: numKvHeads === numHeads ? "mha" : numKvHeads === 1 ? "mqa" : "gqa", numKvHeads };
}

/** The variants to try, each with less cache than the one before; those of `kind` alone if it is given. */
function projectionsFor(
  { dModel, numHeads, headDim, numKvHeads }: Heads,
  kind: ProjectionKind | undefined,
): readonly [Projection, ...Projection[]] {
  if (numKvHeads !== undefined && kind !== "mla") return [grouped(numHeads, numKvHeads)];
  const groups = GROUPS.filter((group) => numHeads % group === 0 && numHeads > group);
  const all = [
    grouped(numHeads, numHeads),
    ...groups.map((group) => grouped(numHeads, numHeads / group)),
    latents(dModel, headDim),
    grouped(numHeads, 1),
  ].filter((each) => kind === undefined || each.kind === kind);
  const [first = grouped(numHeads, halfOf(numHeads)), ...rest] = all;
  let least = cachedNumbers(first, headDim);
  const smaller = rest.filter((each) => {
    const numbers = cachedNumbers(each, headDim);
    if (numbers >= least) return false;
    least = numbers;
    return true;
  });
  return [first, ...smaller];
}

/** Groups of two heads where there are neither fours nor eights; one group of an odd number. */
const halfOf = (numHeads: number): number => (numHeads % 2 === 0 ? numHeads / 2 : 1);

/** Numbers of a token in the cache of a layer. */
function cachedNumbers(projection: Projection, headDim: number): number {
  return projection.kind === "mla" ? projection.kvLoraRank + projection.ropeDim : 2 * projection.numKvHeads * headDim;
}

/** Parameters of a layer's attention. */
function attentionParameters({ dModel, numHeads, headDim }: Heads, projection: Projection): number {
  const heads: AttentionConfig = { dModel, numHeads, headDim };
  if (projection.kind !== "mla") return countParameters({ ...heads, numKvHeads: projection.numKvHeads }).total;
  const { kvLoraRank, qLoraRank, nopeDim, ropeDim, valueDim } = projection;
  const rope = { theta: 10_000, pairing: "interleaved" } as const;
  const latent: LatentConfig = { dModel, numHeads, kvLoraRank, nopeDim, ropeDim, valueDim, rope };
  return countParameters(qLoraRank === undefined ? latent : { ...latent, qLoraRank }).total;
}

// The sizes of a decoder for a number of parameters: width, heads, table of tokens, layers and MLP.

/** A rule of thumb: the width and the head size of models of so many parameters. */
interface Anchor {
  readonly parameters: number;
  readonly dModel: number;
  readonly headDim: number;
}

/** GPT-3 small and medium, Llama 3.2 1B's width with heads of 128, and Llama 3 70B. */
const ANCHORS: readonly Anchor[] = [
  { parameters: 125e6, dModel: 768, headDim: 64 },
  { parameters: 350e6, dModel: 1024, headDim: 64 },
  { parameters: 1e9, dModel: 2048, headDim: 128 },
  { parameters: 70e9, dModel: 8192, headDim: 128 },
];

/** A budget that is no farther from that of a rule, as a share, has its width. */
const NEAR = 0.15;
/** Heads of 128 from here on, halfway between the two rules. */
const WIDE_HEADS_FROM = 590e6;

/** Vocabularies of known tokenizers, and of ones that small corpora give. */
const VOCABULARIES: readonly (readonly [size: number, of: string])[] = [
  [128_256, "Llama 3's"],
  [50_257, "GPT-2's"],
  [32_000, "Llama 2's"],
  [16_384, "one of 16 384 entries"],
  [8192, "one of 8192 entries"],
  [4096, "one of 4096 entries"],
  [1024, "one of 1024 entries"],
  [256, "bytes"],
];
/** The most of a budget that the table of tokens takes. */
const TABLE_SHARE = 1 / 3;
/** Models below share the table with the head, as Llama 3.2 1B and 3B; larger ones do not, as Llama 3.1 8B. */
const TIED_BELOW = 4e9;

/** The width of a model of so many parameters, as a real number: between rules a power law, beyond them the cube root. */
function idealWidth(parameters: number): number {
  const above = ANCHORS.findIndex((anchor) => anchor.parameters >= parameters);
  const edge = (above < 0 ? ANCHORS.at(-1) : ANCHORS[above]) as Anchor;
  if (above <= 0) return edge.dModel * pow(parameters / edge.parameters, 1 / 3);
  const low = ANCHORS[above - 1] as Anchor;
  const slope = ln(edge.dModel / low.dModel) / ln(edge.parameters / low.parameters);
  return low.dModel * pow(parameters / low.parameters, slope);
}

/** A rule of thumb that is near a budget. */
export function anchorNear(parameters: number): Anchor | undefined {
  return ANCHORS.find((anchor) => Math.abs(parameters / anchor.parameters - 1) <= NEAR);
}

/** The width and the size of heads for a budget. */
function chooseWidth(parameters: number): Pick<Anchor, "dModel" | "headDim"> {
  const near = anchorNear(parameters);
  if (near) return near;
  const ideal = idealWidth(parameters);
  const headDim = parameters >= WIDE_HEADS_FROM ? 128 : ideal >= 256 ? 64 : 32;
  const heads = ideal / headDim;
  // From 8 heads on in fours, so that groups of 4 divide them.
  const unit = heads >= 8 ? 4 : heads >= 2 ? 2 : 1;
  return { dModel: headDim * unit * Math.max(1, Math.round(heads / unit)), headDim };
}

/** The heads for a budget, as far as they are not given. Those that do not divide what they should are replaced by the nearest. */
function chooseHeads(parameters: number, given: Partial<Heads>): Heads {
  const width = chooseWidth(parameters);
  const { dModel = width.dModel, headDim } = given;
  const wanted = given.numHeads ?? Math.max(1, Math.round(dModel / (headDim ?? width.headDim)));
  // Heads of a stated size need not be as wide as the model, as in Gemma and Qwen3.
  const numHeads = headDim !== undefined ? wanted : nearestDivisor(wanted, dModel / 2);
  return {
    ...{ dModel, numHeads, headDim: headDim ?? dModel / numHeads },
    numKvHeads: given.numKvHeads && nearestDivisor(given.numKvHeads, numHeads),
  };
}

/** The divisor of `of` that is nearest to `wanted`, of two the larger one. */
function nearestDivisor(wanted: number, of: number): number {
  for (let distance = 0; distance <= wanted; distance++)
    for (const each of [wanted + distance, wanted - distance]) if (each > 0 && of % each === 0) return each;
  return 1;
}

/**
 * Entries of the table of tokens, and whether the head is that table: those that are given, or the largest whose table takes no more
 * than its share of the budget.
 */
function chooseVocabulary(
  parameters: number,
  dModel: number,
  given: number | undefined,
): { vocabSize: number; tied: boolean } {
  const tied = parameters < TIED_BELOW;
  const most = (parameters * TABLE_SHARE) / (tied ? dModel : 2 * dModel);
  const [least] = VOCABULARIES.at(-1) as readonly [number, string];
  const [vocabSize] = VOCABULARIES.find(([size]) => size <= most) ?? [least];
  return { vocabSize: given ?? vocabSize, tied };
}

/** Whose vocabulary has so many entries. */
export function vocabularyName(vocabSize: number): string {
  return VOCABULARIES.find(([size]) => size === vocabSize)?.[1] ?? `one of ${vocabSize} entries`;
}

/** A gated MLP of 8/3 of the width has as many weights as a plain one of 4 (Shazeer 2020). Rounded up to 64. */
const mlpDimOf = (ideal: number): number => 64 * Math.max(1, Math.round(ideal / 64));

/**
 * Layers and MLP for what the tables of a budget leave: as many layers of MLPs of 8/3 of the width as come nearest, and then the MLP
 * that comes nearest with so many layers, within 2 and 4 widths.
 */
function chooseDepth(rest: number, dModel: number, attention: number): { layers: number; mlpDim: number } {
  const norms = 2 * dModel;
  const gated = (dim: number) => 3 * dim * dModel;
  const usual = attention + gated(mlpDimOf((8 / 3) * dModel)) + norms;
  const layers = Math.max(1, Math.round(rest / usual));
  const ideal = (rest / layers - attention - norms) / (3 * dModel);
  return { layers, mlpDim: mlpDimOf(Math.min(4 * dModel, Math.max(2 * dModel, ideal))) };
}

// A shape in formats: its config.json, and what it takes.

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
    return { parameters, ...planSpec(where, decoder.spec, uniformFormats(formats), sizes) };
  }) as [Planned, Planned];
  const all = (name: keyof Planned) => one[name] + (layers - 1) * (two[name] - one[name]);
  return {
    ...{ shape, weights, cache, config: configOf(shape, seqLen), parameters: all("parameters") },
    memory: { weights: all("weights"), sessions: all("sessions"), scratch: all("scratch"), total: all("total") },
  };
}

type Planned = ModelPlan & Pick<Candidate, "parameters">;

/** What candidates are for: a budget, and the sizes that are given. */
interface Wanted extends Partial<Heads> {
  readonly parameterBudget: number;
  readonly seqLen: number;
  readonly vocabSize?: number | undefined;
  readonly attention?: ProjectionKind | undefined;
}

/** Candidates for a budget, in each of the formats with each variant of attention, up to the first one that is fine. */
export function planCandidates(
  where: string,
  wanted: Wanted,
  formats: { readonly weights: readonly WeightFormat[]; readonly caches: readonly CacheFormat[] },
  isFine: (candidate: Candidate) => boolean,
): Candidate[] {
  const { parameterBudget, seqLen } = wanted;
  const heads = chooseHeads(parameterBudget, wanted);
  const { dModel, numHeads, headDim } = heads;
  const { vocabSize, tied } = chooseVocabulary(parameterBudget, dModel, wanted.vocabSize);
  const tables = vocabSize * dModel * (tied ? 1 : 2) + dModel;
  const planned: Candidate[] = [];
  for (const weights of formats.weights)
    for (const cache of formats.caches)
      for (const projection of projectionsFor(heads, wanted.attention)) {
        if (planned.some(isFine)) return planned;
        const depth = chooseDepth(parameterBudget - tables, dModel, attentionParameters(heads, projection));
        const shape = { dModel, numHeads, headDim, ...depth, vocabSize, tied, projection };
        planned.push(planShape(where, shape, weights, cache, seqLen));
      }
  return planned;
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
