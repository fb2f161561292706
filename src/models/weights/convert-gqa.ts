// Converts MHA to GQA: groups of key-value heads become one head each.

import { type StoredTensor, shapeText } from "../../base/tensor/dtypes.ts";
import { expectLayout, expectMatrix, type MatrixLayout, toTensor } from "../../base/tensor/matrix.ts";
import type { Tensor } from "../../base/tensor/tensor.ts";
import { expectFloats, expectInt, expectOneOf, expectRecord, readFields } from "../../base/util/arguments.ts";
import { describe } from "../../base/util/errors.ts";
import { decompose } from "../../base/util/linear-algebra.ts";
import type { AttentionConfig } from "../../layers/attention/config.ts";
import { checkRope, type RopeWithDim } from "../../layers/attention/rope.ts";
import { type AttentionWeights, separateWeights, WEIGHT_FIELDS } from "../../layers/attention/weights.ts";

/** The fields of a configuration that `convertToGqa` reads. Other fields are copied. */
export type ConvertibleConfig = Pick<
  AttentionConfig,
  "numHeads" | "numKvHeads" | "headDim" | "valueDim" | "qkNorm" | "rope"
>;

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
   * |stand-in - head| / |head| for each original head, in the Frobenius norm of its projection without biases: 0 if all heads of
   * the group are equal, Infinity for a head of zeros among others. The stand-in is the mean, the first head, or with "svd" the
   * part of the common basis that the head's queries are multiplied with, T_i·B.
   */
  readonly relativeError: {
    /** Of the key projection, [original numKvHeads]. */
    readonly key: Float32Array;
    /** Of the value projection, [original numKvHeads]. */
    readonly value: Float32Array;
  };
}

const WHERE = "convertToGqa";

const METHODS = ["mean", "first", "svd"] as const;

/** Options of `convertToGqa`. */
export interface ConvertToGqaOptions {
  /**
   * What stands for a group of key-value heads: "mean", the mean of their projections; "first", the first of them; "svd", the
   * best common basis, for which `wq`, `bq` and `wo` change too. Default "mean".
   */
  readonly method?: "mean" | "first" | "svd";
}

