// Formats of the matrices of a model, by part.

import type { LayerFormats } from "../attention/weight-options.ts";
import type { LatentFormats } from "../latent/weights.ts";
import type { WeightFormat } from "../linear/formats.ts";
import { expectFormat } from "../linear/options.ts";
import type { ModelSpec } from "../models/decoder/spec.ts";
import { readFields } from "../util/arguments.ts";
import type { EndFormats, MlpFormats } from "./places.ts";

/** Formats of the parts of a model. */
export interface ModelFormats {
  /** Matrices of attention. */
  readonly attention?: WeightFormat | undefined;
  /** Matrices of MLPs and experts; routers are always float32. */
  readonly mlp?: WeightFormat | undefined;
  /** The table of tokens, and the head. */
  readonly embed?: WeightFormat | undefined;
}

/** Formats of the matrices of attention, of latent attention too. */
export type AttentionFormats = LayerFormats & LatentFormats;

/** Formats of all matrices of a model in memory. */
export interface PackedFormats {
  readonly ends: EndFormats;
  attention(layer: number, which: "self" | "cross"): AttentionFormats;
  mlp(layer: number, which: number | "shared" | "mlp"): MlpFormats;
}

const PARTS: readonly (keyof ModelFormats)[] = ["attention", "mlp", "embed"];

/** One format for all parts. */
export function allParts(format: WeightFormat): ModelFormats {
  return { attention: format, mlp: format, embed: format };
}

/** One format for each part; parts without one are float32. */
export function uniformFormats({ head }: ModelSpec, formats: ModelFormats): PackedFormats {
  const { attention = "f32", mlp = "f32", embed = "f32" } = formats;
  return {
    ends: { embed, projectIn: embed, projectOut: embed, head: head.tied === false ? embed : undefined },
    attention: () => ({ q: attention, k: attention, v: attention, o: attention, qDown: attention, kvDown: attention }),
    mlp: () => ({ gate: mlp, up: mlp, down: mlp }),
  };
}

/** Checks the option `weights`. */
export function readFormats(where: string, weights: WeightFormat | ModelFormats | undefined): ModelFormats {
  if (weights === undefined) return {};
  if (weights === null || typeof weights !== "object") {
    const format = expectFormat(where, "options.weights", weights);
    return allParts(format);
  }
  const formats = readFields(where, "options.weights", weights, PARTS);
  for (const [part, format] of Object.entries(formats)) expectFormat(where, `options.weights.${part}`, format);
  return formats;
}
