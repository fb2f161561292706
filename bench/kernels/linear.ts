import { F16_SCRATCH } from "../../assembly/layout.ts";
import { FORMATS, linearShape, packedFloats, panelsOf } from "../../src/layers/linear/formats.ts";

import { linear_f16, linear_f32, pack_rows_f32 } from "../../src/reference/linear.ts";
import { LinearShape as LinearStruct, NULL } from "../../src/wasm/abi.ts";
import { pointer } from "../../src/wasm/memory.ts";
import type { Build } from "../lib/builds.ts";
import { type Case, expectNear, type Prepared } from "../lib/case.ts";
import { fill } from "../lib/random.ts";
import { type LinearShape, linearShapes } from "../lib/shapes.ts";

/** Fewer rows than this are limited by reading the weights, more by arithmetic. */
const ROWS_TO_COMPUTE = 2;

function prepare({ kernels, memory }: Build, { m, n, k }: LinearShape): Prepared {
  const panels = panelsOf(n);
  const width = 8 * panels;
  const sizes = { out: m * width, x: m * k, w: packedFloats(n, k), bias: width, shape: LinearStruct.bytes / 4 };
  const at = Object.fromEntries(
    Object.entries(sizes).map(([name, length]) => [name, memory.allocate("bench", 4 * length)]),
  ) as Record<keyof typeof sizes, number>;
  const view = (name: keyof typeof sizes) => memory.f32(at[name], sizes[name]);

  const shape = linearShape(FORMATS.f32, { panels, k, outStride: width, xStride: k });
  LinearStruct.store(memory.view(), at.shape, shape);
  fill(view("x"), 1);
  fill(view("bias"), 2);
  const matrix = new Float32Array(n * k);
  fill(matrix, 3);
  pack_rows_f32(view("w"), matrix, n, k, 0, panels);

  const run = () =>
    kernels.linear_f32(
      pointer.f32(at.out),
      pointer.f32(at.x),
      pointer.f32(at.w),
      pointer.f32(at.bias),
      pointer.linearShape(at.shape),
      0,
      m,
    );
  return {
    run,
    reads: [{ at: at.w, length: 4 * sizes.w }],
    check() {
      // All of a large product would take minutes in float64: the first and last row by the first and last panels.
      const some = Math.min(panels, 2);
      for (const row of new Set([0, m - 1]))
        for (const p of new Set([0, panels - some])) {
          const want = new Float64Array(m * width) as unknown as Float32Array;
          const w = view("w").subarray(p * k * 8);
          linear_f32(want, view("x"), w, view("bias").subarray(8 * p), { ...shape, panels: some }, row, row + 1);
          const got = view("out").subarray(row * width + 8 * p, row * width + 8 * (p + some));
          expectNear("linear_f32", got, want.subarray(row * width, row * width + 8 * some), k * 2 ** -24);
        }
    },
    release() {
      for (const address of Object.values(at)) memory.free(address);
    },
  };
}

/** The same with weights of 16 bits, of which some in a thousand are subnormal in float16, as in real models. */
function prepareHalves({ kernels, memory }: Build, { m, n, k }: LinearShape, bf16: 0 | 1): Prepared {
  const panels = panelsOf(n);
  const width = 8 * panels;
  const bytes = {
    out: 4 * m * width,
    x: 4 * m * k,
    w: 2 * packedFloats(n, k),
    scratch: 4 * F16_SCRATCH,
    shape: LinearStruct.bytes,
  };
  const at = Object.fromEntries(
    Object.entries(bytes).map(([name, length]) => [name, memory.allocate("bench", length)]),
  ) as Record<keyof typeof bytes, number>;
  const floats = (name: keyof typeof bytes) => memory.f32(at[name], bytes[name] / 4);

  const shape = linearShape(FORMATS[bf16 ? "bf16" : "f16"], { panels, k, outStride: width, xStride: k });
  LinearStruct.store(memory.view(), at.shape, shape);
  fill(floats("x"), 1);
  const group = new Float32Array(8 * k);
  for (let p = 0; p < panels; p++) {
    fill(group, 3 + p);
    // Within 2^-5. The scratch holds a panel's floats until they are packed.
    memory.f32(at.scratch, group.length).set(group.map((value) => value / 32));
    kernels.pack_rows_f16(pointer.u16(at.w + 16 * p * k), pointer.f32(at.scratch), 8, k, bf16, 0, 1);
  }
  const run = () =>
    kernels.linear_f16(
      pointer.f32(at.out),
      pointer.f32(at.x),
      pointer.u16(at.w),
      pointer.f32(at.scratch),
      NULL,
      pointer.linearShape(at.shape),
      0,
      m,
    );
  return {
    run,
    reads: [{ at: at.w, length: bytes.w }],
    check() {
      const w = new Uint16Array(memory.u8(at.w, 16 * k).slice().buffer);
      for (const row of new Set([0, m - 1])) {
        const want = new Float64Array(m * width) as unknown as Float32Array;
        linear_f16(want, floats("x"), w, group, null, { ...shape, panels: 1 }, row, row + 1);
        const got = floats("out").subarray(row * width, row * width + 8);
        expectNear("linear_f16", got, want.subarray(row * width, row * width + 8), k * 2 ** -24);
      }
    },
    release() {
      for (const address of Object.values(at)) memory.free(address);
    },
  };
}

const halfShapes: readonly LinearShape[] = [
  { m: 1, n: 4096, k: 4096, quick: true },
  { m: 1, n: 16384, k: 4096 },
  { m: 2, n: 4096, k: 4096 },
  { m: 4, n: 4096, k: 4096 },
  { m: 8, n: 4096, k: 4096 },
  { m: 128, n: 768, k: 768, quick: true },
];

/** The fields of a case that follow from its shape. */
const sizesOf = ({ m, n, k, quick }: LinearShape) => ({
  quick: quick === true,
  flops: 2 * m * n * k,
  limit: m < ROWS_TO_COMPUTE ? ("reading" as const) : ("arithmetic" as const),
});

export const linearCases: readonly Case[] = [
  ...linearShapes.map((shape) => ({
    kernel: "linear_f32",
    shape: `${shape.m}x${shape.n}x${shape.k}`,
    ...sizesOf(shape),
    prepare: (build: Build) => prepare(build, shape),
  })),
  ...halfShapes.flatMap((shape) =>
    ([0, 1] as const).map((bf16) => ({
      kernel: "linear_f16",
      shape: `${shape.m}x${shape.n}x${shape.k} ${bf16 ? "bf16" : "f16"}`,
      ...sizesOf(shape),
      prepare: (build: Build) => prepareHalves(build, shape, bf16),
    })),
  ),
];
