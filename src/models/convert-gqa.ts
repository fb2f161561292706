import type { AttentionConfig } from "../attention/config.ts";
import { separateWeights } from "../attention/split-qkv.ts";
import { type AttentionWeights, WEIGHT_FIELDS } from "../attention/weights.ts";
import { type StoredTensor, shapeText } from "../tensor/dtypes.ts";
import type { MatrixLayout } from "../tensor/matrix.ts";
import { expectLayout, expectMatrix, toTensor } from "../tensor/matrix.ts";
import type { Tensor } from "../tensor/tensor.ts";
import { expectFloats, expectInt, expectRecord, readFields } from "../util/arguments.ts";

/** The fields of a configuration that `convertToGqa` reads. Other fields are copied. */
export type ConvertibleConfig = Pick<AttentionConfig, "numHeads" | "numKvHeads" | "headDim" | "valueDim" | "qkNorm">;

/** A layer with fewer key-value heads, and the error that the conversion makes. */
export interface ConvertedToGqa<Config extends ConvertibleConfig = AttentionConfig> {
  /** The weights, in the layout of the input, with separate `wq`, `wk` and `wv`. */
  readonly weights: AttentionWeights & {
    /** Key projection of the remaining heads. */
    readonly wk: Tensor;
    /** Value projection of the remaining heads. */
    readonly wv: Tensor;
  };
  /** The configuration with the new number of key-value heads. */
  readonly config: Config & {
    /** Key-value heads that remain. */
    readonly numKvHeads: number;
  };
  /**
   * |mean - head| / |head| for each original head, in the Frobenius norm of its projection: 0 if all heads of the group are
   * equal, Infinity for a head of zeros among others.
   */
  readonly relativeError: {
    /** Of the key projection, [original numKvHeads]. */
    readonly key: Float32Array;
    /** Of the value projection, [original numKvHeads]. */
    readonly value: Float32Array;
  };
}

const WHERE = "convertToGqa";

/**
 * Converts MHA to GQA or MQA: replaces each group of key-value heads by their mean, biases included. Ainslie et al. (2023)
 * propose this, followed by some training. Key and value projections become float32. The input is not changed.
 * @param numKvHeads Key-value heads that remain, a divisor of the present number.
 * @throws TypeError or RangeError naming the argument, also for a `qkNorm` of the kind "full": it normalises all key heads
 * together, so that their mean has no meaning. HeadwiseError `BAD_FILE` for a stored matrix of a dtype that cannot be read.
 * @example
 * import { convertToGqa } from "headwise/weights";
 * const matrix = { data: new Float32Array(16).fill(1), shape: [4, 4] };
 * const weights = { wq: matrix, wk: matrix, wv: matrix, wo: matrix };
 * const mqa = convertToGqa(weights, { numHeads: 2, headDim: 2 }, 1);
 * console.log(mqa.weights.wk?.shape, mqa.relativeError.key.join(" ")); // [ 2, 4 ] 0 0
 */
export function convertToGqa<Config extends ConvertibleConfig>(
  weights: AttentionWeights,
  config: Config,
  numKvHeads: number,
): ConvertedToGqa<Config> {
  // Each field is read once, because reading may run code of the caller's.
  const given = readFields(WHERE, "weights", weights, WEIGHT_FIELDS);
  expectRecord(WHERE, "config", config);
  const rules = { ...config };
  const layout = expectLayout(WHERE, given.layout);
  const numHeads = expectInt(WHERE, "config.numHeads", rules.numHeads);
  const { numKvHeads: before = numHeads } = rules;
  expectInt(WHERE, "config.numKvHeads", before);
  expectInt(WHERE, "numKvHeads", numKvHeads);
  for (const name of ["headDim", "valueDim"] as const)
    if (rules[name] !== undefined) expectInt(WHERE, `config.${name}`, rules[name]);
  expectMultiple("config.numHeads", numHeads, "config.numKvHeads", before);
  expectMultiple("config.numKvHeads", before, "numKvHeads", numKvHeads);
  if (rules.qkNorm?.kind === "full" && numKvHeads !== before)
    throw new RangeError(`${WHERE}: config.qkNorm.kind expected "per-head", got "full"`);
  const separate = separateWeights(WHERE, "weights.", given, layout, (outputs, inputs) => {
    // Without headDim, keys and values have the width of queries.
    const headDim = expectInt(WHERE, "config.headDim", rules.headDim ?? outputs / (numHeads + 2 * before));
    return { q: numHeads * headDim, k: before * headDim, v: before * (rules.valueDim ?? headDim), inputs };
  });
  const wq = expectMatrix(WHERE, "weights.wq", separate.wq, layout);
  const wo = expectMatrix(WHERE, "weights.wo", separate.wo, layout);
  const wk = toTensor(expectMatrix(WHERE, "weights.wk", separate.wk, layout));
  const wv = toTensor(expectMatrix(WHERE, "weights.wv", separate.wv, layout));
  const { bk, bv, biasK, biasV } = separate;
  const outputs = layout === "out-in" ? 0 : 1;
  const kRows = wk.shape[outputs]!;
  const vRows = wv.shape[outputs]!;
  expectMultiple("outputs of weights.wk", kRows, "config.numKvHeads", before);
  expectMultiple("outputs of weights.wv", vRows, "config.numKvHeads", before);
  const { headDim, valueDim = headDim } = rules;
  if (headDim !== undefined && kRows !== before * headDim)
    throw new RangeError(`${WHERE}: weights.wk expected ${before * headDim} outputs, got ${kRows}`);
  if (valueDim !== undefined && vRows !== before * valueDim)
    throw new RangeError(`${WHERE}: weights.wv expected ${before * valueDim} outputs, got ${vRows}`);
  expectRest(separate, layout, wq, wo, { numHeads, before, kDim: kRows / before, vDim: vRows / before });
  const pool = (name: string, bias: Float32Array | undefined, rows: number): Float32Array | undefined => {
    if (bias === undefined) return undefined;
    const data = expectFloats(WHERE, `weights.${name}`, bias);
    if (data.length !== rows)
      throw new RangeError(`${WHERE}: weights.${name} expected ${rows} floats, got ${data.length}`);
    return meanOfGroups({ data, shape: [rows, 1] }, "out-in", before, numKvHeads).pooled.data;
  };
  const poolMatrix = (matrix: Tensor) => meanOfGroups(matrix, layout, before, numKvHeads);
  const biases = {
    bk: pool("bk", bk, kRows),
    bv: pool("bv", bv, vRows),
    biasK: pool("biasK", biasK, kRows),
    biasV: pool("biasV", biasV, vRows),
  };
  const key = poolMatrix(wk);
  const value = poolMatrix(wv);
  return {
    weights: { ...separate, wk: key.pooled, wv: value.pooled, ...biases },
    config: { ...rules, numKvHeads },
    relativeError: { key: key.relativeError, value: value.relativeError },
  };
}