/**
 * Converts MHA to GQA or MQA: one key-value head takes the place of each group of them, biases included. Ainslie et al. (2023)
 * propose the mean, and compare it with the first, each followed by some training. Key and value projections become float32.
 * The input is not changed.
 *
 * The method "svd" also changes the matrices keys and values are multiplied with. For the keys A_i·x of the heads i of a group it
 * finds B and T_i for which the T_i·B are nearest to the A_i in the Frobenius norm: a truncated singular value decomposition of the
 * stacked A_i. B becomes the shared key projection, and the queries of head i are multiplied by the transpose of T_i, so that
 * scores are those of keys T_i·B·x. Values are treated in the same way, with the columns of wo that belong to a head in place of
 * its queries. Biases count as the weights of one more input. Where RoPE rotates queries and keys, T_i must commute with it: it is
 * a rotation and a factor for each pair of components, of which the best are taken. The result is an ordinary GQA layer. It is
 * exact if the heads of a group are such functions of one, and its error, summed over a group, is never larger than that of the
 * other methods. A group of 4 heads of 64 with dModel 2048 takes some 2 seconds.
 * @param numKvHeads Key-value heads that remain, a divisor of the present number; 1 gives MQA.
 * @throws TypeError or RangeError naming the argument, also for a `qkNorm` of the kind "full": it normalises all key heads
 * together, so that their mean has no meaning; and for any `qkNorm` with "svd", because the norm is between what T_i would
 * change. HeadwiseError `BAD_FILE` for a stored matrix of a dtype that cannot be read.
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
  options: ConvertToGqaOptions = {},
): ConvertedToGqa<Config> {
  // Each field is read once, because reading may run code of the caller's.
  const given = readFields(WHERE, "weights", weights, WEIGHT_FIELDS);
  expectRecord(WHERE, "config", config);
  const rules = { ...config };
  const { method = "mean" } = readFields(WHERE, "options", options, ["method"]);
  expectOneOf(WHERE, "options.method", method, METHODS);
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
  const { separate, wq, wo, keys, values, vectors } = checkLayer(given, rules, layout, { numHeads, before });
  // Heads that stay are the mean of themselves.
  const pool = (heads: HeadRows) => poolHeads(heads, numKvHeads, method === "first" ? method : "mean");
  const found =
    method === "svd" && numKvHeads !== before
      ? rotateHeads(separate, [toTensor(wq), toTensor(wo)], layout, rules, {
          keys,
          values,
          numHeads,
          after: numKvHeads,
        })
      : { key: pool(keys), value: pool(values), rotated: {} };
  const matrix = (rows: readonly Float64Array[], { inputs }: HeadRows) =>
    writeRows(
      rows.map((row) => row.subarray(0, inputs)),
      inputs,
      layout,
    );
  // Biases are the numbers of a row behind those of its matrix.
  const biasOf = (rows: readonly Float64Array[], at: number) => Float32Array.from(rows, (row) => row[at] as number);
  const biases: Record<string, Float32Array> = {};
  for (const [{ rows }, { inputs }, names] of [
    [found.key, keys, ["bk", "biasK"]],
    [found.value, values, ["bv", "biasV"]],
  ] as const)
    for (const [i, name] of names.filter((name) => vectors[name] !== undefined).entries())
      biases[name] = biasOf(rows, inputs + i);
  return {
    weights: {
      ...{ ...separate, ...found.rotated, ...biases },
      wk: matrix(found.key.rows, keys),
      wv: matrix(found.value.rows, values),
    },
    config: { ...rules, numKvHeads },
    relativeError: { key: found.key.relativeError, value: found.value.relativeError },
  };
}

/** Checks the weights of a layer of so many heads, and reads the rows of its keys and values with their biases. */
function checkLayer(
  given: AttentionWeights,
  rules: ConvertibleConfig,
  layout: MatrixLayout,
  { numHeads, before }: { readonly numHeads: number; readonly before: number },
) {
  const separate = separateWeights(WHERE, "weights.", given, layout, (outputs, inputs) => {
    // Without headDim, keys and values have the width of queries.
    const headDim = expectInt(WHERE, "config.headDim", rules.headDim ?? outputs / (numHeads + 2 * before));
    return { q: numHeads * headDim, k: before * headDim, v: before * (rules.valueDim ?? headDim), inputs };
  });
  const wq = expectMatrix(WHERE, "weights.wq", separate.wq, layout);
  const wo = expectMatrix(WHERE, "weights.wo", separate.wo, layout);
  const wk = toTensor(expectMatrix(WHERE, "weights.wk", separate.wk, layout));
  const wv = toTensor(expectMatrix(WHERE, "weights.wv", separate.wv, layout));
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
  const [kDim, vDim] = [kRows / before, vRows / before];
  expectRest(separate, layout, wq, wo, { numHeads, before, kDim, vDim });
  const vectors = {
    ...{ bk: vector("bk", separate.bk, kRows), biasK: vector("biasK", separate.biasK, kRows) },
    ...{ bv: vector("bv", separate.bv, vRows), biasV: vector("biasV", separate.biasV, vRows) },
  };
  const keys = headRows(wk, [vectors.bk, vectors.biasK], layout, before);
  const values = headRows(wv, [vectors.bv, vectors.biasV], layout, before);
  return { separate, wq, wo, keys, values, vectors };
}

/** A vector of this many floats, or undefined. */
function vector(name: string, given: Float32Array | undefined, length: number): Float32Array | undefined {
  if (given === undefined) return undefined;
  const data = expectFloats(WHERE, `weights.${name}`, given);
  if (data.length === length) return data;
  throw new RangeError(`${WHERE}: weights.${name} expected ${length} floats, got ${data.length}`);
}

