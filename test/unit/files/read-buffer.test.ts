import { expect, test } from "vitest";
import { ReadBuffer } from "../../../src/files/read-ahead.ts";

test("arrays lie apart until the memory is reused, at multiples of 8", () => {
  const buffer = new ReadBuffer();
  buffer.take("test", 100);
  buffer.reuse();
  const [a, b] = [buffer.take("test", 13), buffer.take("test", 80)];
  a.fill(1);
  b.fill(2);
  expect(a.buffer).toBe(b.buffer);
  expect(b.byteOffset % 8).toBe(0);
  expect([a.length, b.length, ...new Set(a), ...new Set(b)]).toEqual([13, 80, 1, 2]);
  buffer.reuse();
  expect(buffer.take("test", 13).byteOffset).toBe(a.byteOffset);
});

test("what does not fit gets new memory, and what was taken before stays", () => {
  const buffer = new ReadBuffer();
  const a = buffer.take("test", 10).fill(1);
  const b = buffer.take("test", 4000).fill(2);
  expect(new Set(a)).toEqual(new Set([1]));
  buffer.reuse();
  expect(buffer.take("test", 4000).buffer).toBe(b.buffer);
});

test("after a turn, what was taken before stays until the next one", () => {
  const buffer = new ReadBuffer();
  for (const size of [64, 64]) {
    buffer.turn();
    buffer.take("test", size);
  }
  buffer.turn();
  const first = buffer.take("test", 64).fill(1);
  buffer.turn();
  expect(new Set([...buffer.take("test", 64).fill(2), ...first])).toEqual(new Set([1, 2]));
  buffer.turn();
  expect(buffer.take("test", 64).byteOffset).toBe(first.byteOffset);
  expect(buffer.take("test", 0).buffer).toBe(first.buffer);
});

test("memory that the engine refuses is OUT_OF_MEMORY", () => {
  expect(() => new ReadBuffer().take("test", 2 ** 53 - 1)).toThrow(expect.objectContaining({ code: "OUT_OF_MEMORY" }));
});
