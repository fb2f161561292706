import { describe, expect, test } from "vitest";
import { gather_rows_f32, route_f32, scatter_rows_f32 } from "../../src/reference/decoder.ts";
import type { Plain, RouteShape } from "../../src/wasm/abi.ts";
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
  worst,
} from "../support/harness.ts";

type Shape = Plain<RouteShape>;
const plain = { sigmoid: 0, groups: 1, keepGroups: 1, pairs: 0, renormalise: 0, scale: 1 };

/** The routers of published models, in small. */
const ROUTERS: readonly [name: string, shape: Omit<Shape, "stride">, correction: boolean][] = [
  ["mixtral", { ...plain, experts: 8, topK: 2, renormalise: 1 }, false],
  ["qwen2_moe", { ...plain, experts: 60, topK: 4 }, false],
  ["gpt_oss", { ...plain, experts: 32, topK: 4, renormalise: 1 }, false],
  ["deepseek_v2", { ...plain, experts: 32, topK: 6, groups: 8, keepGroups: 3, scale: 16 }, false],
  [
    "deepseek_v3",
    { experts: 64, topK: 8, sigmoid: 1, groups: 8, keepGroups: 4, pairs: 1, renormalise: 1, scale: 2.5 },
    true,
  ],
  ["a gate of one expert", { ...plain, experts: 1, topK: 1, sigmoid: 1 }, false],
  ["every expert", { ...plain, experts: 7, topK: 7, renormalise: 1 }, true],
];

function argumentsOf(random: Random, fields: Omit<Shape, "stride">, corrected: boolean, rows: number) {
  const { experts, topK, groups } = fields;
  const stride = experts + 3;
  const logits = floats(random, rows * stride).map((v) => v * 3);
  for (let r = 0; r < rows; r++) logits.fill(Number.NaN, r * stride + experts, (r + 1) * stride);
  const args: Arguments<"route_f32"> = [
    new Int32Array(rows * topK),
    new Float32Array(rows * topK),
    logits,
    new Float32Array(experts + 3 * groups),
    corrected ? floats(random, experts).map((v) => v * 0.3 - 1) : null,
    { ...fields, stride },
    0,
    rows,
  ];
  return args;
}

describe.each(builds)("route_f32 in the %s build", (build) => {
  const instance = load(build);

  test.each(ROUTERS)("chooses what its twin chooses, as %s, whole, in pieces and alone", (_, fields, corrected) => {
    const random = createRandom(fields.experts);
    const rows = 25;
    for (let trial = 0; trial < 4; trial++) {
      const args = argumentsOf(random, fields, corrected, rows);
      const twin = copyArguments<"route_f32">(args);
      const split = copyArguments<"route_f32">(args);
      route_f32(...twin);
      runKernel(instance, "route_f32", args);
      expect(args[0]).toEqual(twin[0]);
      const { excess, at } = worst(
        args[1],
        twin[1],
        (i) => (fields.experts / 4 + 24) * 2 ** -24 * Math.abs(twin[1][i]!),
      );
      expect(excess, `weight ${at}`).toBeLessThanOrEqual(0);
      for (const [begin, end] of pieces(random, rows)) {
        split[6] = begin;
        split[7] = end;
        runKernel(instance, "route_f32", split);
      }
      expect(split.slice(0, 3)).toEqual(args.slice(0, 3));
    }
  });

  test("of equal experts the lowest is chosen, of equal groups too", () => {
    const shape = { ...plain, experts: 12, topK: 3, stride: 12, groups: 4, keepGroups: 2, pairs: 1, sigmoid: 1 };
    const args = argumentsOf(createRandom(1), shape, false, 1);
    args[2] = Float32Array.of(1, 2, 2, 2, 1, 2, 2, 2, 2, 0, 9, 0);
    args[5] = shape;
    runKernel(instance, "route_f32", args);
    // Groups by their two best: 4, 4, 4 and 9 + 0 in logits, of which the sigmoids of 2 and 2 are the most.
    expect([...args[0]]).toEqual([1, 2, 3]);
  });

  test("a correction changes who is chosen, and no weight; a group that is left out has nobody chosen", () => {
    const shape = { ...plain, experts: 4, topK: 2, stride: 4, groups: 2, keepGroups: 1, sigmoid: 1 };
    const args = argumentsOf(createRandom(1), shape, false, 1);
    args[2] = Float32Array.of(0, 0, -1, -2);
    args[4] = Float32Array.of(-5, -6, -4, -7);
    args[5] = shape;
    runKernel(instance, "route_f32", args);
    expect([...args[0]]).toEqual([2, 3]);
    expect(args[1][0]).toBeCloseTo(1 / (1 + Math.E), 6);
    expect(args[1][1]).toBeCloseTo(1 / (1 + Math.E ** 2), 6);
  });

  test("NaN stays with its token, and every id is an expert", () => {
    for (const [, fields, corrected] of ROUTERS) {
      const args = argumentsOf(createRandom(2), fields, corrected, 3);
      const clean = copyArguments<"route_f32">(args);
      args[2].fill(Number.NaN, args[5].stride, args[5].stride + fields.experts);
      runKernel(instance, "route_f32", args);
      runKernel(instance, "route_f32", clean);
      const { topK, experts } = fields;
      const distinct = new Set(args[0].subarray(topK, 2 * topK));
      expect(distinct.size).toBe(topK);
      expect([...distinct].every((id) => id >= 0 && id < experts)).toBe(true);
      expect(args[1].subarray(topK, 2 * topK).every(Number.isNaN)).toBe(true);
      for (const [from, to] of [
        [0, topK],
        [2 * topK, 3 * topK],
      ])
        expect(args[1].subarray(from, to)).toEqual(clean[1].subarray(from, to));
    }
  });
});

