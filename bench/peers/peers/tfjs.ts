import type { Tensor, Tensor2D, Tensor3D } from "@tensorflow/tfjs-core";
import { fileOf, versionOf } from "../packages.ts";
import type { Peer, Prepared } from "../peer.ts";
import { graphWays, NO_INTEGERS, type Ops, type Program } from "../program.ts";

const FEW_ROWS = 8;

let tf: typeof import("@tensorflow/tfjs-core");

/** Operations run when they are called. Constants are kept until the work is released. */
function tfOps(constants: Map<Float32Array, Tensor>): Ops<Tensor> {
  const constant = (data: Float32Array, shape: readonly number[]) => {
    const known = constants.get(data) ?? tf.keep(tf.tensor(data, [...shape]));
    constants.set(data, known);
    return known;
  };
  return {
    constant,
    dense(x, w, outputs, width, bias) {
      let weights = constants.get(w);
      if (!weights) {
        weights = tf.tidy(() => tf.keep(tf.transpose(tf.tensor2d(w, [outputs, width]))));
        constants.set(w, weights);
      }
      const [a, b] = [x as Tensor2D, weights as Tensor2D];
      return bias ? tf.fused.matMul({ a, b, bias: constant(bias, [outputs]) }) : tf.matMul(a, b);
    },
    reshape: (x, shape) => tf.reshape(x, [...shape]),
    transpose: (x, order) => tf.transpose(x, [...order]),
    matmul(a, b, transposeB) {
      // Only a product without batches and transposition has a fast kernel. For many rows a transposition in advance pays.
      const first = transposeB && a.shape[0] === 1 && a.shape[1]! > FEW_ROWS;
      const right = first ? tf.transpose(b, [0, 2, 1]) : b;
      return tf.matMul(a as Tensor3D, right as Tensor3D, false, transposeB && !first);
    },
    add: (a, b) => tf.add(a, b),
    mul: (a, b) => tf.mul(a, b),
    softmax: (x) => tf.softmax(x),
    slice: (x, shape, axis, begin, end) =>
      tf.slice(
        x,
        shape.map((_, i) => (i === axis ? begin : 0)),
        shape.map((size, i) => (i === axis ? end - begin : size)),
      ),
    concat: (parts, axis) => tf.concat([...parts], axis),
  };
}

/** Only the answer is read; the new keys and values stay in the library's memory, where a next step needs them. */
function prepare(program: Program): Prepared {
  const constants = new Map<Float32Array, Tensor>();
  const ops = tfOps(constants);
  // x is copied from JavaScript at each run, the cache is already in the library's memory.
  const [first, ...kept] = program.inputs;
  const cache = kept.map(({ data, shape }) => tf.keep(tf.tensor(data, [...shape])));
  let y = new Float32Array();
  return {
    run() {
      tf.tidy(() => {
        const x = tf.tensor(first!.data, [...first!.shape]);
        y = program.build(ops, [x, ...cache])[0]!.dataSync<"float32">() as Float32Array<ArrayBuffer>;
      });
    },
    output: () => y,
    release() {
      for (const tensor of [...constants.values(), ...cache]) tensor.dispose();
    },
  };
}

export const peer: Peer = {
  name: "tfjs-wasm",
  version: versionOf("@tensorflow/tfjs-backend-wasm"),
  column: 3,
  async load() {
    tf = await import("@tensorflow/tfjs-core");
    await import("@tensorflow/tfjs-backend-wasm");
    tf.env().set("WASM_HAS_MULTITHREAD_SUPPORT", false);
    await tf.setBackend("wasm");
    tf.enableProdMode();
  },
  ways: (work) => (work.kind === "integer product" ? NO_INTEGERS : graphWays(work, prepare)),
  shipped: {
    source: [
      'export { matMul, fused, softmax, tensor } from "@tensorflow/tfjs-core";',
      'export { setWasmPaths } from "@tensorflow/tfjs-backend-wasm";',
    ].join("\n"),
    assets: [fileOf("@tensorflow/tfjs-backend-wasm", "dist/tfjs-backend-wasm-simd.wasm")],
  },
};
