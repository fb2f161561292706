// Batches of sequences of different lengths: padding is not computed, and its outputs are zeros.

import { describe, expect, test, vi } from "vitest";
import { attend, attendAsync, attendMany, attendWithMaps, createAttention } from "../../src/entries/core.ts";
import { createRandom } from "../../src/tools/diagnostics/random.ts";
import { floats } from "../support/harness.ts";
import { firstDifference, kernelsOf, randomWeights, shippedBuilds } from "../support/layers.ts";

const LENGTHS = [150, 0, 37, 1];
const TOKENS = 150;
const D = 12;

describe.each(shippedBuilds)("in the %s build", (build) => {
  test.each([true, false])("sequences have their own bits and padding is zeros, causal: %s", async (causal) => {
    using kernels = await kernelsOf(build);
    const random = createRandom(31);
    const rope = { theta: 100, pairing: "half" } as const;
    const config = { dModel: D, numHeads: 4, numKvHeads: 2, headDim: 4, causal, rope };
    using attention = createAttention(kernels, config, randomWeights(random, config, { biases: true }));
    const x = floats(random, LENGTHS.length * TOKENS * D);
    const options = { batch: LENGTHS.length, kvLengths: LENGTHS };
    const alone = LENGTHS.map((length, b) => attend(attention, x.subarray(b * TOKENS * D, (b * TOKENS + length) * D)));
    for (const [b, length] of LENGTHS.entries()) x.fill(Number.NaN, (b * TOKENS + length) * D, (b + 1) * TOKENS * D);
    const own = x.slice();
    const results = {
      attend: attend(attention, x, options),
      out: attend(attention, x, { ...options, out: new Float32Array(x.length).fill(3) }),
      "out is x": attend(attention, own, { ...options, out: own }),
      maps: attendWithMaps(attention, x, options).y,
      async: await attendAsync(attention, x, { ...options, out: new Float32Array(x.length).fill(3) }),
      many: attendMany(attention, [{ x: floats(random, 5 * D) }, { x, ...options }])[1] as Float32Array,
    };
    for (const [name, y] of Object.entries(results))
      for (const [b, length] of LENGTHS.entries()) {
        const [begin, end] = [b * TOKENS * D, (b + 1) * TOKENS * D];
        expect(firstDifference(y.slice(begin, begin + length * D), alone[b]!), `${name}, sequence ${b}`).toBe(-1);
        const padding = y.subarray(begin + length * D, end);
        expect(
          padding.every((value) => Object.is(value, 0)),
          `${name}, padding of ${b}`,
        ).toBe(true);
      }
  });
});

test("neither projections nor attention compute padding", async () => {
  using kernels = await kernelsOf("simd");
  const random = createRandom(32);
  const config = { dModel: D, numHeads: 3, causal: true };
  using attention = createAttention(kernels, config, randomWeights(random, config));
  const x = floats(random, LENGTHS.length * TOKENS * D);
  const real = LENGTHS.reduce((a, b) => a + b, 0);
  const rowsOf = (run: () => void) => {
    const spies = (["linear_f32", "attention_f32"] as const).map((name) => vi.spyOn(kernels.table, name));
    run();
    // The last two arguments are the range of rows.
    return spies.map((spy) => {
      const rows = spy.mock.calls.reduce((sum, args) => sum + Number(args.at(-1)) - Number(args.at(-2)), 0);
      spy.mockRestore();
      return rows;
    });
  };
  const alone = rowsOf(() => attend(attention, x.subarray(0, real * D)));
  expect(rowsOf(() => attend(attention, x, { batch: LENGTHS.length, kvLengths: LENGTHS }))).toEqual(alone);
  expect(alone[1]).toBe(real * 3);
});

test("rows of x are queries behind kvLengths too where keys are other rows, or queries are aligned at the end", async () => {
  using kernels = await kernelsOf("simd");
  const random = createRandom(33);
  const config = { dModel: D, numHeads: 3 };
  using attention = createAttention(kernels, config, randomWeights(random, config));
  const x = floats(random, 2 * 9 * D);
  const isComputed = (y: Float32Array) => y.every((value) => value !== 0);
  const options = { batch: 2, kvLengths: [9, 4] };
  expect(isComputed(attend(attention, x, { ...options, keys: x.slice() }))).toBe(true);
  expect(isComputed(attend(attention, x, { ...options, align: "end" }))).toBe(true);
  expect(isComputed(attend(attention, x, options))).toBe(false);
});
