// The memory of a model before anything is read: the formats of its weights, the bytes that it takes, and whether they fit.

import { expectInt, readFields } from "../../base/util/arguments.ts";
import { HeadwiseError } from "../../base/util/errors.ts";
import { CHUNK_ROWS } from "../../base/util/rows.ts";
import { eachOf, expectFormats, type PackedFormat, type WeightFormat } from "../../layers/linear/formats.ts";

import { aligned, type MemoryPlan } from "../../wasm/memory.ts";
import { planPass } from "../blocks/block.ts";
import { type FormatOf, placeModel } from "../blocks/model.ts";
import type { SessionOptions } from "../decoder/session.ts";
import type { MixerPlan } from "../mixers/mixer.ts";
import { MIXERS } from "../mixers/mixers.ts";
import { keyOf, type MixerRole, type Weight, type WeightRole } from "../mixers/weight.ts";
import { readDecoder } from "../spec/read-spec.ts";
import { type BlockSpec, type ModelSpec, stateLayer } from "../spec/spec.ts";
import { type Decoder, findRoot, resolveHead, sourcesOf } from "../spec/tensors.ts";
import { mixerOf, mixerWeights } from "../spec/weights.ts";

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

const PARTS = ["attention", "mlp", "embed"] as const satisfies readonly (keyof ModelFormats)[];

/** Checks the option `weights`. */
export const readFormats = (where: string, weights: WeightFormat | ModelFormats | undefined): ModelFormats =>
  expectFormats(where, "options.weights", weights, PARTS);

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
    `${weight.layer} ${weight.mixer} ${keyOf({ role, expert: weight.expert })}`;
  for (const { name, weights } of sourcesOf(decoder, findRoot(decoder, stored.tensors)))
    for (const weight of weights) names.set(idOf(weight), name);
  return (weight) => {
    const { role, part, layer } = weight;
    // The table of a decoder, whose encoder has none of its own, takes no place here.
    const name = names.get(idOf(weight));
    if (part === undefined || name === undefined) return "f32";
    const own = requested[part];
    const mixer = weight.mixer && mixerOf(decoder.spec.blocks[layer as number] as BlockSpec, weight.mixer);
    const kind = mixer && MIXERS[mixer.kind];
    if (!kind?.formatOf) return stored.formatOf(name, own);
    const nameOf = (role: WeightRole) => names.get(idOf(weight, role));
    return kind.formatOf(role as MixerRole, own, {
      nameOf,
      dtypeOf: (each) => stored.tensors.get(nameOf(each) as string)?.dtype,
      formatOf: (each, format) => stored.formatOf(nameOf(each) as string, format),
    });
  };
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
  const plansOf = (which: "self" | "cross") =>
    spec.blocks.map((block, layer) => planMixer(where, block, layer, which, formatOf));
  const [layers, cross] = [plansOf("self") as MixerPlan[], plansOf("cross")];
  const blockBytes = [places.ends, ...places.blocks].reduce((sum, { bytes }) => sum + aligned(bytes), 0);
  const weights = blockBytes + [...layers, ...cross].reduce((sum, each) => sum + (each?.bytes ?? 0), 0);

  let cached = 0;
  let pageFormats = 0;
  for (const [layer, { state }] of layers.entries()) {
    if (stateLayer(spec.blocks[layer] as BlockSpec, layer) !== layer) continue;
    const { bytes, formats: used } = state(where, maxSeqLen, given);
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

/** The memory of a mixer of a layer, where it has that one. */
function planMixer(
  where: string,
  block: BlockSpec,
  layer: number,
  which: "self" | "cross",
  formatOf: FormatOf,
): MixerPlan | undefined {
  const mixer = mixerOf(block, which);
  if (mixer === undefined) return undefined;
  const formats = new Map<MixerRole, PackedFormat>();
  for (const weight of mixerWeights(mixer, layer, which))
    if (weight.kind === "matrix") formats.set(weight.role, formatOf(weight));
  return MIXERS[mixer.kind].plan(where, mixer, (role) => formats.get(role) ?? "f32");
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
    uniformFormats(eachOf(PARTS, () => format));

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
