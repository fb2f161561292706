import { describe, expect, test } from "vitest";
import { BLOCK, LINEAR_SCRATCH, ROUNDED, SIGNED } from "../../assembly/layout.ts";
import {
  FORMATS,
  integerRowBytes,
  linearShape,
  type PackedFormat,
  panelsOf,
  quantizing,
} from "../../src/layers/linear/formats.ts";

import { reference } from "../../src/reference/index.ts";
import { packedQ4, packedQ8 } from "../../src/reference/numbers.ts";
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
} from "../support/harness.ts";
import { integersFor } from "../support/integer-projection.ts";
import { sampled } from "../support/sampled.ts";

/** Modes of a build: 7 or 8 bits where odd; i16 pairs, and the two paths of i8 where there are products of bytes. */
const MODES = { debug: [0, 1], simd: [0, 1], relaxed: [0, 1, 2, 3, 4, 5] } as const;
const KINDS = [undefined, "outlier", "equal", "tiny"] as const;
const SIZES = [1, 3, 8, 31, 32, 33, 64, 100] as const;

const bitsOf = (data: Float32Array) => new Uint32Array(data.buffer);

/** Rows as quantize_rows leaves them; one of them may be poisoned, small or empty of anything but zeros. */
function integerRows(
  random: Random,
  format: PackedFormat,
  rows: number,
  k: number,
  mode: number,
  kind?: "outlier" | "equal" | "tiny",
) {
  const x = floats(random, rows * k, kind);
  const odd = [Number.NaN, Number.NEGATIVE_INFINITY, 2 ** -111, 0][random.int(0, 5)];
  if (odd !== undefined && rows > 1) x.fill(odd, k, k + 1 + random.int(0, k - 1));
  return integersFor(format, x, k, mode);
}

type Packing = "pack_q8" | "pack_q4";

const formatOf = (packing: Packing, block: number) =>
  packing === "pack_q4" ? "q4" : block === BLOCK ? "q8" : "q8-row";

/** Room for a packed matrix and for the sums of its weights. */
function room(format: "q8" | "q8-row" | "q4", n: number, k: number, filler = 7) {
  const sums = new Uint8Array(panelsOf(n) * FORMATS[format].sumBytes(k)).fill(filler);
  return { w: new Uint8Array(panelsOf(n) * FORMATS[format].panelBytes(k)).fill(filler), sums };
}

/** Packed weights: extremes of int8 and nibbles among them, as blocks of a file may hold. */
function weights(random: Random, packing: Packing, n: number, k: number, block: number) {
  const matrix = floats(random, n * k, KINDS[random.int(0, 3)]);
  const { w, sums } = room(formatOf(packing, block), n, k);
  if (packing === "pack_q4") reference.pack_q4(w, matrix, n, k, 0, panelsOf(n));
  else reference.pack_q8(w, sums, matrix, n, k, block, 0, panelsOf(n));
  return { w, sums };
}

