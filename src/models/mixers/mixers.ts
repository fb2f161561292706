// The kinds of mixers that layers of models have: a line in each table.

import type { MixerSpecs } from "../spec/spec.ts";
import { HEADS, HEADS_LOADER, HEADS_MEMORY } from "./heads.ts";
import { LATENT, LATENT_LOADER, LATENT_MEMORY } from "./latent.ts";
import type { MixerKind, MixerLoader, MixerMemory } from "./mixer.ts";
import { parallelLoader, parallelMemory, parallelOf } from "./parallel.ts";
import { RECURRENT, RECURRENT_LOADER, RECURRENT_MEMORY } from "./recurrent.ts";

/** What is known of a kind before anything is loaded. */
export const MIXERS: Readonly<Record<keyof MixerSpecs, MixerKind>> = {
  heads: HEADS,
  latent: LATENT,
  recurrent: RECURRENT,
  parallel: /* @__PURE__ */ parallelOf(() => MIXERS),
};

/** What kernels have to be loaded with, besides `models`, for models with this attention. */
export const needsOf = ({ kind = "heads" }: { readonly kind?: keyof MixerSpecs } = {}): string | undefined =>
  MIXERS[kind].needs?.option;

/** What packs layers of a kind. */
export const LOADERS: Readonly<Record<keyof MixerSpecs, MixerLoader>> = {
  heads: HEADS_LOADER,
  latent: LATENT_LOADER,
  recurrent: RECURRENT_LOADER,
  parallel: /* @__PURE__ */ parallelLoader(() => LOADERS),
};

/** What layers of a kind keep of a sequence. */
export const MEMORIES: Readonly<Record<keyof MixerSpecs, MixerMemory>> = {
  heads: HEADS_MEMORY,
  latent: LATENT_MEMORY,
  recurrent: RECURRENT_MEMORY,
  parallel: /* @__PURE__ */ parallelMemory(() => MEMORIES),
};