describe.each(builds)("rows of experts in the %s build", (build) => {
  const instance = load(build);

  test.each([1, 3, 4, 31, 67])("are gathered bit by bit and scattered with their weights, at n = %i", (n) => {
    const random = createRandom(n);
    const [tokens, topK] = [6, 2];
    const x = floats(random, tokens * n);
    const weights = floats(random, tokens * topK);
    const slots = Int32Array.of(11, 0, 5, 6, 3);
    const count = slots.length;
    const gather: Arguments<"gather_rows_f32"> = [new Float32Array(count * n), x, slots, topK, n, 0, count];
    const twin = copyArguments<"gather_rows_f32">(gather);
    const split = copyArguments<"gather_rows_f32">(gather);
    gather_rows_f32(...twin);
    runKernel(instance, "gather_rows_f32", gather);
    expect(gather[0]).toEqual(twin[0]);
    const out = floats(random, tokens * n);
    const scatter: Arguments<"scatter_rows_f32"> = [out, gather[0], weights, slots, topK, n, 0, count];
    const added = copyArguments<"scatter_rows_f32">(scatter);
    const parts = copyArguments<"scatter_rows_f32">(scatter);
    const before = out.slice();
    scatter_rows_f32(...added);
    runKernel(instance, "scatter_rows_f32", scatter);
    const size = (i: number) => Math.abs(before[i]!) + 4 * Math.abs(added[0][i]! - before[i]!);
    expect(worst(scatter[0], added[0], (i) => 2 ** -23 * size(i)).excess).toBeLessThanOrEqual(0);
    for (const [begin, end] of pieces(random, count)) {
      [split[5], split[6]] = [begin, end];
      [parts[6], parts[7]] = [begin, end];
      runKernel(instance, "gather_rows_f32", split);
      runKernel(instance, "scatter_rows_f32", parts);
    }
    expect(split[0]).toEqual(gather[0]);
    expect(parts[0]).toEqual(scatter[0]);
  });

  test("a token's sum has the same bits whatever tokens go with it", () => {
    const random = createRandom(9);
    const [experts, topK, n, tokens] = [5, 3, 19, 8];
    const x = floats(random, tokens * n);
    const logits = floats(random, tokens * experts);
    const ys = Array.from({ length: experts }, () => floats(random, tokens * n));

    /** Routes these tokens, and adds up what each expert makes of its rows, one expert after the other. */
    const mix = (which: readonly number[]): Float32Array[] => {
      const take = (from: Float32Array, width: number) =>
        Float32Array.from(which.flatMap((t) => [...from.subarray(t * width, (t + 1) * width)]));
      const count = which.length;
      const [ids, weights] = [new Int32Array(count * topK), new Float32Array(count * topK)];
      const shape = { ...plain, experts, topK, stride: experts, renormalise: 1 };
      const scratch = new Float32Array(experts + 3);
      runKernel(instance, "route_f32", [ids, weights, take(logits, experts), scratch, null, shape, 0, count]);
      const out = new Float32Array(count * n);
      for (let e = 0; e < experts; e++) {
        const slots = Int32Array.from([...ids.keys()].filter((slot) => ids[slot] === e));
        const rows = new Float32Array(slots.length * n);
        runKernel(instance, "gather_rows_f32", [rows, take(x, n), slots, topK, n, 0, slots.length]);
        const y = Float32Array.from(rows, (v, i) => {
          const token = which[Math.floor(slots[Math.floor(i / n)]! / topK)]!;
          return v + ys[e]![token * n + (i % n)]!;
        });
        runKernel(instance, "scatter_rows_f32", [out, y, weights, slots, topK, n, 0, slots.length]);
      }
      return which.map((_, i) => out.slice(i * n, (i + 1) * n));
    };

    const together = mix([...Array(tokens).keys()]);
    for (const [t, row] of together.entries()) expect(mix([t])[0]).toEqual(row);
    expect(mix([6, 2, 4])).toEqual([together[6], together[2], together[4]]);
  });
});
