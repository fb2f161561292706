// The weights of a layer in safetensors, by the names of each family.

import { isBlockDtype, type StoredTensor, shapeText, toFloats } from "../../base/tensor/dtypes.ts";
import { expectMatrix, type MatrixLayout, type WeightTensor } from "../../base/tensor/matrix.ts";
import { LARGEST_LENGTH, readShape } from "../../base/tensor/tensor.ts";
import { expectInt, expectOneOf, expectRecord, expectUint8Array, readFields } from "../../base/util/arguments.ts";
import { describe, HeadwiseError, tagOf } from "../../base/util/errors.ts";
import { quantizedIn, readSafetensors, type SafetensorsFile } from "../../files/safetensors/safetensors.ts";
import { type AttentionConfig, CONFIG_FIELDS, FUSED_ORDERS } from "../../layers/attention/config.ts";
import type { AttentionWeights } from "../../layers/attention/weights.ts";
import { present } from "../families/facts.ts";
import { type AttentionNames, type Extra, findFamily, type TensorPart } from "../families/tensor-names.ts";

/**
 * The file that a reader of weights was given: bytes, or a file whose tensors are read. `where` is the reader, and `ofGguf`
 * the one for opened GGUF files.
 */
export function readSource(
  where: string,
  source: Uint8Array | ArrayBuffer | SafetensorsFile,
  ofGguf: string,
): SafetensorsFile {
  const { tensors, metadata, readAll } = Object(source) as Partial<SafetensorsFile> & { readonly readAll?: unknown };
  if (tagOf(tensors) !== "Map") return readSafetensors(source as Uint8Array, where);
  if (readAll !== undefined)
    throw new TypeError(
      `${where}: source expected { metadata, tensors } with the tensors that readAll resolves with, got an opened file ` +
        `(of one that openGguf opened, ${ofGguf} reads a layer)`,
    );
  if (tagOf(metadata) !== "Map")
    throw new TypeError(`${where}: source.metadata expected a Map, got ${describe(metadata)}`);
  return { tensors, metadata } as SafetensorsFile;
}

/** A matrix with its outputs and inputs, in any layout of the file. */
export interface Matrix {
  readonly name: string;
  readonly outputs: number;
  readonly inputs: number;
  /** As stored. */
  readonly tensor: WeightTensor;
}

/** The tensors of a layer by part. Matrices are required; other tensors may be absent. */
interface Parts {
  readonly family: AttentionNames;
  matrix(part: TensorPart): Matrix;
  bias(part: TensorPart, length: number): Float32Array | undefined;
  extra(part: Extra, rule: string, fits: (length: number) => boolean): Float32Array | undefined;
  fail(text: string): never;
  /** Throws: the matrix was expected to have these numbers of outputs and inputs; `because` is the reason. */
  refuse(matrix: Matrix, outputs: number, inputs: number, because: string): never;
}

/** The tensors of a layer by the rest of their names. */
interface LayerTensors {
  fail(text: string): never;
  /** The tensor; undefined if it is absent. */
  find(name: string | undefined): StoredTensor | undefined;
  /** A matrix that is present. */
  matrix(name: string): Matrix;
  /** A vector whose length `fits`, which `rule` describes; undefined if it is absent. */
  vector(name: string | undefined, rule: string, fits: (length: number) => boolean): Float32Array | undefined;
}

/** Whether a tensor is kept as stored, in 16 bits per element. */
const isHalf = ({ dtype }: StoredTensor) => dtype === "F16" || dtype === "BF16";

/** Finds the tensors of the layer below a prefix. Biases are present all or not at all, in the groups of the family. */
function openParts(where: string, file: SafetensorsFile, prefix: string): Parts {
  const { family, root } = findFamily(where, [...file.tensors.keys()], prefix);
  const { weights, biases = {}, extras = {}, layout } = family;
  const { fail, find, matrix, vector } = tensorsBelow(where, file, root, layout, family.title);
  const expectBeside = (present: TensorPart | undefined, absent: TensorPart | undefined): void => {
    if (present !== undefined && absent !== undefined)
      fail(
        `tensor ${describe(root + biases[absent])} expected beside ${describe(root + biases[present])}, as in ` +
          `${family.title}, got none`,
      );
  };
  const isPresent = (part: TensorPart) => find(biases[part]) !== undefined;
  for (const group of family.together ?? [])
    expectBeside(
      group.find(isPresent),
      group.find((part) => !isPresent(part)),
    );
  const [bias, needed] = family.needs ?? [];
  if (bias !== undefined && isPresent(bias)) expectBeside(bias, isPresent(needed as TensorPart) ? undefined : needed);
  return {
    family,
    fail,
    matrix: (part) => matrix(weights[part] as string),
    bias: (part, length) => vector(biases[part], `[${length}]`, (n) => n === length),
    extra: (part, rule, fits) => vector(extras[part], rule, fits),
    refuse: ({ name, tensor }, outputs, inputs, because) =>
      fail(
        `tensor ${describe(name)} expected shape ${shapeText(layout === "out-in" ? [outputs, inputs] : [inputs, outputs])} ` +
          `${because}, got ${shapeText(tensor.shape)}`,
      ),
  };
}

