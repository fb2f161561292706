// The matrices and vectors of an attention layer, by name, with their sizes. Code that checks, packs, places or counts
// them uses these lists.

import type { LinearSize } from "../linear/formats.ts";
import type { CheckedConfig } from "./config.ts";

/** The matrices in the order of their panels in memory: those that may be one product are adjacent. */
export const PROJECTIONS = ["q", "k", "v", "o"] as const;
export type ProjectionName = (typeof PROJECTIONS)[number];

/** A value for each matrix of a layer. Without `o`, the outputs of the layer are those of its heads. */
export interface Projections<T> {
  readonly q: T;
  readonly k: T;
  readonly v: T;
  readonly o: T | undefined;
}

/** A record of one value for each matrix. */
export function eachProjection<T>(create: (name: ProjectionName) => T): Record<ProjectionName, T> {
  return Object.fromEntries(PROJECTIONS.map((name) => [name, create(name)])) as Record<ProjectionName, T>;
}

/** Outputs and inputs of each matrix. */
export function projectionSizes(config: CheckedConfig): Readonly<Record<ProjectionName, LinearSize>> {
  const { dModel, kdim, vdim, numHeads, numKvHeads, headDim, valueDim } = config;
  return {
    q: { n: numHeads * headDim, k: dModel },
    k: { n: numKvHeads * headDim, k: kdim },
    v: { n: numKvHeads * valueDim, k: vdim },
    o: { n: dModel, k: numHeads * valueDim },
  };
}

/** The vectors besides biases. */
export type VectorName = "qNorm" | "kNorm" | "slopes" | "sinks" | "extraKey" | "extraValue";

/** Floats of each vector; 0 if a layer of this configuration has none. */
export function vectorSizes(config: CheckedConfig): Readonly<Record<VectorName, number>> {
  const { qkNorm, numHeads, numKvHeads, headDim, valueDim } = config;
  const gains = (heads: number) => (qkNorm ? (qkNorm.kind === "per-head" ? headDim : heads * headDim) : 0);
  return {
    qNorm: gains(numHeads),
    kNorm: gains(numKvHeads),
    slopes: numHeads,
    sinks: numHeads,
    extraKey: numKvHeads * headDim,
    extraValue: numKvHeads * valueDim,
  };
}
