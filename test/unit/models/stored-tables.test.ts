// Tables that are left in their files: which rows are read, together and at once, and which are held.

import { expect, test } from "vitest";
import type { StoredTensor } from "../../../src/base/tensor/dtypes.ts";
import { rowsOf } from "../../../src/base/tensor/matrix.ts";
import { tableOnDemand } from "../../../src/models/load/stored-tables.ts";

const ROWS = 100_000;
const WIDTH = 3;
const matrix: StoredTensor = {
  ...{ name: "t", dtype: "F32", shape: [ROWS, WIDTH] },
  bytes: new Uint8Array(Float32Array.from({ length: ROWS * WIDTH }, (_, i) => i).buffer),
};
const rowBytes = 4 * WIDTH;
const valuesOf = (row: number) => [0, 1, 2].map((i) => row * WIDTH + i);

/** A table whose reads are listed; `wait` is called with each before it is answered. */
function open(mostHeld?: number, wait: (begin: number) => unknown = () => {}) {
  const reads: (readonly [number, number])[] = [];
  const file = {
    readAll: () => Promise.reject(new Error("readAll")),
    async readRows(_name: string, begin: number, end: number) {
      reads.push([begin, end]);
      await wait(begin);
      return rowsOf(matrix, begin, end);
    },
  };
  return { reads, table: tableOnDemand(file, "t", { rows: ROWS, rowBytes, step: 30_000 }, mostHeld) };
}

test("rows are those of the file, each read once, and near ones together", async () => {
  const { reads, table } = open();
  const wanted = [70_000, 5, 99_999, 6, 5, 2000, 8, 70_000];
  expect(table.held(wanted)).toBeUndefined();
  const row = await table.fetch("test", wanted);
  for (const index of wanted) expect([...row(index)]).toEqual(valuesOf(index));
  // 32 KiB may lie between two rows that are read together.
  expect([...reads].sort(([a], [b]) => a - b)).toEqual([
    [5, 2001],
    [70_000, 70_001],
    [99_999, 100_000],
  ]);
  await table.fetch("test", wanted);
  expect(reads).toHaveLength(3);
  expect([...(table.held([6, 2000])?.(2000) ?? [])]).toEqual(valuesOf(2000));
  // What lies between them was read, and is not held.
  expect(table.held([7])).toBeUndefined();
});

test("the rows that were used last are held, and those of a chunk until it has read them", async () => {
  const { reads, table } = open(4 * rowBytes);
  const far = (i: number) => i * 10_000;
  await table.fetch("test", [0, 1, 2, 3].map(far));
  expect(table.held([far(0)])).toBeDefined();
  await table.fetch("test", [far(4)]);
  // Row 1 was used longest ago.
  expect([0, 1, 2, 3, 4].map((i) => table.held([far(i)]) !== undefined)).toEqual([true, false, true, true, true]);
  const row = await table.fetch("test", [5, 6, 7, 8, 9, 1].map(far));
  await table.fetch("test", [0, 2, 3, 4].map(far));
  for (const i of [5, 6, 7, 8, 9, 1]) expect([...row(far(i))]).toEqual(valuesOf(far(i)));
  expect(reads).toHaveLength(4 + 1 + 6 + 4);
});

test("a row that is larger than what may be held is given nevertheless", async () => {
  const { table } = open(1);
  const row = await table.fetch("test", [3, 90_000]);
  expect([...row(3), ...row(90_000)]).toEqual([...valuesOf(3), ...valuesOf(90_000)]);
});

test("eight reads run at once", async () => {
  let [running, most] = [0, 0];
  const { reads, table } = open(undefined, async () => {
    most = Math.max(most, ++running);
    await new Promise((resolve) => setTimeout(resolve, 1));
    running--;
  });
  await table.fetch(
    "test",
    Array.from({ length: 24 }, (_, i) => i * 4000),
  );
  expect([reads.length, most]).toEqual([24, 8]);
});

test("a read that fails ends the others, and is tried again by the next call", async () => {
  let fails = true;
  const { reads, table } = open(undefined, (begin) => {
    if (fails && begin === 8000) throw new Error("gone");
  });
  const wanted = Array.from({ length: 24 }, (_, i) => i * 4000);
  await expect(table.fetch("test", wanted)).rejects.toThrow("gone");
  await new Promise((resolve) => setTimeout(resolve, 5));
  expect(reads.length).toBeLessThan(20);
  fails = false;
  const row = await table.fetch("test", wanted);
  for (const index of wanted) expect([...row(index)]).toEqual(valuesOf(index));
});

test("its pieces are all of its bytes", async () => {
  const { reads, table } = open();
  const pieces: Uint8Array[] = [];
  for await (const piece of table.pieces("test")) pieces.push(piece);
  expect(Buffer.concat(pieces).equals(matrix.bytes)).toBe(true);
  expect(reads.map(([begin]) => begin)).toEqual([0, 30_000, 60_000, 90_000]);
});
