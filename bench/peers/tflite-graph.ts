// TensorFlow Lite models, written field by field: schema.fbs of TensorFlow gives the numbers. A table's fields are slots
// in the order in which the schema lists them.

import { Builder } from "flatbuffers";

const FLOAT32 = 0;
const FLOAT16 = 1;
const INT32 = 2;
const INT8 = 9;
const INT4 = 17;
/** The member of the union of quantization details that has a scale for each block. */
const BLOCKWISE = 2;
const NO_TENSOR = -1;
/** The first buffer is empty: the tensor is not a constant. */
const EMPTY = 0;
const SCHEMA_VERSION = 3;

export const OPERATORS = {
  ADD: 0,
  CONCATENATION: 2,
  FULLY_CONNECTED: 9,
  MUL: 18,
  RESHAPE: 22,
  SOFTMAX: 25,
  TRANSPOSE: 39,
  SLICE: 65,
  BATCH_MATMUL: 126,
} as const;
type Operator = keyof typeof OPERATORS;

/** Codes above this are only in the newer of the two code fields. */
const LARGEST_OLD_CODE = 127;

/** The options of an operator: the member of the union, and a function that writes its fields. */
interface Options {
  readonly type: number;
  write(builder: Builder): number;
}

export const softmaxOptions = (beta: number): Options => ({
  type: 9,
  write(builder) {
    builder.startObject(1);
    builder.addFieldFloat32(0, beta, 0);
    return builder.endObject();
  },
});
export const fullyConnectedOptions: Options = { type: 8, write: empty };
export const concatenationOptions = (axis: number): Options => ({
  type: 10,
  write(builder) {
    builder.startObject(2);
    builder.addFieldInt32(0, axis, 0);
    return builder.endObject();
  },
});
export const addOptions: Options = { type: 11, write: empty };
export const mulOptions: Options = { type: 21, write: empty };
export const batchMatMulOptions = (transposeB: boolean): Options => ({
  type: 101,
  write(builder) {
    builder.startObject(3);
    builder.addFieldInt8(1, Number(transposeB), 0);
    return builder.endObject();
  },
});

function empty(builder: Builder): number {
  builder.startObject(0);
  return builder.endObject();
}

/** The data of a constant: float16 as its bits, bytes as pairs of 4-bit integers. */
type Data = Float32Array | Int32Array | Int8Array | Uint8Array | Uint16Array;

function typeOf(data: Data | undefined): number {
  if (data instanceof Int32Array) return INT32;
  if (data instanceof Int8Array) return INT8;
  if (data instanceof Uint8Array) return INT4;
  return data instanceof Uint16Array ? FLOAT16 : FLOAT32;
}

/** Scales of integers: one for each index of the first dimension, or a tensor of one for each block along the last. */
export type Scales = Float32Array | { readonly block: number; readonly scales: LiteTensor };

/** A tensor of a graph under construction. */
export interface LiteTensor {
  readonly index: number;
  readonly shape: readonly number[];
}

interface Node {
  readonly operator: Operator;
  readonly inputs: readonly number[];
  readonly output: number;
  readonly options: Options | undefined;
}

