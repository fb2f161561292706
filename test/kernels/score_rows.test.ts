import { describe, expect, test } from "vitest";
import { SCORE_BINARY, SCORE_DOT, SCORE_EUCLIDEAN, SCORE_INT8, SCORE_MANHATTAN } from "../../assembly/layout.ts";
import { score_rows } from "../../src/reference/decoder.ts";
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

type Call = Arguments<"score_rows">;

const bytesOf = (array: Float32Array | Int16Array | Uint8Array) => new Uint8Array(array.buffer);
const bytes = (random: Random, length: number) => Uint8Array.from({ length }, () => random.int(0, 255));

/** Vectors of a mode, in rows of so many bytes. The bits behind the dimensions are zeros in both. */
function vectors(random: Random, mode: number, count: number, rowBytes: number, dims: number, isQuery: boolean) {
  if (mode === SCORE_BINARY) {
    const bits = bytes(random, count * rowBytes);
    for (let i = 0; i < bits.length * 8; i++) if (i % (8 * rowBytes) >= dims) bits[i >> 3]! &= ~(128 >> (i & 7));
    return bits;
  }
  if (mode !== SCORE_INT8) return bytesOf(floats(random, (count * rowBytes) / 4));
  if (!isQuery) return bytes(random, count * rowBytes);
  const most = Math.min(32_767, Math.floor(2 ** 31 / 128 / rowBytes) - 1);
  // Of the largest size, so that sums come near the largest integer.
  return bytesOf(Int16Array.from({ length: count * rowBytes }, () => most * random.int(-1, 1)));
}

function callOf(
  random: Random,
  mode: number,
  queries: number,
  rows: number,
  rowBytes: number,
  hasFactors: boolean,
): Call {
  const dimensions = 8 * rowBytes - random.int(0, 9);
  const stride = rows + 3;
  const scores = new Float32Array(queries * stride).fill(7);
  const q = vectors(random, mode, queries, rowBytes, dimensions, true);
  const r = vectors(random, mode, rows, rowBytes, dimensions, false);
  const factors = hasFactors ? floats(random, rows) : null;
  return [scores, q, r, factors, { mode, queries, rowBytes, dimensions, stride }, 0, rows];
}

const INTEGERS = { int8: SCORE_INT8, binary: SCORE_BINARY };
const FLOATS = { dot: SCORE_DOT, euclidean: SCORE_EUCLIDEAN, manhattan: SCORE_MANHATTAN };

describe.each(builds)("score_rows in the %s build", (build) => {
  const instance = load(build);
  const run = (args: Call) => {
    runKernel(instance, "score_rows", args);
    return args[0] as Float32Array;
  };

  test.each(Object.entries(INTEGERS))("%s: the bits of its twin, of any number of queries and rows", (_, mode) => {
    const random = createRandom(mode);
    for (const rowBytes of [16, 48, 64, 384, 4096])
      for (const [queries, rows] of [
        [1, 1],
        [1, 9],
        [3, 4],
        [4, 3],
        [5, 6],
        [8, 2],
      ] as const) {
        const args = callOf(random, mode, queries, rows, rowBytes, queries % 2 === 1);
        const twin = copyArguments<"score_rows">(args);
        score_rows(...twin);
        expect(run(args)).toEqual(twin[0]);
      }
  });

  test.each(Object.entries(FLOATS))("%s: within the roundings of a sum in 16 parts", (_, mode) => {
    const random = createRandom(mode);
    for (const rowBytes of [64, 128, 320, 1536])
      for (const [queries, rows] of [
        [1, 1],
        [1, 7],
        [4, 5],
        [6, 4],
      ] as const) {
        const args = callOf(random, mode, queries, rows, rowBytes, rows === 5);
        const twin = copyArguments<"score_rows">(args);
        score_rows(...twin);
        // Each term is rounded up to n / 16 + 5 times, and twice of its own; their sizes are those of the twin with |x|·|y| or of itself.
        const k = rowBytes / 4;
        const [, q, r, factors, { stride }] = args;
        const [x, y] = [q, r].map((each) => new Float32Array((each as Uint8Array).buffer)) as [
          Float32Array,
          Float32Array,
        ];
        const allowed = (i: number) => {
          const [query, row] = [Math.floor(i / stride), i % stride];
          if (row >= rows) return 0;
          let size = 0;
          for (let j = 0; j < k; j++) size += Math.abs(x[query * k + j]! * y[row * k + j]!);
          const factor = Math.abs(factors ? factors[row]! : 1);
          return (k / 16 + 8) * 2 ** -24 * (mode === SCORE_DOT ? size * factor : Math.abs(twin[0][i]!));
        };
        expect(worst(run(args), twin[0], allowed).excess).toBeLessThanOrEqual(0);
      }
  });

  test.each(Object.entries({ ...INTEGERS, ...FLOATS }))(
    "%s: a query has the same bits alone and with others, rows at once and in pieces",
    (_, mode) => {
      const random = createRandom(mode);
      const [queries, rows, rowBytes] = [7, 13, 192];
      const whole = callOf(random, mode, queries, rows, rowBytes, true);
      const [, q, r, factors, shape] = whole;
      const split = copyArguments<"score_rows">(whole);
      const want = run(whole);
      for (const [begin, end] of pieces(random, rows)) {
        split[5] = begin;
        split[6] = end;
        run(split);
      }
      expect(split[0]).toEqual(want);
      const width = q.length / queries;
      for (let i = 0; i < queries; i++) {
        const alone = { ...shape, queries: 1, stride: rows };
        const one = q.slice(i * width, (i + 1) * width);
        const got = run([new Float32Array(rows), one, r, factors, alone, 0, rows]);
        expect(got).toEqual(want.slice(i * shape.stride, i * shape.stride + rows));
      }
    },
  );
});

test("integers and bits have the same scores in both builds", () => {
  const random = createRandom(3);
  for (const mode of Object.values(INTEGERS)) {
    const args = callOf(random, mode, 5, 11, 96, true);
    const [simd, relaxed] = (["simd", "relaxed"] as const).map((build) => {
      const copy = copyArguments<"score_rows">(args);
      runKernel(load(build), "score_rows", copy);
      return copy[0];
    });
    expect(relaxed).toEqual(simd);
  }
});
