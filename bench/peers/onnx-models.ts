// The ONNX models of all works, and the sessions that run them, for both builds of ONNX Runtime.

import type { InferenceSession, Tensor } from "onnxruntime-common";
import { OnnxGraph } from "./onnx-graph.ts";
import { integerModels } from "./onnx-int-models.ts";
import type { Prepared, Way } from "./peer.ts";
import { graphWays, type Model, type Ops, type Program } from "./program.ts";
import { transposed } from "./transpose.ts";
import type { Block, Layer, Step, Work } from "./works.ts";

/** The part of the API that is used here; both packages export it under the same names. */
export interface Runtime {
  readonly InferenceSession: {
    create(model: Uint8Array, options: InferenceSession.SessionOptions): Promise<InferenceSession>;
  };
  readonly Tensor: new (type: "float32", data: Float32Array, shape: readonly number[]) => Tensor;
}

const OPTIONS: InferenceSession.SessionOptions = {
  graphOptimizationLevel: "all",
  executionMode: "sequential",
  intraOpNumThreads: 1,
  interOpNumThreads: 1,
  logSeverityLevel: 3,
};

/** Operations that add nodes to a graph. An array becomes one constant, however often it is used. */
function onnxOps(graph: OnnxGraph): Ops<string> {
  const known = new Map<Float32Array, string>();
  const op = (name: string, inputs: readonly string[], attributes = {}) => graph.node(name, inputs, attributes)[0]!;
  const constant = (data: Float32Array, shape: readonly number[]) => {
    const name = known.get(data) ?? graph.constant(data, shape);
    known.set(data, name);
    return name;
  };
  return {
    constant,
    dense(x, w, outputs, width, bias) {
      const weights = graph.constant(transposed(w, outputs, width), [width, outputs]);
      return bias ? op("Gemm", [x, weights, constant(bias, [outputs])]) : op("MatMul", [x, weights]);
    },
    reshape: (x, shape) => op("Reshape", [x, graph.sizes(shape)]),
    transpose: (x, order) => op("Transpose", [x], { perm: order }),
    // ONNX Runtime fuses the two nodes.
    matmul: (a, b, transposeB) => op("MatMul", [a, transposeB ? op("Transpose", [b], { perm: [0, 2, 1] }) : b]),
    add: (a, b) => op("Add", [a, b]),
    mul: (a, b) => op("Mul", [a, b]),
    softmax: (x) => op("Softmax", [x], { axis: -1 }),
    slice: (x, _shape, axis, begin, end) =>
      op("Slice", [x, graph.sizes([begin]), graph.sizes([end]), graph.sizes([axis])]),
    concat: (parts, axis) => op("Concat", parts, { axis }),
  };
}

export function plainModel(program: Program): Model {
  const graph = new OnnxGraph();
  const inputs = program.inputs.map(({ shape }) => graph.input(shape));
  return { bytes: graph.model(program.build(onnxOps(graph), inputs)), inputs: program.inputs };
}

/** com.microsoft.Attention, an operator of x and the weights of q, k, v. */
function attentionModel({ layer, qLen, x }: Block): Model {
  const { dModel, numHeads, wq, wk, wv, wo, bq, bk, bv, bo } = layer;
  const graph = new OnnxGraph();
  const ops = onnxOps(graph);
  const input = graph.input([1, qLen, dModel]);
  const joined = new Float32Array([...[wq, wk, wv]].reduce((sum, w) => sum + w.length, 0));
  [wq, wk, wv].forEach((w, i) => {
    joined.set(w, i * w.length);
  });
  const weights = graph.constant(transposed(joined, 3 * dModel, dModel), [dModel, 3 * dModel]);
  const bias = new Float32Array(3 * dModel);
  [bq, bk, bv].forEach((b, i) => {
    if (b) bias.set(b, i * dModel);
  });
  const inputs = [input, weights, graph.constant(bias, [3 * dModel])];
  const [heads] = graph.node("Attention", inputs, { num_heads: numHeads, unidirectional: 1 }, 1, "com.microsoft");
  const y = ops.dense(ops.reshape(heads!, [qLen, dModel]), wo, dModel, dModel, bo);
  return { bytes: graph.model([y]), inputs: [{ data: x, shape: [1, qLen, dModel] }] };
}

