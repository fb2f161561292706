import { expect, test } from "vitest";
import {
  readSafetensors,
  readSafetensorsIndex,
  type StoredTensor,
  toFloats,
  writeSafetensors,
} from "../../../../src/files/safetensors/safetensors.ts";
import { HeadwiseError } from "../../../../src/util/errors.ts";

/** A file with this header text (or bytes), its true length or a wrong one, and so many bytes of data. */
function fileOf(header: string | Uint8Array, data = 0, length?: bigint): Uint8Array {
  const text = typeof header === "string" ? new TextEncoder().encode(header) : header;
  const file = new Uint8Array(8 + text.length + data);
  new DataView(file.buffer).setBigUint64(0, length ?? BigInt(text.length), true);
  file.set(text, 8);
  for (let i = 0; i < data; i++) file[8 + text.length + i] = i;
  return file;
}

const entry = (dtype: string, shape: readonly number[] | string, begin: number, end: number, name = "a") =>
  `${JSON.stringify(name)}:{"dtype":${JSON.stringify(dtype)},"shape":${typeof shape === "string" ? shape : JSON.stringify(shape)},"data_offsets":[${begin},${end}]}`;

function refusalOf(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    expect(error).toBeInstanceOf(HeadwiseError);
    expect((error as HeadwiseError).code).toBe("BAD_FILE");
    return (error as Error).message;
  }
  throw new Error("expected BAD_FILE, but the file was read");
}

const F32 = `{${entry("F32", [1], 0, 4)}}`;

