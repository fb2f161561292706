// Models with latent attention (MLA), by `model_type`.

import type { Fields } from "./config-fields.ts";

/** How the latent attention of a model differs from that of DeepSeek-V2. */
export interface LatentRules {
  /** The file's `rope_interleave` says how components are paired: false for halves. Default: they are interleaved. */
  readonly statesPairing?: true;
  /** Base of RoPE where the file states none. Default: it must. */
  readonly theta?: number;
}

const LATENT_MODELS: Readonly<Record<string, LatentRules>> = {
  deepseek_v2: { theta: 10_000 },
  deepseek_v3: { theta: 10_000, statesPairing: true },
  glm4_moe_lite: { statesPairing: true },
  kimi_k2: {},
  youtu: { statesPairing: true },
};

/** Every supported `model_type`. */
export const latentModelTypes = (): string[] => Object.keys(LATENT_MODELS);

/** The rules of a supported `model_type`. */
export function latentRulesOf(type: unknown): LatentRules | undefined {
  return typeof type === "string" && Object.hasOwn(LATENT_MODELS, type) ? LATENT_MODELS[type] : undefined;
}

/** What fromHfConfig says of these models. */
export const OF_LATENTS = "whose latent attention (MLA) fromHfLatentConfig reads";

/** The part of a file that describes latent attention: the file, or the `text_config` of a model of several modalities. */
export function findLatents(file: Fields): Fields {
  const isText = latentRulesOf(file.raw("model_type")) === undefined && file.raw("text_config") !== undefined;
  return (isText ? file.fields("text_config") : undefined) ?? file;
}
