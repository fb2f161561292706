// The choice of a token: its rules, and that it follows the probabilities.

import { expect, test } from "vitest";
import type { OutputRow } from "../../../../src/models/blocks/ends.ts";
import {
  checkSampling,
  chooseToken,
  type LogitsProcessor,
  randomAt,
  type SamplingOptions,
} from "../../../../src/models/generate/sampling.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";

/** A row of logits outside linear memory. */
function rowOf(values: ArrayLike<number>): OutputRow {
  const logits = Float32Array.from(values);
  const order = () => [...logits.keys()].sort((a, b) => (logits[b] as number) - (logits[a] as number) || a - b);
  return {
    output: 0,
    vocabSize: logits.length,
    logits: () => logits,
    sums() {
      const largest = Math.max(...logits);
      return { largest, sum: logits.reduce((sum, x) => sum + Math.exp(x - largest), 0) };
    },
    divide(by) {
      logits.set(logits.map((x) => x * Math.fround(1 / by)));
    },
    top(k) {
      const ids = Int32Array.from(order().slice(0, k));
      return { ids, values: Float32Array.from(ids, (id) => logits[id] as number) };
    },
  };
}

const choose = (values: ArrayLike<number>, options: SamplingOptions, ids: readonly number[] = [], position = 0) =>
  chooseToken(rowOf(values), checkSampling("generate", options), () => ids, position);

/** How often each token is chosen at 20 000 positions. */
function shares(values: readonly number[], options: SamplingOptions): number[] {
  const counts = values.map(() => 0);
  for (let position = 0; position < 20_000; position++) {
    const { id } = choose(values, options, [], position);
    counts[id] = (counts[id] as number) + 1 / 20_000;
  }
  return counts;
}

test("without a temperature the most probable token is taken, of two the lower, with its log-probability", () => {
  const { id, logprob } = choose([0, Math.log(3), Math.log(3)], {});
  expect(id).toBe(1);
  expect(logprob).toBeCloseTo(Math.log(3 / 7), 6);
});

test.each([
  [{ temperature: 1 }, [0.1, 0.2, 0.3, 0.4]],
  [{ temperature: 0.5 }, [1 / 30, 4 / 30, 9 / 30, 16 / 30]],
  [{ temperature: 1, topK: 2 }, [0, 0, 3 / 7, 4 / 7]],
  [{ temperature: 1, topP: 0.65 }, [0, 0, 3 / 7, 4 / 7]],
  [{ temperature: 1, topP: 0.75 }, [0, 2 / 9, 3 / 9, 4 / 9]],
  [{ temperature: 1, minP: 0.6 }, [0, 0, 3 / 7, 4 / 7]],
  [{ temperature: 1, topK: 3, topP: 0.5 }, [0, 0, 3 / 7, 4 / 7]],
] satisfies [SamplingOptions, number[]][])("tokens come as often as %o says, within 0.015", (options, want) => {
  const got = shares([0.1, 0.2, 0.3, 0.4].map(Math.log), options);
  for (const [id, share] of want.entries()) expect(Math.abs((got[id] as number) - share)).toBeLessThan(0.015);
});

test("more tokens than kernels list are sampled alike, with and without topK", () => {
  const random = createRandom(1);
  const values = Array.from({ length: 3000 }, () => random.normal() / 100);
  const halves = [0, 0];
  for (let position = 0; position < 300; position++)
    for (const topK of [0, 2900]) {
      const { id } = choose(values, { temperature: 1, topK }, [], position);
      halves[topK && 1] = (halves[topK && 1] as number) + (id < 1500 ? 1 : 0);
    }
  for (const half of halves) expect(Math.abs(half / 300 - 0.5)).toBeLessThan(0.1);
});

test("of equal tokens, more than kernels list, each of those that topK leaves has the same share of the random numbers", () => {
  const values = new Float32Array(3000);
  for (const topK of [0, 2000, 3000, 4000])
    for (let position = 0; position < 20; position++) {
      const { id } = choose(values, { temperature: 1, topK, seed: 1 }, [], position);
      const among = topK === 2000 ? 2000 : 3000;
      expect(id, `${topK} at ${position}`).toBe(Math.floor(randomAt(1, position) * among));
    }
});

test("topP keeps no more tokens than have it together: two of four that are alike have a half", () => {
  const [first, second, ...others] = shares([0, 0, 0, 0], { temperature: 1, topP: 0.5 }) as [number, number];
  expect(others).toEqual([0, 0]);
  expect(Math.abs(first - second)).toBeLessThan(0.03);
});

