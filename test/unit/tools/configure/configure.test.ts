import { type ConfigureOptions, configure } from "headwise/configure";
import { planModel } from "headwise/models";
import { describe, expect, test } from "vitest";

const BROWSER = { parameterBudget: 125e6, seqLen: 2048, target: "browser" } as const;
const ROOFLINE = { flops: 50e9, bytes: 10e9 };

describe("the rules of thumb", () => {
  test.each([
    [125e6, 768, 12, 64],
    [350e6, 1024, 16, 64],
    [1e9, 2048, 16, 128],
    [70e9, 8192, 64, 128],
  ])(
    "%d parameters, and budgets within a tenth, have width %d, %d heads of %d",
    (budget, dModel, numHeads, headDim) => {
      for (const factor of [0.9, 1, 1.1])
        for (const target of ["browser", "phone", "worker", "server"] as const) {
          const found = configure({ parameterBudget: Math.round(factor * budget), seqLen: 1024, target });
          expect(found).toMatchObject({ dModel, numHeads, headDim });
        }
    },
  );

  test("widths never shrink as budgets grow from 10 thousand to 10^12, and heads are of 32 to 128", () => {
    let before = 0;
    for (let budget = 1e4; budget <= 1e12; budget *= 1.9) {
      const { dModel, numHeads, headDim } = configure({ ...BROWSER, parameterBudget: Math.round(budget), seqLen: 128 });
      // Multiples of four heads of 64 or 128 may be a step apart where the size of heads changes.
      expect(dModel).toBeGreaterThanOrEqual(0.9 * before);
      expect([32, 64, 128]).toContain(headDim);
      expect(numHeads * headDim).toBe(dModel);
      before = dModel;
    }
  });

  test("parameters are within 5 % of budgets from a million on", () => {
    for (let budget = 1e6; budget <= 1e10; budget *= 2.7)
      for (const seqLen of [128, 4096, 65_536]) {
        const { parameters } = configure({ ...BROWSER, parameterBudget: Math.round(budget), seqLen });
        expect(Math.abs(parameters / budget - 1)).toBeLessThan(0.05);
      }
  });
});

describe("costs", () => {
  test.each<ConfigureOptions>([
    BROWSER,
    { ...BROWSER, target: "server", seqLen: 32_768 },
    { ...BROWSER, attention: "mla", cache: "q8" },
    { ...BROWSER, attention: "mqa", weights: "q4" },
    { ...BROWSER, target: "worker", parameterBudget: 12e6 },
  ])("of %j: linear memory is what planModel gives, to the byte", (options) => {
    const {
      config,
      weights,
      cache,
      memory,
      cacheBytes,
      seqLen = options.seqLen,
    } = { ...configure(options), seqLen: undefined };
    expect(memory).toEqual(planModel(config, { weights, format: cache, maxSeqLen: seqLen }));
    expect(cacheBytes).toBe(memory.sessions);
  });

  test("a longer sequence takes groups, then latents, then one head for all, until caches are a quarter of the weights", () => {
    const kinds = [256, 2048, 4096, 8192, 16_384, 65_536].map((seqLen) => {
      const { projection, memory } = configure({ ...BROWSER, seqLen });
      expect(memory.sessions <= memory.weights / 4 || seqLen === 65_536).toBe(true);
      return projection.kind;
    });
    expect(kinds).toEqual(["mha", "gqa", "mla", "mqa", "mqa", "mqa"]);
  });

  test("formats are the most exact that fit the memory", () => {
    const formatOf = (memory: number) => configure({ ...BROWSER, target: "server", memory }).weights;
    expect([2 ** 30, 220e6, 120e6].map(formatOf)).toEqual(["f16", "q8", "q4"]);
  });

  test("the same options and roofline give the same result, and twice the roofline twice the speed", () => {
    const slow = configure({ ...BROWSER, roofline: ROOFLINE });
    expect(configure({ ...BROWSER, roofline: ROOFLINE })).toEqual(slow);
    const fast = configure({ ...BROWSER, roofline: { flops: 2 * ROOFLINE.flops, bytes: 2 * ROOFLINE.bytes } });
    expect(fast.speed?.decodeTokensPerSecond).toBeCloseTo(2 * (slow.speed?.decodeTokensPerSecond ?? 0), 6);
    expect(fast.speed?.prefillTokensPerSecond).toBeCloseTo(2 * (slow.speed?.prefillTokensPerSecond ?? 0), 6);
    expect(configure(BROWSER).speed).toBeUndefined();
  });

  test("what a roofline says of other work is added for each token, layer and element", () => {
    const other = { layer: 2e-6, pass: 3e-6, row: 1e-6, element: 1e-9 };
    const [bare, whole] = [{}, { other }].map((more) => configure({ ...BROWSER, roofline: { ...ROOFLINE, ...more } }));
    const { layers = 0, dModel = 0, mlpDim = 0 } = bare ?? {};
    const numbers = layers * (4 * dModel + mlpDim);
    const seconds = (name: "prefillTokensPerSecond" | "decodeTokensPerSecond") =>
      1 / (whole?.speed?.[name] ?? 0) - 1 / (bare?.speed?.[name] ?? 0);
    expect(seconds("decodeTokensPerSecond")).toBeCloseTo(layers * 2e-6 + 3e-6 + numbers * 1e-9, 12);
    expect(seconds("prefillTokensPerSecond")).toBeCloseTo(layers * 1e-6 + numbers * 1e-9 + 3e-6 / 2048, 12);
  });

  test("decode reads weights and caches once: by hand for one layer", () => {
    const one = { parameterBudget: 100_000, seqLen: 128, target: "server", weights: "f32", cache: "f32" } as const;
    const { parameters, vocabSize, dModel, tied, cacheBytes, speed } = configure({
      ...one,
      roofline: { flops: 1e15, bytes: 1e9 },
    });
    expect(tied).toBe(true);
    expect(speed?.decodeTokensPerSecond).toBeCloseTo(1e9 / (4 * parameters + cacheBytes), -1);
    expect(vocabSize * dModel).toBeLessThan(parameters);
  });
});

