import { expectFlag, expectFloat32, expectInt, MOST_HEADS, readFields } from "../../base/util/arguments.ts";
import { describe } from "../../base/util/errors.ts";
import { freezeDeep } from "../../base/util/lifetime.ts";
import { type AttentionConfig, type CheckedConfig, checkRules } from "../attention/config.ts";
import { checkRope, type RopeConfig, type RopeWithDim } from "../attention/rope.ts";

/**
 * The shapes and rules of one layer of latent attention (MLA): keys and values of all heads are computed from one latent per
 * token, and a part of each key that carries the position, the rotated key, is shared by all heads.
 * @example
 * import { type LatentConfig } from "headwise/latent";
 * const config: LatentConfig = {
 *   ...{ dModel: 2048, numHeads: 16, kvLoraRank: 512, nopeDim: 128, ropeDim: 64, causal: true },
 *   rope: { theta: 10_000, pairing: "interleaved" },
 * };
 * console.log(config.kvLoraRank + config.ropeDim); // 576: floats of a token in the cache
 */
export interface LatentConfig {
  /** The width of the model: floats of a row of x and of y. */
  readonly dModel: number;
  /** Heads, 1 to 65 536. */
  readonly numHeads: number;
  /** Floats of a latent. Files call it `kv_lora_rank`. */
  readonly kvLoraRank: number;
  /** Floats of a latent of queries; files call it `q_lora_rank`. Default none: queries are projected from x directly. */
  readonly qLoraRank?: number;
  /** Floats of a query or key head without position. Files call it `qk_nope_head_dim`. */
  readonly nopeDim: number;
  /** Floats of a query head with position, and of the rotated key; 0 or even. Files call it `qk_rope_head_dim`. */
  readonly ropeDim: number;
  /** Floats in a value head. Default nopeDim. */
  readonly valueDim?: number;
  /**
   * Rotary position embedding of the parts with position, all of whose components rotate, or false where these have none either.
   * Required unless ropeDim is 0.
   */
  readonly rope?: Omit<RopeConfig, "dim" | "start"> | false;
  /** RMS norm of latents, with the gains `kvNorm` and `qNorm` of the weights. Default true. */
  readonly latentNorm?: boolean;
  /** Added to the mean square of that norm. Default 1e-6. */
  readonly normEps?: number;
  /** A query at position p attends keys at positions up to p only. Default false. */
  readonly causal?: boolean;
  /** Factor on q·k, from -1e38 to 1e38 and not 0. Default 1/√(nopeDim + ropeDim). */
  readonly scale?: number;
  /** A score becomes softcap·tanh(score / softcap), for a softcap from 0 to 1e38. Default 0: no softcap. */
  readonly softcap?: number;
}

const FIELDS = [
  ...(["dModel", "numHeads", "kvLoraRank", "qLoraRank", "nopeDim", "ropeDim", "valueDim", "rope"] as const),
  ...(["latentNorm", "normEps", "causal", "scale", "softcap"] as const),
] as const;

/**
 * A LatentConfig after its checks, with every default filled in. The fields of CheckedConfig describe the heads that the
 * latents stand for: numKvHeads is numHeads, and headDim is nopeDim + ropeDim.
 */
export interface CheckedLatentConfig extends CheckedConfig {
  /** Floats of a latent. */
  readonly kvLoraRank: number;
  /** Floats of a latent of queries; 0 if there is none. */
  readonly qLoraRank: number;
  /** Floats of a query or key head without position. */
  readonly nopeDim: number;
  /** Floats with position. */
  readonly ropeDim: number;
  /** Whether latents are normalised. */
  readonly latentNorm: boolean;
  /** Added to the mean square. */
  readonly normEps: number;
}

/** Fills in the defaults and checks every rule. The result is frozen, and holds no array of the caller's. */
export function checkLatentConfig(where: string, given: LatentConfig): CheckedLatentConfig {
  const config = readFields(where, "config", given, FIELDS);
  const dModel = expectInt(where, "dModel", config.dModel);
  const numHeads = expectInt(where, "numHeads", config.numHeads, 1, MOST_HEADS);
  const nopeDim = expectInt(where, "nopeDim", config.nopeDim);
  const ropeDim = expectInt(where, "ropeDim", config.ropeDim, 0);
  const headDim = nopeDim + ropeDim;
  const { valueDim = nopeDim, qLoraRank, normEps = 1e-6, latentNorm = true } = config;
  const rules: Pick<AttentionConfig, "causal" | "scale" | "softcap"> = config;
  return freezeDeep({
    dModel,
    numHeads,
    kvLoraRank: expectInt(where, "kvLoraRank", config.kvLoraRank),
    qLoraRank: qLoraRank === undefined ? 0 : expectInt(where, "qLoraRank", qLoraRank),
    nopeDim,
    ropeDim,
    latentNorm: expectFlag(where, "latentNorm", latentNorm),
    normEps: expectFloat32(where, "normEps", normEps, true),
    numKvHeads: numHeads,
    headDim,
    valueDim: expectInt(where, "valueDim", valueDim),
    kdim: dModel,
    vdim: dModel,
    rope: checkLatentRope(where, config.rope, nopeDim, ropeDim),
    qkNorm: undefined,
    addZeroAttn: false,
    ...checkRules(where, rules, numHeads, headDim),
  });
}

function checkLatentRope(
  where: string,
  rope: LatentConfig["rope"],
  nopeDim: number,
  ropeDim: number,
): RopeWithDim | undefined {
  if (ropeDim === 0 || rope === false) {
    if (!rope) return undefined;
    throw new RangeError(`${where}: rope expected none for ropeDim 0, got ${describe(rope)}`);
  }
  if (rope === undefined) throw new RangeError(`${where}: rope expected for ropeDim ${ropeDim}, got undefined`);
  const given = readFields(where, "rope", rope, ["theta", "pairing", "scaling"]);
  // All components of the rotated part rotate.
  if (ropeDim % 2 !== 0) throw new RangeError(`${where}: ropeDim expected an even integer, got ${ropeDim}`);
  return { ...checkRope(where, { ...given, dim: ropeDim }, ropeDim), start: nopeDim };
}
