// Projections with weights of 8 and 4 bits, with and without minimums, and activations of 14 bits (exact), or 7 or 8 bits with a scale a block (fast).

import { LINEAR_SCRATCH, PLAIN_CODES } from "../../assembly/layout.ts";
import { CODED_BLOCKS, type CodedDtype } from "../../src/base/tensor/dtypes.ts";
import { FORMATS, integerRowBytes, linearShape, panelsOf, quantizing } from "../../src/layers/linear/formats.ts";

import {
  linear_codebook,
  linear_lookup,
  linear_q4,
  linear_q4_k,
  linear_q8,
  subtract_mins,
} from "../../src/reference/linear.ts";
import { LinearShape as LinearStruct, NULL } from "../../src/wasm/abi.ts";
import { Layout, pointer } from "../../src/wasm/memory.ts";
import type { Build } from "../lib/builds.ts";
import type { Case, Prepared } from "../lib/case.ts";
import { fill } from "../lib/random.ts";
import { type LinearShape, quantizedShapes } from "../lib/shapes.ts";

/** "q8-16" is what Q6_K becomes, "q4-min" what Q4_1 does, "q4-k" what Q4_K does, "q1" and "q2" what Q1_0 and Q2_0 do, "q2-row" what BitNet's matrices do;
 * the last four what the types of these names do, which would be "q8", and "nvfp4" "q8-16", as int8. */
const INTEGERS = [
  ...(["q8", "q8-row", "q8-16", "q4", "q4-min", "q4-k", "q2", "q2-row", "q1"] as const),
  ...(["mxfp4", "nvfp4", "iq4-nl", "iq4-xs"] as const),
] as const;
type IntegerFormat = (typeof INTEGERS)[number];

/** The kernel of a format. */
function kernelOf(format: IntegerFormat) {
  const { bits, shape } = FORMATS[format];
  if (shape.type) return "linear_codebook";
  if (format === "q4-k") return "linear_q4_k";
  return bits < 4 ? "linear_lookup" : bits === 4 ? "linear_q4" : "linear_q8";
}

/** Panels that are packed; a larger matrix repeats them, which makes no difference to the speed. */
const DISTINCT_PANELS = 64;

