// The works that peers are compared on. Inputs come from a seeded generator, so that all peers get the same on every machine.

import { layerFlops } from "../lib/flops.ts";
import { randomFloats } from "../lib/random.ts";
import { decodePasts, gpt2Layer, type LayerShape, type LinearShape, linearShapes, llamaLayer } from "../lib/shapes.ts";
import { dense, rotate } from "./float64.ts";
import { type Integers, makeIntegers } from "./int-matrix.ts";

/** A layer's shape and its weights, [outputs, inputs] row-major. */
export interface Layer {
  readonly dModel: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly ropeTheta: number | undefined;
  readonly wq: Float32Array;
  readonly wk: Float32Array;
  readonly wv: Float32Array;
  readonly wo: Float32Array;
  readonly bq: Float32Array | undefined;
  readonly bk: Float32Array | undefined;
  readonly bv: Float32Array | undefined;
  readonly bo: Float32Array | undefined;
}

/** y [m, n] = x [m, k] · w [n, k]ᵀ, where w may be prepared in advance. */
export interface Product {
  readonly kind: "product";
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly x: Float32Array;
  readonly w: Float32Array;
}

/** The same with integer weights [n, k]. */
export interface IntegerProduct {
  readonly kind: "integer product";
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly x: Float32Array;
  readonly w: Integers;
  /** Activations of headwise: 14 bits (exact) or 7 (fast). Peers have 8 bits or float32. */
  readonly activations: "exact" | "fast";
}

/** y [qLen, dModel] of a whole layer on x [qLen, dModel], causal. */
export interface Block {
  readonly kind: "block";
  readonly layer: Layer;
  readonly qLen: number;
  readonly x: Float32Array;
}

/** One query [numHeads, headDim] over keys and values [numKvHeads, kvLen, headDim], without projections. */
export interface Core {
  readonly kind: "core";
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly kvLen: number;
  readonly q: Float32Array;
  readonly k: Float32Array;
  readonly v: Float32Array;
}

/** y [1, dModel] of a whole layer on one token, after `past` tokens whose keys and values are [numKvHeads, past, headDim]. */
export interface Step {
  readonly kind: "step";
  readonly layer: Layer;
  readonly past: number;
  readonly x: Float32Array;
  /** [past, dModel]: the tokens that pastK and pastV come from. */
  readonly pastX: Float32Array;
  readonly pastK: Float32Array;
  readonly pastV: Float32Array;
}

/** The works in float32, which plain operations can do. */
export type FloatWork = Product | Block | Core | Step;

export type Work = FloatWork | IntegerProduct;

export interface WorkRow {
  readonly name: string;
  /** Also measured by --quick. */
  readonly quick: boolean;
  /** Useful floating-point operations. */
  readonly flops: number;
  make(): Work;
}

/** A row of the table that is also run in a process of its own, for its startup time and memory. */
export interface ChildWork {
  readonly name: string;
  make(): Block;
}

/** Weights about as large as trained ones, so that softmax is neither flat nor one-hot. */
function makeLayer({ dModel, numHeads, numKvHeads, bias, ropeTheta }: LayerShape): Layer {
  const headDim = dModel / numHeads;
  const kvWidth = numKvHeads * headDim;
  const matrix = (outputs: number, seed: number) => randomFloats(outputs * dModel, seed, Math.sqrt(9 / dModel));
  const vector = (length: number, seed: number) => (bias ? randomFloats(length, seed) : undefined);
  return {
    ...{ dModel, numHeads, numKvHeads, headDim, ropeTheta },
    ...{ wq: matrix(dModel, 2), wk: matrix(kvWidth, 3), wv: matrix(kvWidth, 4), wo: matrix(dModel, 5) },
    ...{ bq: vector(dModel, 6), bk: vector(kvWidth, 7), bv: vector(kvWidth, 8), bo: vector(dModel, 9) },
  };
}

function makeBlock(shape: LayerShape, qLen: number): Block {
  return { kind: "block", layer: makeLayer(shape), qLen, x: randomFloats(qLen * shape.dModel, 1) };
}

function makeCore({ dModel, numHeads, numKvHeads }: LayerShape, kvLen: number): Core {
  const headDim = dModel / numHeads;
  const keys = numKvHeads * kvLen * headDim;
  const sizes = { numHeads, numKvHeads, headDim, kvLen };
  return { kind: "core", ...sizes, q: randomFloats(dModel, 1, 4), k: randomFloats(keys, 2), v: randomFloats(keys, 3) };
}

