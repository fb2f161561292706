// The simd build is made from the relaxed one, when the package is built and again where a bundle carries one of them.

import { readFileSync } from "node:fs";
import fc from "fast-check";
import { beforeAll, describe, expect, test } from "vitest";
import { leb } from "../../../src/base/util/bytes.ts";
import { ModuleReader, unfuse } from "../../../src/wasm/rewrite.ts";
import { compileBytes } from "../../support/compile.ts";
import { randomCases } from "../../support/random-cases.ts";
import { calls } from "../../support/sampled.ts";

/** The id of the section of function bodies, the length of a module's header, and the opcode f32x4.relaxed_madd. */
const [CODE, HEADER, RELAXED_MADD] = [10, 8, 0xfd105] as const;

const bytesOf = (name: string) => new Uint8Array(readFileSync(new URL(`../../../build/${name}.wasm`, import.meta.url)));
const entry = (source: string) => compileBytes("entry.ts", true, (path) => (path === "entry.ts" ? source : null));

const PREFIXES = ["", "weights-", "caches-", "latents-", "decoders-"];

test.each(PREFIXES)("%ssimd is the relaxed module unfused, byte for byte", (prefix) => {
  expect(Buffer.compare(unfuse(bytesOf(`${prefix}relaxed`)), bytesOf(`${prefix}simd`))).toBe(0);
});

test.each(PREFIXES)("of %ssimd nothing is left to unfuse, and nothing else changes", (prefix) => {
  const simd = bytesOf(`${prefix}simd`);
  expect(Buffer.compare(unfuse(simd), simd)).toBe(0);
});

/** Every function of a module is read, to its last instruction. */
function opcodesOf(name: string): ReadonlySet<number> {
  const bytes = bytesOf(name);
  const reader = new ModuleReader(bytes);
  const opcodes = new Set<number>();
  for (reader.at = HEADER; reader.at < bytes.length; ) {
    const section = reader.byte();
    const end = reader.number() + reader.at;
    if (section === CODE)
      reader.list(() => {
        const bodyEnd = reader.number() + reader.at;
        reader.list(() => [reader.number(), reader.byte()]);
        while (reader.at < bodyEnd) opcodes.add(reader.instruction());
        expect(reader.at).toBe(bodyEnd);
      });
    reader.at = end;
  }
  return opcodes;
}

test.each(PREFIXES)("of the two builds of %s, only relaxed has relaxed instructions", (prefix) => {
  const relaxed = (build: string) => Math.max(...opcodesOf(`${prefix}${build}`)) >= RELAXED_MADD;
  expect([relaxed("simd"), relaxed("relaxed")]).toEqual([false, true]);
});

test("the bytes given stay as they are", () => {
  const relaxed = bytesOf("relaxed");
  unfuse(relaxed);
  // A Buffer's slice is a view of it.
  unfuse(Buffer.from(relaxed.buffer));
  expect(Buffer.compare(relaxed, bytesOf("relaxed"))).toBe(0);
});

describe("a module of fused products", () => {
  const SOURCE = `
    export let RELAXED: i32 = 1;
    export let OTHER: i32 = 1;
    function madd(a: usize, b: usize, c: v128): v128 { return f32x4.relaxed_madd(v128.load(a), v128.load(b), c); }
    /** c + a · b, in lane 0 of four ways: behind switches, constants, products of products and on either side of them. */
    export function run(way: i32, a: usize, b: usize, c: usize, out: usize): void {
      const wide = v128.load(c);
      const one = f32x4.splat(1);
      switch (way) {
        case 0: return v128.store(out, madd(a, b, wide));
        case 1: return v128.store(out, f32x4.relaxed_madd(madd(a, b, wide), one, f32x4.splat(-0)));
        case 2: return v128.store(out, f32x4.relaxed_madd(one, madd(a, b, wide), f32x4.splat(-0)));
        case 3: return v128.store(out, f32x4.relaxed_madd(one, f32x4.splat(-0), madd(a, b, wide)));
        default: return v128.store(out, i8x16.shuffle(i32x4(1, 2, 3, 4), madd(a, b, wide), 16,17,18,19,4,5,6,7,0,1,2,3,8,9,10,11));
      }
    }`;
  interface Exports {
    readonly RELAXED: WebAssembly.Global<"i32">;
    readonly OTHER: WebAssembly.Global<"i32">;
    run(way: number, a: number, b: number, c: number, out: number): void;
  }
  const memory = new WebAssembly.Memory({ initial: 1 });
  const floats = new Float32Array(memory.buffer);
  let exports: Exports;
  beforeAll(async () => {
    const module = new WebAssembly.Module(unfuse(await entry(SOURCE)));
    exports = new WebAssembly.Instance(module, { env: { memory } }).exports as unknown as Exports;
  });

  test("rounds each product", () => {
    const float = fc.float({ noNaN: true });
    fc.assert(
      fc.property(fc.nat(4), float, float, float, (way, a, b, c) => {
        floats.fill(a, 1024, 1028);
        floats.fill(b, 1028, 1032);
        floats.fill(c, 1032, 1036);
        exports.run(way, 4096, 4112, 4128, 4144);
        return Object.is(floats[1036], Math.fround(Math.fround(a * b) + c));
      }),
      randomCases(calls(2000, 600), 6),
    );
  });

  test("has RELAXED 0 and its other globals as they were", () => {
    expect([exports.RELAXED.value, exports.OTHER.value]).toEqual([0, 1]);
  });
});

