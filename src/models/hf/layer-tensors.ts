import { quantizedIn } from "../../files/safetensors/quantization.ts";
import type { SafetensorsFile } from "../../files/safetensors/safetensors.ts";
import { isBlockDtype, type StoredTensor, shapeText } from "../../tensor/dtypes.ts";
import { expectMatrix, type MatrixLayout, type WeightTensor } from "../../tensor/matrix.ts";
import { LARGEST_LENGTH, readShape } from "../../tensor/tensor.ts";
import { toFloats } from "../../tensor/to-floats.ts";
import { expectRecord, expectUint8Array } from "../../util/arguments.ts";
import { describe, HeadwiseError } from "../../util/errors.ts";
import { type Extra, type Family, findFamily, type TensorPart } from "./tensor-names.ts";

/** A matrix with its outputs and inputs, in any layout of the file. */
export interface Matrix {
  readonly name: string;
  readonly outputs: number;
  readonly inputs: number;
  /** As stored. */
  readonly tensor: WeightTensor;
}

/** The tensors of a layer by part. Matrices are required; other tensors may be absent. */
export interface Parts {
  readonly family: Family;
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
export function openParts(where: string, file: SafetensorsFile, prefix: string): Parts {
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
  const read = new Map<string, StoredTensor>();
  /**
   * The tensor; undefined if it is absent. Checked, since a file may also come from another reader, and its fields are read
   * once, because reading may run code of the caller's.
   */
  const find = (name: string | undefined): StoredTensor | undefined => {
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
