import { describe, expect, test } from "vitest";
import { merge_heads_f32, split_heads_f32 } from "../../src/reference/pointwise.ts";
import {
  type Arguments,
  builds,
  copyArguments,
  createRandom,
  floats,
  load,
  pieces,
  runKernel,
} from "../support/harness.ts";

describe.each(builds)("split_heads_f32 and merge_heads_f32 in the %s build", (build) => {
  const instance = load(build);
  const random = createRandom(3);

  test.each([
    [1, 1, 1],
    [5, 3, 4],
    [3, 4, 67],
    [8, 2, 31],
    [7, 5, 64],
  ])("move every bit as their twins do, whole and split, for %i rows, %i heads, headDim %i", (rows, heads, headDim) => {
    const x = floats(random, rows * heads * headDim, "tiny");
    new Uint32Array(x.buffer)[x.length >> 1] = 0x7fc12345;
    for (const [name, twin] of [
      ["split_heads_f32", split_heads_f32],
      ["merge_heads_f32", merge_heads_f32],
    ] as const) {
      const args: Arguments<"split_heads_f32"> = [x.slice().fill(7), x, rows, heads, headDim, 0, rows];
      const split = copyArguments<"split_heads_f32">(args);
      const want = copyArguments<"split_heads_f32">(args);
      twin(...want);
      runKernel(instance, name, args);
      expect(new Uint32Array(args[0].buffer)).toEqual(new Uint32Array(want[0].buffer));
      for (const [begin, end] of pieces(random, rows)) {
        split[5] = begin;
        split[6] = end;
        runKernel(instance, name, split);
      }
      expect(new Uint32Array(split[0].buffer)).toEqual(new Uint32Array(want[0].buffer));
    }
  });

  test("are each other's inverse", () => {
    const x = floats(random, 5 * 3 * 7);
    const parts = x.slice().fill(0);
    const back = x.slice().fill(0);
    runKernel(instance, "split_heads_f32", [parts, x, 5, 3, 7, 0, 5]);
    runKernel(instance, "merge_heads_f32", [back, parts, 5, 3, 7, 0, 5]);
    expect(parts).not.toEqual(x);
    expect(back).toEqual(x);
  });
});
