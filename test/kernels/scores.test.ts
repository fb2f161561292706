import { describe, expect, test } from "vitest";
import { PAGE } from "../../assembly/layout.ts";
import { append_f32, gather_f32, scores_f32, weighted_sum_f32 } from "../../src/reference/attention.ts";

import { countColumns, keyIndex, mayAttend, pageBytes, valueIndex } from "../../src/reference/pages.ts";
import type { AttentionShape, CacheShape, Page, Plain } from "../../src/wasm/abi.ts";
import {
  type Arguments,
  builds,
  copyArguments,
  createRandom,
  floats,
  load,
  pieces,
  type Random,
  runKernel,
  worst,
} from "../support/harness.ts";

type Shape = Plain<AttentionShape>;

interface Scene {
  readonly shape: Shape;
  readonly q: Float32Array;
  readonly pages: Float32Array[];
}

const pageOf = (pages: readonly Float32Array[], position: number) => pages[Math.floor(position / PAGE)]!;

const STAGES = [0, 1, 2] as const;
const EPSILON = 2 ** -24;

/** A call with random sizes, rules and data. Page slots that hold no key hold NaN. */
function makeScene(random: Random, fixed: Partial<Shape> = {}): Scene {
  const maybe = <T>(make: () => T): T | null => (random.next() < 0.4 ? make() : null);
  const dims = [1, 5, 8, 16, 20, 31, 32, 40, 64, 67];
  const numKvHeads = random.int(1, 3);
  const numHeads = numKvHeads * random.int(1, 3);
  const headDim = fixed.headDim ?? dims[random.int(0, 9)]!;
  const valueDim = fixed.valueDim ?? dims[random.int(0, 9)]!;
  const qLen = random.int(1, 6);
  const kvLen = fixed.kvLen ?? [0, 1, 7, 8, 9, 31, 33, 40, 127, 128, 150, 263][random.int(0, 11)]!;
  const perHead = random.int(0, 1);
  const perRow = random.int(0, 1);
  const planes = (perHead ? numHeads : 1) * (perRow ? qLen : 1) * kvLen;
  const strides = { head: perHead * (perRow ? qLen : 1) * kvLen, row: perRow * kvLen };
  const extraKey = maybe(() => floats(random, numKvHeads * headDim));
  const shape: Shape = {
    qLen,
    kvLen,
    qStart: random.int(-3, kvLen),
    left: random.int(0, 1) ? 2 ** 30 : random.int(0, 40),
    right: random.int(0, 1) ? 0 : random.int(0, 1) ? 2 ** 30 : random.int(0, 9),
    numHeads,
    numKvHeads,
    headDim,
    valueDim,
    qStride: numHeads * headDim + 1,
    qHeadStride: headDim,
    outStride: numHeads * (valueDim + 1),
    outHeadStride: valueDim + 1,
    scale: 1 / Math.sqrt(headDim),
    softcap: maybe(() => 5) ?? 0,
    slopes: maybe(() => floats(random, numHeads)),
    sinks: null,
    extraKey,
    extraValue: extraKey && floats(random, numKvHeads * valueDim),
    zeroKey: random.int(0, 1),
    keep: maybe(() => Uint8Array.from({ length: planes }, () => (random.next() < 0.3 ? 0 : random.int(1, 255)))),
    keepHeadStride: strides.head,
    keepRowStride: strides.row,
    bias: maybe(() =>
      Float32Array.from({ length: planes }, () => (random.next() < 0.2 ? Number.NEGATIVE_INFINITY : random.normal())),
    ),
    biasHeadStride: strides.head,
    biasRowStride: strides.row,
    lse: null,
    formats: 0,
    ...fixed,
  };
  const cache: CacheShape = {
    numKvHeads,
    headDim,
    valueDim,
    kStride: numKvHeads * headDim,
    kHeadStride: headDim,
    vStride: numKvHeads * valueDim,
    vHeadStride: valueDim,
  };
  const pageFloats = numKvHeads * PAGE * (headDim + Math.ceil(valueDim / 8) * 8);
  const pages = Array.from({ length: Math.ceil(kvLen / PAGE) }, () => new Float32Array(pageFloats).fill(Number.NaN));
  append_f32(pages, floats(random, kvLen * cache.kStride), floats(random, kvLen * cache.vStride), cache, 0, 0, kvLen);
  return { shape, q: floats(random, qLen * shape.qStride), pages };
}

