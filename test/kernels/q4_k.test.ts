// Weights in super-blocks of 4 bits, as GGUF's Q4_K has them: packed, multiplied and read as rows.

import { describe, expect, test } from "vitest";
import { LINEAR_SCRATCH, WEIGHT_Q4_K } from "../../assembly/layout.ts";
import { type BlockTensor, CODED_BLOCKS, decodeFloats, FILE_BLOCKS } from "../../src/base/tensor/dtypes.ts";
import { ggmlBlocks } from "../../src/base/tensor/ggml-blocks.ts";
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

const FORMAT = FORMATS["q4-k"];
/** Modes of a build: 7 bits where odd; i16 pairs, and the two paths of i8 where there are products of bytes. */
const MODES = { debug: [0, 1], simd: [0, 1], relaxed: [0, 1, 2, 3, 4, 5] } as const;
const bitsOf = (data: Float32Array) => new Uint32Array(data.buffer);

/** Super-blocks of any bytes, whose two halves are of any kind but NaN and infinities; of the largest integers where `most`. */
function blocksOf(random: Random, n: number, k: number, most = false): Uint8Array {
  const { length, bytes } = CODED_BLOCKS.I4_K;
  const blocks = Uint8Array.from({ length: ((n * k) / length) * bytes }, () => (most ? 255 : random.int(0, 255)));
  const view = new DataView(blocks.buffer);
  for (let at = 0; at < blocks.length; at += bytes)
    for (const half of [at, at + 2]) view.setUint16(half, random.int(0, 0x7bff) | (random.int(0, 1) << 15), true);
  return blocks;
}

/** A matrix as the twin packs it. */
function packed(random: Random, n: number, k: number, most = false) {
  const panels = panelsOf(n);
  const blocks = blocksOf(random, n, k, most);
  const w = new Uint8Array(panels * FORMAT.panelBytes(k)).fill(7);
  reference.pack_q4_k(w, blocks, n, k, 0, panels);
  return { panels, blocks, w };
}

/** Of one panel and of parts of unequal length; of more super-blocks of eight rows than fit the scratch at a time. */
const SIZES = [
  [5, 256],
  [17, 512],
  [44, 768],
  [9, 2560],
] as const;

describe.each(builds)("super-blocks in the %s build", (build) => {
  const instance = load(build);

  test("they are packed as their twin does, whole and in pieces", () => {
    const random = createRandom(1);
    for (const [n, k] of SIZES) {
      const { panels, blocks, w } = packed(random, n, k);
      const args: Arguments<"pack_q4_k"> = [new Uint8Array(w.length).fill(9), blocks, n, k, 0, panels];
      for (const [begin, end] of pieces(random, panels)) {
        [args[4], args[5]] = [begin, end];
        runKernel(instance, "pack_q4_k", args);
      }
      expect(args[0]).toEqual(w);
    }
  });

  test.each([1, 2, 3, 4, 5, 8, 9, 13])("linear_q4_k has the bits of its twin, %i rows", (rows) => {
    const random = createRandom(rows);
    for (const [n, k] of sampled(SIZES, 2, ([each]) => each, rows)) {
      // The largest integers of all: the largest sums.
      const most = rows === 2;
      const { panels, w } = packed(random, n, k, most);
      for (const mode of sampled(MODES[build], 1, (each) => each >> 1, rows + n)) {
        const values = floats(random, rows * k);
        if (most) values.fill(1, 0, k).fill(-1, k);
        const x = integersFor("q4-k", values, k, mode);
        const shape = linearShape(FORMAT, { panels, k, outStride: 8 * panels + 8, mode });
        const out = floats(random, rows * (8 * panels + 8));
        const bias = floats(random, 8 * panels);
        const scratch = new Uint8Array(LINEAR_SCRATCH).fill(0x7f);
        const args: Arguments<"linear_q4_k"> = [out, x, w, scratch, bias, shape, 0, rows];
        const want = copyArguments<"linear_q4_k">(args);
        reference.linear_q4_k(...want);
        const split = copyArguments<"linear_q4_k">(args);
        runKernel(instance, "linear_q4_k", args);
        expect(bitsOf(args[0]), `mode ${mode} n ${n} k ${k}`).toEqual(bitsOf(want[0]));
        for (const [begin, end] of pieces(random, rows)) {
          [split[6], split[7]] = [begin, end];
          runKernel(instance, "linear_q4_k", split);
        }
        expect(bitsOf(split[0])).toEqual(bitsOf(args[0]));
      }
    }
  });

  test("rows of a table are the floats of its blocks, bit for bit", () => {
    const [n, k] = [19, 512];
    const { blocks, w } = packed(createRandom(4), n, k);
    const stored = { name: "w", dtype: "I4_K", shape: [n, k], bytes: blocks } as const;
    const tensor: BlockTensor = { ...stored, [FILE_BLOCKS]: ggmlBlocks("Q4_K", new Uint8Array(0)) };
    const want = decodeFloats(tensor, "");
    const ids = Int32Array.from({ length: n }, (_, i) => i);
    const shape = { n, k, format: WEIGHT_Q4_K, block: FORMAT.block(k), scale: 1 };
    expect(FORMAT.rows).toBe(WEIGHT_Q4_K);
    const args: Arguments<"embed_rows"> = [new Float32Array(n * k), ids, w, null, shape, 0, n];
    const twin = copyArguments<"embed_rows">(args);
    runKernel(instance, "embed_rows", args);
    expect(bitsOf(args[0])).toEqual(bitsOf(want));
    reference.embed_rows(...twin);
    expect(bitsOf(twin[0])).toEqual(bitsOf(want));
  });
});
