// attendMany: the bits of every sequence are those it has alone.

import { describe, expect, test } from "vitest";
import { attend, attendMany, createCache } from "../../src/core.ts";
import { floats } from "../kernels/harness.ts";
import { firstDifference, kernelsOf, randomLayer, shippedBuilds } from "../layers.ts";

describe.each(shippedBuilds)("in the %s build", (build) => {
  test("sequences of different lengths, pasts and masks have the bits of one at a time, call after call", async () => {
    using kernels = await kernelsOf(build);
    for (let seed = 0; seed < 40; seed++) {
      const { attention, random } = randomLayer(kernels, seed + 2000);
      const { dModel, numHeads } = attention.config;
      const sequences = Array.from({ length: random.int(1, 6) }, () => {
        const cached = random.next() < 0.8;
        const make = () => (cached ? createCache(attention, { maxSeqLen: 700 }) : undefined);
        return { together: make(), alone: make() };
      });
      for (let call = 0; call < 3; call++) {
        const inputs = sequences.map(({ together }) => {
          const qLen = random.next() < 0.5 ? 1 : random.int(1, random.next() < 0.2 ? 300 : 40);
          const kvLen = (together?.length ?? 0) + qLen;
          const keep = Uint8Array.from({ length: numHeads * kvLen }, () => (random.next() < 0.8 ? 1 : 0));
          const masked = random.next() < 0.3 && { keep: { data: keep, shape: [numHeads, 1, kvLen] } };
          return { x: floats(random, qLen * dModel), ...masked };
        });
        const ys = attendMany(
          attention,
          inputs.map((input, i) => ({ ...input, cache: sequences[i]?.together })),
        );
        for (const [i, { x, ...options }] of inputs.entries()) {
          const alone = attend(attention, x, { ...options, cache: sequences[i]?.alone });
          expect(firstDifference(ys[i] as Float32Array, alone), `seed ${seed}, call ${call}, sequence ${i}`).toBe(-1);
        }
      }
      for (const { together, alone } of sequences) {
        expect(together?.length).toBe(alone?.length);
        together?.release();
        alone?.release();
      }
      attention.release();
    }
  });
});

test("a batch may be one of the sequences, and out is where its y goes", async () => {
  using kernels = await kernelsOf("simd");
  const { attention, random } = randomLayer(kernels, 3);
  const { dModel } = attention.config;
  const [x, other] = [floats(random, 2 * 5 * dModel), floats(random, 3 * dModel)];
  const out = new Float32Array(x.length);
  const [first, second] = attendMany(attention, [{ x, batch: 2, out }, { x: other }]);
  expect(first).toBe(out);
  expect(firstDifference(out, attend(attention, x, { batch: 2 }))).toBe(-1);
  expect(firstDifference(second as Float32Array, attend(attention, other))).toBe(-1);
  expect(attendMany(attention, [])).toEqual([]);
});

test("a call that throws leaves every cache and the memory as they were", async () => {
  using kernels = await kernelsOf("simd");
  const { attention, random } = randomLayer(kernels, 1);
  const { dModel } = attention.config;
  const [first, second] = [createCache(attention, { maxSeqLen: 8 }), createCache(attention, { maxSeqLen: 2 })];
  const x = floats(random, 3 * dModel);
  attend(attention, x, { cache: first });
  const { usedBytes } = kernels;
  const call = () =>
    attendMany(attention, [
      { x, cache: first },
      { x, cache: second },
    ]);
  expect(call).toThrow("attendMany, sequence 1: past 0 + qLen 3 exceeds maxSeqLen 2");
  expect([first.length, second.length, kernels.usedBytes]).toEqual([3, 0, usedBytes]);
});
