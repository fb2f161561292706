// Indices of 4 bits into 16 integers, as GGUF's IQ4_NL, IQ4_XS, MXFP4 and NVFP4 have them: packed, multiplied and read as rows.

import { describe, expect, test } from "vitest";
import { LINEAR_SCRATCH } from "../../assembly/layout.ts";
import { type BlockTensor, CODED_BLOCKS, decodedOf, decodeFloats, FILE_BLOCKS } from "../../src/base/tensor/dtypes.ts";
import { GGML_FORMATS, ggmlBlocks } from "../../src/base/tensor/ggml-blocks.ts";
import {
  FORMATS,
  formatOf,
  integerRowBytes,
  linearShape,
  panelsOf,
  quantizing,
} from "../../src/layers/linear/formats.ts";
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
import { sampled } from "../support/sampled.ts";

/** Modes of a build: 7 bits where odd; i16 pairs, and the two paths of i8 where there are products of bytes. */
const MODES = { debug: [0, 1], simd: [0, 1], relaxed: [0, 1, 2, 3, 4, 5] } as const;
/** The bits of floats, in which all NaN are one: engines choose theirs. */
const bitsOf = (data: Float32Array) =>
  new Uint32Array(Float32Array.from(data, (x) => (Number.isNaN(x) ? NaN : x)).buffer);

/** Scales as halves, and as bytes: zeros, subnormals, the largest, infinities and NaN; of bytes these are numbers or 0. */
const HALVES = [0, 0x8000, 1, 0x83ff, 0x3ff, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e01, 0x1c00] as const;
const BYTES = [0, 1, 2, 7, 8, 0x7e, 0x7f, 0x80, 0x88, 0xfe, 0xff] as const;

type Name = "IQ4_NL" | "IQ4_XS" | "MXFP4" | "NVFP4";
/** Where a block has scales that are hard if asked for. */
const SCALES = { IQ4_NL: [0], IQ4_XS: [0], MXFP4: [0], NVFP4: [0, 1, 2, 3] } as const;

/** Blocks of any nibbles and ordinary scales; hard ones where `hard`; of the largest integers where `most`. */
function blocksOf(random: Random, name: Name, n: number, k: number, kind: "plain" | "hard" | "most"): BlockTensor {
  const { length, bytes, coded } = GGML_FORMATS[name];
  const blocks = Uint8Array.from({ length: ((n * k) / length) * bytes }, () => random.int(0, 255));
  const view = new DataView(blocks.buffer);
  const halves = name.startsWith("IQ4");
  for (let at = 0; at < blocks.length; at += bytes) {
    // Twelve, in the first half of a block negative; -127.
    if (kind === "most") blocks.fill(halves ? 0 : at % (2 * bytes) === 0 ? 0xff : 0x77, at, at + bytes);
    for (const own of SCALES[name])
      if (kind === "hard" && halves) view.setUint16(at + own, HALVES[random.int(0, HALVES.length - 1)]!, true);
      else if (kind === "hard") blocks[at + own] = BYTES[random.int(0, BYTES.length - 1)]!;
      else if (halves) view.setUint16(at + own, random.int(0x2000, 0x3c00) | (random.int(0, 1) << 15), true);
      else blocks[at + own] = name === "MXFP4" ? random.int(110, 130) : random.int(0, 126);
  }
  return {
    ...{ name: "w", dtype: coded, shape: [n, k], bytes: blocks },
    [FILE_BLOCKS]: ggmlBlocks(name, new Uint8Array(0)),
  };
}

/** A matrix as the twin packs it, and as int8 with their sums. */
function packed(name: Name, { bytes, dtype, shape }: BlockTensor) {
  const [n, k] = shape as [number, number];
  const [panels, { type }] = [panelsOf(n), GGML_FORMATS[name]];
  const format = FORMATS[formatOf({ dtype: dtype as "I4_NL" }, true)];
  const int8 = FORMATS[formatOf({ dtype: decodedOf(dtype as "I4_NL") as "I8_32" }, true)];
  const w = new Uint8Array(panels * format.panelBytes(k)).fill(7);
  reference.pack_codebook(w, bytes, n, k, type, 0, panels);
  const q8 = { w: new Uint8Array(panels * int8.panelBytes(k)), sums: new Uint8Array(panels * int8.sumBytes(k)) };
  reference.pack_blocks(q8.w, q8.sums, bytes, n, k, type, 0, panels);
  return { panels, format, int8, type, w, q8 };
}

/** Of one panel and of parts of unequal length; of more inputs than scales are widened of, and than fit scratch at a time. */
const SIZES = [
  [5, 256],
  [17, 512],
  [43, 768],
  [9, 2560],
] as const;