function prepare(
  { host, kernels, memory }: Build,
  { m, n, k }: LinearShape,
  format: IntegerFormat,
  fast: boolean,
): Prepared {
  const panels = panelsOf(n);
  const width = 8 * panels;
  const bytes = FORMATS[format].panelBytes(k);
  const sumsOf = FORMATS[format].sumBytes(k);
  const own = Math.min(panels, DISTINCT_PANELS);
  const layout = new Layout();
  const places = {
    w: layout.take(panels * bytes),
    x: layout.floats(m * k),
    rows: layout.take(m * integerRowBytes(k)),
    out: layout.floats(m * width),
    // What the kernel takes beside weights: its scratch, or the sums of weights.
    beside: layout.take(kernelOf(format) === "linear_q8" ? panels * sumsOf : LINEAR_SCRATCH),
    mins: layout.take(panels * FORMATS[format].minBytes(k)),
    shape: layout.take(LinearStruct.bytes),
    floats: layout.floats(own * 8 * k),
  };
  const block = memory.allocate("bench", layout.bytes);
  const at = (place: keyof typeof places) => block + places[place];
  const [w, rows, beside] = [pointer.u8(at("w")), pointer.u8(at("rows")), pointer.u8(at("beside"))];
  const [x, floats, out] = [pointer.f32(at("x")), pointer.f32(at("floats")), pointer.f32(at("out"))];
  fill(memory.f32(x, m * k), 1);
  fill(memory.f32(floats, own * 8 * k), 2);
  const mins = pointer.f32(at("mins"));
  fill(memory.f32(mins, (panels * FORMATS[format].minBytes(k)) / 4), 3);
  if (kernelOf(format) === "linear_lookup") {
    // Any bytes are codes; scales are such that sums stay small.
    const blocks = memory.u8(floats, own * 8 * k * 4);
    for (let i = 0; i < blocks.length; i++) blocks[i] = (i * 2_654_435_761) >>> 24;
    const bytes = format === "q2-row" ? 20 : 18;
    for (let at = 0; at < blocks.length; at += bytes) blocks.set([0, 0, 0x80, 0x3c].slice(0, bytes - 16), at);
    if (bytes === 18) for (let at = 0; at < blocks.length; at += bytes) blocks[at + 1] = 0x20;
    kernels.pack_lookup(w, pointer.u8(floats), own * 8, k, FORMATS[format].block(k), PLAIN_CODES, 0, own);
  } else if (kernelOf(format) === "linear_codebook") {
    // Any bytes are scales and indices; of a float16, or an exponent, such as are near 2^-8.
    const [dtype] = FORMATS[format].keeps as [CodedDtype];
    const { length, bytes: each } = CODED_BLOCKS[dtype];
    const blocks = memory.u8(floats, ((own * 8 * k) / length) * each);
    for (let i = 0; i < blocks.length; i++) blocks[i] = (i * 2_654_435_761) >>> 24;
    for (let at = 0; at < blocks.length; at += each) blocks.set(format === "mxfp4" ? [119] : [0, 0x1c], at);
    kernels.pack_codebook(w, pointer.u8(floats), own * 8, k, FORMATS[format].shape.type as number, 0, own);
  } else if (kernelOf(format) === "linear_q4_k") {
    // Any bytes are scales and nibbles.
    const blocks = memory.u8(floats, ((own * 8 * k) / 256) * 144);
    for (let i = 0; i < blocks.length; i++) blocks[i] = (i * 2_654_435_761) >>> 24;
    for (let at = 0; at < blocks.length; at += 144) blocks.set([0, 0x10, 0, 0x10], at);
    kernels.pack_q4_k(w, pointer.u8(floats), own * 8, k, 0, own);
  } else if (kernelOf(format) === "linear_q4") kernels.pack_q4(w, floats, own * 8, k, 0, own);
  else kernels.pack_q8(w, beside, floats, own * 8, k, FORMATS[format].block(k), 0, own);
  for (let p = own; p < panels; p += own) {
    const count = Math.min(own, panels - p) * bytes;
    memory.u8(w + p * bytes, count).set(memory.u8(w, count));
    const sums = Math.min(own, panels - p) * sumsOf;
    memory.u8(beside + p * sumsOf, sums).set(memory.u8(beside, sums));
  }
  const mode = host.dotModes[fast ? "fast" : "exact"];
  const shared = quantizing(FORMATS[format], k, mode);
  const shape = linearShape(FORMATS[format], { panels, k, outStride: width, mode });
  LinearStruct.store(memory.view(), at("shape"), shape);
  const project = (from: number, end: number) => {
    const linear = kernels[kernelOf(format)];
    const shapeAt = pointer.linearShape(at("shape"));
    linear(out, rows, w, beside, NULL, shapeAt, from, end);
    if (FORMATS[format].mins) kernels.subtract_mins(out, rows, mins, pointer.f32(beside), shapeAt, from, end);
  };
  return {
    run() {
      kernels.quantize_rows(rows, x, k, k, shared.block, shared.mode, 0, m);
      project(0, m);
    },
    reads: [
      { at: w, length: panels * bytes },
      { at: mins, length: panels * FORMATS[format].minBytes(k) },
    ],
    check() {
      // The first and the last row by the first panels. The sums are integers, so the twin has the same bits.
      const some = Math.min(own, 2);
      const integers = memory.u8(rows, m * integerRowBytes(k)).slice();
      const weights = memory.u8(w, some * bytes).slice();
      for (const row of new Set([0, m - 1])) {
        const want = new Float32Array(m * width);
        const empty = new Uint8Array(0);
        const linear = { linear_codebook, linear_lookup, linear_q4, linear_q4_k, linear_q8 }[kernelOf(format)];
        const part = { ...shape, panels: some };
        linear(want, integers, weights, empty, null, part, row, row + 1);
        if (FORMATS[format].mins) {
          const own = memory.f32(mins, (some * FORMATS[format].minBytes(k)) / 4).slice();
          subtract_mins(want, integers, own, new Float32Array(0), part, row, row + 1);
        }
        const got = memory.f32(out + 4 * row * width, 8 * some);
        for (let i = 0; i < 8 * some; i++)
          if (!Object.is(got[i], want[row * width + i]))
            throw new Error(
              `bench: ${format} gave ${got[i]} for ${want[row * width + i]}; no time is measured for a wrong result`,
            );
      }
    },
    release() {
      memory.free(block);
    },
  };
}

/** What indices are compared with: the same weights as int8. */
function int8Of(shape: LinearShape, format: IntegerFormat, fast: boolean) {
  const name = format === "nvfp4" ? "q8-16" : "q8";
  return { name, prepare: (build: Build) => prepare(build, shape, name, fast) };
}

export const quantizedLinearCases: readonly Case[] = quantizedShapes.flatMap((shape) =>
  INTEGERS.flatMap((format) =>
    [false, true].map((fast) => ({
      kernel: `${kernelOf(format)} ${format}${fast ? " fast" : ""}`,
      shape: `${shape.m}x${shape.n}x${shape.k}`,
      quick: shape.quick === true && (format === "q8" || format === "q4" || format === "q1"),
      flops: 2 * shape.m * shape.n * shape.k,
      limit: shape.m > 1 ? ("arithmetic" as const) : ("reading" as const),
      prepare: (build: Build) => prepare(build, shape, format, fast),
      ...(kernelOf(format) === "linear_codebook" && { beside: int8Of(shape, format, fast) }),
    })),
  ),
);
