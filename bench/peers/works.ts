// What is compared. Inputs come from seeds, so that every contender on every machine gets the same ones.

import { fill } from "../case.ts";
import { type BlockShape, decodePasts, gpt2Block, type LinearShape, linearShapes, llamaBlock } from "../shapes.ts";
import { type Integers, makeIntegers } from "./integers.ts";
import { dense, rotate } from "./reference.ts";

/** A layer's weights, [outputs, inputs] row-major, and what else its shape says. */
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

/** y [m, n] = x [m, k] · w [n, k]ᵀ, w known beforehand. */
export interface Product {
  readonly kind: "product";
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly x: Float32Array;
  readonly w: Float32Array;
}

/** The same with weights [n, k] that are kept as integers. */
export interface IntegerProduct {
  readonly kind: "integer product";
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly x: Float32Array;
  readonly w: Integers;
  /** Which activations headwise is asked for; peers have 8 bits or float32. */
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

/** What plain operations on float32 do. */
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

/** A row of the table that a process of its own works on too. */
export interface ChildWork {
  readonly name: string;
  make(): Block;
}

function floats(length: number, seed: number, scale = 1): Float32Array {
  const data = new Float32Array(length);
  fill(data, seed);
  return scale === 1 ? data : data.map((value) => value * scale);
}

/** Weights as large as trained ones are, so that softmax is neither flat nor one-hot. */
function makeLayer({ dModel, numHeads, numKvHeads, bias, ropeTheta }: BlockShape): Layer {
  const headDim = dModel / numHeads;
  const kvWidth = numKvHeads * headDim;
  const matrix = (outputs: number, seed: number) => floats(outputs * dModel, seed, Math.sqrt(9 / dModel));
  const vector = (length: number, seed: number) => (bias ? floats(length, seed) : undefined);
  return {
    ...{ dModel, numHeads, numKvHeads, headDim, ropeTheta },
    ...{ wq: matrix(dModel, 2), wk: matrix(kvWidth, 3), wv: matrix(kvWidth, 4), wo: matrix(dModel, 5) },
    ...{ bq: vector(dModel, 6), bk: vector(kvWidth, 7), bv: vector(kvWidth, 8), bo: vector(dModel, 9) },
  };
}

function makeBlock(shape: BlockShape, qLen: number): Block {
  return { kind: "block", layer: makeLayer(shape), qLen, x: floats(qLen * shape.dModel, 1) };
}

function makeCore({ dModel, numHeads, numKvHeads }: BlockShape, kvLen: number): Core {
  const headDim = dModel / numHeads;
  const keys = numKvHeads * kvLen * headDim;
  const sizes = { numHeads, numKvHeads, headDim, kvLen };
  return { kind: "core", ...sizes, q: floats(dModel, 1, 4), k: floats(keys, 2), v: floats(keys, 3) };
}

function makeStep(shape: BlockShape, past: number): Step {
  const layer = makeLayer(shape);
  const { dModel, numKvHeads, headDim, ropeTheta } = layer;
  const pastX = floats(past * dModel, 10);
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
  return { kind: "step", layer, past, x: floats(dModel, 1), pastX, pastK, pastV };
}

function blockFlops({ dModel, numHeads, numKvHeads }: BlockShape, qLen: number, past: number): number {
  const projections = 2 * qLen * dModel * dModel * (2 + (2 * numKvHeads) / numHeads);
  return projections + 4 * dModel * (qLen * past + (qLen * (qLen + 1)) / 2);
}

/** One token and a prompt through a projection of Llama 2 7B. */
const projections: readonly LinearShape[] = [
  { m: 1, n: 4096, k: 4096 },
  { m: 128, n: 4096, k: 4096 },
];

const products: readonly WorkRow[] = linearShapes
  .filter(({ m }) => m >= 128)
  .concat(projections)
  .map(({ m, n, k }) => ({
    name: `product ${m}x${n}x${k}`,
    quick: m === 128 && k < 4096,
    flops: 2 * m * n * k,
    make: () => ({ kind: "product", m, n, k, x: floats(m * k, 1), w: floats(n * k, 2) }),
  }));

/** With a scale for `block` inputs. One token is limited by reading, so that only a prompt is asked for fast activations. */
function integerProducts(bits: 4 | 8, block: number, asked: readonly IntegerProduct["activations"][], note = "") {
  return projections.flatMap(({ m, n, k }) =>
    (m === 1 ? asked.slice(0, 1) : asked).map((activations) => ({
      name: `q${bits} product ${m}x${n}x${k}${note}${activations === "fast" ? ", fast" : ""}`,
      quick: m === 1 && bits === 8,
      flops: 2 * m * n * k,
      make(): IntegerProduct {
        const w = makeIntegers(bits, n, k, Math.min(block, k), 2);
        return { kind: "integer product", m, n, k, x: floats(m * k, 1), w, activations };
      },
    })),
  );
}

const blockName = (kind: string, qLen: number) => `${kind} block, ${qLen} tokens`;

const blocks = (shape: BlockShape, kind: string): readonly WorkRow[] =>
  shape.prompts.map((qLen) => ({
    name: blockName(kind, qLen),
    quick: qLen === 128,
    flops: blockFlops(shape, qLen, 0),
    make: () => makeBlock(shape, qLen),
  }));

const cores: readonly WorkRow[] = decodePasts.map((kvLen) => ({
  name: `decode core, ${kvLen} keys`,
  quick: kvLen === 1024,
  flops: 4 * llamaBlock.dModel * kvLen,
  make: () => makeCore(llamaBlock, kvLen),
}));

const steps: readonly WorkRow[] = decodePasts.map((past) => ({
  name: `decode step, past ${past}`,
  quick: past === 128,
  flops: blockFlops(llamaBlock, 1, past),
  make: () => makeStep(llamaBlock, past),
}));

/** All works, in the order of the table. */
export const workRows: readonly WorkRow[] = [
  ...products,
  ...integerProducts(8, Infinity, ["exact", "fast"]),
  ...integerProducts(4, 32, ["exact", "fast"]),
  ...integerProducts(4, Infinity, ["exact"], ", a scale an output"),
  ...blocks(gpt2Block, "MHA"),
  ...blocks(llamaBlock, "GQA"),
  ...cores,
  ...steps,
];

/** What process start and memory are measured with: the shortest and the longest block of GPT-2 small. */
export const [firstWork, largeWork] = [gpt2Block.prompts[0]!, gpt2Block.prompts.at(-1)!].map((qLen) => ({
  name: blockName("MHA", qLen),
  make: () => makeBlock(gpt2Block, qLen),
})) as [ChildWork, ChildWork];