test.each<[what: string, file: Uint8Array, message: RegExp]>([
  ["no bytes", new Uint8Array(), /8-byte header length, got 0 bytes$/],
  ["7 bytes", new Uint8Array(7), /got 7 bytes$/],
  ["an empty header", fileOf(""), /expected "\{" at character 0, got the end/],
  [
    "a header over the limit",
    fileOf(F32, 4, 100_000_001n),
    /<= 100000000 bytes, got 100000001 \(the file begins with 01 e1 f5 05 00 00 00 00\)$/,
  ],
  ["a length of 2^53 + 1", fileOf(F32, 4, 2n ** 53n + 1n), /got 9007199254740993 \(/],
  ["a length of 2^64 - 1", fileOf(F32, 4, 2n ** 64n - 1n), /got 18446744073709551615 \(/],
  [
    "a GGUF file",
    new TextEncoder().encode("GGUF...................."),
    /"GGUF\.\.\.\.", a GGUF file: openGguf reads those/,
  ],
  ["a web page", new TextEncoder().encode("<!doctype html><html></html>"), /the file begins with "<!doctyp"\)$/],
  ["a length past the end by one", fileOf(F32, 0, BigInt(F32.length + 1)), /the bytes after it/],
  ["a header that ends early", fileOf(F32, 4, 20n), /the end of the header$/],
  ["a byte order mark", fileOf(`\ufeff${F32}`, 4), /expected "\{" at character 0/],
  ["space before the brace", fileOf(` ${F32}`, 4), /expected "\{" at character 0/],
  ["a newline after the brace", fileOf(`${F32}\n`, 4), /only spaces after the closing brace/],
  ["a zero after the brace", fileOf(`${F32}\0`, 4), /only spaces after the closing brace/],
  ["a second object", fileOf(`${F32}{}`, 4), /only spaces/],
  ["an array", fileOf("[]"), /expected "\{"/],
  ["a byte that is not UTF-8", fileOf(Uint8Array.of(0x7b, 0x22, 0xff, 0x22, 0x7d)), /valid UTF-8/],
  ["a surrogate in UTF-8", fileOf(Uint8Array.of(0x7b, 0x22, 0xed, 0xa0, 0x80, 0x22, 0x7d)), /valid UTF-8/],
  ["an overlong zero", fileOf(Uint8Array.of(0x7b, 0x22, 0xc0, 0x80, 0x22, 0x7d)), /valid UTF-8/],
  ["a trailing comma", fileOf(`{${entry("F32", [1], 0, 4)},}`, 4), /a quoted key/],
  ["a missing comma", fileOf(`{${entry("U8", [1], 0, 1)} ${entry("U8", [1], 1, 2, "b")}}`, 2), /"," or "\}"/],
  ["a comment", fileOf(`{/**/${F32.slice(1)}`, 4), /a quoted key/],
  ["a tab in a name", fileOf(`{${entry("U8", [1], 0, 1).replace('"a"', '"\t"')}}`, 1), /valid characters and escapes/],
  ["a bad escape", fileOf(`{${entry("U8", [1], 0, 1).replace('"a"', '"\\x41"')}}`, 1), /valid characters and escapes/],
  ["a short escape", fileOf(`{${entry("U8", [1], 0, 1).replace('"a"', '"\\u12"')}}`, 1), /valid characters/],
  ["an open string", fileOf('{"a'), /valid characters and escapes at character 3, got the end/],
  ["a high surrogate alone", fileOf(`{${entry("U8", [1], 0, 1).replace('"a"', '"\\ud83e"')}}`, 1), /no lone surrogate/],
  ["a low surrogate alone", fileOf(`{${entry("U8", [1], 0, 1).replace('"a"', '"\\udd8a"')}}`, 1), /no lone surrogate/],
  ["surrogates in the wrong order", fileOf('{"\\udd8a\\ud83e":1}'), /no lone surrogate/],
  ["a name twice", fileOf(`{${entry("U8", [0], 0, 0)},${entry("U8", [0], 0, 0)}}`), /no duplicate key/],
  [
    "a name twice, once escaped",
    fileOf(`{${entry("U8", [0], 0, 0)},"\\u0061${entry("U8", [0], 0, 0).slice(2)}}`),
    /no duplicate key/,
  ],
  [
    "a field twice",
    fileOf('{"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}}'),
    /of tensor "a" expected no duplicate key/,
  ],
  ["__metadata__ twice", fileOf('{"__metadata__":{},"__metadata__":{}}'), /no duplicate key/],
  ["a metadata key twice", fileOf('{"__metadata__":{"k":"1","k":"1"}}'), /no duplicate key/],
  ["metadata that is not text", fileOf('{"__metadata__":{"k":1}}'), /__metadata__ values as strings/],
  ["metadata null", fileOf('{"__metadata__":null}'), /an object/],
  [
    "an unknown field",
    fileOf('{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":1}}'),
    /data_offsets only at character 52/,
  ],
  [
    "fields from __proto__",
    fileOf('{"a":{"__proto__":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}}'),
    /data_offsets only/,
  ],
  ["no shape", fileOf('{"a":{"dtype":"U8","data_offsets":[0,0]}}'), /expected dtype, shape and data_offsets/],
  ["a tensor as an array", fileOf('{"a":["U8",[0],[0,0]]}'), /an object/],
  ["one offset", fileOf('{"a":{"dtype":"U8","shape":[0],"data_offsets":[0]}}'), /data_offsets as \[begin, end\]/],
  [
    "three offsets",
    fileOf('{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0,0]}}'),
    /data_offsets as \[begin, end\]/,
  ],
  ["an unknown dtype", fileOf(`{${entry("F33", [1], 0, 4)}}`, 4), /tensor "a" dtype expected BOOL, .*, got "F33"$/],
  ["a dtype of Object.prototype", fileOf(`{${entry("toString", [1], 0, 4)}}`, 4), /got "toString"$/],
  ["-0", fileOf(`{${entry("U8", "[-0]", 0, 0)}}`), /integers >= 0/],
  ["01", fileOf(`{${entry("U8", "[01]", 0, 1)}}`, 1), /integers >= 0 at character 28/],
  ["1.0", fileOf(`{${entry("U8", "[1.0]", 0, 1)}}`, 1), /integers >= 0/],
  ["1e0", fileOf(`{${entry("U8", "[1e0]", 0, 1)}}`, 1), /integers >= 0/],
  ["true", fileOf(`{${entry("U8", "[true]", 0, 1)}}`, 1), /integers >= 0/],
  ["2^48", fileOf(`{${entry("U8", "[0,281474976710656]", 0, 0)}}`), /integers <= 281474976710655/],
  [
    "2^30 F32, whose bytes wrap to 0 in 32 bits",
    fileOf(`{${entry("F32", [2 ** 30], 0, 0)}}`),
    /expected 4294967296 bytes/,
  ],
  [
    "3 · 1431655766, which wraps to 2",
    fileOf(`{${entry("U8", [3, 1431655766], 0, 2)}}`, 2),
    /expected 4294967298 bytes/,
  ],
  ["2^64 elements, which wrap to 0", fileOf(`{${entry("U8", [2 ** 32, 2 ** 32], 0, 0)}}`), /below 2\^64 bits/],
  ["2^64 elements and then none", fileOf(`{${entry("U8", [2 ** 32, 2 ** 32, 0], 0, 0)}}`), /below 2\^64 bits/],
  ["2^62 elements whose bits overflow", fileOf(`{${entry("F64", [2 ** 31, 2 ** 31], 0, 0)}}`), /below 2\^64 bits/],
  ["three 4-bit elements", fileOf(`{${entry("F4", [3], 0, 2)}}`, 2), /a whole byte, got F4 \[3\]$/],
  [
    "a range too small",
    fileOf(`{${entry("F32", [2], 0, 4)}}`, 4),
    /expected 8 bytes for F32 \[2\], got data_offsets \[0, 4\]/,
  ],
  ["an empty tensor with bytes", fileOf(`{${entry("F32", [0], 0, 4)}}`, 4), /expected 0 bytes/],
  ["a range that ends before it begins", fileOf(`{${entry("U8", [1], 2, 1)}}`, 2), /expected 1 bytes/],
  ["a range past the data", fileOf(`{${entry("F32", [2], 0, 8)}}`, 4), /end within 4 bytes, got \[0, 8\]$/],
  ["bytes over", fileOf(F32, 5), /data expected 4 bytes, as the tensors cover, got 5$/],
  ["bytes and no tensors", fileOf("{}", 1), /data expected 0 bytes/],
  ["a hole at the start", fileOf(`{${entry("U8", [1], 1, 2)}}`, 2), /begin at 0, got \[1, 2\]$/],
  [
    "a hole between",
    fileOf(`{${entry("U8", [1], 0, 1)},${entry("U8", [1], 2, 3, "b")}}`, 3),
    /tensor "b" data_offsets expected to begin at 1/,
  ],
  [
    "an overlap",
    fileOf(`{${entry("U8", [2], 0, 2)},${entry("U8", [2], 1, 3, "b")}}`, 3),
    /tensor "b" data_offsets expected to begin at 2/,
  ],
  [
    "the same range twice",
    fileOf(`{${entry("U8", [2], 0, 2)},${entry("U8", [2], 0, 2, "b")}}`, 2),
    /expected to begin at 2/,
  ],
  [
    "an empty tensor inside another",
    fileOf(`{${entry("U8", [2], 0, 2)},${entry("U8", [0], 1, 1, "b")}}`, 2),
    /expected to begin at 2/,
  ],
])("a file is refused for %s", (_, file, message) => {
  expect(refusalOf(() => readSafetensors(file))).toMatch(message);
});

test.each(["[", '{"a":', '{"a":{"a":'])(
  "10 million levels of %s end at the second or third, not in the stack",
  (level) => {
    const text = new TextEncoder().encode(`{"a":${level}`);
    const deep = new Uint8Array(10_000_000).fill(text.at(-1)!);
    deep.set(text);
    expect(refusalOf(() => readSafetensors(fileOf(deep)))).toMatch(/expected/);
  },
);

test("names, metadata and dtypes are read as they are written, and ranges may be listed in any order", () => {
  const header = `{ "b" :\r\n{"data_offsets":[ 4 , 8 ],"shape":[ 2,2 ],"dtype":"\\u0055\\u0038"}\t,${entry("F4", [2, 4], 0, 4, "__proto__")},${entry("U8", [0, 281_474_976_710_655], 4, 4, "")},"__metadata__":{"__proto__":"x","gr\\u00f6ße":"\\ud83e\\udd8a\\n\\"\\\\\\/"}}   `;
  const { tensors, metadata } = readSafetensors(fileOf(header, 8));
  const seen = [...tensors].map(([name, t]) => [name, t.name, t.dtype, t.shape, [...t.bytes]]);
  expect(seen).toEqual([
    ["b", "b", "U8", [2, 2], [4, 5, 6, 7]],
    ["__proto__", "__proto__", "F4", [2, 4], [0, 1, 2, 3]],
    ["", "", "U8", [0, 281_474_976_710_655], []],
  ]);
  expect([...metadata]).toEqual([
    ["__proto__", "x"],
    ["größe", '🦊\n"\\/'],
  ]);
});

test("tensors are views of the file, whether it comes as Uint8Array, ArrayBuffer or Buffer", () => {
  const file = fileOf(`{${entry("U8", [4], 0, 4)}}`, 4);
  for (const source of [file, file.buffer as ArrayBuffer, Buffer.from(file.buffer)]) {
    const { bytes } = readSafetensors(source).tensors.get("a")!;
    expect(bytes.buffer).toBe(file.buffer);
    expect(Object.getPrototypeOf(bytes)).toBe(Uint8Array.prototype);
  }
});

test.each([undefined, null, "x", [1, 2], {}, new Float32Array(2), Promise.resolve(new Uint8Array())])(
  "what is not bytes (%o) is a TypeError",
  (value) => {
    expect(() => readSafetensors(value as never)).toThrow(TypeError);
    expect(() => readSafetensors(value as never)).toThrow(
      /^readSafetensors: bytes expected Uint8Array or ArrayBuffer, got /,
    );
  },
);

test("a million dimensions do not fill the message", () => {
  const file = fileOf(`{${entry("U8", `[2${",1".repeat(1_000_000)}]`, 0, 1)}}`, 1);
  expect(refusalOf(() => readSafetensors(file)).length).toBeLessThan(200);
});

const stored = (
  dtype: StoredTensor["dtype"],
  bytes: Uint8Array,
  shape = [(bytes.length * 8) / { F16: 16, BF16: 16, F32: 32, F64: 64 }[dtype as "F16"]],
): StoredTensor => ({ name: "t", dtype, shape, bytes });

test("all 65 536 float16 values widen to the float32 of the same value, -0, subnormals and NaN included", () => {
  const halves = Uint16Array.from({ length: 65_536 }, (_, bits) => bits);
  const floats = toFloats(stored("F16", new Uint8Array(halves.buffer)));
  let wrong = 0;
  for (let bits = 0; bits < 65_536; bits++) {
    const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
    const size = exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15);
    const special = fraction === 0 ? Number.POSITIVE_INFINITY : Number.NaN;
    const value = (exponent === 31 ? special : size) * (bits >> 15 ? -1 : 1);
    if (!Object.is(floats[bits], value)) wrong++;
  }
  expect(wrong).toBe(0);
});

