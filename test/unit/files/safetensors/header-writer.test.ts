import { expect, test } from "vitest";
import { toFloats } from "../../../../src/base/tensor/dtypes.ts";
import { readSafetensors, writeSafetensors } from "../../../../src/files/safetensors/safetensors.ts";

test("what is written is read back, aligned, and does not depend on the order it was given in", () => {
  const tensors = new Map([
    ["odd", { dtype: "U8", shape: [3], bytes: Uint8Array.of(1, 2, 3) } as const],
    ["w", { data: Float32Array.of(1, -0, Number.NaN), shape: [3, 1] }],
    ["__proto__", { dtype: "F64", shape: [], bytes: new Uint8Array(8) } as const],
    ["gr\u0007öße 🦊", { data: new Float32Array(), shape: [0, 7] }],
  ]);
  const bytes = writeSafetensors(tensors, { format: "pt", "": "\u2028" });
  const file = readSafetensors(bytes);
  expect(new Set(file.tensors.keys())).toEqual(new Set(tensors.keys()));
  expect([...file.metadata]).toEqual([
    ["format", "pt"],
    ["", "\u2028"],
  ]);
  expect(toFloats(file.tensors.get("w")!)).toEqual(Float32Array.of(1, -0, Number.NaN));
  expect(file.tensors.get("__proto__")!.bytes.byteOffset % 8).toBe(0);
  expect(file.tensors.get("w")!.bytes.byteOffset % 4).toBe(0);
  expect(writeSafetensors(new Map([...tensors].reverse()), file.metadata)).toEqual(bytes);
  expect(readSafetensors(writeSafetensors({})).tensors.size).toBe(0);
});

test.each<[string, unknown, unknown, string]>([
  ["no tensors", null, {}, "writeSafetensors: tensors expected a Map or an object, got null"],
  ["a tensor of numbers", { a: [1] }, {}, 'writeSafetensors: tensor "a".shape expected an array, got undefined'],
  [
    "too few floats",
    { a: { data: new Float32Array(1), shape: [2] } },
    {},
    'writeSafetensors: tensor "a" expected 2 floats, got 1',
  ],
  [
    "too many bytes",
    { a: { dtype: "F4", shape: [3], bytes: new Uint8Array(2) } },
    {},
    'writeSafetensors: tensor "a" expected 1.5 bytes, got 2',
  ],
  [
    "a name that is taken",
    { __metadata__: { data: new Float32Array(1), shape: [1] } },
    {},
    'writeSafetensors: name expected other than "__metadata__", got it',
  ],
  [
    "half a surrogate pair",
    { "\ud83e": { data: new Float32Array(1), shape: [1] } },
    {},
    'writeSafetensors: name expected no lone surrogate, got "\\ud83e"',
  ],
  [
    "a dimension beyond the format's integers",
    { a: { data: new Float32Array(0), shape: [0, 2 ** 48] } },
    {},
    'writeSafetensors: tensor "a" expected dimensions <= 281474976710655, got [0, 281474976710656]',
  ],
  ["metadata that is not text", {}, { k: 1 }, 'writeSafetensors: metadata "k" expected a string, got 1'],
])("writing refuses %s", (_, tensors, metadata, message) => {
  expect(() => writeSafetensors(tensors as never, metadata as never)).toThrow(message);
});