function makeStep(shape: LayerShape, past: number): Step {
  const layer = makeLayer(shape);
  const { dModel, numKvHeads, headDim, ropeTheta } = layer;
  const pastX = randomFloats(past * dModel, 10);
  const byHead = (w: Float32Array, rotated: boolean) => {
    const data = new Float32Array(numKvHeads * past * headDim);
    for (let t = 0; t < past; t++) {
      const row = dense(pastX.subarray(t * dModel, (t + 1) * dModel), w, undefined, dModel);
      if (rotated && ropeTheta !== undefined) rotate(row, t, headDim, ropeTheta);
      for (let h = 0; h < numKvHeads; h++)
        data.set(row.subarray(h * headDim, (h + 1) * headDim), (h * past + t) * headDim);
    }
    return data;
  };
  const [pastK, pastV] = [byHead(layer.wk, true), byHead(layer.wv, false)];
  return { kind: "step", layer, past, x: randomFloats(dModel, 1), pastX, pastK, pastV };
}

/** One token and a prompt through a projection of Llama 2 7B. */
const projections: readonly LinearShape[] = [
  { m: 1, n: 4096, k: 4096 },
  { m: 128, n: 4096, k: 4096 },
];

/** A few tokens at a time, as of small batches and short drafts. */
const fewTokens: readonly LinearShape[] = [2, 4, 8, 12].map((m) => ({ m, n: 4096, k: 4096 }));

const products: readonly WorkRow[] = linearShapes
  .filter(({ m }) => m >= 128)
  .concat(projections, fewTokens)
  .map(({ m, n, k }) => ({
    name: `product ${m}x${n}x${k}`,
    quick: m === 128 && k < 4096,
    flops: 2 * m * n * k,
    make: () => ({ kind: "product", m, n, k, x: randomFloats(m * k, 1), w: randomFloats(n * k, 2) }),
  }));

/** With a scale for `block` inputs. */
function integerProducts(bits: 4 | 8, block: number, activations: readonly IntegerProduct["activations"][], note = "") {
  return projections.flatMap(({ m, n, k }) =>
    activations.map((activation) => ({
      name: `q${bits} product ${m}x${n}x${k}${note}${activation === "fast" ? ", fast" : ""}`,
      quick: m === 1 && bits === 8,
      flops: 2 * m * n * k,
      make(): IntegerProduct {
        const w = makeIntegers(bits, n, k, Math.min(block, k), 2);
        return { kind: "integer product", m, n, k, x: randomFloats(m * k, 1), w, activations: activation };
      },
    })),
  );
}

const blockName = (kind: string, qLen: number) => `${kind} block, ${qLen} tokens`;

const blocks = (shape: LayerShape, kind: string): readonly WorkRow[] =>
  shape.prompts.map((qLen) => ({
    name: blockName(kind, qLen),
    quick: qLen === 128,
    flops: layerFlops(shape, qLen),
    make: () => makeBlock(shape, qLen),
  }));

const cores: readonly WorkRow[] = decodePasts.map((kvLen) => ({
  name: `decode core, ${kvLen} keys`,
  quick: kvLen === 1024,
  flops: 4 * llamaLayer.dModel * kvLen,
  make: () => makeCore(llamaLayer, kvLen),
}));

const steps: readonly WorkRow[] = decodePasts.map((past) => ({
  name: `decode step, past ${past}`,
  quick: past === 128,
  flops: layerFlops(llamaLayer, 1, past),
  make: () => makeStep(llamaLayer, past),
}));

/** All works, in the order of the table. */
export const workRows: readonly WorkRow[] = [
  ...products,
  ...integerProducts(8, Infinity, ["exact", "fast"]),
  ...integerProducts(4, 32, ["exact", "fast"]),
  ...integerProducts(4, Infinity, ["exact"], ", a scale an output"),
  ...blocks(gpt2Layer, "MHA"),
  ...blocks(llamaLayer, "GQA"),
  ...cores,
  ...steps,
];

/** The works for startup time and memory: the shortest and the longest block of GPT-2 small. */
export const [firstWork, largeWork] = [gpt2Layer.prompts[0]!, gpt2Layer.prompts.at(-1)!].map((qLen) => ({
  name: blockName("MHA", qLen),
  make: () => makeBlock(gpt2Layer, qLen),
})) as [ChildWork, ChildWork];
