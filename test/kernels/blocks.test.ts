// Integers of GGUF's blocks: packed, multiplied with scales for 16 and 32 inputs, and with minimums.

import { describe, expect, test } from "vitest";
import { MINS_SCRATCH, WEIGHT_Q4, WEIGHT_Q8 } from "../../assembly/layout.ts";
import { CODED_BLOCKS, type CodedDtype, codeBits, decodeFloats } from "../../src/base/tensor/dtypes.ts";
import { FORMATS, formatOf, linearShape, panelsOf } from "../../src/layers/linear/formats.ts";

import { reference } from "../../src/reference/index.ts";
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

/** Those of codes are packed by another kernel. */
const DTYPES = (Object.keys(CODED_BLOCKS) as CodedDtype[]).filter((dtype) => codeBits(dtype) === 8);
/** Modes of a build: 7 bits where odd; i16 pairs, and the two paths of i8 where there are products of bytes. */
const MODES = { debug: [0, 1], simd: [0, 1], relaxed: [0, 1, 2, 3, 4, 5] } as const;
const bitsOf = (data: Float32Array) => new Uint32Array(data.buffer);

/** Rows of blocks: scales and minimums of 16 bits, whose products are exact as those of files are, and all integers of the dtype. */
function blocksOf(random: Random, dtype: CodedDtype, n: number, k: number): Uint8Array {
  const { length, bytes } = CODED_BLOCKS[dtype];
  const out = new Uint8Array(((n * k) / length) * bytes);
  const view = new DataView(out.buffer);
  const size = () => random.int(0, 9) * random.int(-(2 ** 12), 2 ** 12) * 2 ** random.int(-26, -12);
  for (let at = 0; at < out.length; at += bytes) {
    view.setFloat32(at, size(), true);
    if (bytes - length > 4) view.setFloat32(at + 4, size(), true);
    for (let i = bytes - length; i < bytes; i++)
      view.setInt8(at + i, dtype === "I4_32_MIN" ? random.int(0, 15) : random.int(-128, 127));
  }
  return out;
}

/** A matrix of blocks as the twins pack it. */
function packed(random: Random, dtype: CodedDtype, n: number, k: number) {
  const blocks = blocksOf(random, dtype, n, k);
  const format = formatOf({ dtype }, true);
  const panels = panelsOf(n);
  const type = -CODED_BLOCKS[dtype].bytes;
  const w = new Uint8Array(panels * FORMATS[format].panelBytes(k)).fill(7);
  const sums = FORMATS[format].bits === 4 ? null : new Uint8Array(panels * FORMATS[format].sumBytes(k)).fill(7);
  const mins = FORMATS[format].mins ? new Float32Array((panels * FORMATS[format].minBytes(k)) / 4).fill(7) : null;
  const packing: Arguments<"pack_blocks"> = [w, sums, blocks, n, k, type, 0, panels];
  reference.pack_blocks(...packing);
  if (mins) reference.pack_mins(mins, blocks, n, k, type, 0, panels);
  return { blocks, format, panels, type, w, sums, mins };
}

