import { type AttentionConfig, checkConfig } from "../../attention/config.ts";
import type { RopeConfig } from "../../attention/rope.ts";
import type { GgufFile } from "../../files/gguf/gguf.ts";
import { expectInt } from "../../util/arguments.ts";
import { describe, HeadwiseError } from "../../util/errors.ts";
import { nearestNames } from "../../util/near-name.ts";
import { checkFileConfig } from "../check-config.ts";
import { POSITIVE_RULE } from "../numbers.ts";
import { reasonAgainst, UNSUPPORTED_ARCHITECTURES, UNSUPPORTED_RULE } from "../unsupported.ts";
import { ARCHITECTURES, type Architecture, LATENT_ARCHITECTURE } from "./architectures.ts";
import { ATTENTION_FACTOR, type Keys, keysOf, OF_LATENTS, UNSUPPORTED } from "./keys.ts";
import type { RopeFactors } from "./rope-factors.ts";
import { readScaling } from "./rope-scaling.ts";

/** A configuration as a file states it, and what it may still take from tensors. */
interface StatedConfig {
  readonly config: AttentionConfig & Required<Pick<AttentionConfig, "numKvHeads" | "headDim" | "valueDim">>;
  /** Epsilon of the norms of queries and keys. Throws, naming the tensor, if they are not RMS norms. */
  readonly normEps: (tensor: string) => number;
}

/** Reads the configuration of a layer for the public function `where`. `factors` are those of the file's tensors, if it has any. */
export function readGgufConfig(
  where: string,
  { metadata }: Pick<GgufFile, "metadata">,
  layer: number,
  pairing: RopeConfig["pairing"] | undefined,
  factors: RopeFactors | undefined,
): StatedConfig {
  const name = metadata.get("general.architecture");
  const known = typeof name === "string" && Object.hasOwn(ARCHITECTURES, name) ? ARCHITECTURES[name] : undefined;
  const fail = (rule: string, why = ""): never => {
    throw new HeadwiseError(
      "BAD_FILE",
      `${where}: key "general.architecture" expected ${rule}, got ${describe(name)}${why}`,
    );
  };
  if (name === LATENT_ARCHITECTURE)
    return fail("attention that createAttention computes", ", whose latent attention (MLA) readGgufLatentLayer reads");
  const reason = reasonAgainst(UNSUPPORTED_ARCHITECTURES, name);
  if (reason !== undefined) return fail(UNSUPPORTED_RULE, `, which has ${reason}`);
  if (typeof name !== "string" || (known === undefined && pairing === undefined))
    return fail(`a supported one${nearestNames(name, Object.keys(ARCHITECTURES))}, or options.pairing`);
  const architecture: Architecture = { ...(known ?? { rmsNorm: true }), ...(pairing && { pairing }) };
  const keys = keysOf(where, metadata, name, layer);
  keys.expectNone(
    factors?.attentionFactor === undefined ? UNSUPPORTED : UNSUPPORTED.filter(([key]) => key !== ATTENTION_FACTOR),
  );
  keys.expectNone(OF_LATENTS);
  const stated = stateConfig(where, keys, architecture, name, layer, factors);
  const check = () => checkConfig(where, stated.config);
  checkFileConfig(where, check, (ours) => KEYS[ours] && `key "${name}.${KEYS[ours]}"`);
  return stated;
}

/** Our names of fields, and the keys that they come from. */
const KEYS: Readonly<Record<string, string>> = {
  "rope.scaling.betaFast": "rope.scaling.yarn_beta_fast",
  "rope.scaling.betaSlow": "rope.scaling.yarn_beta_slow",
  "rope.scaling.factor": "rope.scaling.factor",
  "rope.theta": "rope.freq_base",
  numHeads: "attention.head_count",
};

