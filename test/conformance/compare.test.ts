import { expect, test } from "vitest";
import { firstDifference } from "./compare.ts";

const close = { atol: 1e-5, rtol: 1e-5 };
const want = { data: Float64Array.of(1, 2, 3, Number.NaN, Number.NEGATIVE_INFINITY, 100), shape: [2, 3] };
const changed = (index: number, value: number) => ({ data: want.data.with(index, value), shape: want.shape });

test("the comparator accepts what is equal, NaN and infinities included, and what is within atol + rtol·|want|", () => {
  expect(firstDifference("y", want, want, { atol: 0, rtol: 0 })).toBeUndefined();
  expect(firstDifference("y", changed(5, 100.001), want, close)).toBeUndefined();
});

test("the comparator names the first element that is beyond atol + rtol·|want|", () => {
  expect(firstDifference("y", changed(5, 100.0011), want, close)).toBe(
    "y[1, 2]: got 100.0011, want 100, tolerance 0.00001 + 0.00001·|want|",
  );
  expect(firstDifference("y", changed(1, 2.1), want, close)).toMatch(/^y\[0, 1\]: got 2\.1, want 2,/);
});

test.each([
  ["NaN for a number", 0, Number.NaN],
  ["a number for NaN", 3, 0],
  ["infinity for a number", 5, Number.POSITIVE_INFINITY],
  ["the other infinity", 4, Number.POSITIVE_INFINITY],
  ["a number for an infinity", 4, -1e300],
])("the comparator refuses %s", (_, index, value) => {
  expect(firstDifference("y", changed(index, value), want, { atol: 1e308, rtol: 1 })).toMatch(/^y\[/);
});

test("the deviation that an adapter allows an element is added to its tolerance, and to no other's", () => {
  const tenth = (element: number) => (element === 5 ? 0.1 : 0);
  expect(firstDifference("y", changed(5, 100.1), want, close, tenth)).toBeUndefined();
  expect(firstDifference("y", changed(5, 100.2), want, close, tenth)).toMatch(/^y\[1, 2\]: .*tolerance 0.10001 \+/);
  expect(firstDifference("y", changed(1, 2.1), want, close, tenth)).toMatch(/^y\[0, 1\]/);
});

test("the comparator distinguishes -0 from 0 where a copy of the bits is asked for, and only there", () => {
  const [zero, minus] = [0, -0].map((value) => ({ data: [value], shape: [1] })) as [Pair, Pair];
  expect(firstDifference("y", minus, zero, { atol: 0, rtol: 0 })).toMatch(/^y\[0\]/);
  expect(firstDifference("y", minus, zero, close)).toBeUndefined();
});

type Pair = { data: number[]; shape: number[] };

test("the comparator refuses a wrong shape of the same size, missing elements and a missing output", () => {
  expect(firstDifference("y", { ...want, shape: [3, 2] }, want, close)).toBe("y: got shape [3, 2], want [2, 3]");
  expect(firstDifference("y", { ...want, data: want.data.slice(1) }, want, close)).toBe("y: got 5 elements, want 6");
  expect(firstDifference("y", undefined, want, close)).toBe("y: missing");
});
