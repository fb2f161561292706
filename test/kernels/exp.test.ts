import { beforeAll, describe, expect, test } from "vitest";
import { normalCdf } from "../../src/reference/numbers.ts";
import { compile } from "../support/compile.ts";
import { calls } from "../support/sampled.ts";

type Loop = (out: number, x: number, n: number) => void;
interface Entry {
  readonly ex2: Loop;
  readonly ex2_single: Loop;
  readonly exp: Loop;
  readonly exp_single: Loop;
  readonly tanh: Loop;
  readonly tanh_single: Loop;
  readonly sigmoid: Loop;
  readonly softplus: Loop;
  readonly normal_cdf: Loop;
  readonly ln: Loop;
  readonly HEAP_BASE: WebAssembly.Global;
}

/** The inline functions of assembly/math/exp.ts, sigmoid.ts, softplus.ts and erf.ts as loops over arrays; n is a multiple of 4. */
const ENTRY = "test/kernels/exp.entry.ts";
const SOURCE = `
  import { normal_cdf_f32x4 } from "../../assembly/math/erf";
  import { sigmoid_f32x4 } from "../../assembly/math/sigmoid";
  import { softplus_f32x4 } from "../../assembly/math/softplus";
  import { ex2_f32, ex2_f32x4, exp_f32, exp_f32x4, ln_f64, tanh_f32, tanh_f32x4 } from "../../assembly/math/exp";
  ${["ex2", "exp", "tanh", "sigmoid", "softplus", "normal_cdf"]
    .map(
      (name) => `
        export function ${name}(out: usize, x: usize, n: i32): void {
          for (let i = 0; i < n << 2; i += 16) v128.store(out + i, ${name}_f32x4(v128.load(x + i)));
        }`,
    )
    .join("")}
  ${["ex2", "exp", "tanh"]
    .map(
      (name) => `
        export function ${name}_single(out: usize, x: usize, n: i32): void {
          for (let i = 0; i < n << 2; i += 4) store<f32>(out + i, ${name}_f32(load<f32>(x + i)));
        }`,
    )
    .join("")}
  export function ln(out: usize, x: usize, n: i32): void {
    for (let i = 0; i < n << 3; i += 8) store<f64>(out + i, ln_f64(load<f64>(x + i)));
  }
  export const HEAP_BASE: usize = __heap_base;
`;

const BLOCK = 1 << 18;
/** Every float of so many: a prime, for any bits. */
const STEP = calls(47, 499);
const f32 = new Float32Array(1);
const u32 = new Uint32Array(f32.buffer);

/** The distance between floats around a value. */
function ulp(x: number): number {
  f32[0] = Math.abs(x);
  u32[0]! &= 0x7f800000;
  return Math.max(f32[0]! * 2 ** -23, 2 ** -149);
}

const word = (x: number) => {
  f32[0] = x;
  return u32[0]!;
};