/** The rows of all heads of a matrix, with the biases that there are as further inputs. */
function headRows(
  matrix: Tensor,
  biases: readonly (Float32Array | undefined)[],
  layout: MatrixLayout,
  heads: number,
): HeadRows {
  const { outputs, inputs, row } = readRows(matrix, layout);
  const added = biases.filter((bias) => bias !== undefined);
  const rows = Array.from({ length: outputs }, (_, output) => {
    const all = new Float64Array(inputs + added.length);
    all.set(row(output));
    for (const [i, bias] of added.entries()) all[inputs + i] = bias[output] as number;
    return all;
  });
  return { rows, inputs, heads, width: outputs / heads };
}

/** The method "svd": shared heads, and query and output projections that are transformed for them. */
function rotateHeads(
  { bq, ...weights }: AttentionWeights,
  [wq, wo]: readonly [Tensor, Tensor],
  layout: MatrixLayout,
  { qkNorm, rope }: ConvertibleConfig,
  { keys, values, numHeads, after }: { keys: HeadRows; values: HeadRows; numHeads: number; after: number },
) {
  if (qkNorm !== undefined)
    throw new RangeError(
      `${WHERE}: config.qkNorm expected none with the method "svd", which transforms what it would normalise, got ${describe(qkNorm)}`,
    );
  const checked = rope === undefined ? undefined : checkRope(WHERE, rope, keys.width);
  for (const [name, { data }] of Object.entries({ wq, wo })) expectFiniteFloats(WHERE, `weights.${name}`, data);
  for (const name of ["bk", "bv", "biasK", "biasV"] as const)
    if (weights[name]) expectFiniteFloats(WHERE, `weights.${name}`, weights[name]);
  if (bq) expectFiniteFloats(WHERE, "weights.bq", bq);
  for (const [name, { rows }] of Object.entries({ wk: keys, wv: values }))
    for (const row of rows) expectFiniteFloats(WHERE, `weights.${name}`, row);
  const key = shareBasis(keys, after, headParts(keys.width, checked));
  const value = shareBasis(values, after, headParts(values.width, undefined));
  const group = numHeads / keys.heads;
  const ofHead = (transforms: readonly Float64Array[]) => (head: number) =>
    transforms[Math.floor(head / group)] as Float64Array;
  const queries = headRows(wq, [bq], layout, numHeads);
  const rows = transformRows(queries.rows, keys.width, ofHead(key.transforms));
  // The rows of woᵀ are heads' components, as those of the other matrices.
  const turned = layout === "out-in" ? "in-out" : "out-in";
  const outputs = headRows(wo, [], turned, numHeads);
  const rotated = {
    wq: writeRows(
      rows.map((row) => row.subarray(0, queries.inputs)),
      queries.inputs,
      layout,
    ),
    wo: writeRows(transformRows(outputs.rows, values.width, ofHead(value.transforms)), outputs.inputs, turned),
    ...(bq && { bq: Float32Array.from(rows, (row) => row[queries.inputs] as number) }),
  };
  return { key, value, rotated };
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

// Groups of key-value heads that become one head each, for `convertToGqa`.

/** The projection of heads [heads][width] over inputs, to which biases may be added as further inputs. */
interface HeadRows {
  /** Rows of all heads, one after the other. */
  readonly rows: readonly Float64Array[];
  /** How many of a row's numbers are of the matrix; the others are biases. */
  readonly inputs: number;
  readonly heads: number;
  readonly width: number;
}

/** Fewer heads, and how far those that they stand for are from them. */
interface SharedHeads {
  /** Rows of the remaining heads. */
  readonly rows: readonly Float64Array[];
  /** |stand-in - head| / |head| for each of the given heads: 0 without a difference, Infinity for a head of zeros. */
  readonly relativeError: Float32Array;
}

/** Replaces each group of consecutive heads by their mean, or by the first of them. Sums are in float64. */
function poolHeads(all: HeadRows, after: number, method: "mean" | "first"): SharedHeads {
  const { rows, width, heads } = all;
  const group = heads / after;
  const kept = Array.from({ length: after * width }, (_, output) => {
    const first = Math.floor(output / width) * group * width + (output % width);
    const row = (rows[first] as Float64Array).slice();
    if (method === "first") return row;
    for (let member = 1; member < group; member++)
      for (const [i, number] of (rows[first + member * width] as Float64Array).entries())
        row[i] = (row[i] as number) + number;
    return row.map((sum) => sum / group);
  });
  const standIn = (head: number, c: number) => kept[Math.floor(head / group) * width + c] as Float64Array;
  return { rows: kept, relativeError: errorsOf(all, standIn) };
}

/** Components of a head: those that may be transformed together, and the pairs that RoPE rotates. */
interface HeadParts {
  readonly plain: readonly number[];
  readonly pairs: readonly (readonly [number, number])[];
}

/** The components of a head of this width. */
function headParts(width: number, rope: RopeWithDim | undefined): HeadParts {
  const { start = 0, dim = 0, pairing } = rope ?? {};
  const pairs = Array.from({ length: dim / 2 }, (_, i) =>
    pairing === "half" ? ([start + i, start + i + dim / 2] as const) : ([start + 2 * i, start + 2 * i + 1] as const),
  );
  const components = Array.from({ length: width }, (_, c) => c);
  return { plain: components.filter((c) => c < start || c >= start + dim), pairs };
}

/** Heads that are linear functions of those of a group. */
interface SharedBasis extends SharedHeads {
  /** T [width, width] for each of the given heads: the head is about T times its stand-in. */
  readonly transforms: readonly Float64Array[];
}

/**
 * Replaces each group of heads A_i [width, inputs] by one head B, for which A_i is about T_i·B. Components without position take
 * the best B and T_i in the Frobenius norm, by a singular value decomposition of the group's stacked rows. A pair that RoPE
 * rotates counts as one complex component, since T_i must commute with its rotations, which complex numbers do; its B and
 * T_i are the best ones of this kind. T_i are as large as rotations.
 */
function shareBasis(all: HeadRows, after: number, { plain, pairs }: HeadParts): SharedBasis {
  const { rows, heads, width } = all;
  const group = heads / after;
  const columns = (rows[0] as Float64Array).length;
  const kept = Array.from({ length: after * width }, () => new Float64Array(columns));
  const transforms = Array.from({ length: heads }, () => new Float64Array(width * width));
  const size = Math.sqrt(group);
  for (let shared = 0; shared < after; shared++) {
    const first = shared * group;
    const rowOf = (member: number, c: number) => rows[(first + member) * width + c] as Float64Array;
    const members = Array.from({ length: group }, (_, member) => member);
    const scaled = (right: Float64Array, value: number, begin: number) =>
      right.slice(begin, begin + columns).map((number) => (number * value) / size);
    const set = (member: number, c: number, j: number, number: number) => {
      (transforms[first + member] as Float64Array)[c * width + j] = number * size;
    };

    const stacked = members.flatMap((member) => plain.map((c) => rowOf(member, c)));
    const { rank, values, left, right } = decompose(join(stacked, columns), stacked.length, columns);
    for (const [j, target] of plain.slice(0, rank).entries()) {
      kept[shared * width + target] = scaled(right, values[j] as number, j * columns);
      for (const member of members)
        for (const [i, c] of plain.entries())
          set(member, c, target, left[(member * plain.length + i) * rank + j] as number);
    }
    for (const [a, b] of pairs) {
      // Row a + i·b of complex numbers, and i times it, as real rows of twice the length.
      const turned = members.flatMap((member) => [
        join([rowOf(member, a), rowOf(member, b)], columns),
        join([rowOf(member, b).map((number) => -number), rowOf(member, a)], columns),
      ]);
      const { rank, values, left, right } = decompose(join(turned, 2 * columns), turned.length, 2 * columns);
      if (rank === 0) continue;
      kept[shared * width + a] = scaled(right, values[0] as number, 0);
      kept[shared * width + b] = scaled(right, values[0] as number, columns);
      for (const member of members) {
        const [real, imaginary] = [left[2 * member * rank] as number, -(left[(2 * member + 1) * rank] as number)];
        set(member, a, a, real);
        set(member, a, b, -imaginary);
        set(member, b, a, imaginary);
        set(member, b, b, real);
      }
    }
  }
  const standIn = (head: number, c: number) => {
    const row = new Float64Array(columns);
    const from = Math.floor(head / group) * width;
    for (let j = 0; j < width; j++) {
      const factor = (transforms[head] as Float64Array)[c * width + j] as number;
      if (factor !== 0) addRow(row, kept[from + j] as Float64Array, factor);
    }
    return row;
  };
  return { rows: kept, transforms, relativeError: errorsOf(all, standIn) };
}

/** For each head h, TᵀA of its rows A [width] where T is `transformOf(h)`, so that (TᵀA)ᵀ·B = Aᵀ·(T·B). */
function transformRows(
  rows: readonly Float64Array[],
  width: number,
  transformOf: (head: number) => Float64Array,
): Float64Array[] {
  return rows.map((row, output) => {
    const [head, j] = [Math.floor(output / width), output % width];
    const sum = new Float64Array(row.length);
    for (let c = 0; c < width; c++)
      addRow(sum, rows[head * width + c] as Float64Array, transformOf(head)[c * width + j] as number);
    return sum;
  });
}

function addRow(to: Float64Array, row: Float64Array, factor: number): void {
  for (let i = 0; i < to.length; i++) to[i] = (to[i] as number) + factor * (row[i] as number);
}

function join(rows: readonly Float64Array[], columns: number): Float64Array {
  const all = new Float64Array(rows.length * columns);
  for (const [r, row] of rows.entries()) all.set(row, r * columns);
  return all;
}

/** The relative error of each head, in the Frobenius norm of its matrix, biases not counted. */
function errorsOf(
  { rows, inputs, heads, width }: HeadRows,
  standIn: (head: number, c: number) => Float64Array,
): Float32Array {
  return Float32Array.from({ length: heads }, (_, head) => {
    let [lost, norm] = [0, 0];
    for (let c = 0; c < width; c++) {
      const own = (rows[head * width + c] as Float64Array).subarray(0, inputs);
      const other = standIn(head, c);
      lost += squaredNorm(own.map((number, i) => (other[i] as number) - number));
      norm += squaredNorm(own);
    }
    return lost === 0 ? 0 : Math.sqrt(lost / norm);
  });
}

// Rows of projections in float64, whatever their layout and dtype, for conversions.

/** Throws unless all numbers are finite. */
export function expectFiniteFloats(where: string, name: string, numbers: Float32Array | Float64Array): void {
  for (const number of numbers)
    if (!Number.isFinite(number)) throw new RangeError(`${where}: ${name} expected finite numbers, got ${number}`);
}

/** A matrix in float64. */
interface MatrixRows {
  readonly outputs: number;
  readonly inputs: number;
  /** A copy of the weights of one output, [inputs]. */
  readonly row: (output: number) => Float64Array;
}

/** Reads a matrix in any layout. */
export function readRows({ data, shape }: Tensor, layout: MatrixLayout): MatrixRows {
  const [first, second] = shape as [number, number];
  const [outputs, inputs] = layout === "out-in" ? [first, second] : [second, first];
  const [step, stride] = layout === "out-in" ? [1, inputs] : [outputs, 1];
  return {
    outputs,
    inputs,
    row(output) {
      const row = new Float64Array(inputs);
      for (let i = 0; i < inputs; i++) row[i] = data[output * stride + i * step] as number;
      return row;
    },
  };
}

/** Rows, one for each output, as a float32 matrix in a layout. */
export function writeRows(rows: readonly Float64Array[], inputs: number, layout: MatrixLayout): Tensor {
  const data = new Float32Array(rows.length * inputs);
  const outIn = layout === "out-in";
  for (const [output, row] of rows.entries())
    if (outIn) data.set(row, output * inputs);
    else for (let i = 0; i < inputs; i++) data[i * rows.length + output] = row[i] as number;
  return { data, shape: outIn ? [rows.length, inputs] : [inputs, rows.length] };
}

/** Σ x[i]². */
export function squaredNorm(numbers: Float64Array): number {
  let sum = 0;
  for (const number of numbers) sum += number * number;
  return sum;
}