/** Checks what the conversion does not read: it is handed on. `kDim` and `vDim` are the floats of a key and a value head. */
function expectRest(
  weights: AttentionWeights,
  layout: MatrixLayout,
  wq: StoredTensor,
  wo: StoredTensor,
  { numHeads, before, kDim, vDim }: { numHeads: number; before: number; kDim: number; vDim: number },
): void {
  const dModel = wq.shape[layout === "out-in" ? 1 : 0] as number;
  const expectSides = (name: string, { shape }: StoredTensor, outputs: number, inputs: number) => {
    const [rows, columns] = layout === "out-in" ? [outputs, inputs] : [inputs, outputs];
    if (shape[0] !== rows || shape[1] !== columns)
      throw new RangeError(`${WHERE}: weights.${name} expected shape [${rows}, ${columns}], got ${shapeText(shape)}`);
  };
  expectSides("wq", wq, numHeads * kDim, dModel);
  expectSides("wo", wo, dModel, numHeads * vDim);
  const lengths = {
    ...{ bq: [numHeads * kDim], bo: [dModel], sinkLogits: [numHeads] },
    ...{ qNorm: [kDim, numHeads * kDim], kNorm: [kDim, before * kDim] },
  };
  for (const name of ["bq", "bo", "sinkLogits", "qNorm", "kNorm"] as const) {
    const vector = weights[name];
    if (vector === undefined) continue;
    const { length } = expectFloats(WHERE, `weights.${name}`, vector);
    if (!lengths[name].includes(length))
      throw new RangeError(`${WHERE}: weights.${name} expected ${lengths[name].join(" or ")} floats, got ${length}`);
  }
}

function expectMultiple(name: string, value: number, ofName: string, of: number): void {
  if (value % of !== 0)
    throw new RangeError(`${WHERE}: ${name} expected a multiple of ${ofName} (${of}), got ${value}`);
}

/**
 * The mean of each group of `before / after` consecutive heads, and the distance of each head from it. Sums are in
 * float64.
 */
function meanOfGroups(
  { data, shape }: Tensor,
  layout: MatrixLayout,
  before: number,
  after: number,
): { pooled: Tensor; relativeError: Float32Array } {
  const [rows, columns] = shape as [number, number];
  const inOut = layout === "in-out";
  const [outputs, inputs] = inOut ? [columns, rows] : [rows, columns];
  const width = outputs / before;
  const group = before / after;
  const kept = after * width;
  const pooled = new Float32Array(kept * inputs);
  const squares = new Float64Array(before);
  const distances = new Float64Array(before);
  for (let output = 0; output < kept; output++) {
    const first = Math.floor(output / width) * group;
    for (let input = 0; input < inputs; input++) {
      const at = (member: number): number => {
        const from = (first + member) * width + (output % width);
        return data[inOut ? input * outputs + from : from * inputs + input]!;
      };
      let sum = 0;
      for (let member = 0; member < group; member++) sum += at(member);
      const mean = sum / group;
      pooled[inOut ? input * kept + output : output * inputs + input] = mean;
      for (let member = 0; member < group; member++) {
        const own = at(member);
        squares[first + member]! += own * own;
        distances[first + member]! += (mean - own) * (mean - own);
      }
    }
  }
  const relativeError = Float32Array.from(distances, (distance, head) =>
    distance === 0 ? 0 : Math.sqrt(distance / squares[head]!),
  );
  return { pooled: { data: pooled, shape: inOut ? [inputs, kept] : [kept, inputs] }, relativeError };
}