/** The angles' cosines, or sines, of positions up to `end`: [end, headDim / 2]. */
function angles({ headDim, ropeTheta = 1 }: Layer, end: number, of: (angle: number) => number): Float32Array {
  const half = headDim / 2;
  return Float32Array.from({ length: end * half }, (_, i) =>
    of(Math.floor(i / half) * ropeTheta ** (-(i % half) / half)),
  );
}

/** com.microsoft.GroupQueryAttention, the operator for grouped queries with rotary embedding and a cache. */
function groupedModel(
  layer: Layer,
  tokens: number,
  past: number,
  x: Float32Array,
  cache: readonly Float32Array[],
): Model {
  const { dModel, numHeads, numKvHeads, headDim, wq, wk, wv, wo } = layer;
  const graph = new OnnxGraph();
  const ops = onnxOps(graph);
  const input = graph.input([tokens, dModel]);
  const rows = (w: Float32Array) => {
    const outputs = w.length / dModel;
    return ops.reshape(ops.dense(input, w, outputs, dModel), [1, tokens, outputs]);
  };
  const total = past + tokens;
  const cacheShape = [1, numKvHeads, past, headDim];
  const before = cache.length > 0 ? [graph.input(cacheShape), graph.input(cacheShape)] : ["", ""];
  const table = (of: (angle: number) => number) => graph.constant(angles(layer, total, of), [total, headDim / 2]);
  const lengths = [graph.constant(Int32Array.of(total - 1), [1]), graph.constant(Int32Array.of(total), [])];
  const inputs = [rows(wq), rows(wk), rows(wv), ...before, ...lengths, table(Math.cos), table(Math.sin)];
  const attributes = { num_heads: numHeads, kv_num_heads: numKvHeads, do_rotary: 1 };
  const [heads, ...present] = graph.node("GroupQueryAttention", inputs, attributes, 3, "com.microsoft");
  const y = ops.dense(ops.reshape(heads!, [tokens, dModel]), wo, dModel, dModel);
  return {
    bytes: graph.model(cache.length > 0 ? [y, ...present] : [y]),
    inputs: [{ data: x, shape: [tokens, dModel] }, ...cache.map((data) => ({ data, shape: cacheShape }))],
  };
}

/** The attention of a long prompt in the standard's own operator, which stores a score for each pair of tokens. */
export function longModel(tokens: number, heads: number, headDim: number): Model {
  const graph = new OnnxGraph();
  const shape = [1, heads, tokens, headDim];
  const data = new Float32Array(tokens * heads * headDim).fill(0.1);
  const inputs = [graph.input(shape), graph.input(shape), graph.input(shape)];
  const [y] = graph.node("Attention", inputs, { is_causal: 1 });
  return { bytes: graph.model([y!]), inputs: inputs.map(() => ({ data, shape })) };
}

export async function startSession(runtime: Runtime, { bytes, inputs }: Model): Promise<Prepared> {
  const session = await runtime.InferenceSession.create(bytes, OPTIONS);
  const feeds = Object.fromEntries(
    inputs.map(({ data, shape }, i) => [session.inputNames[i]!, new runtime.Tensor("float32", data, shape)]),
  );
  let y = new Float32Array();
  return {
    async run() {
      const results = await session.run(feeds);
      y = results[session.outputNames[0]!]!.data as Float32Array<ArrayBuffer>;
    },
    output: () => y,
    release: () => session.release(),
  };
}

/** The ways of both builds: plain operations, and the fused operators if there is one for the work. */
export function onnxWays(runtime: Runtime, work: Work, copiesInputs: boolean): Way[] {
  const way = (name: string, model: () => Model): Way => ({ name, prepare: () => startSession(runtime, model()) });
  if (work.kind === "integer product") return integerModels(work).map(([name, model]) => way(name, model));
  const ways = graphWays(work, (program) => startSession(runtime, plainModel(program)), copiesInputs);
  if (work.kind === "block") ways.push(fusedWay(work, way));
  if (work.kind === "step") ways.push(way("GroupQueryAttention", () => groupedStep(work)));
  return ways;
}

function fusedWay(work: Block, way: (name: string, model: () => Model) => Way): Way {
  const { layer, qLen, x } = work;
  if (layer.numKvHeads === layer.numHeads) return way("Attention", () => attentionModel(work));
  return way("GroupQueryAttention", () => groupedModel(layer, qLen, 0, x, []));
}

function groupedStep({ layer, past, x, pastK, pastV }: Step): Model {
  return groupedModel(layer, 1, past, x, [pastK, pastV]);
}
