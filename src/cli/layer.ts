// A layer of either kind of attention: of heads with keys and values, or of latents.

import { createLatentAttention } from "../api/latent-attention.ts";
import { type Attention, createAttention } from "../attention/attention.ts";
import type { AttentionConfig } from "../attention/config.ts";
import type { AttentionWeights } from "../attention/weights.ts";
import type { SafetensorsFile } from "../files/safetensors/safetensors.ts";
import type { LatentConfig } from "../latent/config.ts";
import type { LatentWeights } from "../latent/weights.ts";
import type { PackedFormat, WeightFormat } from "../linear/formats.ts";
import { fromHfConfig, type HfConfigOptions } from "../models/hf/config.ts";
import { fieldsOf } from "../models/hf/config-fields.ts";
import { fromHfLatentConfig } from "../models/hf/latent-config.ts";
import { findLatents, latentRulesOf } from "../models/hf/latent-models.ts";
import { findLatentNames, readLatentWeights } from "../models/hf/latent-weights.ts";
import { findFamily } from "../models/hf/tensor-names.ts";
import { readAttentionWeights } from "../models/hf/weights.ts";
import { parseJson } from "../util/json.ts";
import type { Kernels } from "../wasm/kernels.ts";
import { UsageError } from "./args.ts";

/** The rules of a layer. */
export type LayerRules =
  | { readonly ofLatents: false; readonly config: AttentionConfig }
  | { readonly ofLatents: true; readonly config: LatentConfig };

/** A layer as its file describes it. */
export type Layer =
  | { readonly ofLatents: false; readonly config: AttentionConfig; readonly weights: AttentionWeights }
  | { readonly ofLatents: true; readonly config: LatentConfig; readonly weights: LatentWeights };

/** Reads the rules of a layer from config.json, by its model_type. */
export function readRulesOf(command: string, json: string, options: HfConfigOptions): LayerRules {
  const file = findLatents(fieldsOf("config.json", parseJson(command, "json", json)));
  if (latentRulesOf(file.raw("model_type")) === undefined)
    return { ofLatents: false, config: fromHfConfig(json, options) };
  const { layer, part = "decoder" } = options;
  if (part !== "decoder") throw new UsageError(`${command}: --part expected decoder for latent attention, got ${part}`);
  return { ofLatents: true, config: fromHfLatentConfig(json, { layer }) };
}

/** The names of the layer's own tensors. */
export function layerNames(
  command: string,
  names: readonly string[],
  prefix: string,
  { ofLatents }: LayerRules,
): ReadonlySet<string> {
  if (ofLatents) {
    const { root, own } = findLatentNames(command, names, prefix);
    return new Set(own.map((name) => root + name));
  }
  const { family, root } = findFamily(command, names, prefix);
  const groups = [family.weights, family.biases, family.extras];
  return new Set(groups.flatMap((group) => Object.values(group ?? {})).map((name) => root + name));
}

/** Reads the weights of a layer by its rules. */
export function readWeights(file: SafetensorsFile, prefix: string, rules: LayerRules): Layer {
  if (rules.ofLatents) return { ...rules, weights: readLatentWeights(file, prefix) };
  return { ...rules, weights: readAttentionWeights(file, prefix, rules.config) };
}

/** Packs the weights of a layer, all in one format or each in the one that it is stored in. */
export function packLayer(kernels: Kernels, layer: Layer, weights: WeightFormat | undefined): Attention {
  if (layer.ofLatents) return createLatentAttention(kernels, layer.config, layer.weights, { weights });
  return createAttention(kernels, layer.config, layer.weights, { weights });
}

/** The format of each matrix that is packed. */
export function formatsOf(
  { formats }: Attention,
  { ofLatents, config }: Layer,
): Readonly<Record<string, PackedFormat>> {
  // Queries without latents have no matrix to project down.
  const isPacked = (name: string) => !ofLatents || name !== "qDown" || config.qLoraRank !== undefined;
  return Object.fromEntries(Object.entries(formats).filter(([name]) => isPacked(name)));
}
