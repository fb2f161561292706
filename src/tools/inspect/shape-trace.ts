import { expectInt, MOST_HEADS, MOST_SEQUENCES, readFields } from "../../base/util/arguments.ts";

/** The sizes of a layer. */
export interface LayerSizes {
  /** Floats of a row of x: D. */
  readonly dModel: number;
  /** Query heads: H, a divisor of dModel. */
  readonly numHeads: number;
  /** Heads of keys and values, a divisor of numHeads. Default numHeads. */
  readonly numKvHeads?: number | undefined;
}

/** The sizes of a layer and of what it reads. */
export interface ShapeSizes extends LayerSizes {
  /** Sequences: B. */
  readonly batch: number;
  /** Tokens of a sequence: S. */
  readonly seqLen: number;
}

/** A tensor on the way through attention. */
export interface ShapeStep {
  /** What it is, or what made it of the one before. */
  readonly name: string;
  /** Dimensions, the outermost first. */
  readonly shape: readonly number[];
  /** The letter of each dimension: B sequences, S tokens, D floats of a row, H heads, d floats of a head. */
  readonly axes: "BSD" | "BSHd" | "BHSd" | "BSd";
  /** How many different heads it holds: fewer than H where heads are repeated. */
  readonly heads: number;
}

const LAYER_FIELDS = ["dModel", "numHeads", "numKvHeads"] as const;

/**
 * The shapes that a batch has on its way through attention, in the words of PyTorch; one head of the result of attention comes last.
 * With fewer heads of keys and values, these have steps of their own. Nothing is computed, and this package moves no data for a
 * view or a transposition: its heads are strides.
 * @throws TypeError or RangeError naming the field.
 * @example
 * import { shapeTrace } from "headwise/inspect";
 * const steps = shapeTrace({ batch: 2, seqLen: 10, dModel: 512, numHeads: 8 });
 * const text = steps.map(({ name, shape }) => `${name} [${shape}]`);
 * console.log(text.slice(0, 4).join(" → ")); // x [2,10,512] → q [2,10,512] → view [2,10,8,64] → transpose [2,8,10,64]
 * console.log(text.slice(4, 8).join(" → ")); // attention [2,8,10,64] → transpose [2,10,8,64] → contiguous view [2,10,512] → W_o [2,10,512]
 * console.log(text[8]); // one head slice [2,10,64]
 */
export function shapeTrace(sizes: ShapeSizes): ShapeStep[] {
  return stepsOf("shapeTrace", sizes);
}

/** `shapeTrace` for the function `where`. */
export function stepsOf(where: string, sizes: ShapeSizes): ShapeStep[] {
  const { batch, seqLen, ...layer } = readFields(where, "sizes", sizes, ["batch", "seqLen", ...LAYER_FIELDS]);
  const B = expectInt(where, "batch", batch, 1, MOST_SEQUENCES);
  const S = expectInt(where, "seqLen", seqLen);
  const { numHeads: H, numKvHeads: kvHeads, headDim: d } = checkSizes(where, layer);
  const rows = (name: string, heads = H): ShapeStep => ({ name, shape: [B, S, heads * d], axes: "BSD", heads });
  const view = (name: string, heads = H): ShapeStep => ({ name, shape: [B, S, heads, d], axes: "BSHd", heads });
  const apart = (name: string, heads = H): ShapeStep => ({ name, shape: [B, heads, S, d], axes: "BHSd", heads });
  return [
    rows("x"),
    rows("q"),
    view("view"),
    apart("transpose"),
    ...(kvHeads < H
      ? [
          rows("k, v", kvHeads),
          view("view of k, v", kvHeads),
          apart("transpose of k, v", kvHeads),
          { ...apart("repeat of k, v"), heads: kvHeads },
        ]
      : []),
    apart("attention"),
    view("transpose"),
    rows("contiguous view"),
    rows("W_o"),
    { name: "one head slice", shape: [B, S, d], axes: "BSd", heads: 1 },
  ];
}

/** Checks the sizes of a layer, and fills in the default. */
export function checkSizes(where: string, sizes: LayerSizes): Required<LayerSizes> & { readonly headDim: number } {
  const given = readFields(where, "sizes", sizes, LAYER_FIELDS);
  const dModel = expectInt(where, "dModel", given.dModel);
  const numHeads = expectInt(where, "numHeads", given.numHeads, 1, MOST_HEADS);
  const numKvHeads = given.numKvHeads === undefined ? numHeads : expectInt(where, "numKvHeads", given.numKvHeads);
  if (dModel % numHeads !== 0)
    throw new RangeError(`${where}: d_model (${dModel}) must be divisible by n_heads (${numHeads})`);
  if (numHeads % numKvHeads !== 0)
    throw new RangeError(`${where}: numHeads expected a multiple of numKvHeads (${numKvHeads}), got ${numHeads}`);
  return { dModel, numHeads, numKvHeads, headDim: dModel / numHeads };
}
