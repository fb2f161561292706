// The variants of attention as layers of one shape, whose configurations the package takes: what the page shows, and what the engine
// measures.

import type { AttentionConfig } from "headwise";
import type { LatentConfig } from "headwise/latent";

/** Shapes of layers by their width: heads of as many floats as models of that width have. */
export const SHAPES = {
  "512": { dModel: 512, numHeads: 8, headDim: 64 },
  "1024": { dModel: 1024, numHeads: 16, headDim: 64 },
  "2048": { dModel: 2048, numHeads: 16, headDim: 128 },
} as const;
export type ShapeName = keyof typeof SHAPES;
export type Shape = (typeof SHAPES)[ShapeName];

/** Formats of the cache. Weights are float32. */
export const FORMATS = ["f32", "q8", "q4"] as const;
export type Format = (typeof FORMATS)[number];

export const VARIANTS = ["mha", "gqa", "mqa", "mla", "window", "sinks"] as const;
export type Variant = (typeof VARIANTS)[number];

export const NAMES: Readonly<Record<Variant, string>> = {
  ...{ mha: "MHA", gqa: "GQA", mqa: "MQA", mla: "MLA", window: "Window", sinks: "Sinks" },
};

/** Tokens that a query of a windowed layer attends, itself included. */
export const WINDOW = 512;

/** A layer: latent attention has a configuration of its own. */
export type Layer = { readonly latent: LatentConfig } | { readonly plain: AttentionConfig; readonly sinks: boolean };

/** The layer of a variant. */
export function layerOf(variant: Variant, name: ShapeName): Layer {
  const { dModel, numHeads, headDim } = SHAPES[name];
  const plain = { dModel, numHeads, headDim, causal: true, rope: { theta: 10_000, pairing: "half" } } as const;
  switch (variant) {
    case "mha":
      return { plain, sinks: false };
    case "gqa":
      return { plain: { ...plain, numKvHeads: numHeads / 4 }, sinks: false };
    case "mqa":
      return { plain: { ...plain, numKvHeads: 1 }, sinks: false };
    case "window":
    case "sinks":
      return { plain: { ...plain, window: { left: WINDOW - 1 } }, sinks: variant === "sinks" };
    case "mla": {
      // As in DeepSeek-V2: a latent of four heads, and half of a head for the position.
      const latent = { kvLoraRank: 4 * headDim, nopeDim: headDim, ropeDim: headDim / 2 };
      return {
        latent: { dModel, numHeads, ...latent, causal: true, rope: { theta: 10_000, pairing: "interleaved" } },
      };
    }
  }
}

/** Whether the cache of a variant has a format: latents are not stored in q4. */
export const hasFormat = (variant: Variant, format: Format): boolean => variant !== "mla" || format !== "q4";

/** Lengths of the context up to `most` tokens. */
export const lengthsUpTo = (most: number): number[] => [256, 1024, 4096, 16_384, 65_536].filter((each) => each <= most);

/** What a variant costs at a length of the context. */
export interface Cost {
  readonly variant: Variant;
  readonly format: Format;
  /** Tokens in the cache when the last one attends. */
  readonly length: number;
  /** Of the cache for so many tokens, by `plan` and `planLatent`. */
  readonly bytes: number;
  /** Milliseconds of the layer for one token, a median. Undefined until measured, or if memory is too small. */
  readonly ms?: number;
  /** The least and the most of the samples. */
  readonly range?: readonly [least: number, most: number];
}
