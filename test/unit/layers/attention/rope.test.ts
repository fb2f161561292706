import { describe, expect, test } from "vitest";
import {
  checkRope,
  createRotary,
  type RopeWithDim,
  ropeFrequencies,
  ropeTables,
} from "../../../../src/layers/attention/rope.ts";
import { approximate, doubles, exactExp, exactLn, exactTurn, fixed } from "../../../support/fixed-point.ts";

const rope = (theta: number, dim: number, scaling?: unknown): RopeWithDim =>
  ({ theta, dim, pairing: "half", scaling }) as RopeWithDim;

const llama3 = { kind: "llama3", factor: 32, lowFreqFactor: 1, highFreqFactor: 4, originalMaxSeqLen: 8192 };
const gptOss = { kind: "yarn", factor: 32, originalMaxSeqLen: 4096, betaFast: 32, betaSlow: 1, truncate: false };

/** The largest relative difference of two lists of numbers. */
function difference(got: ArrayLike<number>, want: readonly number[]): number {
  expect(got.length).toBe(want.length);
  return Math.max(...want.map((number, i) => Math.abs((got[i] as number) / number - 1)));
}

/** theta^(-2i/dim) by Math.pow. */
const plain = (theta: number, dim: number): number[] =>
  Array.from({ length: dim / 2 }, (_, i) => theta ** ((-2 * i) / dim));

describe("tables", () => {
  test.each([
    [10_000, 64],
    [500_000, 128],
    [1_000_000, 96],
    [150_000, 80],
    [1.5, 2],
  ])(
    "of theta %s and dim %s stay within 2^-25 + position·2^-50 of the exact value up to position 2^31",
    (theta, dim) => {
      const random = doubles(dim);
      const positions = [0, 1, 2, 4095, 131_071, 2 ** 20, 2 ** 31 - 1];
      while (positions.length < 25) positions.push(Math.floor(random() * 2 ** 20));
      const { cos, sin } = ropeTables(rope(theta, dim), positions);
      expect([cos.shape, sin.shape]).toEqual([
        [25, dim / 2],
        [25, dim / 2],
      ]);
      const logarithm = exactLn(fixed(theta));
      for (const [t, position] of positions.entries())
        for (let i = 0; i < dim / 2; i += 3) {
          const angle = BigInt(position) * exactExp((-2n * BigInt(i) * logarithm) / BigInt(dim));
          const exact = exactTurn(angle);
          const bound = 2 ** -25 + position * 2 ** -50 + 1e-15;
          const at = (t * dim) / 2 + i;
          expect(Math.abs(approximate(fixed(cos.data[at] as number) - exact.cos))).toBeLessThanOrEqual(bound);
          expect(Math.abs(approximate(fixed(sin.data[at] as number) - exact.sin))).toBeLessThanOrEqual(bound);
        }
    },
  );

  test("have cos² + sin² within 2^-23 of the squared amplitude", () => {
    const yarn = rope(150_000, 64, gptOss);
    const { amplitude } = ropeFrequencies(yarn);
    const { cos, sin } = ropeTables(yarn, [0, 7, 4096, 131_071, 1_048_576]);
    for (const [at, c] of cos.data.entries())
      expect(Math.abs((c * c + (sin.data[at] as number) ** 2) / amplitude ** 2 - 1)).toBeLessThan(2 ** -23);
  });

  test("rotate by the same angle between equally distant positions within 2^-22", () => {
    const { cos, sin } = ropeTables(rope(10_000, 32), [5, 1005, 100_005, 101_005]);
    const [c, s] = [cos.data, sin.data];
    for (let i = 0; i < 16; i++) {
      const turn = (a: number, b: number) => c[a + i]! * c[b + i]! + s[a + i]! * s[b + i]!;
      expect(Math.abs(turn(0, 16) - turn(32, 48))).toBeLessThan(2 ** -22);
    }
  });

  test("at position 0 are the amplitude and 0, whatever the scaling", () => {
    for (const scaling of [undefined, { kind: "linear", factor: 4 }, { kind: "ntk", factor: 4 }, llama3, gptOss]) {
      const { cos, sin } = ropeTables(rope(10_000, 64, scaling), [0]);
      const { amplitude } = ropeFrequencies(rope(10_000, 64, scaling));
      expect(new Set(cos.data)).toEqual(new Set([Math.fround(amplitude)]));
      expect(new Set(sin.data)).toEqual(new Set([0]));
    }
  });

  test("have the same rows in any order and for any number of positions, bit for bit", () => {
    const positions = [9, 3, 3, 100_000, 0];
    const { cos, sin } = ropeTables(rope(10_000, 8, llama3), positions);
    const one = { cos: new Float32Array(4), sin: new Float32Array(4) };
    const rotary = createRotary(rope(10_000, 8, llama3));
    for (const [t, position] of positions.entries()) {
      rotary.fill([position], one.cos, one.sin);
      expect(cos.data.subarray(t * 4, t * 4 + 4)).toEqual(one.cos);
      expect(sin.data.subarray(t * 4, t * 4 + 4)).toEqual(one.sin);
    }
    expect(ropeTables(rope(10_000, 8), []).cos).toEqual({ data: new Float32Array(0), shape: [0, 4] });
  });

  test("name the position that is none", () => {
    const tables = (positions: unknown) => () => ropeTables(rope(10_000, 8), positions as number[]);
    expect(tables([0, -1])).toThrow(new RangeError("ropeTables: positions[1] expected an integer >= 0, got -1"));
    expect(tables([0.5])).toThrow(new RangeError("ropeTables: positions[0] expected an integer >= 0, got 0.5"));
    expect(tables(7)).toThrow(new TypeError("ropeTables: positions expected an array, got 7"));
    const missing = { theta: 10_000, pairing: "half" } as RopeWithDim;
    expect(() => ropeTables(missing, [0])).toThrow(
      new TypeError("ropeTables: rope.dim expected an integer from 2 to 65536, got undefined"),
    );
  });
});

