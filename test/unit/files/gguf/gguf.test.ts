// The GGUF reader: what it reads, and what it refuses.

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { HeadwiseError } from "../../../../src/entries/core.ts";
import { type ByteSource, openGguf, toFloats } from "../../../../src/entries/weights.ts";
import { createRandom, floats } from "../../../kernels/harness.ts";
import {
  Bytes,
  bool,
  bytesOf,
  f32,
  f64,
  i8,
  i16,
  i32,
  i64,
  list,
  type Typed,
  text,
  toF16,
  toQ4_0,
  toQ8_0,
  u8,
  u16,
  u32,
  u64,
  type Written,
  writeGguf,
} from "../../../support/gguf-writer.ts";

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

describe("what is read", () => {
  const metadata: Record<string, Typed> = {
    "a.u8": u8(255),
    "a.i8": i8(-128),
    "a.u16": u16(65_535),
    "a.i16": i16(-32_768),
    "a.u32": u32(4_294_967_295),
    "a.i32": i32(-2_147_483_648),
    "a.f32": f32(1.5),
    "a.yes": bool(true),
    "a.no": bool(false),
    "a.text": text("Grüße, 世界 \0"),
    "a.empty": text(""),
    "a.u64": u64(2n ** 64n - 1n),
    "a.i64": i64(-(2n ** 63n)),
    "a.f64": f64(Math.PI),
    "l.u8": list(0, [1, 2, 255]),
    "l.i8": list(1, [-1, 127]),
    "l.u16": list(2, [65_535]),
    "l.i16": list(3, [-2, 3]),
    "l.u32": list(4, [1, 4_294_967_295]),
    "l.i32": list(5, [-5]),
    "l.f32": list(6, [0.5, -0, Infinity]),
    "l.bool": list(7, [1, 0, 1]),
    "l.text": list(8, ["a", "", "ß"]),
    "l.u64": list(10, [2n ** 60n]),
    "l.i64": list(11, [-1n]),
    "l.f64": list(12, [0.1]),
    "l.none": list(6, []),
    "l.lists": list(9, [list(4, [1, 2]), list(9, [list(8, ["deep"])]), list(8, [])]),
  };

  test.each([2, 3])("every kind of value, in version %i", async (version) => {
    const file = await openGguf(writeGguf({ version, metadata, tensors: [tensor("w", [2, 3])] }));
    expect(Object.fromEntries(file.metadata)).toEqual({
      "a.u8": 255,
      "a.i8": -128,
      "a.u16": 65_535,
      "a.i16": -32_768,
      "a.u32": 4_294_967_295,
      "a.i32": -2_147_483_648,
      "a.f32": 1.5,
      "a.yes": true,
      "a.no": false,
      "a.text": "Grüße, 世界 \0",
      "a.empty": "",
      "a.u64": 2n ** 64n - 1n,
      "a.i64": -(2n ** 63n),
      "a.f64": Math.PI,
      "l.u8": Uint8Array.of(1, 2, 255),
      "l.i8": Int8Array.of(-1, 127),
      "l.u16": Uint16Array.of(65_535),
      "l.i16": Int16Array.of(-2, 3),
      "l.u32": Uint32Array.of(1, 4_294_967_295),
      "l.i32": Int32Array.of(-5),
      "l.f32": Float32Array.of(0.5, -0, Infinity),
      "l.bool": Uint8Array.of(1, 0, 1),
      "l.text": ["a", "", "ß"],
      "l.u64": BigUint64Array.of(2n ** 60n),
      "l.i64": BigInt64Array.of(-1n),
      "l.f64": Float64Array.of(0.1),
      "l.none": new Float32Array(0),
      "l.lists": [Uint32Array.of(1, 2), [["deep"]], []],
    });
    expect([...toFloats(await file.read("w"))]).toEqual([-3, -2, -1, 0, 1, 2]);
    expect(file.tensors.get("w")?.shape).toEqual([2, 3]);
  });

  test("text that is not UTF-8 holds U+FFFD", async () => {
    const out = new Bytes().raw(new TextEncoder().encode("GGUF")).u32(3).u64(0).u64(1).text("k").u32(8);
    const file = await openGguf(out.u64(3).raw([0x61, 0xff, 0x62]).done());
    expect(file.metadata.get("k")).toBe("a\ufffdb");
  });

  test("any bytes of text are read as a decoder reads them, as a value and in a list", async () => {
    const words = fc.oneof(
      fc.uint8Array({ maxLength: 70 }),
      fc.string({ unit: "binary", maxLength: 30 }).map((word) => new TextEncoder().encode(word)),
      fc
        .string({ unit: fc.constantFrom("a", "Ġ", "é", "\u07ff", "\u0800"), maxLength: 40 })
        .map((word) => new TextEncoder().encode(word)),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(words, { maxLength: 8 }), async (list) => {
        const out = new Bytes().raw(new TextEncoder().encode("GGUF")).u32(3).u64(0).u64(2);
        out
          .text("one")
          .u32(8)
          .u64(list[0]?.length ?? 0)
          .raw(list[0] ?? []);
        out.text("all").u32(9).u32(8).u64(list.length);
        for (const word of list) out.u64(word.length).raw(word);
        const { metadata } = await openGguf(out.done());
        const want = list.map((word) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(word));
        expect(metadata.get("one")).toBe(want[0] ?? "");
        expect(metadata.get("all")).toEqual(want);
      }),
      { numRuns: 1000, seed: 3 },
    );
  });

  test.each([1, 8, 32, 64, 4096])("tensors at multiples of %i", async (alignment) => {
    const tensors = [tensor("a", [3]), tensor("b", []), tensor("none", [0, 4]), tensor("c", [2, 1, 3, 1])];
    const file = await openGguf(writeGguf({ alignment, tensors }));
    const read = await file.readAll(["c", "none", "a", "b"]);
    for (const { name, shape, bytes } of tensors) {
      expect(file.tensors.get(name)?.offset).toSatisfy((offset: number) => offset % alignment === 0);
      expect(read.get(name)).toEqual({ name, dtype: "F32", shape, bytes });
    }
  });

  test("holes between tensors, tensors in any order, and bytes behind the last one", async () => {
    const written = [tensor("b", [8], { offset: 96 }), tensor("a", [8], { offset: 0 })];
    const whole = writeGguf({ tensors: written });
    const file = await openGguf(new Uint8Array([...whole, ...new Uint8Array(200)]));
    expect((await file.read("a")).bytes).toEqual(written[0]?.bytes);
    expect(file.tensors.get("b")?.offset).toBe((file.tensors.get("a")?.offset ?? 0) + 96);
  });

  test("a file of nothing", async () => {
    const file = await openGguf(writeGguf({}));
    expect([file.metadata.size, file.tensors.size]).toEqual([0, 0]);
  });

  test("a header of 3 MB is read on, and not much beyond", async () => {
    const tokens = Array.from({ length: 200_000 }, (_, i) => `token ${i}`);
    const bytes = writeGguf({ metadata: { tokens: list(8, tokens) }, tensors: [tensor("w", [2 ** 22])] });
    let read = 0;
    const source: ByteSource = {
      size: bytes.length,
      async read(offset, length) {
        read += length;
        return bytes.subarray(offset, offset + length);
      },
    };
    const file = await openGguf(source);
    expect(file.metadata.get("tokens")).toEqual(tokens);
    const header = file.tensors.get("w")?.offset ?? 0;
    expect(header).toBeGreaterThan(3e6);
    expect(read).toBeLessThan(2 * header);
    expect((await file.read("w")).bytes.length).toBe(2 ** 24);
  });
});

