import { WEIGHT_FORMATS, type WeightFormat } from "../linear/formats.ts";
import { expectFields, expectOneOf, HeadwiseError } from "../util/errors.ts";
import { PROJECTIONS, type ProjectionName } from "./layer-sizes.ts";

/** The format of each matrix of a layer. */
export type LayerFormats = Readonly<Record<ProjectionName, WeightFormat>>;

/** How a layer keeps its weights and multiplies them. */
export interface WeightOptions {
  /**
   * "f32", "f16", "bf16", "q8" (int8, a scale for each 32 inputs of an output), "q8-row" (int8, a scale for each output),
   * "q4" (4 bits, a scale for each 32 inputs), for all matrices or for each by itself. Default what a matrix is stored as:
   * a `Tensor` is "f32", a stored tensor of F16 "f16", of BF16 "bf16", of Q8_0 "q8", of Q4_0 "q4"; without `quantized`
   * kernels 16-bit floats are widened to "f32", which gives the same bits. Where another format is asked for, weights are
   * rounded to the nearest that it has, which for "f16" is an infinity beyond 65504.
   */
  readonly weights?: WeightFormat | Partial<LayerFormats>;
  /**
   * What rows become where they meet integer weights: "exact" (the default) keeps 14 bits of a row's largest value, "fast"
   * 7, at the error that docs/numerics.md states. Both give the same bits for prefill, decode and any batch.
   */
  readonly activations?: "exact" | "fast";
}

/** Fields of WeightOptions. */
export const WEIGHT_OPTIONS: readonly (keyof WeightOptions)[] = ["weights", "activations"];

/** Checked WeightOptions. */
export interface CheckedFormats {
  /** The requested formats. */
  readonly formats: Partial<LayerFormats>;
  readonly fast: boolean;
}

/** Checks the fields of WeightOptions; callers check for unknown fields. `path` is the prefix of names in errors. */
export function checkFormats(
  where: string,
  path: string,
  { weights, activations = "exact" }: WeightOptions,
): CheckedFormats {
  expectOneOf(where, `${path}activations`, activations, ["exact", "fast"]);
  return { formats: formatsOf(where, `${path}weights`, weights), fast: activations === "fast" };
}

function formatsOf(where: string, path: string, weights: WeightOptions["weights"]): Partial<LayerFormats> {
  if (weights === undefined) return {};
  if (weights === null || typeof weights !== "object") {
    const format = expectOneOf(where, path, weights, WEIGHT_FORMATS);
    return eachProjection(() => format);
  }
  expectFields(where, path, weights, PROJECTIONS);
  for (const [part, format] of Object.entries(weights))
    if (format !== undefined) expectOneOf(where, `${path}.${part}`, format, WEIGHT_FORMATS);
  return weights;
}

function eachProjection(formatOf: (name: ProjectionName) => WeightFormat): LayerFormats {
  return Object.fromEntries(PROJECTIONS.map((name) => [name, formatOf(name)])) as LayerFormats;
}

/** The requested formats, and `otherwise` for the rest. */
export function fillFormats(
  formats: Partial<LayerFormats>,
  otherwise: (name: ProjectionName) => WeightFormat,
): LayerFormats {
  return eachProjection((name) => formats[name] ?? otherwise(name));
}

/** Throws NO_QUANTIZED for a format that the loaded kernels do not support. */
export function expectKnown(where: string, quantized: boolean, formats: LayerFormats): void {
  if (quantized) return;
  for (const [part, format] of Object.entries(formats)) if (format !== "f32") refuseFormat(where, `w${part}`, format);
}

/** Throws NO_QUANTIZED: only float32 kernels are loaded. */
export function refuseFormat(where: string, name: string, format: string): never {
  const rule = '"f32", which is all that these kernels know';
  const text = `${where}: format of ${name} expected ${rule}, got "${format}"; loadKernels({ quantized }), from headwise/quantized, brings the others`;
  throw new HeadwiseError("NO_QUANTIZED", text);
}
