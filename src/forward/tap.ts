// Where the rows of a chunk can be read and changed between kernel calls. Nothing is called where no tap is given.

import type { Rows } from "../linear/linear.ts";

/**
 * In a layer's attention, by the names of TransformerLens: what the projections gave, before norms and RoPE, head after head; and
 * what the heads gave, before the output projection.
 */
export type HeadSite = "q" | "k" | "v" | "z";

/**
 * What latent attention has besides: latents with rotated keys, both as they are appended; queries after rotation; queries that are
 * multiplied with W_uk; sums of latents.
 */
export type LatentSite = HeadSite | "latents" | "rotated" | "absorbed" | "sums";

/** Is given the rows of a chunk at a site. */
export type Tap<Site extends string = HeadSite> = (site: Site, rows: Rows) => void;
