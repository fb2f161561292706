import { ln, pow } from "../../base/util/math.ts";
import type { RopeConfig, RopeScaling } from "../../layers/attention/rope.ts";
import type { RopeRules } from "../families/attention-rules.ts";
import { type Fields, fieldsOf, POSITIVE_RULE, present } from "../families/facts.ts";

/** Our names of fields, and those in config.json. */
export const ROPE_FIELDS: Readonly<Record<string, string>> = {
  "rope.theta": "rope_theta",
  "rope.scaling.betaFast": "beta_fast",
  "rope.scaling.betaSlow": "beta_slow",
  "rope.scaling.factor": "factor",
  "rope.scaling.highFreqFactor": "high_freq_factor",
  "rope.scaling.lowFreqFactor": "low_freq_factor",
  "rope.scaling.originalMaxSeqLen": "original_max_position_embeddings",
};

/**
 * The RoPE of a layer; `windowed`: it has the sliding window. `maxSeqLen` is the longest sequence that will be run, where the
 * caller knows it.
 */
export function readRope(
  file: Fields,
  headDim: number,
  rules: RopeRules,
  windowed: boolean,
  maxSeqLen?: number,
): RopeConfig {
  // Newer files have everything in rope_parameters, by layer type if types differ.
  const parameters = file.fields("rope_parameters");
  const own = parameters?.fields(windowed ? "sliding_attention" : "full_attention") ?? parameters;
  const { local, localUnscaled } = rules;
  const scaled = file.fields("rope_scaling");
  const theta = readTheta(file, rules);
  const localTheta =
    local === undefined ? undefined : (file.number(local.field) ?? (file.has(local.field) ? theta : local.theta));
  if (rules.proportional && own?.raw("rope_type") === "proportional")
    return proportionalRope(file, own, headDim, theta);
  const stated = readDim(file, own, headDim, rules);
  // An odd number of components is rounded up for its last pair; the exponents of theta stay fractions of the odd number.
  const dim = rules.oddDim ? stated + (stated % 2) : stated;
  const spread = (base: number) => (dim === stated ? base : pow(base, dim / stated));
  const pairing: RopeConfig["pairing"] = rules.pairing ?? "half";
  const rotation = { pairing, ...(dim === headDim ? {} : { dim }) };
  if (own === undefined && windowed && localTheta !== undefined) return { theta: localTheta, ...rotation };
  if (rules.grown && scaled?.raw("type") === "ntk") return { theta, ...rotation, scaling: grownScaling(scaled, dim) };
  const bare = own === undefined && windowed && localUnscaled === true;
  const assumed = rules.scaling === undefined || file.has("rope_scaling") ? undefined : rules.scaling;
  const scaling = own ?? scaled ?? (assumed && fieldsOf("rope_scaling", assumed));
  return {
    theta: spread(own?.number("rope_theta") ?? theta),
    ...rotation,
    ...(scaling && !bare && readScaling(file, rules, scaling, maxSeqLen)),
  };
}

/** Divides the frequencies of pairs that stand still by so much that no position turns them. */
const STILL = 2 ** 100;

function proportionalRope(file: Fields, own: Fields, headDim: number, theta: number): RopeConfig {
  const share = own.raw("partial_rotary_factor") === 0 ? 0 : (own.number("partial_rotary_factor") ?? 1);
  const factor = own.number("factor") ?? 1;
  if (share > 1) throw file.refusal("partial_rotary_factor", "a share of a head", share);
  const pairs = Math.floor((share * headDim) / 2);
  const factors = Float32Array.from({ length: headDim / 2 }, (_, i) => (i < pairs ? factor : STILL));
  return { theta: own.number("rope_theta") ?? theta, pairing: "half", scaling: { kind: "factors", factors } };
}

/** Pair i is divided by factor^(2i/dim), by which theta times `factor` does, and by factor^(2/dim). */
function grownScaling(from: Fields, dim: number): RopeScaling {
  from.only("mixed_b");
  const factor = from.number("factor") ?? 1;
  const factors = Float32Array.from({ length: dim / 2 }, (_, i) => pow(factor, (2 * (i + 1)) / dim));
  return { kind: "factors", factors };
}

function readTheta(file: Fields, { theta = 10_000, thetaField }: RopeRules): number {
  const named = thetaField === undefined ? undefined : file.number(thetaField);
  return file.number("rope_theta") ?? named ?? theta;
}

/** The number of leading components of a head that rotate. */
function readDim(file: Fields, own: Fields | undefined, headDim: number, rules: RopeRules): number {
  const { share = 1, shareField = "partial_rotary_factor", dimField, oddDim = false } = rules;
  const components = dimField === undefined ? undefined : file.number(dimField);
  const plain = file.number("partial_rotary_factor");
  const named = file.number(shareField);
  const part = own?.number("partial_rotary_factor") ?? named ?? plain;
  const [name, stated] =
    part === undefined && components !== undefined ? [dimField as string, components] : [shareField, part ?? share];
  const dim = name === dimField ? stated : Math.trunc(headDim * stated);
  if (dim === headDim || (dim >= 2 && dim < headDim && (oddDim || dim % 2 === 0))) return dim;
  const rule =
    name === dimField
      ? `an even integer from 2 to head_dim (${headDim})`
      : `a share of head_dim (${headDim}) that is an even integer >= 2`;
  throw file.refusal(name, rule, stated);
}