describe.each(["simd", "relaxed"])("exp.ts in the %s build", (build) => {
  let entry: Entry;
  let memory: WebAssembly.Memory;

  beforeAll(async () => {
    memory = new WebAssembly.Memory({ initial: 64 });
    const module = await compile(ENTRY, build === "relaxed", (path, text) => (path === ENTRY ? SOURCE : text));
    entry = new WebAssembly.Instance(module, { env: { memory } }).exports as unknown as Entry;
  });

  /** f of each float, by a loop of the entry. */
  function run(name: Exclude<keyof Entry, "HEAP_BASE" | "ln">, x: Float32Array): Float32Array {
    const from = Math.ceil(entry.HEAP_BASE.value / 64) * 64;
    const to = from + x.byteLength;
    new Float32Array(memory.buffer, from, x.length).set(x);
    entry[name](to, from, x.length);
    return new Float32Array(memory.buffer, to, x.length).slice();
  }

  /** The worst error in ulp over every `step`-th float whose bits lie between those of a and b, of one sign. */
  function sweep(
    name: "ex2" | "exp" | "tanh" | "sigmoid" | "softplus" | "normal_cdf",
    a: number,
    b: number,
    step: number,
    want: (x: number) => number,
    allowed: (x: number) => number = () => 1,
  ): number {
    let worst = 0;
    const last = word(b);
    const words = new Uint32Array(BLOCK);
    for (let first = word(a); first <= last; first += BLOCK * step) {
      for (let i = 0; i < BLOCK; i++) words[i] = Math.min(first + i * step, last);
      const x = new Float32Array(words.buffer);
      const got = run(name, x);
      for (let i = 0; i < BLOCK; i++) {
        const exact = want(x[i]!);
        const error = Math.abs(got[i]! - exact) / ulp(exact) / allowed(x[i]!);
        if (!(error <= worst)) worst = error;
      }
    }
    return worst;
  }

  test("ex2 stays within 2.5 ulp on [-126, 0]", () => {
    expect(sweep("ex2", -(2 ** -20), -126, STEP, (t) => 2 ** t)).toBeLessThanOrEqual(2.5);
  });

  test("exp stays within 1.2 ulp on [-87, 88]", () => {
    expect(sweep("exp", -(2 ** -20), -87, STEP, Math.exp)).toBeLessThanOrEqual(1.2);
    expect(sweep("exp", 2 ** -20, 88, STEP, Math.exp)).toBeLessThanOrEqual(1.2);
  });

  test("tanh stays within 1.5 ulp of any float", () => {
    expect(sweep("tanh", 0, 2 ** -12, 4001, Math.tanh)).toBeLessThanOrEqual(1.5);
    expect(sweep("tanh", 2 ** -12, 16, STEP, Math.tanh)).toBeLessThanOrEqual(1.5);
    expect(sweep("tanh", -(2 ** -12), -16, STEP, Math.tanh)).toBeLessThanOrEqual(1.5);
  });

  const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));

  test("sigmoid stays within 2.5 ulp above -87, and within 2^-125 below", () => {
    expect(sweep("sigmoid", -(2 ** -20), -87, STEP, sigmoid)).toBeLessThanOrEqual(2.5);
    expect(sweep("sigmoid", 2 ** -20, 100, STEP, sigmoid)).toBeLessThanOrEqual(2.5);
    const x = Float32Array.from({ length: 4096 }, (_, i) => -87 - i / 256);
    const got = run("sigmoid", x);
    for (let i = 0; i < x.length; i++) expect(Math.abs(got[i]! - sigmoid(x[i]!))).toBeLessThanOrEqual(2 ** -125);
  });

  const softplus = (x: number) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));

  test("softplus stays within 3.5 ulp above -87, and is 0 or x far away", () => {
    expect(sweep("softplus", -(2 ** -20), -87, STEP, softplus)).toBeLessThanOrEqual(3.5);
    expect(sweep("softplus", 2 ** -20, 100, STEP, softplus)).toBeLessThanOrEqual(3.5);
    const far = Float32Array.of(Number.NaN, Number.NEGATIVE_INFINITY, -200, Number.POSITIVE_INFINITY, 1e30, -0, 0, -88);
    const half = Math.fround(Math.log(2));
    const want = [Number.NaN, 0, 0, Number.POSITIVE_INFINITY, Math.fround(1e30), half, half, 0];
    expect([...run("softplus", far)]).toEqual(want);
  });

  test("the normal distribution stays within 3.5 ulp above 0, and within 6 + x² / 2 ulp above -12.9", () => {
    expect(sweep("normal_cdf", 2 ** -20, 20, 401, normalCdf)).toBeLessThanOrEqual(3.5);
    expect(sweep("normal_cdf", -(2 ** -20), -12.9, 401, normalCdf, (x) => 6 + (x * x) / 2)).toBeLessThanOrEqual(1);
  });

  test("exp of what lies below its range is at most 2^-126 and then 0", () => {
    const x = Float32Array.from({ length: 4096 }, (_, i) => -87 - i / 2048);
    const got = run("exp", x);
    for (let i = 0; i < x.length; i++) expect(Math.abs(got[i]! - Math.exp(x[i]!))).toBeLessThanOrEqual(2 ** -126);
    expect(run("exp", Float32Array.of(-88, -1e30, -Infinity, -87.8))).toEqual(new Float32Array(4));
  });

  test("the ends are exact: 1 at zero, 0 far down, infinity and NaN pass", () => {
    const { NEGATIVE_INFINITY, POSITIVE_INFINITY, NaN: nan } = Number;
    expect([...run("ex2", Float32Array.of(0, -0, -1, -126))]).toEqual([1, 1, 0.5, 2 ** -126]);
    expect([...run("ex2", Float32Array.of(-127, -1e30, NEGATIVE_INFINITY, nan))]).toEqual([0, 0, 0, nan]);
    expect([...run("exp", Float32Array.of(0, -0, nan, NEGATIVE_INFINITY))]).toEqual([1, 1, nan, 0]);
    expect([...run("tanh", Float32Array.of(POSITIVE_INFINITY, NEGATIVE_INFINITY, nan, -0))]).toEqual([1, -1, nan, -0]);
    expect([...run("tanh", Float32Array.of(9.2, -1e30, 1e-42, 0))]).toEqual([1, -1, Math.fround(1e-42), 0]);
    expect([...run("sigmoid", Float32Array.of(0, -0, 18, -88))]).toEqual([0.5, 0.5, 1, 0]);
    expect([...run("sigmoid", Float32Array.of(POSITIVE_INFINITY, NEGATIVE_INFINITY, nan, -1e30))]).toEqual([
      1,
      0,
      nan,
      0,
    ]);
    const ends = Float32Array.of(POSITIVE_INFINITY, NEGATIVE_INFINITY, nan, -1e30, 1e30, 5.5, -13.4, nan);
    expect([...run("normal_cdf", ends)]).toEqual([1, 0, nan, 0, 1, 1, 0, nan]);
  });

  test("a NaN of any payload stays a NaN", () => {
    const words = Uint32Array.of(
      0x7fc00001,
      0x7fc12345,
      0xffc00001,
      0x7fffffff,
      0xffffffff,
      0x7f800001,
      0xff812345,
      0x7fa00000,
    );
    for (const name of [
      "ex2",
      "exp",
      "tanh",
      "ex2_single",
      "exp_single",
      "tanh_single",
      "sigmoid",
      "normal_cdf",
    ] as const)
      expect([...run(name, new Float32Array(words.buffer))].every(Number.isNaN), name).toBe(true);
  });

  test("one float at a time gives the bits of a lane", () => {
    const x = Float32Array.from({ length: 4096 }, (_, i) => (i - 3700) / 41);
    for (const name of ["ex2", "exp", "tanh"] as const)
      expect(new Uint32Array(run(`${name}_single`, x).buffer), name).toEqual(new Uint32Array(run(name, x).buffer));
  });

  test("ln stays within 1e-15 of the larger of 1 and its value", () => {
    const ends = [0, 1, Number.POSITIVE_INFINITY, Number.NaN, -1, 2 ** -149, 2 ** 127];
    const many = Array.from({ length: 20_000 }, (_, i) => (1 + (i % 997) / 997) * 2 ** ((i % 270) - 149));
    const near = Array.from({ length: 2000 }, (_, i) => 1 + (i - 1000) / 1e5);
    const x = Float64Array.from([...ends, ...many, ...near]);
    const from = Math.ceil(entry.HEAP_BASE.value / 64) * 64;
    const to = from + x.byteLength;
    new Float64Array(memory.buffer, from, x.length).set(x);
    entry.ln(to, from, x.length);
    const got = new Float64Array(memory.buffer, to, x.length);
    expect([...got.slice(0, 5)]).toEqual([
      Number.NEGATIVE_INFINITY,
      0,
      Number.POSITIVE_INFINITY,
      Number.NaN,
      Number.NaN,
    ]);
    for (let i = 5; i < x.length; i++) {
      const want = Math.log(x[i]!);
      expect(Math.abs(got[i]! - want), `ln ${x[i]}`).toBeLessThanOrEqual(1e-15 * Math.max(1, Math.abs(want)));
    }
  });
});
