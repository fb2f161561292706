// Blocks of GGUF's types, packed as they lie in files.

import { describe, expect, test } from "vitest";
import { PLAIN_CODES } from "../../assembly/layout.ts";
import {
  type BlockTensor,
  blocksOf,
  CODED_BLOCKS,
  type CodedDtype,
  codedOf,
  FILE_BLOCKS,
} from "../../src/base/tensor/dtypes.ts";
import { GGML_FORMATS, type GgmlDtype, ggmlBlocks } from "../../src/base/tensor/ggml-blocks.ts";
import { FORMATS, formatOf, panelsOf } from "../../src/layers/linear/formats.ts";
import { reference } from "../../src/reference/index.ts";
import { builds, createRandom, load, pieces, type Random, runKernel } from "../support/harness.ts";

const DTYPES = (Object.keys(GGML_FORMATS) as GgmlDtype[]).filter((dtype) => !/^Q[12]_0$/.test(dtype));
const isOfCodes = (dtype: GgmlDtype) => FORMATS[formatOf({ dtype: GGML_FORMATS[dtype].coded }, true)].bits < 4;

/** Float16 numbers that are hard: zeros, subnormals, the largest, infinities and a NaN. */
const HALVES = [0, 0x8000, 1, 0x83ff, 0x3ff, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e01, 0xfe00, 0x1c00] as const;

/** Where the float16 numbers of a block lie; of IQ1_M its parts are random. */
const AT: Partial<Record<GgmlDtype, readonly number[]>> = {
  ...{ Q2_K: [80, 82], Q3_K: [108], Q6_K: [208], Q4_1: [0, 2], Q5_1: [0, 2], Q4_K: [0, 2], Q5_K: [0, 2] },
  ...{ TQ1_0: [52], TQ2_0: [64], MXFP4: [], NVFP4: [], IQ1_M: [], I2_S: [] },
};

/** A matrix of random blocks with hard scales, all bytes of a file. */
function matrixOf(random: Random, dtype: GgmlDtype, n: number, k: number): BlockTensor {
  const { length, bytes: width, coded, tail = 0 } = GGML_FORMATS[dtype];
  const bytes = Uint8Array.from({ length: ((n * k) / length) * width }, () => random.int(0, 255));
  const view = new DataView(bytes.buffer);
  for (let at = 0; at < bytes.length; at += width) {
    for (const own of AT[dtype] ?? [0])
      view.setUint16(at + own, HALVES[random.int(0, HALVES.length - 1)] as number, true);
    // Digits of base 3 are at most 242.
    if (dtype === "TQ1_0") for (let i = at; i < at + 52; i++) bytes[i] = Math.min(bytes[i] as number, 242);
  }
  const behind = new Uint8Array(tail);
  if (tail > 0) new DataView(behind.buffer).setFloat32(0, -0.7, true);
  const blocks = ggmlBlocks(dtype, behind);
  return { name: "w", dtype: coded, shape: [n, k], bytes, [FILE_BLOCKS]: blocks };
}

/** A panel's bytes, in which scales that are NaN have the same bits: engines choose their sign. */
function withPlainNaN(w: Uint8Array, step: number): Uint8Array {
  const view = new DataView(w.buffer, w.byteOffset, w.length);
  for (let at = 0; at < w.length; at += step)
    for (let i = at; i < at + 32; i += 4)
      if (Number.isNaN(view.getFloat32(i, true))) view.setUint32(i, 0x7fc00000, true);
  return w;
}

describe.each(builds)("blocks of GGUF in the %s build", (build) => {
  const instance = load(build);

  test.each(DTYPES)("%s is packed as its decoded blocks are, bit for bit, whole and in pieces", (dtype) => {
    const random = createRandom(7);
    for (const [n, k] of [
      [1, 256],
      [13, 512],
      [24, 768],
    ] as const) {
      const matrix = matrixOf(random, dtype, n, k);
      const { type, before } = blocksOf(matrix) as NonNullable<ReturnType<typeof blocksOf>>;
      const from = new Uint8Array(before.length + matrix.bytes.length);
      from.set(before);
      from.set(matrix.bytes, before.length);
      // Types that have a kernel of their own that packs are packed as the others, too.
      const { dtype: plain, bytes: coded } = codedOf(matrix);
      const format = FORMATS[formatOf({ dtype: plain }, true)];
      const panels = panelsOf(n);
      const decoded = -CODED_BLOCKS[plain as CodedDtype].bytes;
      const array = (bytes: number) => new Uint8Array(panels * bytes).fill(9);
      const want = { w: array(format.panelBytes(k)), sums: array(format.sumBytes(k)), mins: array(format.minBytes(k)) };
      const got = { w: want.w.slice(), sums: want.sums.slice(), mins: want.mins.slice() };
      const floats = (bytes: Uint8Array) => new Float32Array(bytes.buffer);
      const block = format.block(k);
      if (isOfCodes(dtype)) reference.pack_lookup(want.w, coded, n, k, block, PLAIN_CODES, 0, panels);
      else reference.pack_blocks(want.w, format.bits === 4 ? null : want.sums, coded, n, k, decoded, 0, panels);
      if (format.mins) reference.pack_mins(floats(want.mins), coded, n, k, decoded, 0, panels);
      for (const [begin, end] of pieces(random, panels)) {
        if (isOfCodes(dtype)) runKernel(instance, "pack_lookup", [got.w, from, n, k, block, type, begin, end]);
        else
          runKernel(instance, "pack_blocks", [
            got.w,
            format.bits === 4 ? null : got.sums,
            ...([from, n, k, type, begin, end] as const),
          ]);
        if (format.mins) runKernel(instance, "pack_mins", [floats(got.mins), from, n, k, type, begin, end]);
      }
      const step = isOfCodes(dtype) ? got.w.length : format.panelBytes(k) / (k / block);
      expect(withPlainNaN(got.w, step)).toEqual(withPlainNaN(want.w, step));
      expect(got.sums).toEqual(want.sums);
      expect(withPlainNaN(got.mins, 32)).toEqual(withPlainNaN(want.mins, 32));
      const twin = { w: array(format.panelBytes(k)), sums: array(format.sumBytes(k)), mins: array(format.minBytes(k)) };
      if (isOfCodes(dtype)) reference.pack_lookup(twin.w, from, n, k, block, type, 0, panels);
      else reference.pack_blocks(twin.w, format.bits === 4 ? null : twin.sums, from, n, k, type, 0, panels);
      if (format.mins) reference.pack_mins(floats(twin.mins), from, n, k, type, 0, panels);
      expect(withPlainNaN(twin.w, step)).toEqual(want.w);
      expect(twin.sums).toEqual(want.sums);
      expect(withPlainNaN(twin.mins, 32)).toEqual(want.mins);
    }
  });
});