test("BF16 is the upper half of a float32, F64 rounds to nearest, and empty tensors give no floats", () => {
  const bf16 = new Uint8Array(Uint16Array.of(0x3f80, 0xc000, 0x0001, 0x8000, 0x7f80, 0x7fc0).buffer);
  const subnormal = 2 ** -133;
  expect([...toFloats(stored("BF16", bf16))]).toEqual([1, -2, subnormal, -0, Number.POSITIVE_INFINITY, Number.NaN]);
  const f64 = new Uint8Array(Float64Array.of(0.1, 1e39, -0, 1 + 2 ** -24).buffer);
  expect([...toFloats(stored("F64", f64))]).toEqual([Math.fround(0.1), Number.POSITIVE_INFINITY, -0, 1]);
  expect(toFloats(stored("F16", new Uint8Array(), [2, 0]))).toEqual(new Float32Array());
});

test.each(["F16", "BF16", "F32", "F64"] as const)(
  "%s at any byte offset gives the floats of an aligned copy",
  (dtype) => {
    const bytes = Uint8Array.from({ length: 48 }, (_, i) => (i * 37) & 0x7b);
    const want = toFloats(stored(dtype, bytes));
    for (let offset = 1; offset < 9; offset++)
      for (const base of [new Uint8Array(64), Buffer.alloc(64)]) {
        const moved = base.subarray(offset, offset + 48);
        moved.set(bytes);
        expect(toFloats(stored(dtype, moved))).toEqual(want);
      }
  },
);

