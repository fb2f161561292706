// A model in several files, by its index.

import { expect, test } from "vitest";
import { toFloats } from "../../../../src/base/tensor/dtypes.ts";
import {
  openSafetensorsIndex,
  readSafetensorsIndex,
  writeSafetensors,
} from "../../../../src/files/safetensors/safetensors.ts";

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
    /^readSafetensorsIndex: shard\("1.safetensors"\) expected Uint8Array or ArrayBuffer, got Promise/,
  );
});

test("reading tensors of an opened index opens their files, once each, and reads only these tensors", async () => {
  const shards = new Map([
    [
      "1.safetensors",
      writeSafetensors({
        a: { data: Float32Array.of(1), shape: [1] },
        big: { data: new Float32Array(2 ** 17), shape: [2 ** 17] },
      }),
    ],
    ["2.safetensors", part("b", 2)],
    ["3.safetensors", part("c", 3)],
  ]);
  const opened: string[] = [];
  let bytes = 0;
  const weight_map = { a: "1.safetensors", b: "2.safetensors", big: "1.safetensors", c: "3.safetensors" };
  const index = { metadata: { total_size: 8 }, weight_map };
  const file = await openSafetensorsIndex(JSON.stringify(index), async (name) => {
    opened.push(name);
    const shard = shards.get(name) as Uint8Array;
    return {
      size: shard.length,
      async read(offset, length) {
        bytes += length;
        return shard.subarray(offset, offset + length);
      },
    };
  });
  expect([...file.metadata]).toEqual([["total_size", "8"]]);
  expect([...file.tensors]).toEqual(Object.entries(weight_map));
  expect(opened).toEqual([]);
  const read = await file.readAll(["b", "a", "b"]);
  expect(Array.from(read, ([name, tensor]) => [name, tensor.name, toFloats(tensor)[0]])).toEqual([
    ["b", "b", 2],
    ["a", "a", 1],
  ]);
  expect((await file.read("a")).shape).toEqual([1]);
  expect(opened.sort()).toEqual(["1.safetensors", "2.safetensors"]);
  expect(bytes).toBeLessThan(1000);
});

test("an opened index names the function, the file and the tensor in its errors, and opens a file again that failed", async () => {
  const weight_map = { a: "1.safetensors", b: "1.safetensors" };
  let shard: unknown = new Error("no such file");
  let calls = 0;
  const file = await openSafetensorsIndex({ weight_map }, async () => {
    calls++;
    if (shard instanceof Error) throw shard;
    return shard as Uint8Array;
  });
  const place = 'read: shard "1.safetensors"';
  await expect(file.read("c")).rejects.toThrow(
    new RangeError(`read: name expected one of the file's 2 tensors, got "c"`),
  );
  await expect(file.readAll("a" as never)).rejects.toThrow('readAll: names expected a list of names, got "a"');
  expect(calls).toBe(0);
  await expect(file.read("a")).rejects.toMatchObject({
    code: "BAD_FILE",
    cause: shard,
    message: `${place} expected bytes, a Blob or a source, got Error: no such file`,
  });
  shard = 7;
  await expect(file.read("a")).rejects.toThrow(
    new TypeError(`${place}: source expected bytes, a Blob, or a source (of fileSource or urlSource), got 7`),
  );
  shard = new Uint8Array(3);
  expect(await badFileOf(() => file.read("a"))).toBe(`${place}: source expected an 8-byte header length, got 3 bytes`);
  shard = part("a", 1);
  expect(toFloats(await file.read("a"))).toEqual(Float32Array.of(1));
  expect(await badFileOf(() => file.read("b"))).toBe(`${place} expected tensor "b", as weight_map says, got none`);
  expect(calls).toBe(4);
  await expect(openSafetensorsIndex({ weight_map }, 7 as never)).rejects.toThrow(
    new TypeError("openSafetensorsIndex: shard expected a function, got 7"),
  );
  expect(await badFileOf(() => openSafetensorsIndex({ weight_map: { a: "../b" } }, () => part("a", 1)))).toBe(
    'openSafetensorsIndex: weight_map of "a" expected a plain file name, got "../b"',
  );
  expect(await badFileOf(() => openSafetensorsIndex("{", () => part("a", 1)))).toBe(
    'openSafetensorsIndex: index expected valid JSON, got "{"',
  );
});

test("what the shard function throws is named with its file", async () => {
  const { tensors } = readSafetensorsIndex({ weight_map: { a: "1.safetensors" } }, () => {
    throw new Error("no such file");
  });
  expect(await badFileOf(() => tensors.get("a")?.dtype)).toBe(
    'readSafetensorsIndex: shard "1.safetensors" expected bytes, got Error: no such file',
  );
});
