// The properties of the attention kernels over many more random calls than test/kernels make.

import { describe, expect, test } from "vitest";
import { checkAttention } from "../support/attention-properties.ts";
import { builds, load } from "../support/harness.ts";

const CALLS = 1000;

describe.each(builds)("the attention kernels in the %s build", (build) => {
  const instance = load(build);

  test("no call boundary, tile or masked value changes a bit, and each bit is the contract's, in 1000 random calls", () => {
    expect(checkAttention(instance, 20_000, CALLS, build === "relaxed")).toBeUndefined();
  });

  test("the same holds in 1000 random calls on pages of any formats", () => {
    expect(checkAttention(instance, 40_000, CALLS, build === "relaxed", "coded")).toBeUndefined();
  });

  test("the same holds in 1000 random calls of attention_latents", () => {
    expect(checkAttention(instance, 60_000, CALLS, build === "relaxed", "latents")).toBeUndefined();
  });
});