test("a repetition penalty divides positive logits and multiplies others, and leaves log-probabilities", () => {
  const { id, logprob } = choose([2, 1.5, -1], { repetitionPenalty: 2 }, [0, 2, 0]);
  expect(id).toBe(1);
  expect(logprob).toBeCloseTo(1.5 - Math.log(Math.exp(2) + Math.exp(1.5) + Math.exp(-1)), 6);
  expect(choose([-1, -1.5], { repetitionPenalty: 2 }, [0]).id).toBe(1);
});

test("processors see all tokens and change logits in place, one after the other", () => {
  const seen: unknown[] = [];
  const { id } = choose(
    [3, 2, 1],
    {
      logitsProcessors: [
        (ids, { data, dims, type, 0: row }) => {
          seen.push(ids, dims, type, row.data === data, row.dims);
          data[0] = Number.NEGATIVE_INFINITY;
        },
        (_ids, { data }) => {
          data[2] = (data[2] as number) + (data[1] as number);
        },
      ],
    },
    [7, 8],
  );
  expect(id).toBe(2);
  expect(seen).toEqual([[[7n, 8n]], [1, 3], "float32", true, [3]]);
});

test("random numbers depend on seed and position alone, lie in [0, 1) and are spread evenly", () => {
  expect(randomAt(3, 5)).toBe(randomAt(3, 5));
  const values = Array.from({ length: 10_000 }, (_, i) => randomAt(i % 100, Math.floor(i / 100)));
  expect(new Set(values).size).toBe(10_000);
  expect(values.every((value) => value >= 0 && value < 1)).toBe(true);
  for (let tenth = 0; tenth < 10; tenth++)
    expect(values.filter((value) => Math.floor(value * 10) === tenth).length).toBeGreaterThan(880);
});

test.each([{ temperature: 0 }, { temperature: 1 }, { temperature: 1, topK: 2 }])(
  "processors that leave no token are refused with %o",
  (options) => {
    const logitsProcessors: LogitsProcessor[] = [(_ids, { data }) => data.fill(Number.NEGATIVE_INFINITY)];
    const text =
      "generate: logits at position 0 expected one above -Infinity after logitsProcessors, got -Infinity as the largest";
    expect(() => choose([1, 2, 3], { ...options, logitsProcessors })).toThrow(new RangeError(text));
  },
);

test.each([0, 0.5, 1])(
  "one logit that is NaN or Infinity is refused at temperature %d, and -Infinity is not",
  (temperature) => {
    const choosing = (bad: number, options: SamplingOptions = {}) => {
      const logitsProcessors: LogitsProcessor[] = [(_ids, { data }) => data.fill(bad, 1, 2)];
      return () => choose([1, 2, 3], { temperature, logitsProcessors, ...options });
    };
    for (const bad of [Number.NaN, Number.POSITIVE_INFINITY])
      for (const options of [{}, { topK: 2 }, { topP: 0.5 }, { repetitionPenalty: 2 }])
        expect(choosing(bad, options)).toThrow(
          new RangeError(
            `generate: logits at position 0 expected finite numbers or -Infinity after logitsProcessors, got ${bad} as the largest`,
          ),
        );
    expect(choosing(Number.NEGATIVE_INFINITY)().id).not.toBe(1);
  },
);

test("the hottest temperatures choose all tokens that are left alike", () => {
  const logitsProcessors: LogitsProcessor[] = [(_ids, { data }) => data.fill(Number.NEGATIVE_INFINITY, 0, 1)];
  const [banned, one, two] = shares([5, 1, 2], { temperature: 1e300, logitsProcessors }) as [number, number, number];
  expect(banned).toBe(0);
  expect(Math.abs(one - two)).toBeLessThan(0.03);
});

test.each([
  [{ temperature: -1 }, "generate: temperature expected a number >= 0, got -1"],
  [{ topP: 0 }, "generate: topP expected a number above 0 and up to 1, got 0"],
  [{ minP: 2 }, "generate: minP expected a number from 0 to 1, got 2"],
  [{ topK: 1.5 }, "generate: topK expected an integer"],
  [{ seed: -1 }, "generate: seed expected an integer"],
  [{ seed: 2 ** 32 }, "generate: seed expected an integer from 0 to 4294967295, got 4294967296"],
  [{ repetitionPenalty: 0 }, "generate: repetitionPenalty expected a finite number > 0, got 0"],
  [{ logitsProcessors: [5 as never] }, "generate: logitsProcessors[0] expected a function, got 5"],
])("%o is refused", (options, text) => {
  expect(() => checkSampling("generate", options)).toThrow(text);
});