describe("dtypes", () => {
  const random = createRandom(5);
  const data = floats(random, 4 * 64);
  const halves = Uint16Array.from(data, toF16);
  const brains = Uint16Array.from(new Uint32Array(data.buffer.slice(0)), (bits) => bits >>> 16);

  test.each<[string, number, Uint8Array, (i: number) => number]>([
    ["F32", 0, bytesOf(data), (i) => data[i]!],
    ["F16", 1, new Uint8Array(halves.buffer), (i) => halfOf(halves[i]!)],
    ["BF16", 30, new Uint8Array(brains.buffer), (i) => new Float32Array(Uint32Array.of(brains[i]! << 16).buffer)[0]!],
    ["Q8_0", 8, toQ8_0(data), (i) => element("Q8_0", toQ8_0(data), i)],
    ["Q4_0", 2, toQ4_0(data), (i) => element("Q4_0", toQ4_0(data), i)],
  ])("%s is read as it is stored, and widened to the floats it stands for", async (dtype, type, bytes, want) => {
    const file = await openGguf(
      writeGguf({ tensors: [tensor("before", [5]), { name: "w", type, shape: [4, 64], bytes }] }),
    );
    const stored = await file.read("w");
    expect(stored).toEqual({ name: "w", dtype, shape: [4, 64], bytes });
    const got = toFloats(stored);
    for (let i = 0; i < got.length; i++) expect(got[i]).toBe(want(i));
    // Half a step, or a whole one where bits are cut off and where +8 does not exist; scales round by 2^-11.
    const [most, far] = [data, data.map((w, i) => w - got[i]!)].map((all) =>
      all.reduce((m, w) => Math.max(m, Math.abs(w)), 0),
    );
    const bound = { F32: 0, F16: 2 ** -11, BF16: 2 ** -7, Q8_0: 1 / 254 + 2 ** -11, Q4_0: 1 / 8 + 2 ** -11 };
    expect(far! / most!).toBeLessThanOrEqual(bound[dtype as keyof typeof bound]);
  });

  const halfOf = (half: number): number => {
    const [exponent, fraction] = [(half >> 10) & 31, half & 1023];
    const size = exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15);
    if (exponent === 31) return fraction !== 0 ? Number.NaN : half >> 15 ? -Infinity : Infinity;
    return half >> 15 ? -size : size;
  };

  /** Element i of blocks, from the words of the format. */
  function element(dtype: "Q8_0" | "Q4_0", bytes: Uint8Array, i: number): number {
    const stride = dtype === "Q8_0" ? 34 : 18;
    const block = bytes.subarray(Math.floor(i / 32) * stride);
    const d = halfOf(block[0]! + 256 * block[1]!);
    const j = i % 32;
    if (dtype === "Q8_0") return d * (block[2 + j]! < 128 ? block[2 + j]! : block[2 + j]! - 256);
    const pair = block[2 + (j % 16)]!;
    return d * ((j < 16 ? pair % 16 : Math.floor(pair / 16)) - 8);
  }

  test.each(["Q8_0", "Q4_0"] as const)("every scale of %s, and every weight of a block, is exact", (dtype) => {
    const stride = dtype === "Q8_0" ? 34 : 18;
    const bytes = new Uint8Array(65_536 * stride);
    for (let half = 0; half < 65_536; half++) {
      bytes.set([half & 255, half >> 8], half * stride);
      for (let j = 2; j < stride; j++) bytes[half * stride + j] = half * 31 + j * 37;
    }
    const got = toFloats({ name: "w", dtype, shape: [65_536, 32], bytes });
    const wrong = got.findIndex((w, i) => {
      const want = element(dtype, bytes, i);
      return !Object.is(w, want) || !Object.is(Math.fround(want), want);
    });
    expect(wrong).toBe(-1);
  });

  test("blocks that begin anywhere in memory are read", () => {
    const bytes = toQ8_0(data);
    const odd = new Uint8Array(bytes.length + 1);
    odd.set(bytes, 1);
    const stored = { name: "w", dtype: "Q8_0", shape: [4, 64] } as const;
    expect(toFloats({ ...stored, bytes: odd.subarray(1) })).toEqual(toFloats({ ...stored, bytes }));
  });

  test("blocks that do not fit their shape are refused", () => {
    const stored = { name: "w", dtype: "Q8_0", bytes: new Uint8Array(68) } as const;
    expect(() => toFloats({ ...stored, shape: [4, 16] })).toThrow(
      new RangeError('toFloats: tensor "w" expected rows of whole blocks (32) for Q8_0, got [4, 16]'),
    );
    expect(() => toFloats({ ...stored, shape: [3, 32] })).toThrow(
      new RangeError('toFloats: tensor "w" expected 102 bytes for Q8_0 [3, 32], got 68'),
    );
    expect(() => toFloats({ ...stored, dtype: "Q4_0", shape: [2, 32] })).toThrow(
      new RangeError('toFloats: tensor "w" expected 36 bytes for Q4_0 [2, 32], got 68'),
    );
  });

  test("other types are listed with their sizes, and refused where they are read", async () => {
    const tensors = [
      { name: "q6", type: 14, shape: [2, 512], bytes: new Uint8Array(4 * 210) },
      { name: "ids", type: 26, shape: [3], bytes: new Uint8Array(12) },
      { name: "fp4", type: 39, shape: [64], bytes: new Uint8Array(34) },
    ];
    const file = await openGguf(writeGguf({ tensors }));
    expect([...file.tensors.values()].map(({ dtype, shape, bytes }) => [dtype, shape, bytes])).toEqual([
      ["Q6_K", [2, 512], 840],
      ["I32", [3], 12],
      ["MXFP4", [64], 34],
    ]);
    await expect(file.read("q6")).rejects.toThrow(
      new HeadwiseError("BAD_FILE", 'read: tensor "q6" expected F32, F16, BF16, Q8_0 or Q4_0, got Q6_K'),
    );
    await expect(file.readAll(["ids"])).rejects.toMatchObject({ code: "BAD_FILE" });
  });
});

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
      'tensor "b" expected to begin behind "a", which ends at 128, got 96',
    ],
    [
      "a tensor within another",
      writeGguf({ tensors: [tensor("b", [4], { offset: 32 }), tensor("a", [64], { offset: 0 })] }),
      'tensor "b" expected to begin behind "a", which ends at 352, got 128',
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
      { numRuns: 5000, seed: 11 },
    );
    expect([read > 500, refused > 500]).toEqual([true, true]);
  });
});
