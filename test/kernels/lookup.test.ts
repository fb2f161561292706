// Weights of 1 and 2 bits: packed, and multiplied by tables of sums or, for many rows, as integers of 8 bits.

import { describe, expect, test } from "vitest";
import { LINEAR_SCRATCH, PLAIN_CODES, WEIGHT_LOOKUP } from "../../assembly/layout.ts";
import { CODED_BLOCKS, decodeFloats } from "../../src/base/tensor/dtypes.ts";
import { FORMATS, linearShape, panelsOf } from "../../src/layers/linear/formats.ts";

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

const CODES = [
  ["q1", "I1_128"],
  ["q2", "I2_64"],
  ["q2-row", "I2_ROW"],
] as const;
type Name = (typeof CODES)[number][0];
const dtypeOf = (name: Name) => CODES.find(([each]) => each === name)![1];
/** Modes of a build: 7 bits where odd; i16 pairs, and the two paths of i8 where there are products of bytes. */
const MODES = { debug: [0, 1], simd: [0, 1], relaxed: [0, 1, 2, 3, 4, 5] } as const;
const bitsOf = (data: Float32Array) => new Uint32Array(data.buffer);

/** Rows of blocks with all codes; scales of 16 bits are of any kind but NaN and infinities, the largest among them. */
function blocksOf(random: Random, name: Name, n: number, k: number): Uint8Array {
  const { length, bytes } = CODED_BLOCKS[dtypeOf(name)];
  const blocks = Uint8Array.from({ length: ((n * k) / length) * bytes }, () => random.int(0, 255));
  const view = new DataView(blocks.buffer);
  let scale = 0;
  for (let at = 0; at < blocks.length; at += bytes) {
    if (bytes === 18) view.setUint16(at, random.int(0, 0x7bff) | (random.int(0, 1) << 15), true);
    else {
      if (at % ((k / length) * bytes) === 0) scale = random.int(-1000, 1000) / 7;
      view.setFloat32(at, scale, true);
    }
  }
  return blocks;
}

/** A matrix as the twins pack it. */
function packed(random: Random, name: Name, n: number, k: number) {
  const format = FORMATS[name];
  const [panels, block] = [panelsOf(n), format.block(k)];
  const blocks = blocksOf(random, name, n, k);
  const w = new Uint8Array(panels * format.panelBytes(k)).fill(7);
  reference.pack_lookup(w, blocks, n, k, block, PLAIN_CODES, 0, panels);
  return { format, panels, block, blocks, w };
}

/** Of one panel and an odd number of them, of one block and of more than the tables that are made at a time. */
const SIZES = [
  [5, 128],
  [9, 192],
  [9, 256],
  [17, 1088],
  [44, 1152],
  [17, 2176],
] as const;

describe.each(builds)("codes in the %s build", (build) => {
  const instance = load(build);

  test.each(CODES)("%s is packed as its twin does, whole and in pieces", (name) => {
    const random = createRandom(1);
    for (const [n, k] of SIZES.filter(([, k]) => k % (name === "q1" ? 128 : 64) === 0)) {
      const { panels, block, blocks, w } = packed(random, name, n, k);
      const args: Arguments<"pack_lookup"> = [
        new Uint8Array(w.length).fill(9),
        blocks,
        n,
        k,
        block,
        PLAIN_CODES,
        0,
        panels,
      ];
      for (const [begin, end] of pieces(random, panels)) {
        [args[6], args[7]] = [begin, end];
        runKernel(instance, "pack_lookup", args);
      }
      expect(args[0]).toEqual(w);
    }
  });

  // Up to 64 rows of 1 bit, and 32 of 2 bits, have tables.
  test.each(CODES.flatMap(([name]) => [1, 2, 9, name === "q1" ? 65 : 33].map((rows) => [name, rows] as const)))(
    "linear_lookup of %s has the bits of its twin, %i rows",
    (name, rows) => {
      const random = createRandom(rows);
      const sizes = SIZES.filter(([n, k]) => k % (name === "q1" ? 128 : 64) === 0 && n * k * rows < 2_000_000);
      for (const [n, k] of sampled(sizes, Math.ceil(sizes.length / 2), undefined, rows + build.length)) {
        const { format, panels, w } = packed(random, name, n, k);
        for (const mode of sampled(MODES[build], 1, (each) => each >> 1, rows + n)) {
          const values = floats(random, rows * k);
          // The largest numbers of all inputs: the largest sums.
          if (rows === 2) values.set(values.subarray(0, k).map(Math.sign));
          const x = integersFor(name, values, k, mode);
          const shape = linearShape(format, { panels, k, outStride: 8 * panels + 8, mode });
          const out = floats(random, rows * (8 * panels + 8));
          const bias = floats(random, 8 * panels);
          const scratch = new Uint8Array(LINEAR_SCRATCH).fill(0x7f);
          const args: Arguments<"linear_lookup"> = [out, x, w, scratch, bias, shape, 0, rows];
          const want = copyArguments<"linear_lookup">(args);
          reference.linear_lookup(...want);
          const split = copyArguments<"linear_lookup">(args);
          runKernel(instance, "linear_lookup", args);
          expect(bitsOf(args[0]), `mode ${mode} n ${n} k ${k}`).toEqual(bitsOf(want[0]));
          for (const [begin, end] of pieces(random, rows)) {
            [split[6], split[7]] = [begin, end];
            runKernel(instance, "linear_lookup", split);
          }
          expect(bitsOf(split[0])).toEqual(bitsOf(args[0]));
        }
      }
    },
  );

  test.each(CODES)("rows of a table of %s are the floats of its blocks, bit for bit", (name, dtype) => {
    const [n, k] = [19, 256];
    const { format, block, blocks, w } = packed(createRandom(4), name, n, k);
    const want = decodeFloats({ name: "w", dtype, shape: [n, k], bytes: blocks }, "");
    const ids = Int32Array.from({ length: n }, (_, i) => i);
    const shape = { n, k, format: WEIGHT_LOOKUP, block, scale: 1 };
    expect(format.rows).toBe(WEIGHT_LOOKUP);
    const args: Arguments<"embed_rows"> = [new Float32Array(n * k), ids, w, null, shape, 0, n];
    const twin = copyArguments<"embed_rows">(args);
    runKernel(instance, "embed_rows", args);
    expect(bitsOf(args[0])).toEqual(bitsOf(want));
    reference.embed_rows(...twin);
    expect(bitsOf(twin[0])).toEqual(bitsOf(want));
  });
});