test("numbers that grow take a byte more", () => {
  const section = (id: number, ...content: number[]) => [id, content.length, ...content];
  const load = (offset: number) => [0x20, 0, 0xfd, 0, 4, offset];
  const store = [0xfd, 11, 4, 48];
  // A body of 126 bytes and a local more than one byte of an index reaches.
  const code = [0x20, 0, ...load(0), ...load(16), ...load(32), 0xfd, 0x85, 0x02, ...store];
  const body = [1, 127, 0x7f, ...code, ...Array(126 - 4 - code.length).fill(0x01), 0x0b];
  expect(body.length).toBe(126);
  const simd = unfuse(
    Uint8Array.of(
      ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
      ...section(1, 1, 0x60, 1, 0x7f, 0),
      ...section(3, 1, 0),
      ...section(5, 1, 0, 1),
      ...section(7, 2, 1, 0x6d, 2, 0, 1, 0x66, 0, 0),
      ...[10, 128, 1, 1, 126, ...body],
    ),
  );
  const { m, f } = new WebAssembly.Instance(new WebAssembly.Module(simd)).exports as {
    readonly m: WebAssembly.Memory;
    f(at: number): void;
  };
  const floats = new Float32Array(m.buffer);
  floats.set([2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4], 16);
  f(64);
  expect(Array.from(floats.subarray(28, 32))).toEqual([10, 10, 10, 10]);
});

test("numbers of any length are written as LEB128", () => {
  const rows: readonly [value: number, bytes: readonly number[]][] = [
    [0, [0]],
    [127, [127]],
    [128, [128, 1]],
    [2 ** 14 - 1, [255, 127]],
    [2 ** 14, [128, 128, 1]],
    [2 ** 32 - 1, [255, 255, 255, 255, 15]],
  ];
  for (const [value, bytes] of rows) expect(leb(value), `${value}`).toEqual(bytes);
});

test("products of bytes become traps, behind which code of any types is valid", async () => {
  const bytes = await entry(`
    export function dot(a: usize, out: usize, pairs: bool): i32 {
      const x = v128.load(a);
      const y = v128.load(out);
      let left = 2;
      do {
        if (pairs) v128.store(out, i16x8.add(y, i16x8.relaxed_dot_i8x16_i7x16_s(x, f32x4.relaxed_madd(x, y, x))));
        else if (left == 1) v128.store(out, i32x4.relaxed_dot_i8x16_i7x16_add_s(x, i8x16.neg(y), x));
      } while (--left);
      return 7;
    }`);
  const memory = new WebAssembly.Memory({ initial: 1 });
  const { exports } = new WebAssembly.Instance(new WebAssembly.Module(unfuse(bytes)), { env: { memory } });
  const dot = exports.dot as (a: number, out: number, pairs: boolean) => number;
  expect(() => dot(0, 16, true)).toThrow(WebAssembly.RuntimeError);
  expect(() => dot(0, 16, false)).toThrow(WebAssembly.RuntimeError);
  expect(new Uint8Array(memory.buffer).every((byte) => byte === 0)).toBe(true);
});

test("another relaxed instruction is refused", async () => {
  const min = await entry(`export function min(a: usize, out: usize): void {
    v128.store(out, f32x4.relaxed_min(v128.load(a), v128.load(out)));
  }`);
  expect(() => unfuse(min)).toThrow("loadKernels: module expected kernels, got opcode fd10d");
});

test("a part of a module is refused", () => {
  const relaxed = bytesOf("relaxed");
  for (const length of [0, 8, 9, 100, relaxed.length >> 1])
    expect(() => unfuse(relaxed.subarray(0, length))).toThrow("loadKernels: module expected kernels, got a part of it");
});
