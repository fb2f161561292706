import { expect, test } from "vitest";
import { HeadwiseError } from "../../../src/base/util/errors.ts";
import { createRandom } from "../../../src/tools/diagnostics/random.ts";
import { aligned, LinearMemory } from "../../../src/wasm/memory.ts";

/** A memory whose bytes nobody has: it only counts, so that addresses beyond 2 GiB can be reached. */
function createCounting(limit: number): { readonly buffer: ArrayBuffer; grow(pages: number): number } {
  let byteLength = 65_536;
  return {
    get buffer() {
      return { byteLength } as ArrayBuffer;
    },
    grow(pages) {
      if (byteLength + pages * 65_536 > limit) throw new RangeError("limit");
      byteLength += pages * 65_536;
      return 0;
    },
  };
}

test("blocks are 64-byte aligned, never at 0 and never overlap, over 2000 random steps", () => {
  const memory = new LinearMemory(createCounting(2 ** 32), 100);
  const random = createRandom(1);
  const held = new Map<number, number>();
  for (let step = 0; step < 2000; step++) {
    if (held.size > 0 && random.next() < 0.45) {
      const at = [...held.keys()][random.int(0, held.size - 1)] as number;
      memory.free(at);
      held.delete(at);
    } else {
      const bytes = random.int(0, 100_000);
      const at = memory.allocate("test", bytes);
      expect(at % 64).toBe(0);
      expect(at).toBeGreaterThanOrEqual(128);
      for (const [other, size] of held) expect(at + bytes <= other || other + size <= at).toBe(true);
      held.set(at, bytes);
    }
    const used = [...held.values()].reduce((sum, bytes) => sum + Math.max(64, aligned(bytes)), 0);
    expect(memory.used).toBe(used);
  }
  for (const at of held.keys()) memory.free(at);
  const before = memory.byteLength;
  memory.allocate("test", before - 65_536);
  expect(memory.byteLength).toBe(before);
});

test("addresses go past 2 GiB and stop before 4 GiB with OUT_OF_MEMORY, the state as before", () => {
  const memory = new LinearMemory(createCounting(2 ** 33), 0);
  const at = Array.from({ length: 3 }, () => memory.allocate("test", 2 ** 30));
  expect(at[2]).toBeGreaterThan(2 ** 31);
  const used = memory.used;
  expect(() => memory.allocate("createCache", 2 ** 30)).toThrow(HeadwiseError);
  expect(memory.used).toBe(used);
  memory.free(at[1] as number);
  expect(memory.allocate("test", 2 ** 30)).toBe(at[1]);
});

test("a refused growth names the caller, the bytes and the state, and changes nothing", () => {
  const memory = new LinearMemory(createCounting(2 ** 20), 0);
  memory.allocate("test", 1000);
  expect(() => memory.allocate("createCache", 2 ** 20)).toThrow(
    "createCache: 1048576 more bytes do not fit: 1024 in use of 65536, growth refused",
  );
  expect([memory.used, memory.byteLength]).toEqual([1024, 65_536]);
});

test("scratch keeps its largest size and is one block", () => {
  const memory = new LinearMemory(createCounting(2 ** 32), 0);
  memory.scratch("test", 1000);
  const at = memory.scratch("test", 5000);
  expect(memory.scratch("test", 10)).toBe(at);
  expect([memory.scratchBytes, memory.used]).toEqual([5056, 5056]);
});

test("freeing what is not allocated throws", () => {
  const memory = new LinearMemory(createCounting(2 ** 32), 0);
  const at = memory.allocate("test", 10);
  memory.free(at);
  expect(() => memory.free(at)).toThrow(`free: at expected an allocated address, got ${at}`);
});

test("shared memory grows like any other, and what was written before stays", () => {
  const memory = new LinearMemory(new WebAssembly.Memory({ initial: 1, maximum: 64, shared: true }), 0);
  const at = memory.allocate("test", 1024);
  const early = memory.f32(at, 256).fill(0.5);
  const later = memory.allocate("test", 3e6);
  expect(memory.byteLength).toBeGreaterThan(3e6);
  memory.f32(later, 750_000).fill(2);
  early[255] = 3;
  expect([memory.f32(at, 256)[0], memory.f32(at, 256)[255], memory.f32(later, 750_000)[749_999]]).toEqual([0.5, 3, 2]);
  expect(() => memory.allocate("test", 2e6)).toThrow(HeadwiseError);
  expect(memory.used).toBe(1024 + aligned(3e6));
});
