import { formatOf } from "../linear/formats.ts";
import { type CheckedLinear, expectVector } from "../linear/options.ts";
import type { StoredTensor } from "../tensor/dtypes.ts";
import { expectLayout, expectMatrix, type MatrixLayout, readMatrix } from "../tensor/matrix.ts";
import { readFields } from "../util/arguments.ts";
import { describe } from "../util/errors.ts";
import { type CheckedConfig, checkSinks } from "./config.ts";
import {
  eachProjection,
  type ProjectionName,
  type Projections,
  projectionSizes,
  type VectorName,
  vectorSizes,
} from "./layer-sizes.ts";
import { separateWeights } from "./split-qkv.ts";
import { type CheckedWeightOptions, fillFormats, type LayerFormats } from "./weight-options.ts";
import { type AttentionWeights, WEIGHT_FIELDS } from "./weights.ts";

/** Weights that fit the configuration, wqkv split into wq, wk and wv. */
export interface CheckedWeights {
  readonly linears: Projections<CheckedLinear>;
  readonly layout: MatrixLayout;
  readonly formats: LayerFormats;
  /** Whether activations have 7 bits instead of 14 where weights are integers. */
  readonly fast: boolean;
  readonly vectors: Record<VectorName, Float32Array | undefined>;
}

/** A copy of the weights' fields and of those of each matrix, each read once. Nothing is checked but what is read. */
function readWeights(where: string, weights: AttentionWeights): AttentionWeights {
  const given = readFields(where, "weights", weights, WEIGHT_FIELDS);
  const read: Record<string, unknown> = { ...given };
  for (const name of ["wq", "wk", "wv", "wqkv", "wo"] as const)
    if (given[name] !== undefined) read[name] = readMatrix(where, name, given[name]);
  return read as unknown as AttentionWeights;
}

/**
 * Checks every weight against the configuration, and formats against the kernels, which support others than float32 if
 * `quantized`. Nothing is copied. All is read before anything is checked, because reading may run code of the caller's.
 */
export function checkWeights(
  where: string,
  config: CheckedConfig,
  all: AttentionWeights,
  { formats, fast }: CheckedWeightOptions,
  quantized: boolean,
): CheckedWeights {
  const given = readWeights(where, all);
  const layout = expectLayout(where, given.layout);
  const { dModel, kdim, vdim } = config;
  if (given.wqkv !== undefined && (kdim !== dModel || vdim !== dModel))
    throw new RangeError(`${where}: wqkv expected kdim and vdim equal to dModel (${dModel}), got ${kdim} and ${vdim}`);
  const sizes = projectionSizes(config);
  const widths = { q: sizes.q.n, k: sizes.k.n, v: sizes.v.n, inputs: dModel };
  const weights = separateWeights(where, "", given, layout, () => widths);

  const vector = (name: string, value: unknown, length: number) => expectVector(where, name, value, length);
  const linear = (name: ProjectionName): CheckedLinear => {
    const { n, k } = sizes[name];
    const matrix = expectMatrix(where, `w${name}`, weights[`w${name}`], layout);
    expectShape(where, `w${name}`, matrix, layout === "out-in" ? [n, k] : [k, n]);
    return { w: matrix, bias: vector(`b${name}`, weights[`b${name}`], n) };
  };
  const lengths = vectorSizes(config);
  const gain = (name: "qNorm" | "kNorm") => {
    if (!config.qkNorm && weights[name] !== undefined)
      throw new RangeError(`${where}: ${name} expected none without config.qkNorm, got ${describe(weights[name])}`);
    if (!config.qkNorm) return undefined;
    const data = vector(name, weights[name], lengths[name]);
    if (!data)
      throw new RangeError(`${where}: ${name} expected ${lengths[name]} floats for config.qkNorm, got undefined`);
    return config.qkNorm.onePlus ? data.map((w) => 1 + w) : data;
  };
  const extraKey = vector("biasK", weights.biasK, lengths.extraKey);
  const extraValue = vector("biasV", weights.biasV, lengths.extraValue);
  if ((extraKey === undefined) !== (extraValue === undefined))
    throw new RangeError(
      `${where}: biasK and biasV expected both or neither, got ${extraKey ? "biasK" : "biasV"} alone`,
    );
  const linears = eachProjection(linear);
  return {
    ...{ layout, fast },
    linears,
    formats: fillFormats(formats, (name) => formatOf(linears[name].w, quantized)),
    vectors: {
      qNorm: gain("qNorm"),
      kNorm: gain("kNorm"),
      slopes: config.slopes,
      sinks:
        weights.sinkLogits === undefined
          ? undefined
          : checkSinks(where, "sinkLogits", weights.sinkLogits, config.numHeads),
      extraKey,
      extraValue,
    },
  };
}

function expectShape(where: string, name: string, { shape }: StoredTensor, [rows, columns]: [number, number]): void {
  if (shape[0] !== rows || shape[1] !== columns)
    throw new RangeError(`${where}: ${name} expected shape [${rows}, ${columns}], got [${shape.join(", ")}]`);
}