describe("choices", () => {
  test("each has a reason and a rule", () => {
    const { choices } = configure(BROWSER);
    const names = ["dModel", "headDim", "numHeads", "projection", "fused", "vocabSize", "layers", "mlpDim"];
    expect(choices.map(({ what }) => what)).toEqual([...names, "weights", "cache", "memory"]);
    for (const { reason, rule } of choices) expect([reason, rule].every((text) => text.length > 5)).toBe(true);
    expect(choices.find(({ what }) => what === "projection")?.reason).toMatch(/15 % of the weights.*mha 50 %/);
  });

  test("what is given is not chosen", () => {
    const given = { dModel: 512, numHeads: 8, numKvHeads: 2, vocabSize: 1000, weights: "q4", cache: "q4" } as const;
    const found = configure({ ...BROWSER, ...given });
    const { numKvHeads, ...sizes } = given;
    expect(found).toMatchObject({ ...sizes, projection: { kind: "gqa", numKvHeads } });
    expect(found.choices.find(({ what }) => what === "dModel")?.reason).toBe("as asked for");
  });

  test("what is given and does not divide is not what was asked for", () => {
    const { choices } = configure({ ...BROWSER, numHeads: 10 });
    expect(choices.find(({ what }) => what === "numHeads")?.reason).toBe(
      "the nearest to 10: the width of 768 / 64 floats in a head",
    );
  });

  test("counts from 10^9 on are in billions", () => {
    const { choices } = configure({ parameterBudget: 10e9, seqLen: 2048, target: "server" });
    expect(choices.find(({ what }) => what === "mlpDim")?.reason).toMatch(/ for (9\.9\d|10\.0) billion in all$/);
  });
});

describe("warnings", () => {
  test.each<[Partial<ConfigureOptions>, RegExp]>([
    [{ headDim: 16 }, /heads of 16 are below 32/],
    [{ headDim: 512 }, /heads of 512 are above 256/],
    [{ numHeads: 10 }, /10 heads do not divide a width of 768 into even sizes: 12 do/],
    [{ numKvHeads: 5 }, /5 key-value heads do not divide 12 heads: 6 do/],
    [{ numKvHeads: 4, attention: "mqa" }, /gqa, 4 key-value heads of 12 heads, are not mqa/],
    [{ numKvHeads: 4, attention: "mla" }, /latents have no key-value heads: 4 are not used/],
    [
      { headDim: 128, numHeads: 12 },
      /12 heads of 128 floats are 1536 floats together, which differs from the width of 768/,
    ],
    [{ target: "worker", parameterBudget: 350e6 }, /exceed the 105 MB of a worker, in every format/],
    [{ attention: "mha", seqLen: 16_384 }, /caches of 16384 tokens take .* more than a quarter/],
    [{ vocabSize: 120_000 }, /the table of tokens has 7\d % of the parameters/],
    [{ roofline: { flops: 1e9, bytes: 2e8 } }, /tokens a second are slower than reading/],
    [{ parameterBudget: 20_000, vocabSize: 256, seqLen: 128 }, /are 7\.4 % below the budget/],
  ])("%j gives one", (options, text) => {
    expect(configure({ ...BROWSER, ...options }).warnings.join("\n")).toMatch(text);
  });

  test("budgets of the rules have none where they fit", () => {
    for (const parameterBudget of [125e6, 350e6, 1e9])
      expect(configure({ ...BROWSER, parameterBudget }).warnings).toEqual([]);
  });
});

test.each<[object, string]>([
  [
    { parameterBudget: 9999 },
    "configure: options.parameterBudget expected an integer from 10000 to 1000000000000, got 9999",
  ],
  [{ target: "tv" }, 'configure: options.target expected "browser" or "phone" or "worker" or "server", got "tv"'],
  [{ headDim: 63 }, "configure: options.headDim expected an even number, got 63"],
  [{ dModel: 65 }, "configure: options.dModel expected an even number, got 65"],
  [
    { roofline: { ...ROOFLINE, attention: { prompt: 1e9, token: -1 } } },
    "configure: options.roofline.attention.token expected a finite number > 0, got -1",
  ],
  [
    { roofline: { ...ROOFLINE, weights: { q3: { flops: 1, bytes: [] } } } },
    'configure: options.roofline.weights expected "f32" or "f16" or "bf16" or "q8" or "q8-row" or "q4", got "q3"',
  ],
  [
    {
      roofline: {
        ...ROOFLINE,
        weights: {
          q8: {
            flops: 1,
            bytes: [
              [2, 1],
              [1, 1],
            ],
          },
        },
      },
    },
    "configure: options.roofline.weights.q8.bytes expected 1 or more pairs [size, perSecond], ascending, got ",
  ],
  [
    { roofline: { ...ROOFLINE, other: { layer: 1e-6, pass: -1e-6, row: 0, element: 0 } } },
    "configure: options.roofline.other.pass expected a number >= 0, got -0.000001",
  ],
  [{ roofline: { flops: 0, bytes: 1 } }, "configure: options.roofline.flops expected a finite number > 0, got 0"],
  [{ heads: 3 }, "configure: options expected only parameterBudget, seqLen, target, "],
])("%j is refused", (options, message) => {
  expect(() => configure({ ...BROWSER, ...options } as ConfigureOptions)).toThrow(message);
});
