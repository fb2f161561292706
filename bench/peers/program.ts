// The attention layer as a graph of plain operations. Each peer implements the operations; the graph is the same for all.

import type { Prepared, Way } from "./peer.ts";
import type { Block, Core, FloatWork, Layer, Product, Step } from "./works.ts";

/** The operations of a peer, on tensors T. Shapes are row-major. */
export interface Ops<T> {
  /** A constant of the graph. */
  constant(data: Float32Array, shape: readonly number[]): T;
  /** x [rows, width] · w [outputs, width]ᵀ + bias */
  dense(x: T, w: Float32Array, outputs: number, width: number, bias?: Float32Array): T;
  reshape(x: T, shape: readonly number[]): T;
  transpose(x: T, order: readonly number[]): T;
  /** a · b over the last two dimensions, or a · bᵀ; the dimensions before them are the same in both. */
  matmul(a: T, b: T, transposeB: boolean): T;
  add(a: T, b: T): T;
  mul(a: T, b: T): T;
  /** Over the last dimension. */
  softmax(x: T): T;
  slice(x: T, shape: readonly number[], axis: number, begin: number, end: number): T;
  concat(parts: readonly T[], axis: number): T;
  /** For peers that compile: a part of the graph that may be compiled on its own. */
  stage?(part: (...inputs: T[]) => T[], inputs: readonly T[]): T[];
}

function stage<T>(ops: Ops<T>, inputs: readonly T[], part: (...inputs: T[]) => T[]): T[] {
  return ops.stage ? ops.stage(part, inputs) : part(...inputs);
}

/** A graph: its inputs with their shapes, and a function that builds its outputs: the answer, then the inputs of a next step. */
export interface Program {
  readonly inputs: readonly { readonly data: Float32Array; readonly shape: readonly number[] }[];
  build<T>(ops: Ops<T>, inputs: readonly T[]): T[];
}

/** A graph in a peer's file format, and its inputs. */
export interface Model {
  readonly bytes: Uint8Array;
  readonly inputs: Program["inputs"];
}

/** Large enough to vanish under exp, small enough to stay finite when scores are added. */
const MASKED = -1e9;

/** A layer whose wq and bq include 1/√headDim, which is exact if that is a power of two, and its tables for RoPE. */
interface Weights {
  readonly layer: Layer;
  readonly cos: Float32Array;
  /** Negative in the first half, so that rotating is x · cos + (x with its halves swapped) · sin. */
  readonly sin: Float32Array;
}

function prepareLayer(layer: Layer, from: number, tokens: number): Weights {
  const { headDim, ropeTheta = 1 } = layer;
  const scale = 1 / Math.sqrt(headDim);
  const scaled = (data: Float32Array) => data.map((value) => value * scale);
  const table = (entry: (angle: number, first: boolean) => number) =>
    Float32Array.from({ length: tokens * headDim }, (_, i) => {
      const d = i % headDim;
      const half = headDim / 2;
      return entry((from + Math.floor(i / headDim)) * ropeTheta ** (-(d % half) / half), d < half);
    });
  return {
    layer: { ...layer, wq: scaled(layer.wq), bq: layer.bq && scaled(layer.bq) },
    cos: table((angle) => Math.cos(angle)),
    sin: table((angle, first) => (first ? -Math.sin(angle) : Math.sin(angle))),
  };
}

/** Rotates [heads, tokens, headDim]. */
function rope<T>(ops: Ops<T>, { layer, cos, sin }: Weights, x: T, heads: number, tokens: number): T {
  const { headDim, ropeTheta } = layer;
  if (ropeTheta === undefined) return x;
  const shape = [heads, tokens, headDim];
  const half = headDim / 2;
  const swapped = ops.concat([ops.slice(x, shape, 2, half, headDim), ops.slice(x, shape, 2, 0, half)], 2);
  const table = (data: Float32Array) => ops.constant(data, [1, tokens, headDim]);
  return ops.add(ops.mul(x, table(cos)), ops.mul(swapped, table(sin)));
}

/** x [tokens, dModel] to its queries, or keys, or values: [heads, tokens, headDim]. */
function toHeads<T>(ops: Ops<T>, layer: Layer, x: T, tokens: number, w: Float32Array, bias?: Float32Array): T {
  const { dModel, headDim } = layer;
  const outputs = w.length / dModel;
  const rows = ops.dense(x, w, outputs, dModel, bias);
  // One token needs no transposition.
  if (tokens === 1) return ops.reshape(rows, [outputs / headDim, 1, headDim]);
  return ops.transpose(ops.reshape(rows, [tokens, outputs / headDim, headDim]), [1, 0, 2]);
}

