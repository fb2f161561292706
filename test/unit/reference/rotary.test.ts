import { describe, expect, test } from "vitest";
import type { CheckedConfig } from "../../../src/layers/attention/config.ts";
import { rotate } from "../../../src/reference/attend.ts";

describe("rotate", () => {
  /** Angle and length of pair i after rotating (1, 0) at position 1. */
  const pairAt = (rope: NonNullable<CheckedConfig["rope"]>, i: number): [angle: number, length: number] => {
    const x = new Float64Array(rope.dim);
    const [first, second] = rope.pairing === "half" ? [i, i + rope.dim / 2] : [2 * i, 2 * i + 1];
    x[first] = 1;
    rotate(x, [1], 1, rope.dim, rope);
    return [Math.atan2(x[second]!, x[first]!), Math.hypot(x[second]!, x[first]!)];
  };

  test("turns pair i by theta^(-2i / dim) a position, by the factor less when it is linear", () => {
    for (const pairing of ["half", "interleaved"] as const) {
      const rope = { theta: 10_000, pairing, dim: 8 };
      for (const [i, want] of [1, 0.1, 0.01, 0.001].entries()) {
        expect(pairAt(rope, i)[0]).toBeCloseTo(want, 14);
        expect(pairAt({ ...rope, scaling: { kind: "linear", factor: 4 } }, i)[0]).toBeCloseTo(want / 4, 14);
      }
    }
  });

  test("ntk keeps the first pair and turns the last by the factor less", () => {
    const rope = { theta: 10_000, pairing: "half", dim: 8 } as const;
    const stretched = { ...rope, scaling: { kind: "ntk", factor: 4 } as const };
    expect(pairAt(stretched, 0)[0]).toBeCloseTo(1, 14);
    expect(pairAt(stretched, 3)[0]).toBeCloseTo(0.001 / 4, 14);
  });

  test("llama3 keeps short wavelengths, divides long ones and mixes between them", () => {
    const scaling = { kind: "llama3", factor: 8, lowFreqFactor: 1, highFreqFactor: 4, originalMaxSeqLen: 64 } as const;
    const rope = { theta: 10_000, pairing: "half", dim: 8, scaling } as const;
    // 64 tokens are 10.2 turns of pair 0, 1.02 of pair 1 and 0.1 of pair 2.
    const share = (6.4 / (2 * Math.PI) - 1) / 3;
    for (const [i, want] of [1, 0.1 * share + (0.1 / 8) * (1 - share), 0.01 / 8].entries())
      expect(pairAt(rope, i)[0]).toBeCloseTo(want, 14);
  });

  test("yarn keeps the pairs before its ramp, divides those behind it, and grows the length by 0.1 ln factor", () => {
    const scaling = { kind: "yarn", factor: 32, originalMaxSeqLen: 4096, truncate: false } as const;
    const rope = { theta: 150_000, pairing: "half", dim: 64, scaling } as const;
    const trained = (i: number) => 150_000 ** (-i / 32);
    expect(pairAt(rope, 8)[0]).toBeCloseTo(trained(8), 14);
    expect(pairAt(rope, 18)[0]).toBeCloseTo(trained(18) / 32, 14);
    // The ramp of this published model goes from pair 8.093 to pair 17.398.
    const ramp = (13 - 8.092779115512402) / (17.39802450158856 - 8.092779115512402);
    expect(pairAt(rope, 13)[0]).toBeCloseTo(trained(13) * (1 - ramp) + (trained(13) / 32) * ramp, 12);
    expect(pairAt(rope, 0)[1]).toBeCloseTo(1.3465735902799727, 14);
    expect(pairAt({ ...rope, scaling: { ...scaling, mscale: 1, mscaleAllDim: 1 } }, 0)[1]).toBeCloseTo(1, 14);
  });
});