/** Fields of a scaling. An unknown one could change the frequencies. */
const KNOWN =
  "rope_type type rope_theta partial_rotary_factor factor original_max_position_embeddings low_freq_factor high_freq_factor " +
  "beta_fast beta_slow attention_factor mscale mscale_all_dim truncate finetuned long_factor short_factor";

function readScaling(
  file: Fields,
  { axes, alphas, mscales }: RopeRules,
  from: Fields,
  maxSeqLen: number | undefined,
): { scaling?: RopeScaling } {
  const stated = from.raw("rope_type") ?? from.raw("type") ?? "default";
  const grows = stated === "dynamic";
  const alpha = grows && alphas ? from.factor("alpha") : undefined;
  if (alpha !== undefined) return { scaling: { kind: "ntk", factor: alpha } };
  // The axes of a token of text have the same position.
  if (axes) for (const name of ["mrope_section", "mrope_interleaved"]) from.raw(name);
  // Within the trained length, these frequencies are those without scaling.
  const isPlain = grows && maxSeqLen !== undefined && maxSeqLen <= file.count("max_position_embeddings");
  if (isPlain) from.number("factor");
  if (mscales) for (const name of ["long_mscale", "short_mscale"]) from.raw(name);
  const kind = isPlain || (axes && stated === "mrope") ? "default" : stated;
  const need = (name: string): number => {
    const found = from.number(name);
    if (found === undefined) throw file.refusal(`${name} of the rope scaling`, POSITIVE_RULE, found);
    return found;
  };
  const isLong = (kind === "longrope" || kind === "su") && maxSeqLen !== undefined;
  if (kind !== "default" && kind !== "linear" && kind !== "llama3" && kind !== "yarn" && !isLong) {
    const rule = '"linear", "llama3", "yarn", or with options.maxSeqLen of fromHfConfig "longrope", or "dynamic" up to';
    throw file.refusal("rope scaling", `${rule} max_position_embeddings, since others are unsupported`, kind);
  }
  const [unknown] = from.unread().find(([name]) => !KNOWN.split(" ").includes(name)) ?? [];
  if (unknown !== undefined)
    throw file.refusal(
      "rope scaling",
      "only fields that this package knows, since others may change the result",
      unknown,
    );
  if (kind === "default") return {};
  if (kind === "longrope" || kind === "su") return { scaling: readLongRope(file, from, maxSeqLen as number, mscales) };
  if (kind === "linear") return { scaling: { kind, factor: need("factor") } };
  if (kind === "llama3") {
    const [lowFreqFactor, highFreqFactor] = [need("low_freq_factor"), need("high_freq_factor")];
    const originalMaxSeqLen = from.count("original_max_position_embeddings");
    return { scaling: { kind, factor: need("factor"), lowFreqFactor, highFreqFactor, originalMaxSeqLen } };
  }
  const longest = file.number("max_position_embeddings");
  const originalMaxSeqLen = from.count("original_max_position_embeddings", longest);
  const orNone = (name: string) => (from.raw(name) === 0 ? undefined : from.factor(name));
  const given = present({
    betaFast: from.number("beta_fast"),
    betaSlow: from.number("beta_slow"),
    attentionFactor: from.factor("attention_factor"),
    mscale: orNone("mscale"),
    mscaleAllDim: orNone("mscale_all_dim"),
    truncate: from.raw("truncate") === undefined ? undefined : from.flag("truncate", true),
  });
  const factor = from.number("factor") ?? (longest ?? originalMaxSeqLen) / originalMaxSeqLen;
  return { scaling: { kind, factor, originalMaxSeqLen, ...given } };
}

/**
 * The factors of LongRoPE for sequences of up to `maxSeqLen` tokens: the long ones if that exceeds the trained length. Cached
 * keys keep their rotation, so that a sequence cannot change from one to the other.
 */
function readLongRope(file: Fields, from: Fields, maxSeqLen: number, mscales: boolean | undefined): RopeScaling {
  const name = "original_max_position_embeddings";
  const original = from.raw(name) === undefined ? file.count(name) : from.count(name);
  const field = maxSeqLen > original ? "long_factor" : "short_factor";
  const factors = from.list(field);
  const own = mscales ? from.factor(field.replace("factor", "mscale")) : undefined;
  if (!factors?.every((each) => typeof each === "number"))
    throw file.refusal(`${field} of the rope scaling`, "a list of numbers", from.raw(field));
  const factor = from.number("factor") ?? (file.number("max_position_embeddings") ?? original) / original;
  if (original === 1 && factor > 1) throw file.refusal(name, "an integer >= 2, whose logarithm divides", original);
  const grown = factor <= 1 ? 1 : Math.sqrt(1 + ln(factor) / ln(original));
  return {
    kind: "factors",
    factors: Float32Array.from(factors as readonly number[]),
    attentionFactor: own ?? from.factor("attention_factor") ?? grown,
  };
}