describe("frequencies", () => {
  test("without scaling are theta^(-2i/dim) within 2e-15 relative", () => {
    for (const [theta, dim] of [
      [10_000, 64],
      [500_000, 96],
      [1e7, 128],
    ] as const) {
      const { inverse, amplitude } = ropeFrequencies(rope(theta, dim));
      const logarithm = exactLn(fixed(theta));
      for (const [i, f] of inverse.entries()) {
        const exact = exactExp((-2n * BigInt(i) * logarithm) / BigInt(dim));
        expect(Math.abs(approximate(fixed(f) - exact)) / f).toBeLessThan(2e-15);
      }
      expect(amplitude).toBe(1);
    }
  });

  test("with linear scaling are divided by the factor within 1e-12", () => {
    const { inverse, amplitude } = ropeFrequencies(rope(1_000_000, 256, { kind: "linear", factor: 8 }));
    expect(
      difference(
        inverse,
        plain(1_000_000, 256).map((f) => f / 8),
      ),
    ).toBeLessThan(1e-12);
    expect(amplitude).toBe(1);
  });

  test("with ntk scaling come from theta·factor^(dim/(dim - 2)) within 1e-12", () => {
    const { inverse, amplitude } = ropeFrequencies(rope(10_000, 64, { kind: "ntk", factor: 4 }));
    expect(difference(inverse, plain(10_000 * 4 ** (64 / 62), 64))).toBeLessThan(1e-12);
    expect(inverse[31]! / (10_000 ** (-62 / 64) / 4)).toBeCloseTo(1, 12);
    expect(amplitude).toBe(1);
    const huge = ropeFrequencies(rope(1e300, 4, { kind: "ntk", factor: 1e50 })).inverse;
    expect(Math.abs((huge[1] as number) / 1e-200 - 1)).toBeLessThan(1e-12);
  });

  test("with llama3 scaling follow the wavelength bands of Llama-3.2-1B within 1e-12", () => {
    const { inverse, amplitude } = ropeFrequencies(rope(500_000, 64, llama3));
    const bands = { kept: 0, blended: 0, stretched: 0 };
    const want = plain(500_000, 64).map((f) => {
      const wavelength = (2 * Math.PI) / f;
      if (wavelength < 8192 / 4) {
        bands.kept++;
        return f;
      }
      if (wavelength > 8192 / 1) {
        bands.stretched++;
        return f / 32;
      }
      bands.blended++;
      const smooth = (8192 / wavelength - 1) / (4 - 1);
      return ((1 - smooth) * f) / 32 + smooth * f;
    });
    expect(bands).toEqual({ kept: 15, blended: 3, stretched: 14 });
    expect(difference(inverse, want)).toBeLessThan(1e-12);
    expect(amplitude).toBe(1);
  });

  /** The published construction, over whole arrays and with Math. */
  function yarn(theta: number, dim: number, s: { [name: string]: number | boolean | string }): number[] {
    const at = (turns: number) =>
      (dim * Math.log((s.originalMaxSeqLen as number) / (turns * 2 * Math.PI))) / (2 * Math.log(theta));
    let low = at((s.betaFast as number) ?? 32);
    let high = at((s.betaSlow as number) ?? 1);
    if (s.truncate !== false) [low, high] = [Math.floor(low), Math.ceil(high)];
    low = Math.max(low, 0);
    high = Math.min(high, dim - 1);
    if (low === high) high += 0.001;
    return plain(theta, dim).map((f, i) => {
      const ramp = Math.min(1, Math.max(0, (i - low) / (high - low)));
      return (f / (s.factor as number)) * ramp + f * (1 - ramp);
    });
  }

  test("with yarn scaling follow the ramp of gpt-oss (not truncated) within 1e-12", () => {
    const { inverse, amplitude } = ropeFrequencies(rope(150_000, 64, gptOss));
    expect(difference(inverse, yarn(150_000, 64, gptOss))).toBeLessThan(1e-12);
    // ln(4096/(32·2pi))/(2·ln 150000)·64 = 8.0928 and, for one turn, 17.3980.
    expect(difference(inverse.subarray(0, 9), plain(150_000, 64).slice(0, 9))).toBe(0);
    expect(inverse[9]! / 150_000 ** (-18 / 64)).toBeLessThan(1);
    expect(inverse[17]! * 150_000 ** (34 / 64)).toBeGreaterThan(1 / 32);
    expect(inverse[18]! * 32 * 150_000 ** (36 / 64)).toBeCloseTo(1, 12);
    expect(amplitude).toBeCloseTo(1.346574, 6);
    expect(Math.abs(amplitude - (0.1 * Math.log(32) + 1))).toBeLessThan(1e-15);
  });

  test("with yarn scaling follow the truncated ramp of DeepSeek-V3 within 1e-12, where the amplitude cancels", () => {
    const scaling = { kind: "yarn", factor: 40, originalMaxSeqLen: 4096, mscale: 1, mscaleAllDim: 1 };
    const { inverse, amplitude } = ropeFrequencies(rope(10_000, 64, scaling));
    expect(difference(inverse, yarn(10_000, 64, scaling))).toBeLessThan(1e-12);
    // Bounds 10 and 23: pair 10 is the last one kept whole, pair 23 the first one fully stretched.
    expect(inverse[10]! * 10_000 ** (20 / 64)).toBeCloseTo(1, 12);
    expect(inverse[11]! * 10_000 ** (22 / 64)).toBeCloseTo(1 - (1 / 13) * (39 / 40), 12);
    expect(inverse[23]! * 40 * 10_000 ** (46 / 64)).toBeCloseTo(1, 12);
    expect(amplitude).toBe(1);
  });

  test("with yarn scaling take the amplitude that is given, or that of mscale and mscaleAllDim together", () => {
    const amplitude = (fields: object) =>
      ropeFrequencies(rope(10_000, 64, { kind: "yarn", factor: 40, originalMaxSeqLen: 4096, ...fields })).amplitude;
    const usual = 0.1 * Math.log(40) + 1;
    expect(amplitude({})).toBeCloseTo(usual, 14);
    expect(amplitude({ attentionFactor: 1.25, mscale: 2, mscaleAllDim: 1 })).toBe(1.25);
    expect(amplitude({ mscale: 2, mscaleAllDim: 1 })).toBeCloseTo((0.2 * Math.log(40) + 1) / usual, 14);
    expect(amplitude({ mscale: 2 })).toBeCloseTo(usual, 14);
    expect(amplitude({ mscale: 2, mscaleAllDim: 0 })).toBeCloseTo(usual, 14);
    expect(amplitude({ factor: 1 })).toBe(1);
  });

  test("with yarn scaling follow the published ramp within 1e-12 with default bounds, and where these meet or are cut off", () => {
    for (const [theta, dim, fields] of [
      [10_000, 2, { originalMaxSeqLen: 100 }],
      [10_000, 64, { originalMaxSeqLen: 4096, truncate: false }],
      [100, 16, { originalMaxSeqLen: 1000 }],
      [10_000, 8, { originalMaxSeqLen: 6, betaFast: 1.2 }],
      [2, 16, { originalMaxSeqLen: 100_000 }],
      // Kimi K2, whose ramp is one pair wide.
      [50_000, 64, { originalMaxSeqLen: 4096, betaFast: 1, betaSlow: 1 }],
      [50_000, 64, { originalMaxSeqLen: 4096, betaFast: 1, betaSlow: 1, truncate: false }],
    ] as const) {
      const scaling = { kind: "yarn", factor: 4, ...fields };
      expect(difference(ropeFrequencies(rope(theta, dim, scaling)).inverse, yarn(theta, dim, scaling))).toBeLessThan(
        1e-12,
      );
    }
  });
});

