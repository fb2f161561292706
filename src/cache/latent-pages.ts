// Pages of latents: latents as the keys of one head, and as its values the keys that are rotated.

import { LATENT_PAGES } from "../../assembly/layout.ts";
import type { CheckedLatentConfig } from "../latent/config.ts";
import { wholePanels } from "../linear/formats.ts";
import { expectIntegerDim } from "./formats.ts";
import type { PageKind, PageShape } from "./page-layout.ts";

export const LATENT_KIND: PageKind = {
  flag: LATENT_PAGES,
  kernels: {
    append: "append_latents",
    gather: "gather_latents",
    attention: "attention_latents",
    // On keys that were gathered.
    scores: "scores_f32",
  },
  keyComponents: wholePanels,
  checkStages(where, path) {
    throw new RangeError(`${where}: ${path} expected one format for latent attention, got stages`);
  },
  checkFormats(where, path, { keys, values }, { headDim, valueDim }) {
    expectIntegerDim(where, path, "kvLoraRank or ropeDim", Math.max(headDim, valueDim), keys);
    if (keys !== values || keys === "q4")
      throw new RangeError(
        `${where}: ${path} expected "f32", "f16" or "q8" for latent attention, got keys "${keys}" and values "${values}"`,
      );
  },
};

/** What the pages of the cache of a layer hold. */
export function latentPageShape({ kvLoraRank, ropeDim }: CheckedLatentConfig): PageShape {
  return { numKvHeads: 1, headDim: kvLoraRank, valueDim: ropeDim, kind: LATENT_KIND };
}
