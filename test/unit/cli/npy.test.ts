import { describe, expect, test } from "vitest";
import { HeadwiseError } from "../../../src/base/util/errors.ts";
import { readNpy } from "../../../src/cli/files.ts";
import { bytesOf } from "../../support/gguf-writer.ts";

/** A .npy file of version 1. */
function npy(descr: string, shape: string, data: Uint8Array, order = "False", version = 1): Uint8Array {
  const words = `{'descr': '${descr}', 'fortran_order': ${order}, 'shape': ${shape}, }`;
  const lengthBytes = version === 1 ? 2 : 4;
  const header = words.padEnd(64 * Math.ceil((words.length + 13) / 64) - 8 - lengthBytes - 1).concat("\n");
  const length = [header.length & 255, header.length >> 8, 0, 0].slice(0, lengthBytes);
  const head = [0x93, ...Array.from("NUMPY", (letter) => letter.charCodeAt(0)), version, 0, ...length];
  return Uint8Array.from([...head, ...Array.from(header, (letter) => letter.charCodeAt(0)), ...data]);
}

describe(".npy", () => {
  const four = bytesOf(Float32Array.of(1, 2, 3, -4));

  test("is read in both versions, from bytes that are not aligned", () => {
    for (const version of [1, 2]) {
      const file = npy("<f4", "(2, 2)", four, "False", version);
      const shifted = new Uint8Array(file.length + 1);
      shifted.set(file, 1);
      const { data, shape } = readNpy("readNpy", shifted.subarray(1));
      expect([[...data], shape]).toEqual([
        [1, 2, 3, -4],
        [2, 2],
      ]);
    }
    expect(readNpy("readNpy", npy("<f4", "(4,)", four)).shape).toEqual([4]);
    expect(readNpy("readNpy", npy("<f4", "()", four.subarray(0, 4))).shape).toEqual([]);
  });

  test.each([
    ["other types", npy("<i4", "(2, 2)", four), /^readNpy: a \.npy file expected dtype <f4 or <f8 in C order, got /],
    ["columns first", npy("<f4", "(2, 2)", four, "True"), /in C order, got /],
    ["too few bytes", npy("<f4", "(2, 3)", four), /^readNpy: shape \[2, 3\] of <f4 expected 24 bytes, got 16$/],
    [
      "no header",
      npy("<f4", "(2, 2)", four).subarray(0, 11),
      /^readNpy: a \.npy file expected a header, got 11 bytes$/,
    ],
    ["half a header", npy("<f4", "(2, 2)", four).subarray(0, 50), /^readNpy: a \.npy header expected to end within 50/],
  ])("%s are refused", (_, file, message) => {
    expect(() => readNpy("readNpy", file)).toThrow(HeadwiseError);
    expect(() => readNpy("readNpy", file)).toThrow(message);
  });
});
