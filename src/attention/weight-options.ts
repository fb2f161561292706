import type { PackedFormat, WeightFormat } from "../linear/formats.ts";
import { expectActivations, expectFormat, expectFormatLoaded } from "../linear/options.ts";
import { readFields } from "../util/arguments.ts";
import { eachProjection, PROJECTIONS, type ProjectionName } from "./layer-sizes.ts";

/** The format of the query, key, value and output projection of a layer. */
export type LayerFormats = Readonly<Record<"q" | "k" | "v" | "o", PackedFormat>>;

/** The formats of a layer's weights, and of the activations that integer weights are multiplied with. */
export interface WeightOptions {
  /**
   * One format for all matrices, or one for each. Default the format that a matrix is stored in: "f32" for a `Tensor` and
   * for F32 and F64, "f16" for F16, "bf16" for BF16, "q8" for Q8_0, "q4" for Q4_0. Kernels without `quantized` widen F16 and
   * BF16 to "f32": twice the memory, and the same bits, because every float16 and bfloat16 is a float32. Converting to another
   * format rounds to nearest; "f16" makes an infinity of a weight beyond 65504.
   */
  readonly weights?: WeightFormat | Partial<Readonly<Record<ProjectionName, WeightFormat>>>;
  /**
   * How rows are quantised before they are multiplied with integer weights: "exact" to 14 bits of the largest value of the
   * row, "fast" to 7. docs/numerics.md states the errors. Both keep the same bits in prefill, decode and any batch. Default
   * "exact".
   */
  readonly activations?: "exact" | "fast";
}

/** Fields of WeightOptions. */
export const WEIGHT_OPTIONS: readonly (keyof WeightOptions)[] = ["weights", "activations"];

/** Checked WeightOptions. */
export interface CheckedWeightOptions {
  /** The requested formats. */
  readonly formats: Partial<LayerFormats>;
  readonly fast: boolean;
}

/**
 * Checks the fields of WeightOptions, each of which is read once; callers check for unknown fields. `path` is the prefix of
 * names in errors.
 */
export function checkWeightOptions(
  where: string,
  path: string,
  { weights, activations }: WeightOptions,
): CheckedWeightOptions {
  const fast = expectActivations(where, `${path}activations`, activations);
  return { formats: formatsOf(where, `${path}weights`, weights), fast };
}

function formatsOf(where: string, path: string, weights: WeightOptions["weights"]): Partial<LayerFormats> {
  if (weights === undefined) return {};
  if (weights === null || typeof weights !== "object") {
    const format = expectFormat(where, path, weights);
    return eachProjection(() => format);
  }
  const formats = readFields(where, path, weights, PROJECTIONS);
  for (const [part, format] of Object.entries(formats)) expectFormat(where, `${path}.${part}`, format);
  return formats;
}

/** The requested formats, and `otherwise` for the rest. */
export function fillFormats(
  formats: Partial<LayerFormats>,
  otherwise: (name: ProjectionName) => PackedFormat,
): LayerFormats {
  return eachProjection((name) => formats[name] ?? otherwise(name));
}

/** `expectFormatLoaded` for each format of a layer. */
export function expectFormatsLoaded(where: string, quantized: boolean, formats: LayerFormats, loader?: string): void {
  for (const [part, format] of Object.entries(formats))
    expectFormatLoaded(where, quantized, `w${part}`, format, loader);
}
