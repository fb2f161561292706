// The memory of a model before anything is read: the formats of its weights, the bytes that it takes, and whether they fit.

import { expectInt, readFields } from "../../base/util/arguments.ts";
import { HeadwiseError } from "../../base/util/errors.ts";
import { CHUNK_ROWS } from "../../base/util/rows.ts";
import { type CheckedConfig, checkConfig } from "../../layers/attention/config.ts";
import { placeLayerRows } from "../../layers/attention/heads.ts";
import { planCache } from "../../layers/attention/kv-state.ts";
import type { RopeWithDim } from "../../layers/attention/rope.ts";
import { type LayerFormats, layerLayout } from "../../layers/attention/weights.ts";
import { checkLatentConfig } from "../../layers/latent/config.ts";
import { latentPageShape, placeLatentRows } from "../../layers/latent/latents.ts";
import { latentChunkRows } from "../../layers/latent/paths.ts";
import type { LatentFormats } from "../../layers/latent/weights.ts";
import { latentLayout } from "../../layers/latent/weights.ts";
import type { PackedFormat, WeightFormat } from "../../layers/linear/formats/format.ts";
import { expectFormat, FORMATS } from "../../layers/linear/formats/formats.ts";
import type { RotationPlaces } from "../../layers/mixer/mixer.ts";
import type { PageShape } from "../../layers/state/pages.ts";
import { aligned, type Layout, type MemoryPlan } from "../../wasm/memory.ts";
import { headNormBytes } from "../blocks/head-norm.ts";
import { type FormatOf, placeModel } from "../blocks/places.ts";
import { planPass } from "../blocks/scratch.ts";
import type { SessionOptions } from "../decoder/session.ts";
import { resolveHead } from "../spec/check-tensors.ts";
import { readDecoder } from "../spec/read-spec.ts";
import type { BlockSpec, ModelSpec } from "../spec/spec.ts";
import { type Decoder, findRoot, sourcesOf } from "../spec/tensors.ts";
import { attentionOf, attentionWeights, keyOf, type Weight } from "../spec/weights.ts";
import type { StoredMatrices } from "./pack-weights.ts";

// The formats of a model's matrices and tables in memory.

/** Formats of the parts of a model. */
export interface ModelFormats {
  /** Matrices of attention. */
  readonly attention?: WeightFormat | undefined;
  /** Matrices of MLPs and experts; routers are always float32. */
  readonly mlp?: WeightFormat | undefined;
  /** The table of tokens, and the head. */
  readonly embed?: WeightFormat | undefined;
}

const PARTS: readonly (keyof ModelFormats)[] = ["attention", "mlp", "embed"];

/** One format for all parts. */
function allParts(format: WeightFormat): ModelFormats {
  return { attention: format, mlp: format, embed: format };
}

/** Checks the option `weights`. */
export function readFormats(where: string, weights: WeightFormat | ModelFormats | undefined): ModelFormats {
  if (weights === undefined) return {};
  if (weights === null || typeof weights !== "object") {
    const format = expectFormat(where, "options.weights", weights);
    return allParts(format);
  }
  const formats = readFields(where, "options.weights", weights, PARTS);
  for (const [part, format] of Object.entries(formats)) expectFormat(where, `options.weights.${part}`, format);
  return formats;
}

/** One format for each part; parts without one are float32. */
export const uniformFormats =
  (formats: ModelFormats): FormatOf =>
  ({ part }) =>
    (part && formats[part]) ?? "f32";

/**
 * The format of each matrix and table: the requested one of its part, else the one that it is stored in. Throws `NO_QUANTIZED` for
 * one that the kernels lack, and `BAD_FILE` for one of a dtype that is no weight.
 */
export function storedFormats(stored: StoredMatrices, decoder: Decoder, requested: ModelFormats): FormatOf {
  const names = new Map<string, string>();
  const idOf = (weight: Weight, role: Weight["role"] = weight.role) =>
    `${weight.layer} ${weight.attention} ${keyOf({ role, expert: weight.expert })}`;
  for (const { name, weights } of sourcesOf(decoder, findRoot(decoder, stored.tensors)))
    for (const weight of weights) names.set(idOf(weight), name);
  return (weight) => {
    const { role, part, layer, attention } = weight;
    // The table of a decoder, whose encoder has none of its own, takes no place here.
    const name = names.get(idOf(weight));
    if (part === undefined || name === undefined) return "f32";
    const own = requested[part];
    const isLatent = attention === "self" && decoder.spec.blocks[layer as number]?.attention.kind === "latent";
    if (!isLatent || (role !== "k" && role !== "v")) return stored.formatOf(name, own);
    // Keys and values of latents are joined: in float32, unless both are the same 16-bit floats. Those of keys are turned.
    const both = (["k", "v"] as const).map((each) => names.get(idOf(weight, each)) as string);
    const dtypes = new Set(both.map((each) => stored.tensors.get(each)?.dtype));
    const isKept = both[0] === both[1] || (dtypes.size === 1 && (dtypes.has("F16") || dtypes.has("BF16")));
    const joined = own ?? (isKept ? stored.formatOf(name, undefined) : "f32");
    return own === undefined && role === "k" && FORMATS[joined].integers ? "f32" : joined;
  };
}

