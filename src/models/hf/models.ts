import { DECODERS } from "./decoders.ts";
import { ENCODERS } from "./encoders.ts";
import type { Rules } from "./rules.ts";

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
