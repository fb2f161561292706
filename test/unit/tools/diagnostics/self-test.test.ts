import { describe, expect, test, vi } from "vitest";
import * as headwise from "../../../../src/entries/core.ts";
import { FloatDigest, selfTest } from "../../../../src/tools/diagnostics/self-test.ts";
import { kernelsOf, shippedBuilds } from "../../../support/layers.ts";

describe.each(shippedBuilds)("the self-test in the %s build", (build) => {
  test("reaches the published digest of 200 outputs, and gives its memory back", async () => {
    using kernels = await kernelsOf(build);
    const first = selfTest(headwise, kernels);
    const used = kernels.usedBytes;
    expect(first).toEqual({ ok: true, digest: first.expected, expected: first.expected, outputs: 200 });
    expect(kernels.fused).toBe(build === "relaxed");
    expect(selfTest(headwise, kernels)).toEqual(first);
    expect(kernels.usedBytes).toBe(used);
  });
});

test("a lack of memory is reported under its own name", async () => {
  using kernels = await kernelsOf("simd");
  const { usedBytes } = kernels;
  const refuse = vi.spyOn(kernels.memory, "allocate");
  const { allocate } = Object.getPrototypeOf(kernels.memory) as typeof kernels.memory;
  // In createAttention, createCache and attend, and later in each call.
  for (let fails = 1; fails < 12; fails++) {
    let calls = 0;
    refuse.mockImplementation((where, bytes) =>
      allocate.call(kernels.memory, where, ++calls === fails ? 2 ** 33 : bytes),
    );
    expect(() => selfTest(headwise, kernels)).toThrow(/^selfTest: \d+ more bytes do not fit/);
  }
  refuse.mockRestore();
  expect(selfTest(headwise, kernels).ok).toBe(true);
  expect(kernels.usedBytes).toBeGreaterThanOrEqual(usedBytes);
});

test("a digest differs for one bit, another order and another division into arrays", () => {
  const digestOf = (...arrays: number[][]) => {
    const digest = new FloatDigest();
    for (const array of arrays) digest.add(Float32Array.from(array));
    return digest.toString();
  };
  const seen = [
    digestOf([1, 2, 3]),
    digestOf([1, 2, 3 + 2 ** -22]),
    digestOf([1, 2, -3]),
    digestOf([2, 1, 3]),
    digestOf([1], [2, 3]),
    digestOf([1, 2], [3]),
    digestOf([1, 2, 3], []),
    digestOf([0, 0]),
    digestOf([-0, 0]),
    digestOf([0, 0, 0]),
  ];
  expect(new Set(seen).size).toBe(seen.length);
  expect(seen.every((digest) => /^[0-9a-f]{16}$/.test(digest))).toBe(true);
});
