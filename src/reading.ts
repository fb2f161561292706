import { describe, HeadwiseError } from "./errors.ts";
import { type Extra, type Family, findFamily, type Part } from "./families.ts";
import type { SafetensorsFile } from "./safetensors.ts";
import { shapeText, toFloats } from "./stored.ts";
import type { Tensor } from "./tensor.ts";
import type { AttentionWeights, WeightsConfig } from "./weights.ts";

/** A matrix as the layer sees it, whatever its layout in the file. */
interface Matrix {
  readonly name: string;
  readonly outputs: number;
  readonly inputs: number;
  /** As stored. */
  readonly tensor: Tensor;
}

/** The tensors of one layer by their part. A matrix must be there; other tensors may be absent. */
export interface Layer {
  readonly family: Family;
  matrix(part: Part): Matrix;
  bias(part: Part, length: number): Float32Array | undefined;
  extra(part: Extra, rule: string, fits: (length: number) => boolean): Float32Array | undefined;
  fail(text: string): never;
  /** Throws: the matrix should have had so many outputs and inputs, and why. */
  refuse(matrix: Matrix, outputs: number, inputs: number, because: string): never;
}

export function openLayer(where: string, file: SafetensorsFile, prefix: string): Layer {
  const fail = (text: string): never => {
    throw new HeadwiseError("BAD_FILE", `${where}: ${text}`);
  };
  const { family, root } = findFamily(where, [...file.tensors.keys()], prefix);
  const { weights, biases = {}, extras = {}, layout } = family;
  const find = (name: string | undefined) => (name === undefined ? undefined : file.tensors.get(root + name));
  const turn = (outputs: number, inputs: number) => (layout === "out-in" ? [outputs, inputs] : [inputs, outputs]);
  const vector = (name: string | undefined, rule: string, fits: (length: number) => boolean) => {
    const tensor = find(name);
    if (tensor === undefined) return undefined;
    // PyTorch stores bias_k and bias_v as [1, 1, n].
    const length = tensor.shape.at(-1) ?? 0;
    if (
      length === 0 ||
      !fits(length) ||
      tensor.shape.some((side, axis) => axis < tensor.shape.length - 1 && side !== 1)
    )
      fail(`tensor ${describe(tensor.name)} expected shape ${rule}, got ${shapeText(tensor.shape)}`);
    return toFloats(tensor, where);
  };
  for (const group of family.together ?? []) {
    const present = group.filter((part) => find(biases[part]) !== undefined);
    const absent = group.find((part) => !present.includes(part));
    if (present[0] !== undefined && absent !== undefined)
      fail(
        `tensor ${describe(root + biases[absent])} expected beside ${describe(root + biases[present[0]])}, as in ` +
          `${family.title}, got none`,
      );
  }
  return {
    family,
    fail,
    matrix: (part) => {
      const tensor = find(weights[part])!;
      const { name, shape } = tensor;
      const [rows = 0, columns = 0] = shape;
      if (shape.length !== 2 || rows === 0 || columns === 0)
        fail(`tensor ${describe(name)} expected a matrix with no empty side, got shape ${shapeText(shape)}`);
      const [outputs, inputs] = turn(rows, columns) as [number, number];
      return { name, outputs, inputs, tensor: { data: toFloats(tensor, where), shape: [rows, columns] } };
    },
    bias: (part, length) => vector(biases[part], `[${length}]`, (n) => n === length),
    extra: (part, rule, fits) => vector(extras[part], rule, fits),
    refuse: ({ name, tensor }, outputs, inputs, because) =>
      fail(
        `tensor ${describe(name)} expected shape ${shapeText(turn(outputs, inputs))} ${because}, ` +
          `got ${shapeText(tensor.shape)}`,
      ),
  };
}

/** Outputs of q, k and v. */
interface Widths {
  readonly q: number;
  readonly k: number;
  readonly v: number;
}

type Inputs = Pick<AttentionWeights, "wq" | "wk" | "wv" | "wqkv" | "bq" | "bk" | "bv" | "bqkv"> & {
  readonly widths: Widths;
};

