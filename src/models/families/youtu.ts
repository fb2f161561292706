// Youtu-LLM: the latent attention of DeepSeek-V3 in a dense model.

import type { LatentRules } from "./attention-rules.ts";
import type { Family } from "./family.ts";

const attention: LatentRules = { types: "youtu", kind: "latent", statesPairing: true };

export const latents: readonly LatentRules[] = [attention];

export const decoders = (): Family[] => [{ attention, tied: true, only: { mlp_bias: [false] } }];
