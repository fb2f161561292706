import { expect, test } from "vitest";
import { joinBytes } from "../../../../src/base/util/bytes.ts";
import { decodeCbor, encodeParts } from "../../../../src/base/util/cbor.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";

const encode = (value: unknown) => joinBytes([...encodeParts("test", "value", value)]);
const decode = (bytes: Uint8Array) => decodeCbor("test", "bytes", bytes);

test.each<[unknown, string]>([
  [0, "00"],
  [23, "17"],
  [24, "1818"],
  [255, "18ff"],
  [256, "190100"],
  [1_000_000, "1a000f4240"],
  [1_000_000_000_000, "1b000000e8d4a51000"],
  [Number.MAX_SAFE_INTEGER, "1b001fffffffffffff"],
  [-1, "20"],
  [-1000, "3903e7"],
  [1.1, "fb3ff199999999999a"],
  [3.402_823_466_385_288_6e38, "fa7f7fffff"],
  [-4.1, "fbc010666666666666"],
  [Number.POSITIVE_INFINITY, "fa7f800000"],
  [Number.NaN, "fa7fc00000"],
  [-0, "fa80000000"],
  [false, "f4"],
  [true, "f5"],
  [null, "f6"],
  ["", "60"],
  ["IETF", "6449455446"],
  ["水", "63e6b0b4"],
  [[], "80"],
  [[1, [2, 3], [4, 5]], "8301820203820405"],
  [{}, "a0"],
  [{ b: [2, 3], a: 1, c: undefined }, "a26161016162820203"],
  [Float32Array.of(1, -2), "d85548" + "0000803f" + "000000c0"],
  [Int32Array.of(-1), "d84e44ffffffff"],
])("%o is %s, as in RFC 8949 and RFC 8746", (value, hex) => {
  expect(Buffer.from(encode(value)).toString("hex")).toBe(hex);
  expect(decode(Buffer.from(hex, "hex"))).toEqual(value);
});

test("every float comes back with its bits, and so does every integer", () => {
  const random = createRandom(5);
  const bits = new Uint32Array(random.floats(4000).buffer);
  const floats = new Float64Array(bits.buffer.slice(0, 8000)).map((value) => value * 3.7e300);
  for (const value of [
    ...new Float32Array(bits.buffer),
    ...floats,
    2 ** 53,
    2 ** 53 - 1,
    -(2 ** 53),
    5e-324,
    2 ** -149,
  ])
    expect(Object.is(decode(encode(value)), value)).toBe(true);
});

test.each<[string, unknown, string]>([
  ["functions", { a: [() => 1] }, "test: value.a[0] expected plain data, got function"],
  ["maps", new Map(), "test: value expected plain data, got Map"],
  ["big integers", 1n, "test: value expected plain data, got 1n"],
  ["holes", [undefined], "test: value[0] expected plain data, got undefined"],
  ["other views", new DataView(new ArrayBuffer(1)), "test: value expected plain data, got DataView"],
])("%s are refused by name", (_, value, text) => {
  expect(() => encode(value)).toThrow(text);
});

test("data that contain themselves are refused", () => {
  const list: unknown[] = [];
  list.push(list);
  expect(() => encode(list)).toThrow("expected at most 32 levels, got more");
});