/** Reads the tensors of an opened layer and compares them with each other and with what is given of `config`. */
export function readLayer(where: string, layer: Layer, config: WeightsConfig): AttentionWeights {
  const { family, extra, fail } = layer;
  const { numHeads } = config;
  const o = layer.matrix("o");
  const { widths, ...inputs } =
    family.weights.qkv === undefined ? readSeparate(layer, o) : readFused(where, layer, o, config);
  checkHeads(layer, o, widths, config);
  const headDim = config.headDim ?? (numHeads === undefined ? undefined : widths.q / numHeads);
  const isGain = (width: number) => (n: number) =>
    n === width || (headDim === undefined ? width % n === 0 : n === headDim);
  const isHeads = (n: number) => (numHeads === undefined ? widths.q % n === 0 : n === numHeads);
  const pair = (first: Extra, second: Extra, a: Float32Array | undefined, b: Float32Array | undefined) => {
    if ((a === undefined) === (b === undefined)) return;
    const names = [family.extras?.[first], family.extras?.[second]].map(describe);
    fail(`${names.join(" and ")} expected both or neither, got ${names[a === undefined ? 1 : 0]}`);
  };
  const qNorm = extra("qNorm", `[${headDim ?? "headDim"}] or [${widths.q}]`, isGain(widths.q));
  const kNorm = extra("kNorm", `[${headDim ?? "headDim"}] or [${widths.k}]`, isGain(widths.k));
  pair("qNorm", "kNorm", qNorm, kNorm);
  const biasK = extra("biasK", `[1, 1, ${widths.k}]`, (n) => n === widths.k);
  const biasV = extra("biasV", `[1, 1, ${widths.v}]`, (n) => n === widths.v);
  pair("biasK", "biasV", biasK, biasV);
  const sinkLogits = extra("sinkLogits", `[${numHeads ?? "numHeads"}]`, isHeads);
  const { layout } = family;
  return { ...inputs, wo: o.tensor, bo: layer.bias("o", o.outputs), qNorm, kNorm, sinkLogits, biasK, biasV, layout };
}

function readSeparate(layer: Layer, o: Matrix): Inputs {
  const { family, refuse } = layer;
  const q = layer.matrix("q");
  const k = layer.matrix("k");
  const v = layer.matrix("v");
  const dModel = q.inputs;
  if (o.outputs !== dModel) refuse(o, dModel, o.inputs, `for the ${dModel} inputs of ${describe(q.name)}`);
  for (const each of family.ownKdim ? [] : [k, v])
    if (each.inputs !== dModel) refuse(each, each.outputs, dModel, `beside ${describe(q.name)}`);
  if (family.rows === "equal")
    for (const each of [q, k, v]) if (each.outputs !== dModel) refuse(each, dModel, each.inputs, `in ${family.title}`);
  const widths = { q: q.outputs, k: k.outputs, v: v.outputs };
  const fusedBias = layer.bias("qkv", widths.q + widths.k + widths.v);
  return {
    widths,
    wq: q.tensor,
    wk: k.tensor,
    wv: v.tensor,
    bq: fusedBias?.slice(0, widths.q) ?? layer.bias("q", widths.q),
    bk: fusedBias?.slice(widths.q, widths.q + widths.k) ?? layer.bias("k", widths.k),
    bv: fusedBias?.slice(widths.q + widths.k) ?? layer.bias("v", widths.v),
  };
}

