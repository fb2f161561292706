import { describe, expect, test, vi } from "vitest";
import { reserve } from "../../../../src/models/blocks/model.ts";
import { LinearMemory } from "../../../../src/wasm/memory.ts";

/** A memory of one page that may grow to `most` bytes, and counts how often it does. */
function createMemory(most: number) {
  const grown = { buffer: new ArrayBuffer(65_536), times: 0 };
  const grow = (pages: number) => {
    const bytes = grown.buffer.byteLength + 65_536 * pages;
    if (bytes > most) throw new RangeError("refused");
    grown.times++;
    grown.buffer = new ArrayBuffer(bytes);
    return 0;
  };
  const raw = {
    get buffer() {
      return grown.buffer;
    },
    grow,
  };
  return { memory: new LinearMemory(raw, 0), times: () => grown.times };
}

describe("reserve", () => {
  test("grows once for many blocks, and holds nothing", () => {
    const { memory, times } = createMemory(2 ** 30);
    reserve("test", memory, 2 ** 20);
    expect([memory.used, times()]).toEqual([0, 1]);
    for (let i = 0; i < 16; i++) memory.allocate("test", 2 ** 16);
    expect([memory.used, times()]).toEqual([2 ** 20, 1]);
  });

  test("bytes that fit in pieces only are left to their blocks", () => {
    const { memory } = createMemory(2 ** 20);
    const at = memory.allocate("test", 2 ** 19);
    memory.allocate("test", 64);
    memory.free(at);
    reserve("test", memory, 2 ** 19 + 2 ** 18);
    expect(memory.used).toBe(64);
    expect(memory.allocate("test", 2 ** 19)).toBe(at);
    memory.allocate("test", 2 ** 18);
  });

  test("another error than that of memory that cannot be had is not hidden", () => {
    const { memory } = createMemory(2 ** 20);
    vi.spyOn(memory, "free").mockImplementation(() => {
      throw new RangeError("free: at expected an allocated address");
    });
    expect(() => reserve("test", memory, 64)).toThrow("free: at expected an allocated address");
  });
});