/**
 * q [numHeads, tokens, headDim] over k and v [numKvHeads, kvLen, headDim]. The queries of a group are rows over one key
 * head, so nothing is repeated. `apart` computes one key head at a time, which needs less memory.
 */
function attend<T>(
  ops: Ops<T>,
  { numHeads, numKvHeads, headDim }: Pick<Layer, "numHeads" | "numKvHeads" | "headDim">,
  tokens: number,
  kvLen: number,
  [q, k, v]: readonly [T, T, T],
  mask: Float32Array | undefined,
  apart: boolean,
): T {
  const group = numHeads / numKvHeads;
  const heads = (count: number, queries: T, keys: T, values: T): T => {
    let scores = ops.matmul(queries, keys, true);
    if (mask) {
      const wide = ops.reshape(scores, [count * group, tokens, kvLen]);
      const masked = ops.add(wide, ops.constant(mask, [1, tokens, kvLen]));
      scores = ops.reshape(ops.softmax(masked), [count, group * tokens, kvLen]);
    } else scores = ops.softmax(scores);
    return ops.matmul(scores, values, false);
  };
  const rows = [numKvHeads, group * tokens, headDim];
  const keys = [numKvHeads, kvLen, headDim];
  const queries = ops.reshape(q, rows);
  const one = (h: number) =>
    heads(1, ops.slice(queries, rows, 0, h, h + 1), ops.slice(k, keys, 0, h, h + 1), ops.slice(v, keys, 0, h, h + 1));
  const out = apart
    ? ops.concat(
        Array.from({ length: numKvHeads }, (_, h) => one(h)),
        0,
      )
    : heads(numKvHeads, queries, k, v);
  if (tokens === 1) return ops.reshape(out, [1, numHeads * headDim]);
  const merged = ops.transpose(ops.reshape(out, [numHeads, tokens, headDim]), [1, 0, 2]);
  return ops.reshape(merged, [tokens, numHeads * headDim]);
}

export function product({ m, n, k, x, w }: Product): Program {
  return {
    inputs: [{ data: x, shape: [m, k] }],
    build: (ops, [input]) => [ops.dense(input!, w, n, k)],
  };
}

function block({ layer: given, qLen, x }: Block, apart: boolean): Program {
  const prepared = prepareLayer(given, 0, qLen);
  const { layer } = prepared;
  const { dModel, numHeads, numKvHeads } = layer;
  const mask = new Float32Array(qLen * qLen);
  for (let t = 0; t < qLen; t++) mask.fill(MASKED, t * qLen + t + 1, (t + 1) * qLen);
  return {
    inputs: [{ data: x, shape: [qLen, dModel] }],
    build(ops, [input]) {
      const qkv = stage(ops, [input!], (rows) => [
        rope(ops, prepared, toHeads(ops, layer, rows, qLen, layer.wq, layer.bq), numHeads, qLen),
        rope(ops, prepared, toHeads(ops, layer, rows, qLen, layer.wk, layer.bk), numKvHeads, qLen),
        toHeads(ops, layer, rows, qLen, layer.wv, layer.bv),
      ]);
      const heads = stage(ops, qkv, (q, k, v) => [attend(ops, layer, qLen, qLen, [q, k, v], mask, apart)]);
      return stage(ops, heads, (rows) => [ops.dense(rows, layer.wo, dModel, dModel, layer.bo)]);
    },
  };
}

/** Keys and values as inputs, or as constants of the graph, whose layout the peer may change before it runs. */
function core(work: Core, constant: boolean, apart: boolean): Program {
  const { numHeads, numKvHeads, headDim, kvLen, q, k, v } = work;
  const scale = Float32Array.of(1 / Math.sqrt(headDim));
  const shape = [numKvHeads, kvLen, headDim];
  const query = { data: q, shape: [numHeads, 1, headDim] };
  return {
    inputs: constant ? [query] : [query, { data: k, shape }, { data: v, shape }],
    build(ops, [input, keys = ops.constant(k, shape), values = ops.constant(v, shape)]) {
      const scaled = ops.mul(input!, ops.constant(scale, [1, 1, 1]));
      return [attend(ops, work, 1, kvLen, [scaled, keys, values], undefined, apart)];
    },
  };
}

