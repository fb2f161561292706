// GGUF files that are refused.

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { HeadwiseError } from "../../../../src/entries/core.ts";
import { type ByteSource, openGguf } from "../../../../src/entries/weights.ts";
import {
  Bytes,
  bool,
  bytesOf,
  f32,
  list,
  text,
  u8,
  u32,
  u64,
  type Written,
  writeGguf,
} from "../../../support/gguf-writer.ts";
import { randomCases } from "../../../support/random-cases.ts";

const F32 = 0;

async function refusalOf(bytes: Uint8Array | ByteSource): Promise<string> {
  try {
    await openGguf(bytes);
  } catch (error) {
    expect(error).toBeInstanceOf(HeadwiseError);
    expect((error as HeadwiseError).code).toBe("BAD_FILE");
    const { message } = error as Error;
    expect(message).toMatch(/^openGguf: .* expected .*, got /);
    return message.replace("openGguf: ", "");
  }
  throw new Error("expected BAD_FILE, but the file was read");
}

const tensor = (name: string, shape: readonly number[], more: Partial<Written> = {}): Written => {
  const size = shape.reduce((a, b) => a * b, 1);
  return { name, type: F32, shape, bytes: bytesOf(Float32Array.from({ length: size }, (_, i) => i - 3)), ...more };
};

