import { expect, test } from "vitest";
import { calls, draw, sampled, sampledSeeds } from "../support/sampled.ts";

const SIZES = Array.from({ length: 40 }, (_, i) => i + 1);
const EDGES = [1, 8, 9, 40];
const groupOf = (size: number) => (EDGES.includes(size) ? size : 0);

test("a sample has some of each group, every edge among them, in their order and the same for a seed", () => {
  const seen = new Set<number>();
  for (let seed = 0; seed < 200; seed++) {
    const drawn = draw(SIZES, 3, groupOf, seed);
    expect(drawn).toEqual(draw(SIZES, 3, groupOf, seed));
    expect(drawn.length).toBe(EDGES.length + 3);
    expect(drawn.filter((size) => EDGES.includes(size))).toEqual(EDGES);
    expect(drawn).toEqual([...drawn].sort((a, b) => a - b));
    for (const size of drawn) seen.add(size);
  }
  expect(seen.size).toBe(SIZES.length);
});

test("the long run has all cases, the quick one a sample", () => {
  const whole = process.env.HEADWISE_SAMPLE === "whole";
  expect(sampled(SIZES, 3, groupOf).length).toBe(whole ? 40 : 7);
  expect(sampledSeeds(5, 14, 3).length).toBe(whole ? 10 : 3);
  expect(calls(100, 7)).toBe(whole ? 100 : 7);
});