/** The cache comes in and goes out again with one token more, as a conversation needs it. */
function step(work: Step, apart: boolean): Program {
  const { past, x, pastK, pastV } = work;
  const prepared = prepareLayer(work.layer, past, 1);
  const { layer } = prepared;
  const shape = [layer.numKvHeads, past, layer.headDim];
  return {
    inputs: [
      { data: x, shape: [1, layer.dModel] },
      { data: pastK, shape },
      { data: pastV, shape },
    ],
    build(ops, [input, keys, values]) {
      const qkv = stage(ops, [input!, keys!, values!], (row, pastKeys, pastValues) => {
        const [q, k, v] = projectOne(ops, prepared, row);
        return [q, ops.concat([pastKeys, k], 1), ops.concat([pastValues, v], 1)];
      });
      const heads = stage(ops, qkv, (q, k, v) => [attend(ops, layer, 1, past + 1, [q, k, v], undefined, apart)]);
      const y = stage(ops, heads, (rows) => [ops.dense(rows, layer.wo, layer.dModel, layer.dModel, layer.bo)]);
      return [...y, ...qkv.slice(1)];
    },
  };
}

/** The same with past keys and values as constants: the new key and value are attended, and not kept. */
function stepOverConstants(work: Step): Program {
  const { past, x, pastK, pastV } = work;
  const prepared = prepareLayer(work.layer, past, 1);
  const { layer } = prepared;
  const { dModel, numHeads, numKvHeads, headDim } = layer;
  const group = numHeads / numKvHeads;
  const shape = [numKvHeads, past, headDim];
  return {
    inputs: [{ data: x, shape: [1, dModel] }],
    build(ops, [input]) {
      const [q, k, v] = projectOne(ops, prepared, input!);
      const queries = ops.reshape(q, [numKvHeads, group, headDim]);
      const before = ops.matmul(queries, ops.constant(pastK, shape), true);
      const weights = ops.softmax(ops.concat([before, ops.matmul(queries, k, true)], 2));
      const part = (begin: number, end: number) => ops.slice(weights, [numKvHeads, group, past + 1], 2, begin, end);
      const overPast = ops.matmul(part(0, past), ops.constant(pastV, shape), false);
      const out = ops.add(overPast, ops.matmul(part(past, past + 1), v, false));
      return [ops.dense(ops.reshape(out, [1, dModel]), layer.wo, dModel, dModel, layer.bo)];
    },
  };
}

/** Queries, keys and values of one token. */
function projectOne<T>(ops: Ops<T>, prepared: Weights, row: T): [T, T, T] {
  const { layer } = prepared;
  return [
    rope(ops, prepared, toHeads(ops, layer, row, 1, layer.wq, layer.bq), layer.numHeads, 1),
    rope(ops, prepared, toHeads(ops, layer, row, 1, layer.wk, layer.bk), layer.numKvHeads, 1),
    toHeads(ops, layer, row, 1, layer.wv, layer.bv),
  ];
}

/** A cache that cannot grow, so that no conversation can use it. */
const CONSTANT = "cache constant";
/** The scores of one key head at a time, not of all at once. */
export const APART = "a kv head at a time";

/** The reason why a peer of plain operations has no time for an integer product. */
export const NO_INTEGERS = "its products have no integer weights";

/** The graphs of a work, by name. */
function programs(work: FloatWork): Record<string, Program> {
  switch (work.kind) {
    case "product":
      return { plain: product(work) };
    case "block":
      return { plain: block(work, false), [APART]: block(work, true) };
    case "core":
      return {
        "cache in place": core(work, false, false),
        [`cache in place, ${APART}`]: core(work, false, true),
        [CONSTANT]: core(work, true, false),
      };
    case "step":
      return {
        "cache appended to": step(work, false),
        [`cache appended to, ${APART}`]: step(work, true),
        [CONSTANT]: stepOverConstants(work),
      };
  }
}

/**
 * The ways of a peer that can prepare any graph. Those with a constant cache are not compared, but shown in brackets; the
 * core is compared if the peer copies its inputs at every run.
 */
export function graphWays(
  work: FloatWork,
  prepare: (program: Program) => Prepared | Promise<Prepared>,
  copiesInputs = false,
): Way[] {
  return Object.entries(programs(work)).map(([name, program]) => ({
    name,
    prepare: () => prepare(program),
    aside: name === CONSTANT && !(work.kind === "core" && copiesInputs),
  }));
}