/** The formats of a layer's attention. */
function attentionFormats(weights: Iterable<Weight>, formatOf: FormatOf): AttentionFormats {
  const formats: Partial<Record<Weight["role"], PackedFormat>> = {};
  for (const weight of weights) if (weight.kind === "matrix") formats[weight.role] = formatOf(weight);
  return { q: "f32", k: "f32", v: "f32", o: "f32", qDown: "f32", kvDown: "f32", ...formats } as AttentionFormats;
}

// The bytes that a model takes.

/** What to plan a model's memory for. */
export interface ModelPlanSizes extends SessionOptions {
  /**
   * Formats of the weights, as `loadModel` takes them; parts without one are float32. Default "f32", unlike that of `loadModel`: in
   * which formats a file stores them, config.json does not say.
   */
  readonly weights?: WeightFormat | ModelFormats | undefined;
  /** Sessions that exist at a time. Default 1. */
  readonly sessions?: number | undefined;
  /** Tokens of the longest call, or of all calls of a step of `generateMany`. Default 256, from which on more take no more. */
  readonly rows?: number | undefined;
  /** Rows of a call whose logits are computed. Default 1. */
  readonly outputs?: number | undefined;
}

/** What `planModel` and `planModelFiles` give. Loading takes a megabyte more for packing, and 32 bytes for each input of the widest matrix. */
export type ModelPlan = MemoryPlan<"sessions">;

/** The fields of ModelPlanSizes. */
export const SIZES = ["weights", "maxSeqLen", "format", "truncatable", "sessions", "rows", "outputs"] as const;

/**
 * The memory that a model, its sessions and its calls will take, computed from config.json before anything is loaded. Without
 * `tie_word_embeddings` there, whether a head beside the table of tokens is counted follows from the type of model, as in
 * transformers: of Llama it is. `loadModel` takes what the files have, and `planModelFiles` reads their headers, of GGUF too.
 * @param config The text of config.json, not its path, or the object it parses to.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `BAD_FILE` for a model that `loadModel` would refuse.
 * @example
 * import { planModel } from "headwise/models";
 * const config = { model_type: "llama", hidden_size: 576, intermediate_size: 1536, num_hidden_layers: 30, vocab_size: 49152,
 *   num_attention_heads: 9, num_key_value_heads: 3, max_position_embeddings: 8192, tie_word_embeddings: true };
 * const { weights, sessions } = planModel(config, { weights: "q8", maxSeqLen: 2048 });
 * console.log(Math.round(weights / 1e6), Math.round(sessions / 1e6)); // 161 94
 */
export function planModel(config: string | object, sizes: ModelPlanSizes = {}): ModelPlan {
  const where = "planModel";
  const given = readFields(where, "sizes", sizes, SIZES);
  if (given.maxSeqLen !== undefined) expectInt(where, "maxSeqLen", given.maxSeqLen);
  const formats = readFormats(where, given.weights);
  const { spec } = resolveHead(readDecoder(where, config, given.maxSeqLen));
  return planSpec(where, spec, uniformFormats(formats), given);
}

/** Checks the counts of sizes, and fills in their defaults. */
export function checkCounts(
  where: string,
  { sessions = 1, rows = CHUNK_ROWS, outputs = 1 }: Pick<ModelPlanSizes, "sessions" | "rows" | "outputs">,
): { readonly sessions: number; readonly rows: number; readonly outputs: number } {
  expectInt(where, "sessions", sessions, 0);
  expectInt(where, "rows", rows);
  expectInt(where, "outputs", outputs, 0);
  return { sessions, rows, outputs };
}

/** The memory of a model whose description was read. */
export function planSpec(
  where: string,
  spec: ModelSpec,
  formatOf: FormatOf,
  given: Omit<ModelPlanSizes, "weights"> = {},
): ModelPlan {
  const { maxSeqLen = spec.sessionLength } = given;
  const { sessions, rows, outputs } = checkCounts(where, given);
  const places = placeModel(spec, formatOf);
  const attentionsOf = (which: "self" | "cross") =>
    spec.blocks.map((block, layer) => {
      const attention = attentionOf(block, which);
      return (
        attention &&
        planAttention(where, attention, attentionFormats(attentionWeights(attention, layer, which), formatOf))
      );
    });
  const [layers, cross] = [attentionsOf("self") as AttentionPlan[], attentionsOf("cross")];
  const blockBytes = [places.ends, ...places.blocks].reduce((sum, { bytes }) => sum + aligned(bytes), 0);
  const weights = blockBytes + [...layers, ...cross].reduce((sum, each) => sum + (each?.bytes ?? 0), 0);

  let cached = 0;
  let pageFormats = 0;
  for (const { shape, checked } of layers) {
    const { bytes, formats: used } = planCache(where, shape, checked, maxSeqLen, given);
    cached += bytes;
    pageFormats |= used;
  }
  const chunk = Math.min(rows, ...layers.map(({ chunkRows }) => chunkRows));
  const ropes = layers.map(({ rope }) => rope);
  const plan = planPass(
    spec,
    places,
    { rows: chunk, outputs: Math.min(outputs, chunk), ropes },
    (layer, layout, rotations) => {
      layers[layer]?.place(layout, chunk, pageFormats, rotations);
      cross[layer]?.place(layout, chunk, pageFormats, undefined);
    },
  );
  const all = { weights, sessions: sessions * cached, scratch: plan.bytes };
  return { ...all, total: all.weights + all.sessions + all.scratch };
}