describe("hostile files", () => {
  const start = () => new Bytes().raw(new TextEncoder().encode("GGUF"));
  const head = (tensors: number | bigint, keys: number | bigint) => start().u32(3).u64(tensors).u64(keys);
  const one = (name: string, lengths: readonly (number | bigint)[], type = F32, offset: number | bigint = 0) => {
    const out = head(1, 0).text(name).u32(lengths.length);
    for (const length of lengths) out.u64(length);
    return out.u32(type).u64(offset).pad(32).raw(new Uint8Array(64)).done();
  };
  const nestedLists = (depth: number) => {
    const out = head(0, 1).text("k").u32(9);
    for (let i = 0; i < depth; i++) out.u32(9).u64(1);
    return out.u32(0).u64(0).done();
  };
  const valid = writeGguf({ metadata: { "a.b": u32(7) }, tensors: [tensor("w", [8])] });

  test.each<[string, Uint8Array, string]>([
    ["no bytes", new Uint8Array(), "header expected to begin with GGUF, got no bytes"],
    ["three bytes", Uint8Array.of(0x47, 0x47, 0x55), 'header expected to begin with GGUF, got "GGU"'],
    [
      "another magic",
      Uint8Array.of(0x47, 0x47, 0x4d, 0x4c, 3, 0, 0, 0),
      'header expected to begin with GGUF, got "GGML"',
    ],
    ["a magic alone", start().done(), "header expected version within the file (4 bytes), got 4 bytes at 4"],
    ["version 0", start().u32(0).done(), "header expected version 2 or 3, got 0"],
    ["version 1", start().u32(1).done(), "header expected version 2 or 3, got 1, whose counts have 32 bits"],
    ["version 4", start().u32(4).done(), "header expected version 2 or 3, got 4"],
    [
      "a big-endian file",
      start().raw([0, 0, 0, 3]).done(),
      "header expected little-endian numbers, got a big-endian file",
    ],
    [
      "a count cut off",
      start().u32(3).u32(1).done(),
      "header expected tensor count within the file (12 bytes), got 8 bytes at 8",
    ],
    [
      "2^64 - 1 tensors",
      head(2n ** 64n - 1n, 0).done(),
      "header expected tensor count below 2^53, got 18446744073709551615",
    ],
    ["2^53 tensors", head(2n ** 53n, 0).done(), "header expected tensor count below 2^53, got 9007199254740992"],
    ["2^40 tensors", head(2n ** 40n, 0).done(), "header expected tensor count <= 1048576, got 1099511627776"],
    [
      "more tensors than there is room for",
      head(2, 0).raw(new Uint8Array(30)).done(),
      "header expected tensor count that the file (54 bytes) has room for, got 2",
    ],
    [
      "more keys than there is room for",
      head(0, 2).raw(new Uint8Array(20)).done(),
      "header expected key count that the file (44 bytes) has room for, got 2",
    ],
    [
      "a key beyond the file",
      head(0, 1).u64(100).raw(new Uint8Array(20)).done(),
      "key 0 expected its name within the file (52 bytes), got 100 bytes at 32",
    ],
    [
      "a key of 2^63 bytes",
      head(0, 1)
        .u64(2n ** 63n)
        .raw(new Uint8Array(20))
        .done(),
      "key 0 expected length of its name below 2^53, got 9223372036854775808",
    ],
    [
      "a key of 65,536 bytes",
      head(0, 1).u64(65_536).raw(new Uint8Array(70_000)).done(),
      "key 0 expected its name of at most 65535 bytes, got 65536",
    ],
    [
      "a key that is not UTF-8",
      head(0, 1).u64(1).raw([0xff]).u32(0).raw([1]).done(),
      "key 0 expected its name in valid UTF-8, got other bytes",
    ],
    [
      "a key twice",
      writeGguf({
        metadata: [
          ["k", u8(1)],
          ["k", u8(1)],
        ],
      }),
      'key "k" expected to be there once, got it again',
    ],
    [
      "a type of value 13",
      head(0, 1).text("k").u32(13).u64(0).done(),
      'key "k" expected a type of value from 0 to 12, got 13',
    ],
    ["a boolean of 2", writeGguf({ metadata: { k: bool(2) } }), 'key "k" expected a boolean of 0 or 1, got 2'],
    [
      "a boolean of 2 in a list",
      writeGguf({ metadata: { k: list(7, [1, 2]) } }),
      'key "k" expected booleans of 0 or 1, got another',
    ],
    [
      "text beyond the file",
      head(0, 1)
        .text("k")
        .u32(8)
        .u64(2n ** 33n)
        .done(),
      'key "k" expected a string within the file (45 bytes), got 8589934592 bytes at 45',
    ],
    [
      "a list beyond the file",
      head(0, 1)
        .text("k")
        .u32(9)
        .u32(10)
        .u64(2n ** 40n)
        .done(),
      'key "k" expected length of an array that the file (49 bytes) has room for, got 1099511627776',
    ],
    [
      "a list of 2^53 bytes",
      head(0, 1)
        .text("k")
        .u32(9)
        .u32(0)
        .u64(2n ** 53n)
        .done(),
      'key "k" expected length of an array below 2^53, got 9007199254740992',
    ],
    [
      "a list of type 99",
      head(0, 1).text("k").u32(9).u32(99).u64(0).done(),
      'key "k" expected a type of value from 0 to 12, got 99',
    ],
    ["lists five deep", nestedLists(4), 'key "k" expected arrays at most 4 deep, got a deeper one'],
    ["lists 10,000 deep", nestedLists(10_000), 'key "k" expected arrays at most 4 deep, got a deeper one'],
    [
      "65,537 lists in a list",
      head(0, 1)
        .text("k")
        .u32(9)
        .u32(9)
        .u64(65_537)
        .raw(new Uint8Array(65_537 * 12))
        .done(),
      'key "k" expected at most 65536 arrays within arrays, got 65537',
    ],
    [
      "an alignment of 0",
      writeGguf({ metadata: { "general.alignment": u32(0) } }),
      'key "general.alignment" expected a power of two up to 1048576, got 0',
    ],
    [
      "an alignment of 24",
      writeGguf({ metadata: { "general.alignment": u32(24) } }),
      'key "general.alignment" expected a power of two up to 1048576, got 24',
    ],
    [
      "an alignment of 2^31",
      writeGguf({ metadata: { "general.alignment": u32(2 ** 31) } }),
      'key "general.alignment" expected a power of two up to 1048576, got 2147483648',
    ],
    [
      "an alignment of 32.5",
      writeGguf({ metadata: { "general.alignment": f32(32.5) } }),
      'key "general.alignment" expected a power of two up to 1048576, got 32.5',
    ],
    [
      "an alignment in words",
      writeGguf({ metadata: { "general.alignment": text("32") } }),
      'key "general.alignment" expected a power of two up to 1048576, got "32"',
    ],
    [
      "a tensor twice",
      writeGguf({ tensors: [tensor("w", [8]), tensor("w", [8])] }),
      'tensor "w" expected to be there once, got it again',
    ],
    ["five dimensions", one("w", [1, 1, 1, 1, 1]), 'tensor "w" expected at most 4 dimensions, got 5'],
    [
      "2^32 - 1 dimensions",
      head(1, 0)
        .text("w")
        .u32(2 ** 32 - 1)
        .raw(new Uint8Array(64))
        .done(),
      'tensor "w" expected at most 4 dimensions, got 4294967295',
    ],
    [
      "a dimension of 2^64 - 1",
      one("w", [2n ** 64n - 1n]),
      'tensor "w" expected the length of a dimension below 2^53, got 18446744073709551615',
    ],
    [
      "2^64 elements, which wrap to 0",
      one("w", [2n ** 32n, 2n ** 32n]),
      'tensor "w" expected fewer than 2^53 elements, got [4294967296, 4294967296]',
    ],
    [
      "2^64 elements and then none",
      one("w", [2n ** 32n, 2n ** 32n, 0]),
      'tensor "w" expected fewer than 2^53 elements, got [0, 4294967296, 4294967296]',
    ],
    ["a type that is not known", one("w", [1], 4), 'tensor "w" expected a known type, got type 4'],
    [
      "a row of half a block",
      one("w", [16, 2], 8),
      'tensor "w" expected rows of whole blocks (32) for Q8_0, got [2, 16]',
    ],
    [
      "a row of a block and a half",
      one("w", [384], 14),
      'tensor "w" expected rows of whole blocks (256) for Q6_K, got [384]',
    ],
    ["one byte too many", one("w", [17]), 'tensor "w" expected to end within the file (128 bytes), got 68 bytes at 64'],
    [
      "an offset beyond the file",
      one("w", [1], F32, 2n ** 52n),
      `tensor "w" expected to end within the file (128 bytes), got 4 bytes at ${2 ** 52 + 64}`,
    ],
    [
      "an offset of 2^63",
      one("w", [1], F32, 2n ** 63n),
      'tensor "w" expected its offset below 2^53, got 9223372036854775808',
    ],
    ["an offset between", one("w", [1], F32, 16), 'tensor "w" expected an offset that is a multiple of 32, got 16'],
    [
      "two tensors in one place",
      writeGguf({ tensors: [tensor("a", [8]), tensor("b", [8], { offset: 0 })] }),
      'tensor "b" expected to begin after "a", which ends at 128, got 96',
    ],
    [
      "a tensor within another",
      writeGguf({ tensors: [tensor("b", [4], { offset: 32 }), tensor("a", [64], { offset: 0 })] }),
      'tensor "b" expected to begin after "a", which ends at 352, got 128',
    ],
    ["data cut off", valid.slice(0, -1), 'tensor "w" expected to end within the file (127 bytes), got 32 bytes at 96'],
    ["no data", valid.slice(0, 84), 'tensor "w" expected to end within the file (84 bytes), got 32 bytes at 96'],
  ])("%s", async (_what, bytes, said) => {
    expect(await refusalOf(bytes)).toBe(said);
  });

  test("every prefix of a file is refused", async () => {
    for (let length = 0; length < valid.length; length++) await refusalOf(valid.slice(0, length));
    expect((await openGguf(valid)).tensors.size).toBe(1);
  });

  test("a header that goes on beyond 100 MB is refused before it is read", async () => {
    let read = 0;
    const begin = head(0, 1)
      .text("k")
      .u32(8)
      .u64(2n ** 40n)
      .done();
    const source: ByteSource = {
      size: 2 ** 41,
      async read(offset, length) {
        read += length;
        return Uint8Array.from({ length }, (_, i) => begin[offset + i] ?? 0);
      },
    };
    expect(await refusalOf(source)).toBe(
      'key "k" expected a string within 100000000 bytes of header, got 1099511627776 bytes at 45',
    );
    expect(read).toBe(2 ** 16);
  });

  test("a source that is larger than its bytes is refused", async () => {
    const source: ByteSource = { size: 10_000, read: async () => valid };
    expect(await refusalOf(source)).toBe(`source expected 10000 bytes at 0, got ${valid.length}`);
  });

  test("whatever is changed, a file is refused with BAD_FILE or all it lists lies within it", async () => {
    const bytes = writeGguf({
      alignment: 64,
      metadata: {
        "general.architecture": text("llama"),
        "llama.rope.freq_base": f32(1e4),
        "t.l": list(8, ["a", "bc", ""]),
        "t.n": list(9, [list(4, [1, 2]), list(7, [1, 0])]),
        "t.u": u64(5n),
      },
      tensors: [
        tensor("a", [4, 3]),
        { name: "blk.0.attn_q.weight", type: 8, shape: [2, 64], bytes: new Uint8Array(136) },
        { name: "c", type: 14, shape: [256], bytes: new Uint8Array(210) },
      ],
    });
    const at = fc.nat(bytes.length - 1);
    const words = fc.constantFrom(
      0n,
      1n,
      2n,
      13n,
      255n,
      2n ** 16n,
      2n ** 31n,
      2n ** 32n,
      2n ** 53n,
      2n ** 63n,
      2n ** 64n - 1n,
    );
    const change = fc.oneof(
      fc.record({ kind: fc.constant("byte" as const), at, value: fc.nat(255) }),
      fc.record({ kind: fc.constant("word" as const), at, value: words }),
      fc.record({ kind: fc.constant("cut" as const), at, length: fc.nat(40) }),
      fc.record({ kind: fc.constant("repeat" as const), at, length: fc.nat(40) }),
      fc.record({ kind: fc.constant("end" as const), at }),
    );
    let [read, refused] = [0, 0];
    await fc.assert(
      fc.asyncProperty(fc.array(change, { minLength: 1, maxLength: 4 }), async (changes) => {
        let file = bytes.slice();
        for (const each of changes) {
          const from = Math.min(each.at, file.length);
          if (each.kind === "byte") file[from] = each.value;
          else if (each.kind === "word" && from + 8 <= file.length)
            new DataView(file.buffer).setBigUint64(from, each.value, true);
          else if (each.kind === "cut")
            file = Uint8Array.of(...file.subarray(0, from), ...file.subarray(from + each.length));
          else if (each.kind === "repeat")
            file = Uint8Array.of(...file.subarray(0, from + each.length), ...file.subarray(from));
          else if (each.kind === "end") file = file.slice(0, from);
        }
        let opened: Awaited<ReturnType<typeof openGguf>>;
        try {
          opened = await openGguf(file);
        } catch (error) {
          refused++;
          expect((error as HeadwiseError).code, String(error)).toBe("BAD_FILE");
          expect((error as Error).message).toMatch(/^openGguf: .* expected .*, got /s);
          return;
        }
        read++;
        for (const { name, offset, bytes: length, dtype } of opened.tensors.values()) {
          expect(offset + length).toBeLessThanOrEqual(file.length);
          if (dtype === "F32") expect((await opened.read(name)).bytes.length).toBe(length);
        }
      }),
      randomCases(5000, 11),
    );
    expect([read > 500, refused > 500]).toEqual([true, true]);
  });
});