const kvHeadOf = ({ numHeads, numKvHeads }: Shape, head: number) => Math.floor(head / (numHeads / numKvHeads));
const emptyScores = (shape: Shape) => new Float32Array(shape.qLen * countColumns(shape)).fill(7);
const emptyOut = (shape: Shape) => new Float32Array(shape.qLen * shape.outStride).fill(7);

/** Weights as a softmax would leave them: 0 where the query may not attend. */
function makeWeights(random: Random, shape: Shape, head: number): Float32Array {
  const columns = countColumns(shape);
  const isZero = (t: number, j: number) => j < shape.kvLen && !mayAttend(shape, head, t, j);
  return Float32Array.from({ length: shape.qLen * columns }, (_, i) =>
    isZero(Math.floor(i / columns), i % columns) ? 0 : random.next(),
  );
}

/** Puts `poison` in every key and value that query t of `head` may not attend. */
function poisonExcluded({ shape, pages }: Scene, head: number, t: number, poison: number): Float32Array[] {
  const copies = pages.map((page) => page.slice());
  const kvHead = kvHeadOf(shape, head);
  for (let j = 0; j < shape.kvLen; j++) {
    if (mayAttend(shape, head, t, j)) continue;
    for (let d = 0; d < shape.headDim; d++) pageOf(copies, j)[keyIndex(shape, kvHead, j, d)] = poison;
    for (let c = 0; c < shape.valueDim; c++) pageOf(copies, j)[valueIndex(shape, kvHead, j, c)] = poison;
  }
  return copies;
}

