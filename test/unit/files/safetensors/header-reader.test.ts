import fc from "fast-check";
import { expect, test } from "vitest";
import { openSafetensors, readSafetensors } from "../../../../src/files/safetensors/safetensors.ts";
import { badFileOf } from "../../../support/bad-file.ts";
import { randomCases } from "../../../support/random-cases.ts";

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
    /^readSafetensors: bytes expected a safetensors file, got a GGUF file: openGguf reads it$/,
  ],
  ["text", new TextEncoder().encode("some other text"), /the file begins with "some oth"\)$/],
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
])("a file is refused for %s", async (_, file, message) => {
  expect(await badFileOf(() => readSafetensors(file))).toMatch(message);
});

test.each(["[", '{"a":', '{"a":{"a":'])(
  "10 million levels of %s end at the second or third, not in the stack",
  async (level) => {
    const text = new TextEncoder().encode(`{"a":${level}`);
    const deep = new Uint8Array(10_000_000).fill(text.at(-1)!);
    deep.set(text);
    expect(await badFileOf(() => readSafetensors(fileOf(deep)))).toMatch(/expected/);
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

test("a million dimensions do not fill the message", async () => {
  const file = fileOf(`{${entry("U8", `[2${",1".repeat(1_000_000)}]`, 0, 1)}}`, 1);
  expect((await badFileOf(() => readSafetensors(file))).length).toBeLessThan(200);
});

test("whatever is changed in a header, the file is refused with BAD_FILE or holds what JSON.parse finds in it", async () => {
  const header = `{"__metadata__":{"format":"pt","k\\u0041":"\\ud83e\\udd8a"},${entry("F32", [2, 3], 0, 24)},${entry("BF16", [3], 24, 30, "größe.weight")},${entry("F4", [4], 30, 32, "f4")},${entry("U8", [0, 4_294_967_296], 32, 32, "none")}}`;
  const valid = new TextEncoder().encode(header);
  const at = fc.nat(valid.length - 1);
  const snippets = [
    '"',
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "0",
    "9",
    "1e3",
    "-",
    " ",
    "\\",
    "\\u0000",
    '"a":',
    "null",
    "32",
    "F32",
  ];
  const change = fc.oneof(
    fc.record({ kind: fc.constant("byte" as const), at, value: fc.nat(255) }),
    fc.record({ kind: fc.constant("cut" as const), at, length: fc.nat(30) }),
    fc.record({ kind: fc.constant("repeat" as const), at, length: fc.nat(60) }),
    fc.record({ kind: fc.constant("insert" as const), at, text: fc.constantFrom(...snippets) }),
    fc.record({ kind: fc.constant("digit" as const), at, value: fc.nat(9) }),
  );
  let [read, refused] = [0, 0];
  await fc.assert(
    fc.asyncProperty(fc.array(change, { minLength: 1, maxLength: 3 }), fc.nat(40), async (changes, data) => {
      let text = valid;
      for (const each of changes) {
        const [before, after] = [text.slice(0, each.at), text.slice(each.at)];
        if (each.kind === "byte") text = Uint8Array.of(...before, each.value, ...after.slice(1));
        else if (each.kind === "cut") text = Uint8Array.of(...before, ...after.slice(each.length));
        else if (each.kind === "repeat") text = Uint8Array.of(...before, ...after.slice(0, each.length), ...after);
        else if (each.kind === "insert")
          text = Uint8Array.of(...before, ...new TextEncoder().encode(each.text), ...after);
        else {
          const digit = after.findIndex((code) => code >= 0x30 && code <= 0x39);
          if (digit >= 0) text = Uint8Array.of(...before, ...after.with(digit, 0x30 + each.value));
        }
      }
      const file = fileOf(text, data < 33 ? 32 : data);
      let found: ReturnType<typeof readSafetensors>;
      try {
        found = readSafetensors(file);
      } catch (error) {
        refused++;
        const { message } = error as Error;
        expect(message).toMatch(/^readSafetensors: .*expected .*, got /s);
        expect(message.length).toBeLessThan(400);
        expect(await badFileOf(() => openSafetensors(file))).toBe(
          message
            .replace("readSafetensors: bytes", "openSafetensors: source")
            .replace("readSafetensors", "openSafetensors"),
        );
        return;
      }
      read++;
      const { __metadata__: metadata = {}, ...tensors } = JSON.parse(new TextDecoder().decode(text)) as Record<
        string,
        Record<string, unknown>
      >;
      expect(Object.fromEntries(found.metadata)).toEqual(metadata);
      const stated = Array.from(found.tensors, ([name, { dtype, shape, bytes }]) => {
        const begin = bytes.byteOffset - 8 - text.length;
        return [name, { dtype, shape, data_offsets: [begin, begin + bytes.length] }];
      });
      expect(Object.fromEntries(stated)).toEqual(tensors);
      const opened = await openSafetensors(file);
      for (const [name, { bytes }] of found.tensors) expect((await opened.read(name)).bytes).toEqual(bytes);
    }),
    randomCases(5000, 12),
  );
  expect([read > 100, refused > 500], `${read} read`).toEqual([true, true]);
});
