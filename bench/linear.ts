import { pointer } from "../src/memory.ts";
import { packedFloats, panelsOf } from "../src/pack.ts";
import { linear_f32 } from "../src/reference/linear.ts";
import { pack_rows_f32 } from "../src/reference/pack.ts";
import type { Build } from "./builds.ts";
import { type Case, expectNear, fill } from "./case.ts";
import { type LinearShape, linearShapes } from "./shapes.ts";

/** A row shorter than this many is limited by reading the weights, not by arithmetic. */
const ROWS_TO_COMPUTE = 2;

function prepare({ kernels, memory }: Build, { m, n, k }: LinearShape): ReturnType<Case["prepare"]> {
  const panels = panelsOf(n);
  const width = 8 * panels;
  const sizes = { out: m * width, x: m * k, w: packedFloats(n, k), bias: width };
  const at = Object.fromEntries(
    Object.entries(sizes).map(([name, length]) => [name, memory.allocate("bench", 4 * length)]),
  ) as Record<keyof typeof sizes, number>;
  const view = (name: keyof typeof sizes) => memory.f32(at[name], sizes[name]);

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
      panels,
      k,
      width,
      k,
      0,
      m,
    );
  return {
    run,
    reads: [{ at: at.w, length: 4 * sizes.w }],
    check() {
      // The whole of a large product would take minutes in float64: the first and the last row, and the outer panels.
      const some = Math.min(panels, 2);
      for (const row of new Set([0, m - 1]))
        for (const p of new Set([0, panels - some])) {
          const want = new Float64Array(m * width) as unknown as Float32Array;
          const w = view("w").subarray(p * k * 8);
          linear_f32(want, view("x"), w, view("bias").subarray(8 * p), some, k, width, k, row, row + 1);
          const got = view("out").subarray(row * width + 8 * p, row * width + 8 * (p + some));
          expectNear("linear_f32", got, want.subarray(row * width, row * width + 8 * some), k * 2 ** -24);
        }
    },
    release() {
      for (const address of Object.values(at)) memory.free(address);
    },
  };
}

export const linearCases: readonly Case[] = linearShapes.map((shape) => ({
  kernel: "linear_f32",
  shape: `${shape.m}x${shape.n}x${shape.k}`,
  quick: shape.quick === true,
  flops: 2 * shape.m * shape.n * shape.k,
  limit: shape.m < ROWS_TO_COMPUTE ? "reading" : "arithmetic",
  prepare: (build) => prepare(build, shape),
}));