export class LiteGraph {
  readonly #tensors: {
    readonly shape: readonly number[];
    readonly data: Data | undefined;
    readonly scales: Scales | undefined;
  }[] = [];
  readonly #nodes: Node[] = [];

  tensor(shape: readonly number[], data?: Data, scales?: Scales): LiteTensor {
    return { index: this.#tensors.push({ shape, data, scales }) - 1, shape };
  }

  node(operator: Operator, inputs: readonly LiteTensor[], shape: readonly number[], options?: Options): LiteTensor {
    const output = this.tensor(shape);
    this.#nodes.push({ operator, inputs: inputs.map(({ index }) => index), output: output.index, options });
    return output;
  }

  model(inputs: readonly LiteTensor[], outputs: readonly LiteTensor[]): Uint8Array {
    const weights = this.#tensors.reduce((sum, { data }) => sum + (data?.byteLength ?? 0) + 16, 0);
    const builder = new Builder(weights + 65_536);
    const list = (offsets: readonly number[]) => {
      builder.startVector(4, offsets.length, 4);
      for (const offset of offsets.toReversed()) builder.addOffset(offset);
      return builder.endVector();
    };
    const ints = (values: readonly number[]) => {
      builder.startVector(4, values.length, 4);
      for (const value of values.toReversed()) builder.addInt32(value);
      return builder.endVector();
    };

    const buffers = [writeBuffer(builder, undefined)];
    const tensors = this.#tensors.map(({ shape, data, scales }, i) => {
      const buffer = data ? buffers.push(writeBuffer(builder, data)) - 1 : EMPTY;
      const [dims, name] = [ints(shape), builder.createString(`t${i}`)];
      const quantization = scales ? writeScales(builder, scales) : 0;
      builder.startObject(5);
      builder.addFieldOffset(0, dims, 0);
      builder.addFieldInt8(1, typeOf(data), FLOAT32);
      builder.addFieldInt32(2, buffer, 0);
      builder.addFieldOffset(3, name, 0);
      builder.addFieldOffset(4, quantization, 0);
      return builder.endObject();
    });
    const used = [...new Set(this.#nodes.map(({ operator }) => operator))];
    const nodes = this.#nodes.map(({ operator, inputs: read, output, options }) => {
      const [reads, writes, rest] = [ints(read), ints([output]), options?.write(builder) ?? 0];
      builder.startObject(5);
      builder.addFieldInt32(0, used.indexOf(operator), 0);
      builder.addFieldOffset(1, reads, 0);
      builder.addFieldOffset(2, writes, 0);
      builder.addFieldInt8(3, options?.type ?? 0, 0);
      builder.addFieldOffset(4, rest, 0);
      return builder.endObject();
    });
    const codes = used.map((operator) => {
      const code = OPERATORS[operator];
      builder.startObject(4);
      builder.addFieldInt8(0, Math.min(code, LARGEST_OLD_CODE), 0);
      builder.addFieldInt32(2, 1, 1);
      builder.addFieldInt32(3, code, 0);
      return builder.endObject();
    });

    const parts = [
      list(tensors),
      ints(inputs.map(({ index }) => index)),
      ints(outputs.map(({ index }) => index)),
      list(nodes),
    ];
    builder.startObject(5);
    parts.forEach((part, slot) => {
      builder.addFieldOffset(slot, part, 0);
    });
    const graph = list([builder.endObject()]);
    const [allCodes, allBuffers] = [list(codes), list(buffers)];
    builder.startObject(5);
    builder.addFieldInt32(0, SCHEMA_VERSION, 0);
    builder.addFieldOffset(1, allCodes, 0);
    builder.addFieldOffset(2, graph, 0);
    builder.addFieldOffset(4, allBuffers, 0);
    builder.finish(builder.endObject(), "TFL3");
    return builder.asUint8Array();
  }
}

/** QuantizationParameters; zero points are 0. */
function writeScales(builder: Builder, scales: Scales): number {
  if (scales instanceof Float32Array) {
    builder.startVector(4, scales.length, 4);
    for (const scale of scales.toReversed()) builder.addFloat32(scale);
    const factors = builder.endVector();
    builder.startVector(8, scales.length, 8);
    for (let i = 0; i < scales.length; i++) builder.addInt64(0n);
    const zeros = builder.endVector();
    builder.startObject(7);
    builder.addFieldOffset(2, factors, 0);
    builder.addFieldOffset(3, zeros, 0);
    return builder.endObject();
  }
  builder.startObject(3);
  builder.addFieldInt32(0, scales.scales.index, 0);
  builder.addFieldInt32(1, NO_TENSOR, 0);
  builder.addFieldInt32(2, scales.block, 0);
  const details = builder.endObject();
  builder.startObject(7);
  builder.addFieldInt8(4, BLOCKWISE, 0);
  builder.addFieldOffset(5, details, 0);
  return builder.endObject();
}

/** Data is aligned to 16 bytes, as the schema requires. */
function writeBuffer(builder: Builder, data: Data | undefined): number {
  let vector = 0;
  if (data) {
    builder.prep(16, data.byteLength);
    vector = builder.createByteVector(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
  }
  builder.startObject(1);
  builder.addFieldOffset(0, vector, 0);
  return builder.endObject();
}