test("aligned F32 is borrowed, and other dtypes are refused by name", () => {
  const floats = Float32Array.of(1, 2);
  expect(toFloats(stored("F32", new Uint8Array(floats.buffer))).buffer).toBe(floats.buffer);
  expect(refusalOf(() => toFloats({ name: "w", dtype: "I64", shape: [1], bytes: new Uint8Array(8) }))).toBe(
    'toFloats: tensor "w" expected dtype F32, F16, BF16, F64, Q8_0 or Q4_0, got I64',
  );
  expect(() => toFloats(stored("F32", new Uint8Array(8), [3]))).toThrow(
    new RangeError('toFloats: tensor "t" expected 12 bytes for F32 [3], got 8'),
  );
});

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
  ["metadata that is not text", {}, { k: 1 }, 'writeSafetensors: metadata "k" expected a string, got 1'],
])("writing refuses %s", (_, tensors, metadata, message) => {
  expect(() => writeSafetensors(tensors as never, metadata as never)).toThrow(message);
});

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
])("an index is refused when it names the file %o", (fileName) => {
  const message = refusalOf(() => readSafetensorsIndex({ weight_map: { a: fileName } }, () => part("a", 1)));
  expect(message).toMatch(/^readSafetensorsIndex: weight_map of "a" expected a plain file name, got /);
});

