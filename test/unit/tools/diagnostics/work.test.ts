// The linear and the attention work that the doctor times: linear-work.ts and attention-work.ts.

import { describe, expect, test } from "vitest";
import { scaledDotProductAttention } from "../../../../src/entries/core.ts";
import { createAttentionWork, createLinearWork } from "../../../../src/tools/diagnostics/doctor.ts";
import { kernelsOf, shippedBuilds } from "../../../support/layers.ts";

/** The relative error of a sum of n products, each rounded to 24 bits: RMS, if roundings are independent. */
const roundings = (n: number) => Math.sqrt(n) * 2 ** -24;

describe.each(shippedBuilds)("works on the %s build", (build) => {
  test("a projection and an attention are within rounding of float64, and nothing else is", async () => {
    using kernels = await kernelsOf(build);
    const used = kernels.usedBytes;
    const projection = createLinearWork(kernels, 64, 32, 48);
    expect(projection.flops).toBe(2 * 64 * 32 * 48);
    expect(projection.error().relative).toBeGreaterThan(0.1);
    projection.run();
    expect(projection.error().relative).toBeLessThan(roundings(48));
    projection.release();
    expect(kernels.usedBytes).toBe(used);

    const attention = createAttentionWork(scaledDotProductAttention, kernels, 2, 150, 16);
    // Keys that a query sees, two products with each.
    expect(attention.flops).toBe(2 * 2 * 2 * 16 * ((150 * 151) / 2));
    attention.run();
    expect(attention.error().relative).toBeLessThan(roundings(150));
    const zeros: typeof scaledDotProductAttention = (_, q) => ({
      ...{ output: { data: new Float32Array(q.data.length), shape: q.shape } },
      ...{ present: undefined, scores: undefined, lse: undefined },
    });
    const wrong = createAttentionWork(zeros, kernels, 2, 150, 16);
    wrong.run();
    expect(wrong.error().relative).toBe(1);
  });
});