function stateConfig(
  where: string,
  keys: Keys,
  architecture: Architecture,
  name: string,
  layer: number,
  factors: RopeFactors | undefined,
): StatedConfig {
  const blocks = keys.count("block_count");
  expectInt(where, "layer", layer, 0, blocks - 1);
  const dModel = keys.count("embedding_length");
  const numHeads = headsOf(keys, "attention.head_count", layer);
  const numKvHeads = headsOf(keys, "attention.head_count_kv", layer, numHeads);
  if (numHeads % numKvHeads !== 0) keys.fail("attention.head_count_kv", `a divisor of ${numHeads} heads`, numKvHeads);
  const share = dModel / numHeads;
  const headDim = keys.count("attention.key_length", share);
  const valueDim = keys.count("attention.value_length", share);
  // Layers with a window have no sizes of their own.
  keys.expectNone([
    ["attention.key_length_swa", headDim],
    ["attention.value_length_swa", valueDim],
    ["rope.dimension_count_swa", keys.count("rope.dimension_count", headDim)],
  ]);

  const causal = keys.flag("attention.causal") ?? architecture.causal ?? true;
  const width = windowOf(keys, architecture, layer);
  if (width !== undefined && !causal)
    keys.fail("attention.sliding_window", "none in a layer that is not causal", width);
  const alibi = hasAlibi(keys, architecture, blocks);
  const rotates = !(
    alibi || architecture.rotates?.(layer, width !== undefined, windowTokens(keys, architecture) > 0) === false
  );
  // In Granite files this states whether heads rotate at all; in others, how the model was trained.
  const switchedOff = name.startsWith("granite") && keys.flag("rope.scaling.finetuned") === false;
  const wide = architecture.wideScale === blocks;
  const stated = {
    dModel,
    numHeads,
    numKvHeads,
    headDim,
    valueDim,
    causal,
    window: width === undefined ? undefined : { left: width - 1 },
    scale: keys.factor("attention.scale") ?? (wide ? 1 / Math.sqrt(share) : undefined),
    softcap: keys.factor("attn_logit_softcapping") ?? architecture.softcap,
    alibi: alibi ? "geometric" : undefined,
    rope: rotates && !switchedOff ? readRope(keys, architecture, headDim, width !== undefined, factors) : undefined,
  };
  const config = Object.fromEntries(Object.entries(stated).filter(([, value]) => value !== undefined));
  return {
    config: config as unknown as StatedConfig["config"],
    normEps(tensor) {
      if (!architecture.rmsNorm)
        throw new HeadwiseError(
          "BAD_FILE",
          `${where}: tensor ${describe(tensor)} expected to be absent, since the norm of ${name} is unsupported, got it`,
        );
      const key = "attention.layer_norm_rms_epsilon";
      return keys.number(key) ?? keys.fail(key, POSITIVE_RULE, keys.raw(key));
    },
  };
}

/** Heads of the layer. In hybrid models, layers that are not attention have none. */
function headsOf(keys: Keys, key: string, layer: number, fallback?: number): number {
  const list = keys.raw(key);
  if (typeof list === "object" && Number(list[layer]) === 0)
    keys.fail(key, `heads in layer ${layer}, since layers without attention are unsupported`, 0);
  return keys.count(key, fallback);
}

/** Tokens of the model's window, 0 if it has none. */
function windowTokens(keys: Keys, { window, windowLayers }: Architecture): number {
  if (windowLayers !== undefined && windowLayers !== keys.count("block_count")) return 0;
  return keys.countOrNone("attention.sliding_window", window);
}

/** Tokens of the layer's window, including the query's own; undefined without a window. */
function windowOf(keys: Keys, architecture: Architecture, layer: number): number | undefined {
  const width = windowTokens(keys, architecture);
  const { period } = architecture;
  if (width === 0) return undefined;
  const key = "attention.sliding_window_pattern";
  const pattern = keys.raw(key);
  if (typeof pattern === "object") return keys.countOrNone(key) > 0 ? width : undefined;
  const every = pattern === undefined ? (period ?? 0) : keys.countOrNone(key);
  return every === 0 || layer % every < every - 1 ? width : undefined;
}

function hasAlibi(keys: Keys, { alibi, alibiLayers }: Architecture, blocks: number): boolean {
  const key = "attention.max_alibi_bias";
  const most = keys.number(key);
  if (most !== undefined && most !== 8) keys.fail(key, "0 or 8, that of the published slopes", most);
  return most === 8 || alibi === true || alibiLayers === blocks;
}

function readRope(
  keys: Keys,
  architecture: Architecture,
  headDim: number,
  windowed: boolean,
  factors: RopeFactors | undefined,
): RopeConfig | undefined {
  const { pairing, localTheta, localUnscaled, smoothRamp } = architecture;
  if (pairing === undefined) return undefined;
  const local = windowed ? (keys.number("rope.freq_base_swa") ?? localTheta) : undefined;
  const theta = local ?? keys.number("rope.freq_base") ?? 10_000;
  const dim = keys.count("rope.dimension_count", headDim);
  if (dim > headDim || dim % 2 !== 0)
    keys.fail("rope.dimension_count", `an even integer up to the head's ${headDim}`, dim);
  const scaling = windowed && localUnscaled ? undefined : readScaling(keys, dim, smoothRamp !== true, factors);
  return { theta, pairing, ...(dim !== headDim && { dim }), ...(scaling && { scaling }) };
}
