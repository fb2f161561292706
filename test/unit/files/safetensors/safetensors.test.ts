// A model in several files, by its index.

import { expect, test } from "vitest";
import { readSafetensorsIndex, writeSafetensors } from "../../../../src/files/safetensors/safetensors.ts";
import { toFloats } from "../../../../src/tensor/dtypes.ts";
import { badFileOf } from "../../../support/bad-file.ts";

const part = (name: string, value: number) =>
  writeSafetensors({ [name]: { data: Float32Array.of(value), shape: [1] } });

test("reading one layer of an index opens the shards it lies in, once each", () => {
  const shards: Readonly<Record<string, Uint8Array>> = { "1.safetensors": part("a", 1), "2.safetensors": part("b", 2) };
  const opened: string[] = [];
  const index = { metadata: { total_size: 8, format: "pt" }, weight_map: { a: "1.safetensors", b: "2.safetensors" } };
  const file = readSafetensorsIndex(JSON.stringify(index), (name) => {
    opened.push(name);
    return shards[name]!;
  });
  expect([...file.tensors.keys()]).toEqual(["a", "b"]);
  expect([...file.metadata]).toEqual([
    ["total_size", "8"],
    ["format", "pt"],
  ]);
  expect(opened).toEqual([]);
  const b = file.tensors.get("b")!;
  expect([b.name, b.dtype, b.shape, toFloats(b)[0]]).toEqual(["b", "F32", [1], 2]);
  expect(opened).toEqual(["2.safetensors"]);
});

test.each([
  "../x.safetensors",
  "..",
  ".",
  "",
  "/etc/passwd",
  "a/b",
  "a\\b",
  "c:x",
  ".hidden",
  "x?y",
  "x#y",
  "x%2fy",
  "a\0b",
  "a\nb",
  7,
  null,
])("an index is refused when it names the file %o", async (fileName) => {
  const message = await badFileOf(() => readSafetensorsIndex({ weight_map: { a: fileName } }, () => part("a", 1)));
  expect(message).toMatch(/^readSafetensorsIndex: weight_map of "a" expected a plain file name, got /);
});

test.each<[unknown, string]>([
  ["{", 'readSafetensorsIndex: index expected valid JSON, got "{"'],
  ["[]", "readSafetensorsIndex: index expected an object, got Array"],
  ["null", "readSafetensorsIndex: index expected an object, got null"],
  [{}, "readSafetensorsIndex: weight_map expected an object, got undefined"],
  [{ weight_map: [] }, "readSafetensorsIndex: weight_map expected an object, got Array"],
  [{ weight_map: {}, metadata: 1 }, "readSafetensorsIndex: metadata expected an object, got 1"],
])("the index %o is refused", async (index, message) => {
  expect(await badFileOf(() => readSafetensorsIndex(index as object, () => part("a", 1)))).toBe(message);
});

test("errors of a shard without its tensor, a broken shard and a promise of one name the shard", async () => {
  const read = (shard: () => unknown) => () => {
    const index = JSON.parse('{"weight_map":{"__proto__":"1.safetensors"}}') as object;
    return readSafetensorsIndex(index, shard as () => Uint8Array).tensors.get("__proto__")!.bytes;
  };
  expect(await badFileOf(read(() => part("a", 1)))).toBe(
    'readSafetensorsIndex: shard "1.safetensors" expected tensor "__proto__", as weight_map says, got none',
  );
  expect(await badFileOf(read(() => new Uint8Array(3)))).toMatch(
    /^readSafetensorsIndex: shard "1.safetensors": bytes expected/,
  );
  expect(read(async () => part("a", 1))).toThrow(
    new TypeError('readSafetensorsIndex: shard("1.safetensors") expected Uint8Array or ArrayBuffer, got Promise'),
  );
});
