import { expect, test } from "vitest";
import { packedFloats, packPanels, panelsOf } from "../src/pack.ts";

const layouts = ["out-in", "in-out"] as const;

/** A matrix whose element for output n and input k is n + k / 1024. */
function matrix(n: number, k: number, layout: (typeof layouts)[number]): Float32Array {
  const data = new Float32Array(n * k);
  for (let row = 0; row < n; row++)
    for (let i = 0; i < k; i++) data[layout === "out-in" ? row * k + i : i * n + row] = row + i / 1024;
  return data;
}

test.each(layouts)(
  "every element of an %s matrix lies at [panel][k][column], and what lies beyond n is +0",
  (layout) => {
    for (const n of [1, 7, 8, 9, 16, 31, 67])
      for (const k of [1, 2, 8, 13]) {
        const packed = new Float32Array(packedFloats(n, k)).fill(Number.NaN);
        packPanels(packed, matrix(n, k, layout), n, k, layout);
        for (let p = 0; p < panelsOf(n); p++)
          for (let i = 0; i < k; i++)
            for (let column = 0; column < 8; column++) {
              const row = 8 * p + column;
              const want = row < n ? row + i / 1024 : 0;
              expect(Object.is(packed[(p * k + i) * 8 + column], want), `n ${n} k ${k}: ${row}, ${i}`).toBe(true);
            }
      }
  },
);

test("several matrices packed one behind the other start at whole panels and touch nothing else", () => {
  const k = 5;
  const sizes = [9, 3, 8];
  const total = sizes.reduce((sum, n) => sum + packedFloats(n, k), 0);
  const packed = new Float32Array(total + 3).fill(-1);
  let at = 0;
  for (const n of sizes) {
    packPanels(packed.subarray(at, at + packedFloats(n, k)), matrix(n, k, "out-in"), n, k, "out-in");
    at += packedFloats(n, k);
  }
  expect(at).toBe((2 + 1 + 1) * k * 8);
  expect([...packed.subarray(total)]).toEqual([-1, -1, -1]);
  expect(packed[2 * k * 8 + 8 + 2]).toBe(Math.fround(2 + 1 / 1024));
  expect(packed[3 * k * 8 + 7]).toBe(7);
});

test("an outputs-by-inputs matrix and its transpose pack to the same bits", () => {
  const [n, k] = [67, 31];
  const [a, b] = layouts.map((layout) => {
    const packed = new Float32Array(packedFloats(n, k));
    packPanels(packed, matrix(n, k, layout), n, k, layout);
    return packed;
  });
  expect(a).toEqual(b);
});
