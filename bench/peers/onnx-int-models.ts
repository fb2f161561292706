// Products with integer weights, in the operators of ONNX Runtime.

import { type Integers, nibbles } from "./int-matrix.ts";
import { FLOAT, OnnxGraph } from "./onnx-graph.ts";
import type { Model } from "./program.ts";
import { transposed } from "./transpose.ts";
import type { IntegerProduct } from "./works.ts";

/** The largest block that MatMulNBits accepts. */
const LARGEST_BLOCK = 256;

/** Activations of 8 bits, one scale for all rows; one scale for each output. `offset` 128 makes the weights unsigned. */
function quantizedModel({ m, k, x, w }: IntegerProduct, offset: 0 | 128): Model {
  const graph = new OnnxGraph();
  const input = graph.input([m, k]);
  const [rows, rowScale, rowZero] = graph.node("DynamicQuantizeLinear", [input], {}, 3);
  const values = offset === 0 ? w.values : Uint8Array.from(w.values, (value) => value + offset);
  const weights = graph.constant(transposed(values, w.rows, w.columns), [w.columns, w.rows]);
  const zero = offset === 0 ? [] : [graph.constant(Uint8Array.of(offset), [])];
  const [sums] = graph.node("MatMulInteger", [rows!, weights, rowZero!, ...zero]);
  const [scales] = graph.node("Mul", [rowScale!, graph.constant(w.scales, [w.rows])]);
  const [floats] = graph.node("Cast", [sums!], { to: FLOAT });
  return { bytes: graph.model(graph.node("Mul", [floats!, scales!])), inputs: [{ data: x, shape: [m, k] }] };
}

/** com.microsoft.MatMulNBits. Accuracy level 1 computes in float32, 4 with activations of 8 bits, a scale for each block. */
function blockModel({ m, k, x, w }: IntegerProduct, level: 1 | 4): Model {
  const { bits, rows, columns } = w;
  const block = Math.min(w.block, LARGEST_BLOCK);
  const graph = new OnnxGraph();
  const input = graph.input([m, k]);
  const bytes = bits === 4 ? nibbles(w, 8) : Uint8Array.from(w.values, (value) => value + 128);
  const blocks = columns / block;
  const weights = graph.constant(bytes, [rows, blocks, (block * bits) / 8]);
  const scales = graph.constant(repeatedScales(w, block), [rows * blocks]);
  const attributes = { K: columns, N: rows, bits, block_size: block, accuracy_level: level };
  const y = graph.node("MatMulNBits", [input, weights, scales], attributes, 1, "com.microsoft");
  return { bytes: graph.model(y), inputs: [{ data: x, shape: [m, k] }] };
}

/** The scales of smaller blocks, of which each is a part of one of the matrix. */
function repeatedScales({ scales, block: own }: Integers, block: number): Float32Array {
  const times = own / block;
  return Float32Array.from({ length: scales.length * times }, (_, i) => scales[Math.floor(i / times)]!);
}

/** The name of each way, and its model. Unsigned weights are for processors on which signed ones overflow. */
export function integerModels(work: IntegerProduct): (readonly [string, () => Model])[] {
  const blocks = ([1, 4] as const).map(
    (level) => [`MatMulNBits, accuracy level ${level}`, () => blockModel(work, level)] as const,
  );
  if (work.w.bits === 4) return blocks;
  return [
    ["MatMulInteger", () => quantizedModel(work, 0)],
    ["MatMulInteger, unsigned weights", () => quantizedModel(work, 128)],
    ...blocks,
  ];
}
