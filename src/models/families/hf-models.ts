// Rules by `model_type`: of attention with heads, and of latent attention.

import type { Fields } from "./fields.ts";
import { DECODERS } from "./hf-decoders.ts";
import { ENCODERS } from "./hf-encoders.ts";
import type { Rules } from "./hf-rules.ts";

/** The rules of a supported `model_type`. */
export function rulesOf(type: unknown): Rules | undefined {
  if (typeof type !== "string") return undefined;
  for (const models of [DECODERS, ENCODERS]) if (Object.hasOwn(models, type)) return models[type];
  return undefined;
}

/** Every supported `model_type`. */
export const modelTypes = (): string[] => [...Object.keys(DECODERS), ...Object.keys(ENCODERS)];

/** The `model_type` of each tower of a model, where the file of the tower does not state it. */
interface Towers {
  readonly text: string;
  readonly vision: string;
  /** Whether the text model is read if no prefix names a tower. */
  readonly textFirst?: true;
}

/** Models of several modalities: their configurations are `text_config` and `vision_config`. */
export const COMPOSITES: Readonly<Record<string, Towers>> = {
  clip: { text: "clip_text_model", vision: "clip_vision_model" },
  gemma3: { text: "gemma3_text", vision: "siglip_vision_model", textFirst: true },
  idefics3: { text: "llama", vision: "idefics3_vision", textFirst: true },
  llava: { text: "llama", vision: "clip_vision_model", textFirst: true },
  llava_next: { text: "llama", vision: "clip_vision_model", textFirst: true },
  mistral3: { text: "mistral", vision: "pixtral", textFirst: true },
  siglip: { text: "siglip_text_model", vision: "siglip_vision_model" },
  smolvlm: { text: "llama", vision: "smolvlm_vision", textFirst: true },
};

// Models with latent attention (MLA), by `model_type`.

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