/**
 * Finds a tensor by the rest of its name; undefined if it is absent. Checked, since a file may also come from another reader, and
 * its fields are read once, because reading may run code of the caller's.
 */
function finderOf(where: string, file: SafetensorsFile, root: string): LayerTensors["find"] {
  const read = new Map<string, StoredTensor>();
  return (name) => {
    if (name === undefined || !file.tensors.has(root + name)) return undefined;
    const known = read.get(name);
    if (known !== undefined) return known;
    const tensor = file.tensors.get(root + name) as StoredTensor;
    const what = `tensor ${describe(root + name)}`;
    expectRecord(where, what, tensor);
    const { dtype, shape: sides, bytes: held } = tensor;
    const shape = readShape(where, what, sides, LARGEST_LENGTH);
    // The tensors of an opened file have a number of bytes.
    const rule = typeof held === "number" ? "Uint8Array, as in what readAll resolves with" : undefined;
    const found = { name: root + name, dtype, shape, bytes: expectUint8Array(where, `${what}.bytes`, held, rule) };
    read.set(name, found);
    return found;
  };
}

/** The tensors whose names begin with `root`, by the rest of the name. `title` is that of their family. */
export function tensorsBelow(
  where: string,
  file: SafetensorsFile,
  root: string,
  layout: MatrixLayout,
  title: string,
): LayerTensors {
  const fail = (text: string): never => {
    throw new HeadwiseError("BAD_FILE", `${where}: ${text}`);
  };
  const quantized = quantizedIn(where, file.metadata);
  const find = finderOf(where, file, root);
  return {
    fail,
    find,
    matrix(part) {
      const stored = find(part)!;
      const { bytes } = stored;
      const tensor = { ...quantized(stored, bytes.length), bytes };
      const { name, shape } = tensor;
      const what = `tensor ${describe(name)}`;
      const [rows = 0, columns = 0] = shape;
      if (shape.length !== 2 || rows === 0 || columns === 0)
        fail(`${what} expected a matrix with no empty side, got shape ${shapeText(shape)}`);
      const inBlocks = isBlockDtype(tensor.dtype);
      if (inBlocks && layout === "in-out")
        fail(`${what} expected floats in ${title}, whose matrices are [in, out], got ${tensor.dtype}`);
      const [outputs, inputs] = layout === "out-in" ? [rows, columns] : [columns, rows];
      if (!inBlocks && !isHalf(tensor))
        return { name, outputs, inputs, tensor: { data: toFloats(tensor, where), shape: [rows, columns] } };
      expectMatrix(where, what, tensor, layout);
      return { name, outputs, inputs, tensor };
    },
    vector(name, rule, fits) {
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
    },
  };
}

/** What `readAttentionWeights` cannot derive from the shapes of the tensors. */
export type WeightsConfig = Partial<Pick<AttentionConfig, "numHeads" | "numKvHeads" | "headDim" | "rope">> & {
  /** Row order of a fused projection: "qkv" is all q, all k, all v; "grouped" is q, k and v of each key-value head. */
  readonly fused?: "qkv" | "grouped";
};

const WHERE = "readAttentionWeights";

