// attendMany: the bits of every call are those it has alone.

import { describe, expect, test, vi } from "vitest";
import {
  type AttendManyCall,
  type Attention,
  attend,
  attendMany,
  type Cache,
  createCache,
  type MaskOptions,
} from "../../src/entries/core.ts";
import type { Random } from "../../src/tools/diagnostics/random.ts";
import { floats } from "../support/harness.ts";
import { firstDifference, kernelsOf, randomLayer, shippedBuilds } from "../support/layers.ts";

/** One call's x and options over a cache, of all kinds that there are. */
function randomCall(random: Random, { config }: Attention, cache: Cache | undefined): Omit<AttendManyCall, "cache"> {
  const { dModel, numHeads, rope, causal } = config;
  const past = cache?.length ?? 0;
  const qLen = random.next() < 0.5 ? 1 : random.int(1, random.next() < 0.2 ? 300 : 40);
  const x = floats(random, qLen * dModel);
  const drawn = random.next();
  const ofRows = (kvLen: number): MaskOptions => {
    const keep = Uint8Array.from({ length: numHeads * kvLen }, () => (random.next() < 0.8 ? 1 : 0));
    const bias = { data: floats(random, qLen * kvLen), shape: [qLen, kvLen] };
    const masked = random.next() < 0.4 && { keep: { data: keep, shape: [numHeads, 1, kvLen] } };
    return { ...masked, ...(random.next() < 0.2 && { bias }) };
  };
  const positions = rope && Int32Array.from({ length: qLen }, (_, t) => 3 * t + random.int(0, 2));
  if (drawn < 0.15 && past > 0)
    return { x, append: false, align: "end", ...(positions && { positions }), ...ofRows(past) };
  if (drawn < 0.3) {
    const keys = drawn < 0.2 ? x : floats(random, random.int(1, 50) * dModel);
    return { x, keys, align: "start", ...(positions && { positions }), ...ofRows(past + keys.length / dModel) };
  }
  const ragged = !cache &&
    causal &&
    random.next() < 0.3 && { kvLengths: [random.int(0, qLen)], align: "start" as const };
  return { x, ...(positions && drawn < 0.5 && { positions }), ...ragged, ...ofRows(past + qLen) };
}

describe.each(shippedBuilds)("in the %s build", (build) => {
  test("calls of different lengths, pasts, options and masks have the bits of one at a time, again and again", async () => {
    using kernels = await kernelsOf(build);
    for (let seed = 0; seed < 60; seed++) {
      const { attention, random } = randomLayer(kernels, seed + 2000);
      const caches = Array.from({ length: random.int(1, 6) }, () => {
        const cached = random.next() < 0.8;
        // Keys of any age are attended, whatever the window: some queries begin at key 0.
        const options = { maxSeqLen: 900, truncatable: Number.POSITIVE_INFINITY };
        const make = () => (cached ? createCache(attention, options) : undefined);
        return { together: make(), alone: make() };
      });
      for (let turn = 0; turn < 3; turn++) {
        const calls = caches.map(({ together }) => randomCall(random, attention, together));
        const ys = attendMany(
          attention,
          calls.map((call, i) => ({ ...call, cache: caches[i]?.together })),
        );
        for (const [i, { x, ...options }] of calls.entries()) {
          const alone = attend(attention, x, { ...options, cache: caches[i]?.alone });
          expect(firstDifference(ys[i] as Float32Array, alone), `seed ${seed}, turn ${turn}, call ${i}`).toBe(-1);
        }
      }
      for (const { together, alone } of caches) {
        expect(together?.length).toBe(alone?.length);
        if (together && alone)
          expect(firstDifference(together.read().key.data, alone.read().key.data), `seed ${seed}`).toBe(-1);
        together?.release();
        alone?.release();
      }
      attention.release();
    }
  });

  test("keys that are x itself give the bits of keys that are a copy of it", async () => {
    using kernels = await kernelsOf(build);
    for (let seed = 0; seed < 40; seed++) {
      const { attention, random } = randomLayer(kernels, seed + 4000);
      const { dModel, rope } = attention.config;
      const tokens = random.int(1, 40);
      const x = floats(random, tokens * dModel);
      const positions = rope && { positions: Array.from({ length: tokens }, (_, t) => t + 5) };
      for (const [past, align] of [
        [0, "start"],
        [7, "end"],
      ] as const) {
        const results = [x, x.slice()].map((keys) => {
          using cache = createCache(attention, { maxSeqLen: 60 });
          if (past > 0) attend(attention, x.slice(0, dModel), { cache });
          const y = attend(attention, x, { cache, keys, align, ...positions });
          return [y, cache.read().key.data] as const;
        });
        for (const [i, data] of results[0]?.entries() ?? [])
          expect(firstDifference(data, results[1]?.[i] as Float32Array), `seed ${seed}, past ${past}`).toBe(-1);
      }
      attention.release();
    }
  });
});

test("several calls may read one cache, and one of them append to it", async () => {
  using kernels = await kernelsOf("simd");
  const { attention, random } = randomLayer(kernels, 9);
  const { dModel, rope } = attention.config;
  using cache = createCache(attention, { maxSeqLen: 40 });
  attend(attention, floats(random, 20 * dModel), { cache });
  const x = floats(random, 2 * dModel);
  const read = { cache, append: false, align: "end", ...(rope && { positions: [20, 21] }) } as const;
  const alone = attend(attention, x, read);
  const ys = attendMany(attention, [
    { x, ...read },
    { x, cache },
    { x, ...read },
  ]);
  for (const i of [0, 2]) expect(firstDifference(ys[i] as Float32Array, alone)).toBe(-1);
  expect(cache.length).toBe(22);
});

test("a call may be a batch, and out is where its y goes", async () => {
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
  const hole = Object.assign(new Array<AttendManyCall>(2), { 1: { x: other } });
  expect(() => attendMany(attention, hole)).toThrow("attendMany: calls[0] expected an object, got undefined");
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
  expect(call).toThrow("attendMany, call 1: past 0 + qLen 3 exceeds maxSeqLen 2");
  expect([first.length, second.length, kernels.usedBytes]).toEqual([3, 0, usedBytes]);
});

test("pages of calls without caches take memory for some of the calls, and every call has its bits", async () => {
  using kernels = await kernelsOf("simd");
  const { attention, random } = randomLayer(kernels, 4);
  const { dModel } = attention.config;
  const calls = Array.from({ length: 5000 }, () => ({ x: floats(random, dModel) }));
  const alone = [0, 1023, 1024, 4999].map((i) => [i, attend(attention, calls[i]!.x)] as const);
  const most = vi.spyOn(kernels.memory, "allocate");
  attendMany(attention, calls.slice(0, 1024));
  const some = most.mock.calls.map(([, bytes]) => bytes);
  most.mockClear();
  const ys = attendMany(attention, calls);
  expect(Math.max(...most.mock.calls.map(([, bytes]) => bytes))).toBe(Math.max(...some));
  for (const [i, y] of alone) expect(firstDifference(ys[i]!, y), `call ${i}`).toBe(-1);
});