function readFused(where: string, layer: Layer, o: Matrix, config: WeightsConfig): Inputs {
  const { family, refuse } = layer;
  const qkv = layer.matrix("qkv");
  const q = o.inputs;
  const because = `beside ${describe(o.name)} ${shapeText(o.tensor.shape)}`;
  if (family.rows === "equal" && (qkv.outputs !== 3 * q || qkv.inputs !== o.outputs))
    refuse(qkv, 3 * q, o.outputs, because);
  if (qkv.inputs !== o.outputs) refuse(qkv, qkv.outputs, o.outputs, because);
  // Values are as wide as keys in every fused family, so the outputs beyond q's are two equal halves.
  const k = (qkv.outputs - q) / 2;
  if (!Number.isInteger(k) || k <= 0 || q % k !== 0)
    refuse(qkv, 3 * q, o.outputs, `(or fewer rows for shared keys and values) ${because}`);
  const widths = { q, k, v: k };
  const bias = layer.bias("qkv", qkv.outputs);
  const { tensor } = qkv;

  const order = config.fused ?? (family.rows === "either" && config.numKvHeads !== 1 ? undefined : "qkv");
  if (order === undefined)
    throw new RangeError(
      `${where}: config.fused expected "qkv" or "grouped", since files of ${family.title} do not say, got undefined`,
    );
  if (order === "qkv") return { widths, wqkv: tensor, bqkv: bias };
  if (family.rows === "equal")
    throw new RangeError(`${where}: config.fused expected "qkv" for ${family.title}, got "grouped"`);
  const numKvHeads = config.numKvHeads ?? config.numHeads;
  if (numKvHeads === undefined || k % numKvHeads !== 0)
    throw new RangeError(
      `${where}: config.numKvHeads expected a divisor of ${k}, the outputs of keys in ${describe(qkv.name)}, ` +
        `got ${describe(numKvHeads)}`,
    );
  const part = (data: Float32Array, inputs: number) =>
    ungroup(data, numKvHeads, q / numKvHeads, k / numKvHeads, inputs);
  const [wq, wk, wv] = part(tensor.data, qkv.inputs);
  const [bq, bk, bv] = bias === undefined ? [] : part(bias, 1);
  return {
    widths,
    wq: { data: wq, shape: [q, qkv.inputs] },
    wk: { data: wk, shape: [k, qkv.inputs] },
    wv: { data: wv, shape: [k, qkv.inputs] },
    bq,
    bk,
    bv,
  };
}

/** Rows [groups][qRows of q, kvRows of k, kvRows of v] to the rows of q, of k and of v. */
function ungroup(
  data: Float32Array,
  groups: number,
  qRows: number,
  kvRows: number,
  inputs: number,
): [Float32Array, Float32Array, Float32Array] {
  let from = 0;
  const heights = [qRows, kvRows, kvRows];
  const parts = heights.map((rows) => new Float32Array(groups * rows * inputs));
  for (let group = 0; group < groups; group++)
    for (const [index, rows] of heights.entries()) {
      parts[index]!.set(data.subarray(from, from + rows * inputs), group * rows * inputs);
      from += rows * inputs;
    }
  return parts as [Float32Array, Float32Array, Float32Array];
}

/** numHeads / numKvHeads must be the same whole number for keys and values, and the heads those of the configuration. */
function checkHeads(layer: Layer, o: Matrix, widths: Widths, config: WeightsConfig): void {
  const { fail } = layer;
  const outputs = `outputs of q, k and v [${widths.q}, ${widths.k}, ${widths.v}] and inputs of o [${o.inputs}]`;
  const name = describe(o.name);
  if (widths.q % widths.k !== 0 || widths.v * (widths.q / widths.k) !== o.inputs)
    fail(`tensors beside ${name} expected heads of q that share those of k and v evenly, got ${outputs}`);
  const { numHeads, numKvHeads, headDim } = config;
  const wrong = (rule: string) => fail(`tensors beside ${name} expected ${rule}, got ${outputs}`);
  const group = widths.q / widths.k;
  if (numHeads !== undefined) {
    if (widths.q !== numHeads * (headDim ?? widths.q / numHeads) || widths.q % numHeads !== 0)
      wrong(`numHeads ${numHeads}${headDim === undefined ? "" : ` of headDim ${headDim}`}`);
    if (o.inputs % numHeads !== 0 || numHeads % group !== 0) wrong(`numHeads ${numHeads}`);
    if (numKvHeads !== undefined && numKvHeads * group !== numHeads)
      wrong(`numHeads ${numHeads} and numKvHeads ${numKvHeads}`);
  }
  if (headDim !== undefined && widths.k % headDim !== 0) wrong(`a multiple of headDim ${headDim}`);
  if (numKvHeads !== undefined && (widths.k % numKvHeads !== 0 || widths.v % numKvHeads !== 0))
    wrong(`numKvHeads ${numKvHeads}`);
}
