import { expect, test } from "vitest";
import { type CacheOptions, createAttention, createCache } from "../../../../src/entries/core.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";
import { kernelsOf, randomLayer, randomWeights } from "../../../support/layers.ts";

type Format = NonNullable<CacheOptions["format"]>;

test("keys of more than 2048 components stay floats: integer products of more could leave 32 bits", async () => {
  using kernels = await kernelsOf("simd");
  for (const headDim of [2048, 2052]) {
    const config = { dModel: 4, numHeads: 1, headDim, valueDim: 4 };
    const attention = createAttention(kernels, config, randomWeights(createRandom(1), config));
    const keysAs = (keys: "q8" | "q4" | "f16") =>
      createCache(attention, { maxSeqLen: 1, format: { keys, values: "q8" } });
    expect(keysAs("f16").length).toBe(0);
    for (const keys of ["q8", "q4"] as const)
      if (headDim === 2048) expect(keysAs(keys).length).toBe(0);
      else
        expect(() => keysAs(keys)).toThrow(
          new RangeError(`createCache: format.keys expected "f32" or "f16" for headDim above 2048, got "${keys}"`),
        );
    attention.release();
  }
});

test.each<[unknown, string]>([
  ["q5", 'format expected "f32" or "f16" or "q8" or "q4", got "q5"'],
  [7, "format expected a format's name, { keys, values } or an array of stages, got 7"],
  [null, "format expected a format's name, { keys, values } or an array of stages, got null"],
  [new Float32Array(3), "format expected a format's name, { keys, values } or an array of stages, got Float32Array"],
  [new Array(1), "format[0] expected an object, got undefined"],
  // biome-ignore lint/suspicious/noSparseArray: a hole is what must not slip through.
  [[, { keys: "q8", values: "q8" }], "format[0] expected an object, got undefined"],
  [
    // biome-ignore lint/suspicious/noSparseArray: as above.
    [{ keys: "f32", values: "f32", tokens: 128 }, , { keys: "q8", values: "q8" }],
    "format[1] expected an object, got undefined",
  ],
  [[], "format expected one stage or more, got none"],
  [{ keys: "q8" }, 'format.values expected "f32" or "f16" or "q8" or "q4", got undefined'],
  [{ keys: "q8", values: "q8", tokens: 128 }, 'format expected only keys, values, got "tokens"'],
  [
    [
      { keys: "f32", values: "f32", tokens: 100 },
      { keys: "q8", values: "q8" },
    ],
    "format[0].tokens expected an integer >= 128, got 100",
  ],
  [
    [
      { keys: "f32", values: "f32", tokens: 200 },
      { keys: "q8", values: "q8" },
    ],
    "format[0].tokens expected a multiple of 128, got 200",
  ],
  [
    [
      { keys: "q8", values: "q8", tokens: 128 },
      { keys: "q8", values: "f16" },
    ],
    'format[1].values expected no more bits than before ("q8"), got "f16"',
  ],
  [
    [
      { keys: "q8", values: "q8", tokens: 128 },
      { keys: "q8", values: "q8" },
    ],
    "format[1] expected other formats than the stage before, got the same",
  ],
])("createCache refuses the format %j", async (format, text) => {
  using kernels = await kernelsOf("simd");
  const { attention } = randomLayer(kernels, 1);
  const used = kernels.usedBytes;
  const make = () => createCache(attention, { maxSeqLen: 10, format: format as Format });
  expect(make).toThrow(`createCache: ${text}`);
  expect(kernels.usedBytes).toBe(used);
});