describe.each(builds)("the unfused path in the %s build", (build) => {
  const instance = load(build);
  const scenes = 60;

  test("scores_f32 is within (headDim + 10) roundings of its twin at every stage, whole and split", () => {
    const random = createRandom(21);
    for (let i = 0; i < scenes; i++) {
      const scene = makeScene(random);
      const { shape, q, pages } = scene;
      const head = random.int(0, shape.numHeads - 1);
      const columns = countColumns(shape);
      // Σ |scale·q·k|, which a dot's error is measured by, is the twin's score of absolute values.
      const sizes = emptyScores(shape);
      const absolute = (data: Float32Array) => data.map(Math.abs);
      const plain = { ...shape, extraKey: shape.extraKey && absolute(shape.extraKey) };
      scores_f32(sizes, absolute(q), pages.map(absolute), plain, head, 0, 0, shape.qLen);
      for (const stage of STAGES) {
        const args: Arguments<"scores_f32"> = [emptyScores(shape), q, pages, shape, head, stage, 0, shape.qLen];
        const twin = copyArguments<"scores_f32">(args);
        const split = copyArguments<"scores_f32">(args);
        scores_f32(...twin);
        runKernel(instance, "scores_f32", args);
        const slope = Math.abs(shape.slopes?.[head] ?? 0);
        const allowed = (at: number) => {
          const t = Math.floor(at / columns);
          const j = at % columns;
          const rules = slope * Math.abs(shape.qStart + t - j) + Math.abs(twin[0][at]!);
          return ((shape.headDim + 10) * sizes[at]! + 4 * (rules + 5)) * EPSILON;
        };
        const { excess, at } = worst(args[0], twin[0], allowed);
        expect(excess, `scene ${i}, stage ${stage}, element ${at}`).toBeLessThanOrEqual(0);
        for (const [begin, end] of pieces(random, shape.qLen)) {
          split[6] = begin;
          split[7] = end;
          runKernel(instance, "scores_f32", split);
        }
        expect(split[0]).toEqual(args[0]);
      }
    }
  });

  test("scores_pages has the bits that scores_f32 has on float32 pages that hold what pages of other formats stand for", () => {
    const random = createRandom(23);
    for (let formats = 1; formats < 16; formats++) {
      const { shape, q } = makeScene(random, { kvLen: 150 });
      const { numKvHeads, headDim, valueDim, kvLen } = shape;
      const cache: CacheShape = {
        ...{ numKvHeads, headDim, valueDim, kStride: numKvHeads * headDim, kHeadStride: headDim },
        ...{ vStride: numKvHeads * valueDim, vHeadStride: valueDim },
      };
      const [k, v] = [floats(random, kvLen * cache.kStride), floats(random, kvLen * cache.vStride)];
      const coded = [0, 1].map(() => ({ formats, bytes: new Uint8Array(pageBytes(formats, numKvHeads, shape)) }));
      append_f32(coded, k, v, cache, 0, 0, kvLen);
      gather_f32(k, v, coded, cache, 0, 0, kvLen);
      const plain = [0, 1].map(() => new Float32Array(pageBytes(0, numKvHeads, shape) / 4));
      append_f32(plain, k, v, cache, 0, 0, kvLen);
      const scores = (kernel: "scores_f32" | "scores_pages", pages: readonly Page[]) => {
        const args: Arguments<"scores_f32"> = [emptyScores(shape), q, pages, shape, 0, 2, 0, shape.qLen];
        runKernel(instance, kernel, args);
        return args[0];
      };
      const want = scores("scores_f32", plain);
      expect(scores("scores_pages", coded), `formats ${formats}`).toEqual(want);
      expect(scores("scores_pages", plain), `formats ${formats}, plain`).toEqual(want);
    }
  });

  test("weighted_sum_f32 is within kvLen + 2 roundings of its twin, whole and split, and writes nothing else", () => {
    const random = createRandom(22);
    for (let i = 0; i < scenes; i++) {
      const { shape, pages } = makeScene(random);
      const head = random.int(0, shape.numHeads - 1);
      const weights = makeWeights(random, shape, head);
      const args: Arguments<"weighted_sum_f32"> = [emptyOut(shape), weights, pages, shape, head, 0, shape.qLen];
      const twin = copyArguments<"weighted_sum_f32">(args);
      const split = copyArguments<"weighted_sum_f32">(args);
      const sizes = copyArguments<"weighted_sum_f32">(args);
      weighted_sum_f32(...twin);
      const extraValue = shape.extraValue?.map(Math.abs) ?? null;
      weighted_sum_f32(
        sizes[0],
        weights,
        pages.map((page) => page.map(Math.abs)),
        { ...shape, extraValue },
        head,
        0,
        shape.qLen,
      );
      runKernel(instance, "weighted_sum_f32", args);
      const { excess, at } = worst(args[0], twin[0], (at) => (shape.kvLen + 2) * EPSILON * sizes[0][at]!);
      expect(excess, `scene ${i}, element ${at}`).toBeLessThanOrEqual(0);
      for (const [begin, end] of pieces(random, shape.qLen)) {
        split[5] = begin;
        split[6] = end;
        runKernel(instance, "weighted_sum_f32", split);
      }
      expect(split[0]).toEqual(args[0]);
    }
  });

  test("a row has the same bits however many keys come behind those it attends", () => {
    const random = createRandom(23);
    for (let i = 0; i < scenes; i++) {
      const scene = makeScene(random, { right: 0, qStart: random.int(0, 140), kvLen: 150, keep: null, bias: null });
      const { shape, q, pages } = scene;
      const head = random.int(0, shape.numHeads - 1);
      const t = shape.qLen - 1;
      const extras = countColumns(shape) - shape.kvLen;
      const shorter: Shape = { ...shape, kvLen: Math.min(shape.kvLen, shape.qStart + t + 1) };
      const results = [shape, shorter].map((each) => {
        const scores = emptyScores(each);
        const out = emptyOut(each);
        runKernel(instance, "scores_f32", [scores, q, pages, each, head, 2, 0, each.qLen]);
        runKernel(instance, "masked_softmax_f32", [scores, scores, each, head, 0, each.qLen]);
        runKernel(instance, "weighted_sum_f32", [out, scores, pages, each, head, 0, each.qLen]);
        const row = scores.subarray(t * countColumns(each), (t + 1) * countColumns(each));
        const at = t * shape.outStride + head * shape.outHeadStride;
        return {
          weights: row.slice(0, shorter.kvLen),
          extras: row.slice(row.length - extras),
          out: out.slice(at, at + shape.valueDim),
        };
      });
      expect(results[0]).toEqual(results[1]);
    }
  });

  test.each([Number.NaN, Number.POSITIVE_INFINITY, -1e38])(
    "nothing an excluded key holds reaches a score or an output: %d",
    (poison) => {
      const random = createRandom(24);
      for (let i = 0; i < scenes; i++) {
        const scene = makeScene(random);
        const { shape, q, pages } = scene;
        const head = random.int(0, shape.numHeads - 1);
        const t = random.int(0, shape.qLen - 1);
        const weights = makeWeights(random, shape, head);
        const results = [pages, poisonExcluded(scene, head, t, poison)].map((each) => {
          const scores = emptyScores(shape);
          const out = emptyOut(shape);
          runKernel(instance, "scores_f32", [scores, q, each, shape, head, 2, t, t + 1]);
          runKernel(instance, "weighted_sum_f32", [out, weights, each, shape, head, t, t + 1]);
          return { scores, out };
        });
        expect(results[0]).toEqual(results[1]);
        expect(results[0]!.scores.some(Number.isNaN)).toBe(false);
      }
    },
  );

  test("a NaN value reaches its column of every row that attends it, even with weight 0, and no other", () => {
    const random = createRandom(25);
    const shape = { kvLen: 40, valueDim: 40, right: 0, left: 2 ** 30, qStart: 30, keep: null, bias: null };
    const scene = makeScene(random, shape);
    const column = 37;
    pageOf(scene.pages, 32)[valueIndex(scene.shape, 0, 32, column)] = Number.NaN;
    const out = emptyOut(scene.shape);
    const weights = new Float32Array(scene.shape.qLen * countColumns(scene.shape));
    runKernel(instance, "weighted_sum_f32", [out, weights, scene.pages, scene.shape, 0, 0, scene.shape.qLen]);
    for (let t = 0; t < scene.shape.qLen; t++)
      for (let c = 0; c < 40; c++)
        expect(out[t * scene.shape.outStride + c]).toBe(t >= 2 && c === column ? Number.NaN : 0);
  });

  test("a weight that somebody gave an excluded key counts", () => {
    const random = createRandom(26);
    const { shape, pages } = makeScene(random, { kvLen: 9, right: 0, qStart: 0, keep: null, extraKey: null });
    const weights = new Float32Array(shape.qLen * countColumns(shape));
    weights[8] = 1;
    const out = emptyOut(shape);
    runKernel(instance, "weighted_sum_f32", [out, weights, pages, shape, 0, 0, 1]);
    for (let c = 0; c < shape.valueDim; c++) expect(out[c]).toBe(pageOf(pages, 8)[valueIndex(shape, 0, 8, c)]);
  });
});