describe.each(builds)("blocks of integers in the %s build", (build) => {
  const instance = load(build);

  test.each(DTYPES)("%s is packed as its twin does, whole and in pieces", (dtype) => {
    const random = createRandom(1);
    for (const [n, k] of [
      [1, 32],
      [9, 64],
      [24, 96],
    ] as const) {
      const { blocks, panels, type, w, sums, mins } = packed(random, dtype, n, k);
      const empty = [new Uint8Array(w.length).fill(9), sums && new Uint8Array(sums.length).fill(9)] as const;
      const args: Arguments<"pack_blocks"> = [...empty, blocks, n, k, type, 0, panels];
      for (const [begin, end] of pieces(random, panels)) {
        args[6] = begin;
        args[7] = end;
        runKernel(instance, "pack_blocks", args);
      }
      expect(args[0]).toEqual(w);
      expect(args[1]).toEqual(sums);
      if (mins) {
        const own: Arguments<"pack_mins"> = [new Float32Array(mins.length).fill(9), blocks, n, k, type, 0, panels];
        runKernel(instance, "pack_mins", own);
        expect(own[0]).toEqual(mins);
      }
    }
  });

  test.each([1, 2, 3, 4, 5, 6, 9, 13])(
    "linear_q8 has the bits of its twin with a scale for 16 inputs, %i rows",
    (rows) => {
      const random = createRandom(20 + rows);
      for (const [n, k] of [
        [44, 64],
        [9, 1056],
        [72, 288],
      ] as const) {
        const { w, sums, panels } = packed(random, "I8_16", n, k);
        for (const mode of sampled(MODES[build], 1, (each) => each >> 1, rows + n)) {
          const x = integersFor("q8-16", floats(random, rows * k), k, mode);
          const out = new Float32Array(rows * 8 * panels).fill(7);
          const shape = linearShape(FORMATS["q8-16"], { panels, k, outStride: 8 * panels, mode });
          const args: Arguments<"linear_q8"> = [out, x, w, sums as Uint8Array, null, shape, 0, rows];
          const want = copyArguments<"linear_q8">(args);
          reference.linear_q8(...want);
          runKernel(instance, "linear_q8", args);
          expect(bitsOf(args[0]), `mode ${mode} n ${n} k ${k}`).toEqual(bitsOf(want[0]));
        }
      }
    },
  );

  test.each(DTYPES.filter((dtype) => dtype.endsWith("_MIN")))(
    "subtract_mins of %s has the bits of its twin",
    (dtype) => {
      const random = createRandom(3);
      for (const [n, k] of [
        [1, 32],
        [44, 96],
        [20, 16_416],
      ] as const) {
        const { format, mins, panels } = packed(random, dtype, n, k);
        for (const rows of [1, 2, 3, 4, 5, 9]) {
          // Chunks of blocks matter once, their modes always.
          const modes = k > 1000 && rows > 1 ? [0] : MODES[build];
          for (const mode of modes) {
            const x = integersFor(format, floats(random, rows * k), k, mode);
            const shape = linearShape(FORMATS[format], { panels, k, outStride: 8 * panels + 8, mode });
            const out = floats(random, rows * (8 * panels + 8));
            const scratch = new Float32Array(MINS_SCRATCH / 4);
            const args: Arguments<"subtract_mins"> = [out, x, mins as Float32Array, scratch, shape, 0, rows];
            const want = copyArguments<"subtract_mins">(args);
            reference.subtract_mins(...want);
            const split = copyArguments<"subtract_mins">(args);
            runKernel(instance, "subtract_mins", args);
            expect(bitsOf(args[0]), `mode ${mode} rows ${rows} n ${n} k ${k}`).toEqual(bitsOf(want[0]));
            for (const [begin, end] of pieces(random, rows)) {
              split[5] = begin;
              split[6] = end;
              runKernel(instance, "subtract_mins", split);
            }
            expect(bitsOf(split[0])).toEqual(bitsOf(args[0]));
          }
        }
      }
    },
  );

  test.each(DTYPES)("rows of a table of %s are the floats of its blocks, bit for bit", (dtype) => {
    const random = createRandom(4);
    const [n, k] = [19, 96];
    const { blocks, format, w, mins } = packed(random, dtype, n, k);
    const want = decodeFloats({ name: "w", dtype, shape: [n, k], bytes: blocks }, "");
    const ids = Int32Array.from({ length: n }, (_, i) => i);
    const shape = {
      n,
      k,
      format: FORMATS[format].bits === 4 ? WEIGHT_Q4 : WEIGHT_Q8,
      block: FORMATS[format].block(k),
      scale: 1,
    };
    const args: Arguments<"embed_rows"> = [new Float32Array(n * k), ids, w, mins, shape, 0, n];
    const twin = copyArguments<"embed_rows">(args);
    runKernel(instance, "embed_rows", args);
    expect(bitsOf(args[0])).toEqual(bitsOf(want));
    reference.embed_rows(...twin);
    expect(bitsOf(twin[0])).toEqual(bitsOf(want));
  });
});
