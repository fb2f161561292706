// The products and the table of a decoder as nodes of ONNX Runtime, their weights in a file beside the model.

import { basename } from "node:path";
import { FLOAT, INT8, type OnnxGraph, UINT8 } from "../onnx-graph.ts";
import { transposed } from "../transpose.ts";
import { FileWriter } from "./file-writer.ts";
import type { RandomWeights } from "./random-weights.ts";
import { BLOCK, toBytes, toNibbles } from "./rows.ts";
import type { TensorSpec } from "./shape.ts";

export type OnnxFormat = "fp32" | "q8" | "q4";

const MICROSOFT = "com.microsoft";
const TYPES = new Map<unknown, number>([
  [Float32Array, FLOAT],
  [Int8Array, INT8],
  [Uint8Array, UINT8],
]);

/** How matrices become nodes. */
export interface OnnxWeights {
  /** x · wᵀ for each matrix: they share what is done with x alone. */
  linears(x: string, matrices: readonly TensorSpec[]): string[];
  /** The rows of a table. */
  rows(ids: string, table: TensorSpec): string;
  /** x · tableᵀ. */
  head(x: string, table: TensorSpec): string;
  /** The tensor itself. */
  floats(tensor: TensorSpec): string;
}

/** Makes constants of a graph. */
export type Store = (values: Float32Array | Int8Array | Uint8Array, shape: readonly number[]) => string;

/** Constants in a file at `path`, beside the model. */
export function openExternal(graph: OnnxGraph, path: string): { readonly store: Store; close(): void } {
  const data = new FileWriter(path);
  return {
    store(values, shape) {
      data.pad(64);
      const [type, file, offset] = [TYPES.get(values.constructor)!, basename(path), data.length];
      data.write(values);
      return graph.external({ type, shape, file, offset, length: values.byteLength });
    },
    close: () => data.close(),
  };
}

export function onnxWeights(graph: OnnxGraph, format: OnnxFormat, weights: RandomWeights, store: Store): OnnxWeights {
  const products = { fp32: floatWeights, q8: byteWeights, q4: nibbleWeights }[format];
  return {
    floats: (tensor) => store(weights.read(tensor), tensor.shape),
    ...products(graph, weights, store),
  };
}

type Products = Pick<OnnxWeights, "linears" | "rows" | "head">;

/** One table serves for rows and head. */
function floatWeights(graph: OnnxGraph, weights: RandomWeights, store: Store): Products {
  let stored = "";
  return {
    linears: (x, matrices) =>
      matrices.map((matrix) => {
        const [n = 0, k = 0] = matrix.shape;
        return graph.node("MatMul", [x, store(transposed(weights.read(matrix), n, k), [k, n])])[0]!;
      }),
    rows(ids, table) {
      stored = store(weights.read(table), table.shape);
      return graph.node("Gather", [stored, ids])[0]!;
    },
    head: (x) => graph.node("Gemm", [x, stored], { transB: 1 })[0]!,
  };
}

/** int8 with a scale for each output, and activations of 8 bits with one scale, as dynamic quantisation makes them. */
function byteWeights(graph: OnnxGraph, weights: RandomWeights, store: Store): Products {
  const linears = (x: string, matrices: readonly TensorSpec[]) => {
    const [rows, rowScale, rowZero] = graph.node("DynamicQuantizeLinear", [x], {}, 3) as [string, string, string];
    return matrices.map((matrix) => {
      const [n = 0, k = 0] = matrix.shape;
      const { values, scales } = toBytes(weights.read(matrix), k);
      const [sums] = graph.node("MatMulInteger", [rows, store(transposed(values, n, k), [k, n]), rowZero]);
      const [factors] = graph.node("Mul", [rowScale, store(scales, [n])]);
      const [floats] = graph.node("Cast", [sums!], { to: FLOAT });
      return graph.node("Mul", [floats!, factors!])[0]!;
    });
  };
  return {
    linears,
    rows(ids, table) {
      const { values, scales } = toBytes(weights.read(table), table.shape[1]!);
      const [integers] = graph.node("Gather", [store(values, table.shape), ids]);
      const [floats] = graph.node("Cast", [integers!], { to: FLOAT });
      const [factors] = graph.node("Gather", [store(scales, [scales.length, 1]), ids]);
      return graph.node("Mul", [floats!, factors!])[0]!;
    },
    head: (x, table) => linears(x, [table])[0]!,
  };
}

/** 4 bits with a scale for each block of 32, and activations of 8 bits with a scale for each block. */
function nibbleWeights(graph: OnnxGraph, weights: RandomWeights, store: Store): Products {
  const packed = ({ shape, ...tensor }: TensorSpec) => {
    const [n = 0, k = 0] = shape;
    const { values, scales } = toNibbles(weights.read({ ...tensor, shape }));
    const bytes = new Uint8Array(values.length / 2);
    for (let i = 0; i < bytes.length; i++) bytes[i] = (values[2 * i]! + 8) | ((values[2 * i + 1]! + 8) << 4);
    return { n, k, bytes, scales };
  };
  const linear = (x: string, matrix: TensorSpec) => {
    const { n, k, bytes, scales } = packed(matrix);
    const inputs = [x, store(bytes, [n, k / BLOCK, BLOCK / 2]), store(scales, [scales.length])];
    const attributes = { K: k, N: n, bits: 4, block_size: BLOCK, accuracy_level: 4 };
    return graph.node("MatMulNBits", inputs, attributes, 1, MICROSOFT)[0]!;
  };
  return {
    linears: (x, matrices) => matrices.map((matrix) => linear(x, matrix)),
    rows(ids, table) {
      const { n, k, bytes, scales } = packed(table);
      const inputs = [store(bytes, [n, k / 2]), ids, store(scales, [n, k / BLOCK])];
      const attributes = { bits: 4, block_size: BLOCK, gather_axis: 0, quantize_axis: 1 };
      return graph.node("GatherBlockQuantized", inputs, attributes, 1, MICROSOFT)[0]!;
    },
    head: linear,
  };
}