describe.each(builds)("integer kernels in the %s build", (build) => {
  const instance = load(build);

  test("linear_q4 has the bits of its twin where the digits of a few rows fill its scratch", () => {
    const random = createRandom(4);
    const [rows, n, k] = [8, 9, 2400];
    const panels = panelsOf(n);
    for (const mode of MODES[build]) {
      const x = integerRows(random, "q4", rows, k, mode);
      const { w } = weights(random, "pack_q4", n, k, BLOCK);
      const out = new Float32Array(rows * 8 * panels).fill(7);
      const shape = linearShape(FORMATS.q4, { panels, k, outStride: 8 * panels, mode });
      const args: Arguments<"linear_q4"> = [out, x, w, new Uint8Array(LINEAR_SCRATCH), null, shape, 0, rows];
      const want = copyArguments<"linear_q4">(args);
      reference.linear_q4(...want);
      runKernel(instance, "linear_q4", args);
      expect(bitsOf(args[0]), `mode ${mode}`).toEqual(bitsOf(want[0]));
    }
  });

  test.each([1, 2, 3, 4, 9])("linear_q8 has the bits of its twin over several groups of a row, %i rows", (rows) => {
    const random = createRandom(50 + rows);
    const shapes = [
      [44, 1024],
      [9, 1056],
      [70, 2080],
    ] as const;
    const cases = shapes.flatMap(([n, k]) => [BLOCK, FORMATS["q8-row"].block(k)].map((block) => ({ n, k, block })));
    for (const { n, k, block } of sampled(cases, 1, (each) => each.n, rows + build.length)) {
      const panels = panelsOf(n);
      const { w, sums } = weights(random, "pack_q8", n, k, block);
      for (const mode of sampled(MODES[build], 1, (each) => each >> 1, rows + n + block)) {
        const x = integerRows(random, formatOf("pack_q8", block), rows, k, mode);
        const out = new Float32Array(rows * 8 * panels).fill(7);
        const shape = linearShape(FORMATS[block === BLOCK ? "q8" : "q8-row"], {
          panels,
          k,
          outStride: 8 * panels,
          mode,
        });
        const args: Arguments<"linear_q8"> = [out, x, w, sums, null, shape, 0, rows];
        const want = copyArguments<"linear_q8">(args);
        reference.linear_q8(...want);
        runKernel(instance, "linear_q8", args);
        expect(bitsOf(args[0]), `mode ${mode} n ${n} k ${k} block ${block}`).toEqual(bitsOf(want[0]));
      }
    }
  });

  test("products of 7 bits are within 9e-3 of those of evenly distributed floats and the stored weights", () => {
    const random = createRandom(60);
    const [rows, n, k] = [4, 160, 1056];
    const even = (length: number) => Float32Array.from({ length }, () => random.int(-(2 ** 20), 2 ** 20) / 2 ** 20);
    const [x, matrix] = [even(rows * k), even(n * k)];
    const norm = (values: ArrayLike<number>) => Math.hypot(...Array.from(values));
    for (const mode of MODES[build].filter((each) => each % 2 === 1))
      for (const format of ["q8", "q8-row", "q4"] as const) {
        const [block, panels] = [format === "q8-row" ? k : BLOCK, panelsOf(n)];
        const { w, sums } = room(format, n, k);
        if (format === "q4") reference.pack_q4(w, matrix, n, k, 0, panels);
        else reference.pack_q8(w, sums, matrix, n, k, block, 0, panels);
        const integers = new Uint8Array(rows * integerRowBytes(k));
        const { block: shared, mode: own } = quantizing(FORMATS[format], k, mode);
        runKernel(instance, "quantize_rows", [integers, x, k, k, shared, own, 0, rows]);
        const out = new Float32Array(rows * n);
        const shape = linearShape(FORMATS[format], { panels, k, outStride: n, mode });
        runKernel(instance, format === "q4" ? "linear_q4" : "linear_q8", [
          ...[out, integers, w, format === "q4" ? new Uint8Array(LINEAR_SCRATCH) : sums, null, shape, 0, rows],
        ] as Arguments<"linear_q8">);
        const stored = format === "q4" ? packedQ4(w, k, 8) : packedQ8(w, k, block);
        const want = Array.from(out, (_, at) => {
          const [r, row] = [Math.floor(at / n), at % n];
          let sum = 0;
          for (let i = 0; i < k; i++) sum += x[r * k + i]! * stored.weight(row, i) * stored.scale(row, i);
          return sum;
        });
        const error = norm(want.map((value, i) => value - out[i]!)) / norm(want);
        expect(error, `${format}, mode ${mode}`).toBeLessThan(9e-3);
      }
  });

  test("quantize_rows leaves the bytes of its twin in every mode, whole and split", () => {
    const random = createRandom(1);
    for (const mode of MODES[build].flatMap((each) => [each, each | (each % 2 === 1 ? SIGNED : ROUNDED)]))
      for (const kind of KINDS)
        for (const k of SIZES) {
          const [rows, stride] = [5, k + random.int(0, 3)];
          const x = floats(random, rows * stride, kind);
          for (let r = 0; r < rows; r++) x.fill(Number.NaN, r * stride + k, (r + 1) * stride);
          for (const value of [Number.NaN, Number.POSITIVE_INFINITY, 3e38, 2 ** -111])
            if (random.int(0, 3) === 0) x[random.int(1, 3) * stride] = value;
          const out = new Uint8Array(rows * integerRowBytes(k));
          const block = mode % 2 === 1 ? [32, 64, 96, 256][random.int(0, 3)]! : 0;
          const args: Arguments<"quantize_rows"> = [out, x, k, stride, block, mode, 0, rows];
          const want = copyArguments<"quantize_rows">(args);
          const split = copyArguments<"quantize_rows">(args);
          reference.quantize_rows(...want);
          runKernel(instance, "quantize_rows", args);
          expect(args[0], `mode ${mode} k ${k} block ${block}`).toEqual(want[0]);
          for (const [begin, end] of pieces(random, rows)) {
            split[6] = begin;
            split[7] = end;
            runKernel(instance, "quantize_rows", split);
          }
          expect(split[0]).toEqual(want[0]);
        }
  });

  test.each(["pack_q8", "pack_q4"] as const)("%s leaves the bytes of its twin, whole and split", (name) => {
    const random = createRandom(2);
    for (const kind of KINDS)
      for (const n of [1, 7, 8, 17])
        for (const k of SIZES)
          for (const format of name === "pack_q8" ? (["q8", "q8-row"] as const) : (["q4"] as const)) {
            const block = FORMATS[format].block(k);
            const w = floats(random, n * k, kind);
            for (const value of [Number.NaN, Number.NEGATIVE_INFINITY, 3e38])
              if (random.int(0, 3) === 0) w[random.int(0, w.length - 1)] = value;
            const runPack = ({ w: to, sums }: typeof want, begin: number, end: number) => {
              if (name === "pack_q4") runKernel(instance, name, [to, w, n, k, begin, end]);
              else runKernel(instance, name, [to, sums, w, n, k, block, begin, end]);
            };
            // Of different content before, so that they differ where a byte is not written.
            const [whole, split, want] = [room(format, n, k, 1), room(format, n, k, 2), room(format, n, k, 3)];
            if (name === "pack_q4") reference.pack_q4(want.w, w, n, k, 0, panelsOf(n));
            else reference.pack_q8(want.w, want.sums, w, n, k, block, 0, panelsOf(n));
            runPack(whole, 0, panelsOf(n));
            for (const [begin, end] of pieces(random, panelsOf(n))) runPack(split, begin, end);
            expect(whole, `n ${n} k ${k} ${format}`).toEqual(want);
            expect(split).toEqual(want);
          }
  });

  test.each(["q8", "q4"] as const)("repack_%s moves blocks of any bytes as its twin does", (format) => {
    const random = createRandom(3);
    const width = format === "q8" ? 34 : 18;
    for (const n of [1, 8, 19])
      for (const k of [32, 96]) {
        const blocks = Uint8Array.from({ length: ((n * k) / 32) * width }, () => random.int(0, 255));
        const [whole, split, want] = [room(format, n, k, 1), room(format, n, k, 2), room(format, n, k, 3)];
        const runPack = ({ w, sums }: typeof want, begin: number, end: number) => {
          if (format === "q4") runKernel(instance, "repack_q4", [w, blocks, n, k, begin, end]);
          else runKernel(instance, "repack_q8", [w, sums, blocks, n, k, begin, end]);
        };
        if (format === "q4") reference.repack_q4(want.w, blocks, n, k, 0, panelsOf(n));
        else reference.repack_q8(want.w, want.sums, blocks, n, k, 0, panelsOf(n));
        runPack(whole, 0, panelsOf(n));
        expect(withOneNaN(whole.w, format), `n ${n} k ${k}`).toEqual(withOneNaN(want.w, format));
        expect(whole.sums).toEqual(want.sums);
        for (const [begin, end] of pieces(random, panelsOf(n))) runPack(split, begin, end);
        expect(split).toEqual(whole);
      }
  });

  // The simd build has no products of bytes, nor has the debug build.
  if (build === "relaxed")
    test("repeat_dots sums products of bytes by either way", () => {
      const random = createRandom(9);
      for (const [direct, begin, end] of [
        [0, 0, 0],
        [3, 0, 3],
        [0, 0, 3],
        [2, 1, 5],
        [9, 2, 5],
        [70_000, 0, 140_000],
      ] as const) {
        const x = Uint8Array.from({ length: 16 }, () => random.int(0, 127));
        const w = Uint8Array.from({ length: 128 }, () => random.int(0, 255));
        const args: Arguments<"repeat_dots"> = [new Uint8Array(16).fill(7), x, w, direct, begin, end];
        const want = copyArguments<"repeat_dots">(args);
        reference.repeat_dots(...want);
        runKernel(instance, "repeat_dots", args);
        expect(args[0], `direct ${direct} of ${begin} to ${end}`).toEqual(want[0]);
      }
    });

  test.each([1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 31])(
    "linear_q8 and linear_q4 have the bits of their twins at %i rows",
    (rows) => {
      const random = createRandom(rows);
      const shapes = [
        [1, 1],
        [8, 32],
        [9, 33],
        [40, 100],
        [67, 64],
        [131, 200],
      ] as const;
      const cases = MODES[build].flatMap((mode) =>
        shapes.flatMap(([n, k]) => [BLOCK, FORMATS["q8-row"].block(k)].map((block) => ({ mode, n, k, block }))),
      );
      for (const { mode, n, k, block } of sampled(cases, 1, (each) => `${each.mode >> 1} ${each.n}`, rows)) {
        const kind = KINDS[random.int(0, 3)];
        const x = integerRows(random, formatOf("pack_q8", block), rows, k, mode, kind);
        const panels = panelsOf(n);
        const outStride = 8 * panels + random.int(0, 3);
        const out = new Float32Array(rows * outStride).fill(7);
        const bias = random.int(0, 2) > 0 ? floats(random, 8 * panels) : null;
        const { w, sums } = weights(random, "pack_q8", n, k, block);
        const sizes = { panels, k, outStride, mode };
        const shape = linearShape(FORMATS[block === BLOCK ? "q8" : "q8-row"], sizes);
        const args: Arguments<"linear_q8"> = [out, x, w, sums, bias, shape, 0, rows];
        const want = copyArguments<"linear_q8">(args);
        reference.linear_q8(...want);
        runKernel(instance, "linear_q8", args);
        expect(bitsOf(args[0]), `q8 mode ${mode} n ${n} k ${k} block ${block}`).toEqual(bitsOf(want[0]));
        if (block !== BLOCK) continue;
        const nibbles = weights(random, "pack_q4", n, k, block).w;
        const four: Arguments<"linear_q4"> = [
          out.fill(7),
          integerRows(random, "q4", rows, k, mode, kind),
          nibbles,
          new Uint8Array(LINEAR_SCRATCH),
          bias,
          linearShape(FORMATS.q4, sizes),
          0,
          rows,
        ];
        const wanted = copyArguments<"linear_q4">(four);
        reference.linear_q4(...wanted);
        runKernel(instance, "linear_q4", four);
        expect(bitsOf(four[0]), `q4 mode ${mode} n ${n} k ${k}`).toEqual(bitsOf(wanted[0]));
      }
    },
  );
});

/** Scales that are NaN have any payload: all of them become one. */
function withOneNaN(packed: Uint8Array, format: "q8" | "q4"): Uint8Array {
  const [copy, block] = [packed.slice(), format === "q8" ? 32 + 256 : 32 + 128];
  const view = new DataView(copy.buffer);
  for (let at = 0; at < copy.length; at += block)
    for (let column = 0; column < 8; column++) {
      const scale = view.getFloat32(at + 4 * column, true);
      if (Number.isNaN(scale)) view.setFloat32(at + 4 * column, Number.NaN, true);
    }
  return copy;
}
