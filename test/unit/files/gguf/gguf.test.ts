// The GGUF reader: what it reads.

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { HeadwiseError } from "../../../../src/entries/core.ts";
import { type ByteSource, openGguf, toFloats } from "../../../../src/entries/weights.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";
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
import { floats } from "../../../support/harness.ts";
import { randomCases } from "../../../support/random-cases.ts";
import { calls } from "../../../support/sampled.ts";

const F32 = 0;

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
      randomCases(calls(1000, 300), 3),
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
      { name: "q8", type: 15, shape: [2, 512], bytes: new Uint8Array(4 * 292) },
      { name: "ids", type: 26, shape: [3], bytes: new Uint8Array(12) },
      { name: "fp4", type: 39, shape: [64], bytes: new Uint8Array(34) },
    ];
    const file = await openGguf(writeGguf({ tensors }));
    expect([...file.tensors.values()].map(({ dtype, shape, bytes }) => [dtype, shape, bytes])).toEqual([
      ["Q8_K", [2, 512], 1168],
      ["I32", [3], 12],
      ["MXFP4", [64], 34],
    ]);
    await expect(file.read("q8")).rejects.toThrow(
      new HeadwiseError(
        "BAD_FILE",
        'read: tensor "q8" expected F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, ' +
          "IQ4_XS, TQ1_0, TQ2_0, I2_S, Q1_0, Q2_0, MXFP4, NVFP4, IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS or IQ3_S, got Q8_K",
      ),
    );
    await expect(file.readAll(["ids"])).rejects.toMatchObject({ code: "BAD_FILE" });
  });
});
