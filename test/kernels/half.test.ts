import { beforeAll, describe, expect, test } from "vitest";
import { toFloats } from "../../src/base/tensor/dtypes.ts";
import { narrowBf16, narrowF16, widenBf16, widenF16 } from "../../src/reference/numbers.ts";
import { compile } from "../support/compile.ts";
import { createRandom } from "../support/harness.ts";

type Loop = (out: number, x: number, n: number) => void;
type Format = "f16" | "bf16";
type Entry = Record<`widen_${Format}` | `narrow_${Format}`, Loop> & { readonly HEAP_BASE: WebAssembly.Global };

/** The inline functions of assembly/math/half.ts as loops over arrays; n is a multiple of 8. */
const ENTRY = "test/kernels/half.entry.ts";
const SOURCE = `
  import {
    narrow_bf16 as bf16, narrow_f16 as f16, widen_bf16_high, widen_bf16_low, widen_f16_high, widen_f16_low,
  } from "../../assembly/math/half";
  ${["f16", "bf16"]
    .map(
      (format) => `
        export function widen_${format}(out: usize, x: usize, n: i32): void {
          for (; n > 0; n -= 8) {
            v128.store(out, widen_${format}_low(v128.load(x)));
            v128.store(out, widen_${format}_high(v128.load(x)), 16);
            out += 32;
            x += 16;
          }
        }
        export function narrow_${format}(out: usize, x: usize, n: i32): void {
          for (; n > 0; n -= 8) {
            v128.store(out, ${format}(v128.load(x), v128.load(x, 16)));
            out += 16;
            x += 32;
          }
        }`,
    )
    .join("")}
  export const HEAP_BASE: usize = __heap_base;
`;

const formats = [
  { format: "f16", widen: widenF16, narrow: narrowF16, infinity: 0x7c00 },
  { format: "bf16", widen: widenBf16, narrow: narrowBf16, infinity: 0x7f80 },
] as const;

const every = Uint16Array.from({ length: 65_536 }, (_, i) => i);
const bitsOf = (x: Float32Array) => new Uint32Array(x.buffer, x.byteOffset, x.length);

test.each(formats)("the twins of $format agree with each other on every half", ({ widen, narrow, infinity }) => {
  const agree = (half: number) => {
    const x = widen(half);
    return Object.is(Math.fround(x), x) && (Number.isNaN(x) ? (half & 0x7fff) > infinity : narrow(x) === half);
  };
  expect(every.findIndex((half) => !agree(half))).toBe(-1);
});

describe.each(["simd", "relaxed"])("half.ts in the %s build", (build) => {
  let entry: Entry;
  let memory: WebAssembly.Memory;

  beforeAll(async () => {
    memory = new WebAssembly.Memory({ initial: 64 });
    const module = await compile(ENTRY, build === "relaxed", (path, text) => (path === ENTRY ? SOURCE : text));
    entry = new WebAssembly.Instance(module, { env: { memory } }).exports as unknown as Entry;
  });

  /** What a loop of the entry makes of x; as many bytes as x has are enough for narrowing, twice as many for widening. */
  function run(name: `widen_${Format}` | `narrow_${Format}`, x: Uint16Array | Float32Array): ArrayBuffer {
    const from = Math.ceil(entry.HEAP_BASE.value / 64) * 64;
    const to = from + x.byteLength;
    new Uint8Array(memory.buffer, from, x.byteLength).set(new Uint8Array(x.buffer));
    entry[name](to, from, x.length);
    return memory.buffer.slice(to, to + (x instanceof Uint16Array ? 4 : 2) * x.length);
  }

  test.each(formats)("widens every $format exactly, NaN payloads too", ({ format, widen }) => {
    const got = new Float32Array(run(`widen_${format}`, every));
    const dtype = format === "f16" ? "F16" : "BF16";
    const stored = { name: "every half", dtype, shape: [65_536], bytes: new Uint8Array(every.buffer) } as const;
    expect(bitsOf(got)).toEqual(bitsOf(toFloats(stored)));
    expect(every.findIndex((half) => !Object.is(got[half], widen(half)))).toBe(-1);
  });

  test.each(formats)("narrows to the next $format, half to even, on both sides of every boundary", (item) => {
    const { format, widen, narrow, infinity } = item;
    // Each finite half, the middle between it and the next, and the floats around both.
    const near: number[] = [];
    for (let half = 0; half < infinity; half++) {
      const here = bitsOf(Float32Array.of(widen(half)))[0]!;
      // Behind the largest comes what would be the next if there were another exponent.
      const next =
        half + 1 < infinity
          ? bitsOf(Float32Array.of(widen(half + 1)))[0]!
          : 2 * here - bitsOf(Float32Array.of(widen(half - 1)))[0]!;
      const middle = bitsOf(
        Float32Array.of(
          (widen(half) + (half + 1 < infinity ? widen(half + 1) : 2 * widen(half) - widen(half - 1))) / 2,
        ),
      )[0]!;
      for (const bits of [here, here + 1, middle - 1, middle, middle + 1, next - 1]) near.push(bits, bits + 0x80000000);
    }
    expect(near.length).toBeGreaterThan(0);
    const words = Uint32Array.from(near);
    const x = new Float32Array(words.buffer);
    const got = new Uint16Array(run(`narrow_${format}`, x));
    for (let i = 0; i < x.length; i++)
      if (got[i] !== narrow(x[i]!)) expect.fail(`${x[i]} became ${got[i]}, its twin gives ${narrow(x[i]!)}`);
  });

  test.each(formats)("narrows a million random floats to $format as its twin does; NaN stays NaN", (item) => {
    const { format, widen, narrow, infinity } = item;
    const random = createRandom(16);
    const words = Uint32Array.from({ length: 2 ** 18 }, () => Math.floor(random.next() * 2 ** 32));
    // Payloads that a rounding could carry away, and the ends of the range.
    words.set([0x7f800001, 0xff800001, 0x7fffffff, 0xffffffff, 0x7fc00000, 0x7f802000, 0xff810000, 0x7f80ffff]);
    words.set([0x7f800000, 0xff800000, 0, 0x80000000, 1, 0x80000001, 0x7f7fffff, 0xff7fffff], 8);
    const x = new Float32Array(words.buffer);
    const got = new Uint16Array(run(`narrow_${format}`, x));
    for (let i = 0; i < x.length; i++) {
      if (Number.isNaN(x[i])) {
        if (!((got[i]! & 0x7fff) > infinity)) expect.fail(`NaN ${words[i]} became ${widen(got[i]!)}`);
        if (got[i]! >> 15 !== words[i]! >>> 31) expect.fail(`NaN ${words[i]} lost its sign`);
      } else if (got[i] !== narrow(x[i]!)) expect.fail(`${x[i]} became ${got[i]}, its twin gives ${narrow(x[i]!)}`);
    }
  });
});
