import { type Configuration, configure, measureLayer, measureRoofline } from "headwise/configure";
import { latent } from "headwise/latent";
import { models } from "headwise/models";
import { quantized } from "headwise/quantized";
import { afterEach, expect, test, vi } from "vitest";
import { loadKernels } from "../../../../src/entries/index.ts";
import { doublingClock, fasterClock } from "../../../support/clock.ts";
import { sampled } from "../../../support/sampled.ts";

const SMALL = { parameterBudget: 1e5, seqLen: 64, target: "browser", weights: "f32", cache: "f32" } as const;

afterEach(() => void vi.restoreAllMocks());

const VARIANTS = [
  { attention: "gqa", weights: "q8", cache: "f16" },
  { attention: "mla", weights: "q8", cache: "f16" },
  { attention: "mla", weights: "f32", cache: "f32" },
] as const;

test.each(sampled(VARIANTS, 1, (each) => each.attention))(
  "a layer of %j: bytes as predicted, positive times and rates",
  {
    timeout: 120_000,
  },
  async (variant) => {
    using _ = fasterClock();
    using kernels = await loadKernels({ models, quantized, latent });
    const configuration = configure({ ...SMALL, ...variant, dModel: 128 });
    const { tokens, clock, roofline, predicted, measured } = await measureLayer(kernels, configuration);
    expect([tokens, clock]).toEqual([64, "thread"]);
    expect([measured.weightBytes, measured.sessionBytes]).toEqual([predicted.weightBytes, predicted.sessionBytes]);
    const { other, attention, weights } = roofline;
    const rates = [
      roofline.flops,
      roofline.bytes,
      attention?.prompt,
      attention?.token,
      weights?.[variant.weights]?.flops,
    ];
    const times = [predicted.prefillMs, predicted.decodeMs, measured.prefillMs, measured.decodeMs, other?.element];
    for (const each of [...rates, ...times]) expect(each).toBeGreaterThan(0);
  },
);

test("memory that runs out, early or late, leaves nothing behind", {
  timeout: 120_000,
}, async () => {
  using kernels = await loadKernels({ models });
  using _ = doublingClock();
  const configuration = configure(SMALL);
  const run = () => measureLayer(kernels, configuration).catch(({ message }: Error) => message);
  expect(await run()).toHaveProperty("measured");
  // What calls work in has its full size now, and stays.
  const empty = kernels.usedBytes;
  const allocate = kernels.memory.allocate.bind(kernels.memory);
  for (const last of sampled([3, 8, 13, 28, 43, 58], 1, (each) => ([3, 58].includes(each) ? each : 0))) {
    let count = 0;
    vi.spyOn(kernels.memory, "allocate").mockImplementation((...given) => {
      if (count++ === last) throw new RangeError("no memory");
      return allocate(...given);
    });
    expect([last, await run(), kernels.usedBytes]).toEqual([last, "no memory", empty]);
  }
});

test("a clock that stands still is an error with a code", {
  timeout: 120_000,
}, async () => {
  using kernels = await loadKernels({ models });
  // It stands still behind some warm-ups, whose number is bounded for the others.
  using _ = doublingClock(20);
  await expect(measureLayer(kernels, configure(SMALL))).rejects.toMatchObject({
    code: "NO_CLOCK",
    message: "measureLayer: clock expected to advance while code runs, got one that stands still",
  });
});

test.each<[object, string]>([
  [{ projection: undefined }, "measureLayer: configuration.projection expected an object, got undefined"],
  [{ projection: { kind: "mha" } }, "measureLayer: configuration.projection.numKvHeads expected an integer"],
  [{ headDim: 7 }, "measureLayer: configuration.headDim expected an even number, got 7"],
  [{ weights: "q3" }, 'measureLayer: configuration.weights expected "f32" or'],
  [{ config: undefined }, "measureLayer: configuration.config expected an object, got undefined"],
  [
    { config: {} },
    "measureLayer: configuration.config.max_position_embeddings expected an integer >= 1, got undefined",
  ],
])("a configuration with %j is refused", async (wrong, message) => {
  using kernels = await loadKernels({ models });
  const configuration = { ...configure(SMALL), ...wrong } as unknown as Configuration;
  await expect(measureLayer(kernels, configuration)).rejects.toThrow(message);
});

test.each<[object, string]>([
  [{ headDim: 3 }, "measureRoofline: options.headDim expected an even number, got 3"],
  [
    { numHeads: 4, projection: { kind: "gqa", numKvHeads: 3 } },
    "measureRoofline: options.projection.numKvHeads expected a divisor of 4 heads, got 3",
  ],
  [{ projection: { kind: "mlp" } }, 'measureRoofline: options.projection.kind expected "mha" or'],
])("the option %j is refused", async (options, message) => {
  using kernels = await loadKernels({ models });
  await expect(measureRoofline(kernels, options as never)).rejects.toThrow(message);
});