/** The attention of a layer: its bytes, its pages, and what it works in. */
interface AttentionPlan {
  readonly bytes: number;
  readonly checked: CheckedConfig;
  readonly shape: PageShape;
  /** What rotates, by tables that layers share. */
  readonly rope: RopeWithDim | undefined;
  /** Rows of a chunk at most. */
  readonly chunkRows: number;
  place(layout: Layout, rows: number, pageFormats: number, rotations: RotationPlaces | undefined): void;
}

/** The formats of a layer's attention, whatever it is. */
type AttentionFormats = LayerFormats & LatentFormats;

function planAttention(where: string, attention: BlockSpec["attention"], formats: AttentionFormats): AttentionPlan {
  if (attention.kind === "latent") {
    const checked = checkLatentConfig(where, attention.config);
    return {
      bytes: aligned(latentLayout(checked, formats, false).bytes),
      checked,
      shape: latentPageShape(checked),
      rope: undefined,
      chunkRows: latentChunkRows(checked, "absorbed", CHUNK_ROWS),
      place: (layout, rows, pageFormats) => void placeLatentRows(checked, formats, layout, rows, pageFormats),
    };
  }
  const { fused, ...config } = attention.config;
  const checked = checkConfig(where, config);
  const norms = attention.headNorm ? headNormBytes(checked, attention.headNorm.each) : 0;
  return {
    bytes: aligned(layerLayout(checked, formats).bytes) + norms,
    checked,
    shape: checked,
    rope: checked.rope,
    chunkRows: CHUNK_ROWS,
    place: (layout, rows, pageFormats, rotations) =>
      void placeLayerRows(checked, formats, layout, rows, pageFormats, 0, rotations),
  };
}

// Whether a model fits into the bytes that a host allows, before its tensors are read.

/** What is proposed where a model does not fit, the most exact first. */
const SMALLER: readonly WeightFormat[] = ["f16", "q8", "q4"];

/** A model as it would be loaded: the formats of a half of it, or of all, and the tokens of its longest sequence. */
interface Wanted {
  weights(half: Decoder): FormatOf;
  readonly maxSeqLen: number;
}

/** The bytes that a model and its calls take, and what they are for, in words. */
type Plan = (wanted: Wanted) => { readonly total: number; readonly text: string };

/** The plans of a kind of models. */
export type PlanKind = (where: string, model: Decoder) => Plan;

/** A decoder with one session. */
export const planDecoder: PlanKind =
  (where, decoder) =>
  ({ weights, maxSeqLen }) => {
    // No call has more rows than the session has tokens.
    const bytes = planSpec(where, decoder.spec, weights(decoder), { maxSeqLen, rows: Math.min(CHUNK_ROWS, maxSeqLen) });
    const sessions = `${bytes.sessions} of a session of ${maxSeqLen} tokens`;
    return { total: bytes.total, text: `${bytes.weights} of weights, ${sessions}, ${bytes.scratch} of calls` };
  };

/** Throws `OUT_OF_MEMORY` with the bytes and with what would fit, if `plan` gives more than `most`. */
export function expectFit(where: string, plan: Plan, wanted: Wanted, most: number): void {
  const { total, text } = plan(wanted);
  if (total <= most) return;
  const rule = `options.maxBytes expected ${total} or more (${text})`;
  throw new HeadwiseError(
    "OUT_OF_MEMORY",
    `${where}: ${rule}, got ${most}; what fits: ${proposals(plan, wanted, most)}`,
  );
}

/** One format for all matrices. */
const all =
  (format: WeightFormat): Wanted["weights"] =>
  () =>
    uniformFormats(allParts(format));

/** Smaller formats and shorter sequences that fit, in words. */
function proposals(plan: Plan, wanted: Wanted, most: number): string {
  const found = SMALLER.filter((format) => plan({ ...wanted, weights: all(format) }).total <= most).map(
    (weights) => `weights "${weights}"`,
  );
  const length = longest(plan, wanted, most);
  if (length > 0) found.push(`maxSeqLen ${length}`);
  if (found.length > 0) return found.join(", or ");
  const shorter = longest(plan, { ...wanted, weights: all("q4") }, most);
  return shorter > 0 ? `weights "q4" with maxSeqLen ${shorter}` : "no format";
}

/** The most tokens of a sequence that fits; 0 if none does. */
function longest(plan: Plan, { weights, maxSeqLen }: Wanted, most: number): number {
  let [fits, exceeds] = [0, maxSeqLen + 1];
  while (exceeds - fits > 1) {
    const middle = Math.floor((fits + exceeds) / 2);
    if (plan({ weights, maxSeqLen: middle }).total <= most) fits = middle;
    else exceeds = middle;
  }
  return fits;
}