describe.each(["debug", "simd"] as const)("scores_f32 in the %s build", (build) => {
  test("has the bits of one ascending accumulator of rounded products, then rounded slope and bias", () => {
    const instance = load(build);
    const random = createRandom(27);
    const { fround } = Math;
    for (let i = 0; i < 30; i++) {
      const { shape, q, pages } = makeScene(random, { softcap: 0, keep: null, extraKey: null, zeroKey: 0 });
      const head = random.int(0, shape.numHeads - 1);
      const want = emptyScores(shape);
      for (let t = 0; t < shape.qLen; t++)
        for (let j = 0; j < shape.kvLen; j++) {
          let score = 0;
          for (let d = 0; d < shape.headDim; d++) {
            const scaled = fround(fround(shape.scale) * q[t * shape.qStride + head * shape.qHeadStride + d]!);
            const key = pageOf(pages, j)[keyIndex(shape, kvHeadOf(shape, head), j, d)]!;
            score = fround(score + fround(scaled * key));
          }
          if (shape.slopes) score = fround(score - fround(shape.slopes[head]! * Math.abs(shape.qStart + t - j)));
          if (shape.bias)
            score = fround(score + shape.bias[head * shape.biasHeadStride + t * shape.biasRowStride + j]!);
          want[t * shape.kvLen + j] = mayAttend(shape, head, t, j) ? score : Number.NEGATIVE_INFINITY;
        }
      const got = emptyScores(shape);
      runKernel(instance, "scores_f32", [got, q, pages, shape, head, 2, 0, shape.qLen]);
      expect(got).toEqual(want);
    }
  });
});
