import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { CompiledModel, Tensor } from "@litertjs/core";
import { halves, nibbles } from "../int-matrix.ts";
import { fileOf, versionOf } from "../packages.ts";
import type { Peer, Prepared } from "../peer.ts";
import { graphWays, type Ops, type Program } from "../program.ts";
import {
  addOptions,
  batchMatMulOptions,
  concatenationOptions,
  fullyConnectedOptions,
  LiteGraph,
  type LiteTensor,
  mulOptions,
  softmaxOptions,
} from "../tflite-graph.ts";
import type { IntegerProduct } from "../works.ts";

let litert: typeof import("@litertjs/core");

function liteOps(graph: LiteGraph): Ops<LiteTensor> {
  const known = new Map<Float32Array, LiteTensor>();
  const constant = (data: Float32Array, shape: readonly number[]) => {
    const tensor = known.get(data) ?? graph.tensor(shape, data);
    known.set(data, tensor);
    return tensor;
  };
  const ints = (values: readonly number[]) => graph.tensor([values.length], Int32Array.from(values));
  return {
    constant,
    dense(x, w, outputs, width, bias) {
      const inputs = [x, constant(w, [outputs, width]), ...(bias ? [constant(bias, [outputs])] : [])];
      return graph.node("FULLY_CONNECTED", inputs, [x.shape[0]!, outputs], fullyConnectedOptions);
    },
    reshape: (x, shape) => graph.node("RESHAPE", [x, ints(shape)], shape),
    transpose: (x, order) =>
      graph.node(
        "TRANSPOSE",
        [x, ints(order)],
        order.map((from) => x.shape[from]!),
      ),
    matmul(a, b, transposeB) {
      const columns = b.shape[transposeB ? 1 : 2]!;
      return graph.node("BATCH_MATMUL", [a, b], [a.shape[0]!, a.shape[1]!, columns], batchMatMulOptions(transposeB));
    },
    add: (a, b) => graph.node("ADD", [a, b], a.shape, addOptions),
    mul: (a, b) => graph.node("MUL", [a, b], a.shape, mulOptions),
    softmax: (x) => graph.node("SOFTMAX", [x], x.shape, softmaxOptions(1)),
    slice(x, shape, axis, begin, end) {
      const from = shape.map((_, i) => (i === axis ? begin : 0));
      const size = shape.map((all, i) => (i === axis ? end - begin : all));
      return graph.node("SLICE", [x, ints(from), ints(size)], size);
    },
    concat(parts, axis) {
      const shape = parts[0]!.shape.map((size, i) =>
        i === axis ? parts.reduce((sum, part) => sum + part.shape[axis]!, 0) : size,
      );
      return graph.node("CONCATENATION", parts, shape, concatenationOptions(axis));
    },
  };
}

function prepare(program: Program): Promise<Prepared> {
  const graph = new LiteGraph();
  const inputs = program.inputs.map(({ shape }) => graph.tensor(shape));
  return start(graph.model(inputs, program.build(liteOps(graph), inputs)), program.inputs);
}

/** Float activations, of which each row is quantised during the run, and integer weights. */
function prepareIntegers({ m, n, k, x, w }: IntegerProduct): Promise<Prepared> {
  const graph = new LiteGraph();
  const input = graph.tensor([m, k]);
  const blocks = k / w.block;
  const scales = blocks === 1 ? w.scales : { block: w.block, scales: graph.tensor([n, blocks], halves(w.scales)) };
  const weights = graph.tensor([n, k], w.bits === 4 ? nibbles(w, 0) : w.values, scales);
  const y = graph.node("FULLY_CONNECTED", [input, weights], [m, n], fullyConnectedOptions);
  return start(graph.model([input], [y]), [{ data: x, shape: [m, k] }]);
}

async function start(bytes: Uint8Array, inputs: Program["inputs"]): Promise<Prepared> {
  const model: CompiledModel = await litert.loadAndCompile(bytes, {
    accelerator: "wasm",
    cpuOptions: { numThreads: 1 },
  });
  const place = ({ data, shape }: Program["inputs"][number]) => new litert.Tensor(data, [...shape]);
  const [first, ...kept] = inputs;
  const cache = kept.map(place);
  let y = new Float32Array();
  return {
    async run() {
      const x = place(first!);
      const outputs: Tensor[] = await model.run([x, ...cache]);
      y = outputs[0]!.toTypedArray() as Float32Array<ArrayBuffer>;
      for (const tensor of [x, ...outputs]) tensor.delete();
    },
    output: () => y,
    release() {
      model.delete();
      for (const tensor of cache) tensor.delete();
    },
  };
}

/**
 * LiteRT loads its code with a script tag or importScripts, and only then detects Node, where it reads files. These globals
 * imitate a worker while it loads, and are removed afterwards so that no other peer detects a worker.
 */
async function load(): Promise<void> {
  const host = globalThis as Record<string, unknown>;
  const require = createRequire(import.meta.url);
  const globals: Record<string, unknown> = {
    self: globalThis,
    ModuleFactory: undefined,
    // It prints a line for every model as if it were an error.
    Module: { printErr: (line: string) => line.startsWith("ERROR") && console.error(line) },
    // It warns that there is no WebGPU, which is not used here.
    console: { ...console, warn() {} },
    importScripts(path: string) {
      // The file is CommonJS in a package whose files count as modules.
      const module = { exports: {} };
      const folder = path.slice(0, path.lastIndexOf("/"));
      new Function("module", "exports", "require", "__filename", "__dirname", readFileSync(path, "utf8"))(
        module,
        module.exports,
        require,
        path,
        folder,
      );
      host.ModuleFactory = module.exports;
    },
  };
  const before = Object.keys(globals).map((name) => [name, Object.getOwnPropertyDescriptor(host, name)] as const);
  for (const [name, value] of Object.entries(globals))
    Object.defineProperty(host, name, { value, configurable: true, writable: true });
  try {
    litert = await import("@litertjs/core");
    await litert.loadLiteRt(fileOf("@litertjs/core", "wasm/"), { threads: false });
  } finally {
    for (const [name, descriptor] of before) {
      if (descriptor) Object.defineProperty(host, name, descriptor);
      else delete host[name];
    }
  }
}

export const peer: Peer = {
  name: "LiteRT",
  version: versionOf("@litertjs/core"),
  column: 2,
  load,
  ways(work) {
    if (work.kind !== "integer product") return graphWays(work, prepare);
    return [{ name: "plain", prepare: () => prepareIntegers(work) }];
  },
  shipped: {
    source: 'export { loadAndCompile, loadLiteRt, Tensor } from "@litertjs/core";',
    assets: [
      fileOf("@litertjs/core", "wasm/litert_wasm_internal.js"),
      fileOf("@litertjs/core", "wasm/litert_wasm_internal.wasm"),
    ],
  },
};
