// Parts of tensors of an opened file.

import { expect, test } from "vitest";
import {
  openSafetensors,
  openSafetensorsIndex,
  quantizeTensor,
  toFloats,
  writeSafetensors,
} from "../../../src/entries/weights.ts";

const floats = (...shape: number[]) => ({
  data: Float32Array.from({ length: shape.reduce((a, b) => a * b) }, (_, i) => Math.cos(i)),
  shape,
});
const tensors = { vector: floats(6), matrix: floats(5, 64), stack: floats(4, 3, 2) };
const q8 = quantizeTensor(tensors.matrix, "Q8_0");
const bytes = writeSafetensors({ ...tensors, q8 });

test("rows of a matrix, of blocks, and matrices of a stack are read alone, of one file or of several", async () => {
  const reads: number[] = [];
  const source = {
    size: bytes.length,
    read: async (offset: number, length: number) => {
      reads.push(length);
      return bytes.subarray(offset, offset + length);
    },
  };
  const weightMap = Object.fromEntries([...Object.keys(tensors), "q8"].map((name) => [name, "a.safetensors"]));
  const index = await openSafetensorsIndex({ weight_map: weightMap }, async () => source);
  for (const file of [await openSafetensors(source), index]) {
    const matrix = await file.readRows("matrix", 1, 4);
    expect([matrix.shape, toFloats(matrix)]).toEqual([[3, 64], tensors.matrix.data.subarray(64, 4 * 64)]);
    reads.length = 0;
    const blocks = await file.readRows("q8", 3, 5);
    expect(reads).toEqual([2 * 68]);
    expect([blocks.dtype, blocks.shape]).toEqual(["Q8_0", [2, 64]]);
    expect(toFloats(blocks)).toEqual(toFloats(q8).subarray(3 * 64));
    const stack = await file.readRows("stack", 2, 3);
    expect([stack.shape, toFloats(stack)]).toEqual([[1, 3, 2], tensors.stack.data.subarray(12, 18)]);
    expect((await file.readRows("stack", 4, 4)).bytes.length).toBe(0);
  }
});

test("rows that a tensor does not have are refused", async () => {
  const file = await openSafetensors(bytes);
  const refused = (name: string, begin: number, end: number) => expect(file.readRows(name, begin, end)).rejects;
  await refused("none", 0, 1).toThrow('readRows: name expected one of the file\'s 4 tensors, got "none"');
  await refused("vector", 0, 1).toThrow("readRows: name expected a tensor of 2 or more dimensions, got shape [6]");
  await refused("matrix", 6, 6).toThrow("readRows: begin expected an integer from 0 to 5, got 6");
  await refused("matrix", 3, 2).toThrow("readRows: end expected an integer from 3 to 5, got 2");
  await refused("stack", 0, 5).toThrow("readRows: end expected an integer from 0 to 4, got 5");
});