describe.each(builds)("indices into codebooks in the %s build", (build) => {
  const instance = load(build);

  describe.each(["IQ4_NL", "IQ4_XS", "MXFP4", "NVFP4"] as const)("%s", (name) => {
    test("is packed as its twin does, whole and in pieces, in the bytes of the file and at most 2 % more", () => {
      const random = createRandom(1);
      for (const [n, k] of SIZES) {
        const tensor = blocksOf(random, name, n, k, "hard");
        const { panels, format, type, w } = packed(name, tensor);
        const { length, bytes } = CODED_BLOCKS[tensor.dtype as "I4_NL"];
        expect(format.panelBytes(k) / ((8 * k * bytes) / length)).toBeLessThanOrEqual(1.02);
        expect(format.panelBytes(k)).toBeGreaterThanOrEqual((8 * k * bytes) / length);
        const args: Arguments<"pack_codebook"> = [w.slice().fill(9), tensor.bytes, n, k, type, 0, panels];
        for (const [begin, end] of pieces(random, panels)) {
          [args[5], args[6]] = [begin, end];
          runKernel(instance, "pack_codebook", args);
        }
        expect(args[0]).toEqual(w);
      }
    });

    test.each([1, 2, 3, 4, 5, 8, 9, 13])("has the bits of int8 with the same scales, %i rows", (rows) => {
      const random = createRandom(rows);
      // MXFP4 and IQ4_NL also have rows of 32, and NVFP4 of 64, that are no whole super-blocks.
      const odd = [[20, 1120 - (name === "NVFP4" ? 32 : 0)]] as const;
      for (const [n, k] of sampled(name === "IQ4_XS" ? SIZES : [...SIZES, ...odd], 2, ([each]) => each, rows)) {
        const kind = (["plain", "most", "hard"] as const)[(rows + n) % 3]!;
        const { panels, format, int8, w, q8 } = packed(name, blocksOf(random, name, n, k, kind));
        for (const mode of sampled(MODES[build], 1, (each) => each >> 1, rows + n)) {
          const x = new Uint8Array(rows * integerRowBytes(k));
          const values = floats(random, rows * k);
          if (kind === "most") values.fill(1, 0, k).fill(-1, k);
          const fast = quantizing(format, k, mode);
          reference.quantize_rows(x, values, k, k, fast.block, fast.mode, 0, rows);
          const sizes = { panels, k, outStride: 8 * panels + 8, mode };
          const bias = floats(random, 8 * panels);
          const out = floats(random, rows * sizes.outStride);
          const scratch = new Uint8Array(LINEAR_SCRATCH).fill(0x7f);
          const shape = linearShape(format, sizes);
          const args: Arguments<"linear_codebook"> = [out, x, w, scratch, bias, shape, 0, rows];
          const twin = copyArguments<"linear_codebook">(args);
          const want = out.slice();
          const split = copyArguments<"linear_codebook">(args);
          reference.linear_q8(want, x, q8.w, q8.sums, bias, { ...linearShape(int8, sizes), mode: shape.mode }, 0, rows);
          reference.linear_codebook(...twin);
          runKernel(instance, "linear_codebook", args);
          const what = `${kind}, mode ${mode} n ${n} k ${k}`;
          expect(bitsOf(twin[0]), what).toEqual(bitsOf(want));
          expect(bitsOf(args[0]), what).toEqual(bitsOf(want));
          for (const [begin, end] of pieces(random, rows)) {
            [split[6], split[7]] = [begin, end];
            runKernel(instance, "linear_codebook", split);
          }
          expect(bitsOf(split[0])).toEqual(bitsOf(want));
        }
      }
    });

    test("rows of a table are the floats of its blocks, bit for bit", () => {
      const [n, k] = [19, 512];
      const tensor = blocksOf(createRandom(4), name, n, k, "hard");
      const { format, type, w } = packed(name, tensor);
      const want = decodeFloats(tensor, "");
      const ids = Int32Array.from({ length: n }, (_, i) => i);
      const shape = { n, k, format: format.rows, block: format.block(k), scale: 1 };
      expect(format.rows).toBe(type);
      const args: Arguments<"embed_rows"> = [new Float32Array(n * k), ids, w, null, shape, 0, n];
      const twin = copyArguments<"embed_rows">(args);
      runKernel(instance, "embed_rows", args);
      expect(bitsOf(args[0])).toEqual(bitsOf(want));
      reference.embed_rows(...twin);
      expect(bitsOf(twin[0])).toEqual(bitsOf(want));
    });
  });
});