describe("checkRope", () => {
  const base = { theta: 10_000, pairing: "half" as const };
  const yarn = { kind: "yarn", factor: 2, originalMaxSeqLen: 64 };

  test("fills in dim and copies", () => {
    expect(checkRope("f", base, 64)).toEqual({ theta: 10_000, pairing: "half", dim: 64 });
    const scaling = { kind: "linear" as const, factor: 2 };
    const checked = checkRope("f", { ...base, dim: 32, scaling }, 64);
    expect(checked).toEqual({ theta: 10_000, pairing: "half", dim: 32, scaling });
    expect(checked.scaling).not.toBe(scaling);
    const factors = { kind: "factors" as const, factors: Float32Array.of(1, 2.5) };
    const copied = checkRope("f", { ...base, scaling: factors }, 4).scaling as typeof factors;
    expect(copied).toEqual(factors);
    expect(copied.factors).not.toBe(factors.factors);
    for (const good of [llama3, gptOss, yarn, { kind: "ntk", factor: 1 }])
      expect(checkRope("f", rope(10_000, 64, good), 64).scaling).toEqual(good);
  });

  test.each([
    ["rope.theta expected a finite number > 0, got 0", RangeError, { theta: 0 }],
    ["rope.theta expected a finite number > 0, got Infinity", RangeError, { theta: Infinity }],
    ["rope.theta expected a finite number >= 1, got 0.5", RangeError, { theta: 0.5 }],
    ['rope.theta expected a finite number > 0, got "10000"', TypeError, { theta: "10000" }],
    ['rope.pairing expected "half" or "interleaved" (no default), got undefined', RangeError, { pairing: undefined }],
    ['rope.pairing expected "half" or "interleaved" (no default), got "neox"', RangeError, { pairing: "neox" }],
    ["rope.dim expected an even integer from 2 to headDim (64), got 0", RangeError, { dim: 0 }],
    ["rope.dim expected an even integer from 2 to headDim (64), got 7", RangeError, { dim: 7 }],
    ["rope.dim expected an even integer from 2 to headDim (64), got 66", RangeError, { dim: 66 }],
    ['rope.dim expected an even integer from 2 to headDim (64), got "8"', TypeError, { dim: "8" }],
    ['rope.scaling expected an object, got "yarn"', TypeError, { scaling: "yarn" }],
    [
      'rope.scaling.kind expected "linear" or "ntk" or "llama3" or "yarn" or "factors", got "dynamic"',
      RangeError,
      { scaling: { kind: "dynamic", factor: 2 } },
    ],
    [
      "rope.scaling.factor expected a finite number >= 1, got 0.5",
      RangeError,
      { scaling: { kind: "linear", factor: 0.5 } },
    ],
    ["rope.scaling.factor expected a finite number >= 1, got undefined", TypeError, { scaling: { kind: "linear" } }],
    [
      "rope.scaling.factor expected a finite number >= 1, got NaN",
      RangeError,
      { scaling: { kind: "ntk", factor: Number.NaN } },
    ],
    [
      "rope.dim expected an even integer >= 4 for ntk scaling, got 2",
      RangeError,
      { dim: 2, scaling: { kind: "ntk", factor: 2 } },
    ],
    [
      "rope.scaling.highFreqFactor expected a finite number > lowFreqFactor (1), got 1",
      RangeError,
      { scaling: { ...llama3, highFreqFactor: 1 } },
    ],
    [
      "rope.scaling.lowFreqFactor expected a finite number > 0, got -1",
      RangeError,
      { scaling: { ...llama3, lowFreqFactor: -1 } },
    ],
    [
      "rope.scaling.originalMaxSeqLen expected an integer >= 1, got 0",
      RangeError,
      { scaling: { ...llama3, originalMaxSeqLen: 0 } },
    ],
    [
      "rope.scaling.originalMaxSeqLen expected an integer >= 1, got undefined",
      TypeError,
      { scaling: { kind: "yarn", factor: 2 } },
    ],
    ["rope.theta expected a finite number > 1 for yarn scaling, got 1", RangeError, { theta: 1, scaling: yarn }],
    [
      "rope.scaling.betaFast expected a finite number >= betaSlow (1), got 0.5",
      RangeError,
      { scaling: { ...yarn, betaFast: 0.5 } },
    ],
    ["rope.scaling.betaSlow expected a finite number > 0, got 0", RangeError, { scaling: { ...yarn, betaSlow: 0 } }],
    [
      "rope.scaling.attentionFactor expected a finite number > 0, got 0",
      RangeError,
      { scaling: { ...yarn, attentionFactor: 0 } },
    ],
    [
      "rope.scaling: the factor on scores expected a finite float32 number > 0, got 9.999999999999999e+75",
      RangeError,
      { scaling: { ...yarn, attentionFactor: 1e38 } },
    ],
    ["rope.scaling.mscale expected a finite number >= 0, got -1", RangeError, { scaling: { ...yarn, mscale: -1 } }],
    [
      "rope.scaling.mscaleAllDim expected a finite number >= 0, got Infinity",
      RangeError,
      { scaling: { ...yarn, mscaleAllDim: Infinity } },
    ],
    [
      "rope.scaling.factors expected Float32Array, got Array",
      TypeError,
      { scaling: { kind: "factors", factors: [1, 2] } },
    ],
    [
      "rope.scaling.factors expected one per pair (32), got 2",
      RangeError,
      { scaling: { kind: "factors", factors: Float32Array.of(1, 2) } },
    ],
    [
      "rope.scaling.factors[31] expected a finite number >= 1, got 0.5",
      RangeError,
      { scaling: { kind: "factors", factors: new Float32Array(32).fill(1).fill(0.5, 31) } },
    ],
    [
      'rope.scaling expected only kind, factors, attentionFactor, got "factor"',
      TypeError,
      { scaling: { kind: "factors", factors: new Float32Array(32).fill(1), factor: 1 } },
    ],
    ["rope.scaling.truncate expected true or false, got 1", TypeError, { scaling: { ...yarn, truncate: 1 } }],
  ])("says %s", (text, kind, fields) => {
    const bad = { ...base, ...fields } as unknown as RopeWithDim;
    expect(() => checkRope("f", bad, 64)).toThrow(new kind(`f: ${text}`));
    expect(() => checkRope("f", bad, 64)).toThrow(kind);
  });

  test("names an odd headDim where dim is not given", () => {
    expect(() => checkRope("f", base, 63)).toThrow(
      new RangeError("f: rope.dim expected an even integer from 2 to headDim (63), got 63"),
    );
    expect(() => checkRope("f", null as never, 64)).toThrow(new TypeError("f: rope expected an object, got null"));
  });
});