test.each<[unknown, string]>([
  ["{", 'readSafetensorsIndex: index expected valid JSON, got "{"'],
  ["[]", "readSafetensorsIndex: index expected an object, got Array"],
  ["null", "readSafetensorsIndex: index expected an object, got null"],
  [{}, "readSafetensorsIndex: weight_map expected an object, got undefined"],
  [{ weight_map: [] }, "readSafetensorsIndex: weight_map expected an object, got Array"],
  [{ weight_map: {}, metadata: 1 }, "readSafetensorsIndex: metadata expected an object, got 1"],
])("the index %o is refused", (index, message) => {
  expect(refusalOf(() => readSafetensorsIndex(index as object, () => part("a", 1)))).toBe(message);
});

test("a shard without its tensor, a broken shard and a promise of one say which shard", () => {
  const read = (shard: () => unknown) => () => {
    const index = JSON.parse('{"weight_map":{"__proto__":"1.safetensors"}}') as object;
    return readSafetensorsIndex(index, shard as () => Uint8Array).tensors.get("__proto__")!.bytes;
  };
  expect(refusalOf(read(() => part("a", 1)))).toBe(
    'readSafetensorsIndex: shard "1.safetensors" expected tensor "__proto__", as weight_map says, got none',
  );
  expect(refusalOf(read(() => new Uint8Array(3)))).toMatch(
    /^readSafetensorsIndex: shard "1.safetensors": bytes expected/,
  );
  expect(read(async () => part("a", 1))).toThrow(
    new TypeError('readSafetensorsIndex: shard("1.safetensors") expected Uint8Array or ArrayBuffer, got Promise'),
  );
});