/**
 * Reads the weights of one attention layer of a safetensors file, by the tensor names and layouts of PyTorch's
 * nn.MultiheadAttention, of the models that `fromHfConfig` knows (docs/guide/models.md), of the original files of Llama and Mistral,
 * of diffusers, and of modules with usual names (docs/guide/weights.md). Matrices are as stored: rows of q and k are for the
 * pairing of RoPE that the file was made for, which is "interleaved" in the original files of Llama and Mistral (wq, wk, wv, wo).
 *
 * Matrices of F16, BF16, Q8_0 and Q4_0 keep their encoding (`toFloats` widens it); F64 becomes float32. Aligned F32 is not
 * copied: the weights are views of the file. Vectors become float32. The relative position bias of T5 is not a weight of the
 * layer: pass it as the option `bias` of `attend`. The result has no fields for tensors that the file does not have.
 * @param prefix What the names of the layer's tensors begin with, such as "model.layers.0.self_attn." (with or without the
 * last dot).
 * @param config The configuration, which the shapes are compared with as far as it is given. Falcon, GPT-NeoX, BLOOM and
 * InternLM2 need `numHeads` and `fused` (or `numKvHeads: 1`), because their files do not contain the row order. `fromHfConfig`
 * gives both. `rope.pairing`, where it is given, must be that of the names, if these determine it.
 * @throws TypeError or RangeError naming the argument. HeadwiseError `BAD_FILE` for a file that breaks the format, names that
 * are not recognised (the message lists those found) or are those of two families, a missing tensor, shapes that contradict each
 * other, and layers with further tensors that would change the result.
 * @example
 * import { readAttentionWeights, writeSafetensors } from "headwise/weights";
 * const square = { data: new Float32Array(16), shape: [4, 4] };
 * const bytes = writeSafetensors(
 *   Object.fromEntries(["q", "k", "v", "o"].map((part) => [`layers.0.${part}_proj.weight`, square])),
 * );
 * console.log(readAttentionWeights(bytes, "layers.0.").wq?.shape); // [ 4, 4 ]
 */
export function readAttentionWeights(
  source: Uint8Array | ArrayBuffer | SafetensorsFile,
  prefix = "",
  config: WeightsConfig = {},
): AttentionWeights {
  if (typeof prefix !== "string") throw new TypeError(`${WHERE}: prefix expected a string, got ${describe(prefix)}`);
  const given: WeightsConfig = readFields(
    WHERE,
    "config",
    config as Partial<AttentionConfig> & WeightsConfig,
    CONFIG_FIELDS,
  );
  for (const name of ["numHeads", "numKvHeads", "headDim"] as const)
    if (given[name] !== undefined) expectInt(WHERE, `config.${name}`, given[name]);
  const { numHeads, numKvHeads, fused } = given;
  if (fused !== undefined) expectOneOf(WHERE, "config.fused", fused, FUSED_ORDERS);
  if (numHeads !== undefined && numKvHeads !== undefined && numHeads % numKvHeads !== 0)
    throw new RangeError(
      `${WHERE}: config.numHeads expected a multiple of config.numKvHeads (${numKvHeads}), got ${numHeads}`,
    );
  const parts = openParts(WHERE, readSource(WHERE, source, "readGgufLayer"), prefix);
  expectPairing(parts, given.rope?.pairing);
  return readLayer(parts, given);
}

