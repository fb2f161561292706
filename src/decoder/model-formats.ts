// Formats of the matrices of a model, by part.

import type { PackedFormat, WeightFormat } from "../linear/formats.ts";
import { expectFormat } from "../linear/options.ts";
import { readFields } from "../util/arguments.ts";

/** Formats of the parts of a model. */
export interface ModelFormats {
  /** Matrices of attention. */
  readonly attention?: WeightFormat | undefined;
  /** Matrices of MLPs and experts; routers are always float32. */
  readonly mlp?: WeightFormat | undefined;
  /** The table of tokens, and the head. */
  readonly embed?: WeightFormat | undefined;
}

/** Formats of the parts of a model in memory: those that were asked for, or those of a file. */
export type PackedFormats = Readonly<Partial<Record<keyof ModelFormats, PackedFormat>>>;

const PARTS: readonly (keyof ModelFormats)[] = ["attention", "mlp", "embed"];

/** One format for all parts. */
export function allParts(format: WeightFormat): ModelFormats {
  return { attention: format, mlp: format, embed: format };
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
