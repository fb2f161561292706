import { MOST_HEADS } from "../../attention/limits.ts";
import { expectInt } from "../../util/arguments.ts";
import { type Fields, refusal, WHERE } from "./config-fields.ts";
import { readRope } from "./config-rope.ts";
import type { HfPart } from "./part.ts";
import {
  type HfAttentionConfig,
  NAMES,
  type Names,
  type Reading,
  type Rules,
  type Shape,
  type WindowRules,
} from "./rules.ts";

/** What the layers of a hybrid model are, besides attention. */
const LAYER_KINDS: Readonly<Record<string, string>> = {
  conv: "convolutions are",
  linear_attention: "linear attention is",
  mamba: "state-space layers are",
  mamba2: "state-space layers are",
  recurrent: "recurrent layers are",
  chunked_attention: "attention in chunks is",
};

/** The names of a model's sizes on the side of `part`. */
export function namesOf({ names, sides }: Rules, part: HfPart): Names {
  return { ...NAMES, ...names, ...sides?.[part === "encoder" ? "encoder" : "decoder"] };
}

/** Reads the configuration of a layer by the rules of its model. Fields that are undefined are left out later. */
export function readConfig(
  file: Fields,
  layer: number,
  part: HfPart,
  rules: Rules,
  { maxSeqLen, layerNorms = false }: Reading,
): HfAttentionConfig {
  for (const [name, values] of Object.entries(rules.only ?? {})) file.only(name, ...values);
  if (rules.layerNormFlag !== undefined && !layerNorms) file.only(rules.layerNormFlag, false);
  const shape = readShape(file, layer, namesOf(rules, part), rules.defaults);
  const width = readWindow(file, layer, rules.window);
  // Of cross-attention, sizes and scale are those of the decoder; it has neither causality nor RoPE nor window.
  const cross = part === "cross";
  const rotates = rules.rope !== false && !cross && (rules.rotates?.(layer, width !== undefined, file) ?? true);
  const rope =
    rules.rope === false ? undefined : readRope(file, shape.headDim, rules.rope ?? {}, width !== undefined, maxSeqLen);
  const left = width === undefined || cross ? undefined : width - 1;
  const half = rules.window?.bothSides && width !== undefined ? Math.floor(width / 2) : undefined;
  return {
    ...shape,
    causal: !cross && isCausal(file, part, rules),
    window: half !== undefined ? { left: half, right: half } : left === undefined ? undefined : { left },
    scale: rules.scale?.(file),
    softcap: readSoftcap(file, rules),
    qkNorm: readNorm(file, rules),
    rope: rotates ? rope : undefined,
    fused: rules.fused,
    ...rules.more?.(file, shape, layer),
  };
}

/** Whether self-attention is causal. */
export function isCausal(file: Fields, part: HfPart, { causal, sides }: Rules): boolean {
  if (sides !== undefined) return part === "decoder";
  if (causal === "is_decoder") return file.flag("is_decoder", false);
  if (causal === undefined && file.flag("use_bidirectional_attention", false))
    throw refusal("use_bidirectional_attention", "false", true);
  return causal === undefined;
}

function readShape(file: Fields, layer: number, names: Names, defaults: Partial<Shape> = {}): Shape {
  const nameOf = (size: keyof Names): string =>
    names[size].find((name) => file.raw(name) !== undefined) ?? names[size][0]!;
  const layers = nameOf("layers");
  if (file.raw(layers) !== undefined) expectInt(WHERE, "layer", layer, 0, file.count(layers) - 1);
  const dModel = file.count(nameOf("dModel"), defaults.dModel);
  const numHeads = file.count(nameOf("numHeads"), defaults.numHeads, MOST_HEADS);
  const numKvHeads = file.count(nameOf("numKvHeads"), defaults.numKvHeads ?? numHeads, MOST_HEADS);
  const headDim = nameOf("headDim");
  const share = defaults.headDim ?? dModel / numHeads;
  if (share % 1 && file.raw(headDim) === undefined)
    throw file.refusal(nameOf("dModel"), `a multiple of ${nameOf("numHeads")} (${numHeads})`, dModel);
  return { dModel, numHeads, numKvHeads, headDim: file.count(headDim, share) };
}

/** Tokens of the layer's window, including the query's own; undefined without a window. */
export function readWindow(file: Fields, layer: number, rules: WindowRules | undefined): number | undefined {
  const types = file.raw("layer_types");
  const type = Array.isArray(types) ? (types as readonly unknown[])[layer] : undefined;
  const full = type === "full_attention" || type === "attention";
  if (types !== undefined && !full && !(type === "sliding_attention" && rules !== undefined)) {
    const known = typeof type === "string" && Object.hasOwn(LAYER_KINDS, type) ? LAYER_KINDS[type] : undefined;
    const rule = `${rules === undefined ? "" : '"sliding_attention" or '}"full_attention"`;
    throw file.refusal(
      `layer_types of layer ${layer}`,
      known === undefined ? rule : `${rule}, since ${known} unsupported`,
      type,
    );
  }
  if (rules === undefined) return undefined;
  const { tokens, optIn, field = "sliding_window" } = rules;
  if (optIn && !file.flag("use_sliding_window", false)) return undefined;
  if (!(type === undefined ? slides(file, layer, rules) : type === "sliding_attention")) return undefined;
  if (file.has(field)) return file.raw(field) === undefined ? undefined : file.count(field);
  return tokens;
}

/** Whether a layer has the window, if its type is not stated. */
function slides(file: Fields, layer: number, { period, from, slides }: WindowRules): boolean {
  if (period !== undefined) return (layer + 1) % file.count("sliding_window_pattern", period) !== 0;
  if (from !== undefined) return layer >= file.count("max_window_layers", from);
  return slides?.(layer, file) ?? true;
}

function readSoftcap(file: Fields, { softcap }: Rules): number | undefined {
  if (softcap === undefined) return undefined;
  return (file.has("attn_logit_softcapping") ? file.factor("attn_logit_softcapping") : softcap) || undefined;
}

function readNorm(file: Fields, { qkNorm }: Rules): HfAttentionConfig["qkNorm"] {
  if (qkNorm === undefined) return undefined;
  const { epsField = "rms_norm_eps", flag, ...norm } = qkNorm;
  const eps = file.number(epsField) ?? norm.eps ?? 1e-6;
  return flag !== undefined && !file.flag(flag, false) ? undefined : { ...norm, eps };
}