/** Throws if RoPE would pair rows of q and k otherwise than these files do. Without `rope` there is nothing to compare. */
function expectPairing({ family }: Parts, pairing: unknown): void {
  if (family.pairing === undefined || pairing === undefined || pairing === family.pairing) return;
  throw new RangeError(
    `${WHERE}: config.rope.pairing expected ${describe(family.pairing)}, as in ${family.title} (leave rope out for weights ` +
      `whose rows were permuted), got ${describe(pairing)}`,
  );
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

/** Reads the tensors of a layer and checks them against each other and against the given fields of `config`. */
function readLayer(parts: Parts, config: WeightsConfig): AttentionWeights {
  const { family, extra, fail } = parts;
  const { numHeads } = config;
  const o = parts.matrix("o");
  const { widths, ...inputs } = family.weights.qkv === undefined ? readSeparate(parts, o) : readFused(parts, o, config);
  checkHeads(parts, o, widths, config);
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
  const bo = parts.bias("o", o.outputs);
  return present({ ...inputs, wo: o.tensor, bo, qNorm, kNorm, sinkLogits, biasK, biasV, layout }) as AttentionWeights;
}

function readSeparate(parts: Parts, o: Matrix): Inputs {
  const { family, refuse } = parts;
  const q = parts.matrix("q");
  const k = parts.matrix("k");
  const v = parts.matrix("v");
  const dModel = q.inputs;
  if (o.outputs !== dModel) refuse(o, dModel, o.inputs, `for the ${dModel} inputs of ${describe(q.name)}`);
  for (const each of family.ownKdim ? [] : [k, v])
    if (each.inputs !== dModel) refuse(each, each.outputs, dModel, `beside ${describe(q.name)}`);
  if (family.rows === "equal")
    for (const each of [q, k, v]) if (each.outputs !== dModel) refuse(each, dModel, each.inputs, `in ${family.title}`);
  const widths = { q: q.outputs, k: k.outputs, v: v.outputs };
  const fusedBias = parts.bias("qkv", widths.q + widths.k + widths.v);
  return {
    widths,
    wq: q.tensor,
    wk: k.tensor,
    wv: v.tensor,
    bq: fusedBias?.slice(0, widths.q) ?? parts.bias("q", widths.q),
    bk: fusedBias?.slice(widths.q, widths.q + widths.k) ?? parts.bias("k", widths.k),
    bv: fusedBias?.slice(widths.q + widths.k) ?? parts.bias("v", widths.v),
  };
}

function readFused(parts: Parts, o: Matrix, config: WeightsConfig): Inputs {
  const { family, refuse } = parts;
  const qkv = parts.matrix("qkv");
  const q = o.inputs;
  const because = `beside ${describe(o.name)} ${shapeText(o.tensor.shape)}`;
  if (family.rows === "equal" && (qkv.outputs !== 3 * q || qkv.inputs !== o.outputs))
    refuse(qkv, 3 * q, o.outputs, because);
  if (qkv.inputs !== o.outputs) refuse(qkv, qkv.outputs, o.outputs, because);
  // In every fused family, values are as wide as keys: the outputs after those of q are two equal halves.
  const k = (qkv.outputs - q) / 2;
  if (!Number.isInteger(k) || k <= 0 || q % k !== 0)
    refuse(qkv, 3 * q, o.outputs, `(or fewer rows for shared keys and values) ${because}`);
  const widths = { q, k, v: k };
  const bias = parts.bias("qkv", qkv.outputs);
  const { tensor } = qkv;

  const order = config.fused ?? (family.rows === "either" && config.numKvHeads !== 1 ? undefined : "qkv");
  if (order === undefined)
    throw new RangeError(
      `${WHERE}: config.fused expected "qkv" or "grouped", since files of ${family.title} do not contain it, got undefined`,
    );
  if (order === "qkv") return { widths, wqkv: tensor, bqkv: bias };
  if (family.rows === "equal")
    throw new RangeError(`${WHERE}: config.fused expected "qkv" for ${family.title}, got "grouped"`);
  const numKvHeads = config.numKvHeads ?? config.numHeads;
  if (numKvHeads === undefined || k % numKvHeads !== 0)
    throw new RangeError(
      `${WHERE}: config.numKvHeads expected a divisor of ${k}, the outputs of keys in ${describe(qkv.name)}, ` +
        `got ${describe(numKvHeads)}`,
    );
  const heights = [q, k, k].map((rows) => rows / numKvHeads);
  const [bq, bk, bv] = bias === undefined ? [] : ungroup(bias, numKvHeads, heights);
  const matrix = (data: Float32Array | Uint8Array, i: number): WeightTensor => {
    const shape = [numKvHeads * (heights[i] as number), qkv.inputs];
    return "dtype" in tensor ? { ...tensor, shape, bytes: data as Uint8Array } : { data: data as Float32Array, shape };
  };
  const rows: Float32Array | Uint8Array = "dtype" in tensor ? tensor.bytes : tensor.data;
  const [wq, wk, wv] = ungroup(rows, numKvHeads, heights).map(matrix);
  return {
    ...{ widths, wq, wk, wv },
    ...{ bq, bk, bv },
  };
}

/**
 * Splits rows [groups][heights[0] of q, heights[1] of k, heights[2] of v], of any length, into those of q, of k and of
 * v.
 */
function ungroup<T extends Float32Array | Uint8Array>(data: T, groups: number, heights: readonly number[]): T[] {
  const width = data.length / (groups * heights.reduce((sum, rows) => sum + rows, 0));
  const copyOf = (length: number) => (data.BYTES_PER_ELEMENT === 4 ? new Float32Array(length) : new Uint8Array(length));
  const parts = heights.map((rows) => copyOf(groups * rows * width) as T);
  let from = 0;
  for (let group = 0; group < groups; group++)
    for (const [index, rows] of heights.entries()) {
      parts[index]!.set(data.subarray(from, from + rows * width), group * rows * width);
      from += rows * width;
    }
  return parts;
}

/**
 * Checks that numHeads / numKvHeads is the same integer for keys and values, and that heads match the configuration.
 */
function checkHeads(parts: Parts, o: Matrix, widths: Widths, config: WeightsConfig): void {
  const { fail } = parts;
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
