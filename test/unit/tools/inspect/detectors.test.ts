import { expect, test } from "vitest";
import { loadKernels, type Tensor } from "../../../../src/entries/index.ts";
import {
  baselineScore,
  detectionPattern,
  forwardWith,
  type HeadKind,
  type HeadScoreOptions,
  headScores,
} from "../../../../src/entries/inspect.ts";
import { createSession, loadModel, models } from "../../../../src/entries/models.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";
import { TINY, tinyFolder, tinyTensors } from "../../../support/tiny-models.ts";

const rows = ({ data, shape }: Tensor) =>
  Array.from({ length: shape[0]! }, (_, i) => [...data.subarray(i * shape[1]!, (i + 1) * shape[1]!)].join(" "));

test.each<[HeadKind, string[]]>([
  ["current", ["1 0 0 0", "0 1 0 0", "0 0 1 0", "0 0 0 1"]],
  ["previous", ["0 0 0 0", "1 0 0 0", "0 1 0 0", "0 0 1 0"]],
  [{ offset: 2 }, ["0 0 0 0", "0 0 0 0", "1 0 0 0", "0 1 0 0"]],
  ["duplicate", ["0 0 0 0", "0 0 0 0", "1 0 0 0", "0 1 0 0"]],
  ["induction", ["0 0 0 0", "0 0 0 0", "0 1 0 0", "0 0 1 0"]],
  ["first", ["1 0 0 0", "1 0 0 0", "1 0 0 0", "1 0 0 0"]],
  [{ window: 2 }, ["1 0 0 0", "1 1 0 0", "0 1 1 0", "0 0 1 1"]],
  [
    "uniform",
    ["1 0 0 0", "0.5 0.5 0 0", "0.3333333432674408 0.3333333432674408 0.3333333432674408 0", "0.25 0.25 0.25 0.25"],
  ],
])("%o of a, b, a, b", (kind, want) => {
  expect(rows(detectionPattern(kind, ["a", "b", "a", "b"]))).toEqual(want);
});

test("a head that is its pattern scores 1 both ways, and one without preference its baseline", () => {
  const tokens = Array.from({ length: 40 }, (_, i) => i % 20);
  const n = tokens.length;
  const uniform = detectionPattern("uniform", tokens).data;
  // What has nothing to look at looks at itself, which is left out.
  const head = detectionPattern("induction", tokens).data.map((value, at) => {
    const [i, j] = [Math.floor(at / n), at % n];
    return i < 20 ? Number(i === j) : value;
  });
  const pattern = { data: Float32Array.of(...head, ...uniform), shape: [2, n, n] };
  const detection = detectionPattern("induction", tokens);
  const [own, none] = headScores(pattern, detection, { excludeCurrent: true });
  expect(own).toBe(1);
  expect(headScores(pattern, detection, { measure: "abs", excludeCurrent: true })[0]).toBe(1);
  const baseline = tokens.reduce((sum, _, i) => sum + (i < 20 ? 0 : 1 / (i + 1)), 0);
  const all = tokens.reduce((sum, _, i) => sum + i / (i + 1), 0);
  expect(none).toBeCloseTo(baseline / all, 6);
});

test("the baseline is the score of a uniform pattern, whatever is compared", () => {
  const tokens = [4, 7, 4, 4, 9, 7, 4, 9];
  const uniform = detectionPattern("uniform", tokens);
  const pattern = { data: uniform.data, shape: [1, 8, 8] };
  for (const kind of ["previous", "induction", { window: 3 }, "uniform"] as const)
    for (const measure of ["mul", "abs", "overlap"] as const)
      for (const excludeFirst of [false, true]) {
        const detection = detectionPattern(kind, tokens);
        const options = { measure, excludeFirst };
        expect(baselineScore(detection, options)).toBe(headScores(pattern, detection, options)[0]);
      }
  const sum = [1, 2, 3, 4, 5, 6, 7].reduce((all, i) => all + 1 / (i + 1), 0);
  expect(baselineScore(detectionPattern("previous", tokens))).toBeCloseTo(sum / 8, 7);
  expect(baselineScore(detectionPattern("previous", tokens), { measure: "overlap" })).toBeCloseTo(sum / 7, 7);
});

/** Of 8 tokens, row i gives key j a weight in proportion to 1 + (7i + 3j) mod 5. */
const TOKENS = [4, 7, 4, 4, 9, 7, 4, 9];
const PATTERN = Array.from(TOKENS, (_, i) => {
  const row = Array.from(TOKENS, (_, j) => (j <= i ? 1 + ((7 * i + 3 * j) % 5) : 0));
  const sum = row.reduce((all, x) => all + x, 0);
  return row.map((x) => x / sum);
});

// The formulas of TransformerLens' head_detector.py in NumPy 2.4 (roll, tril, mean), on the same pattern.
test.each<["previous" | "duplicate" | "induction", "mul" | "abs", number[]]>([
  ["previous", "mul", [0.253306917863, 0.264976955347, 0.320412771497, 0.30819253911]],
  ["previous", "abs", [-0.368386164274, -0.033040104997, -0.158950524987, 0.05139553429]],
  ["duplicate", "mul", [0.227139819245, 0.191365118079, 0.287313507328, 0.22257521059]],
  ["duplicate", "abs", [-0.54572036151, 0.003308579213, -0.336284722222, 0.087744218501]],
  ["induction", "mul", [0.204146730463, 0.339027475628, 0.243855027724, 0.372370637786]],
  ["induction", "abs", [-0.591706539075, -0.193860479798, -0.279998172515, -0.007152113238]],
])("%s by %s has TransformerLens' scores within 1e-6, with each choice of what is left out", (kind, measure, want) => {
  const pattern = { data: Float32Array.from(PATTERN.flat()), shape: [1, 8, 8] };
  const detection = detectionPattern(kind, TOKENS);
  const choices = [[], ["excludeFirst"], ["excludeCurrent"], ["excludeFirst", "excludeCurrent"]];
  for (const [i, flags] of choices.entries()) {
    const options: HeadScoreOptions = { measure, ...Object.fromEntries(flags.map((flag) => [flag, true])) };
    expect(Math.abs(headScores(pattern, detection, options)[0]! - want[i]!)).toBeLessThan(1e-6);
  }
});

test("overlap is what the tokens that have anywhere to look give to these places", () => {
  const detection = detectionPattern("induction", TOKENS);
  const [got] = headScores({ data: Float32Array.from(PATTERN.flat()), shape: [1, 8, 8] }, detection, {
    measure: "overlap",
  });
  const given = PATTERN.map((row, i) => row.filter((_, j) => j > 0 && j <= i && TOKENS[j - 1] === TOKENS[i]));
  const looking = given.filter((row) => row.length > 0);
  expect(looking.length).toBe(5);
  expect(got).toBeCloseTo(looking.flat().reduce((sum, x) => sum + x, 0) / 5, 6);
});

/** Whether the mean of some scores is within 4 standard errors of `want`. */
function expectMean(scores: readonly number[], want: number) {
  const mean = scores.reduce((sum, x) => sum + x, 0) / scores.length;
  const deviation = Math.sqrt(scores.reduce((sum, x) => sum + (x - mean) ** 2, 0) / (scores.length - 1));
  expect(deviation).toBeGreaterThan(0);
  expect(Math.abs(mean - want)).toBeLessThan((4 * deviation) / Math.sqrt(scores.length));
}

const RANDOM_KINDS = ["previous", "duplicate", "induction", "first", { offset: 3 }, { window: 4 }] as const;

test("scores of patterns of random logits are the baseline on average: within 4 standard errors of 200 heads", () => {
  const random = createRandom(9);
  const n = 40;
  const tokens = Array.from({ length: n }, (_, i) => i % 20);
  const data = new Float32Array(200 * n * n);
  for (let row = 0; row < 200 * n; row++) {
    const weights = Array.from({ length: (row % n) + 1 }, () => Math.exp(2 * random.normal()));
    const sum = weights.reduce((all, x) => all + x, 0);
    data.set(
      weights.map((x) => x / sum),
      row * n,
    );
  }
  for (const kind of RANDOM_KINDS)
    for (const measure of ["mul", "overlap"] as const) {
      const detection = detectionPattern(kind, tokens);
      const scores = headScores({ data, shape: [200, n, n] }, detection, { measure });
      expectMean(scores, baselineScore(detection, { measure }));
    }
});

test("scores of 96 heads of 12 random models are the baseline on average: within 4 standard errors", async () => {
  const kernels = await loadKernels({ models });
  const half = Array.from({ length: 40 }, (_, i) => (i * 29) % 67);
  const ids = [...half, ...half];
  const data: number[][] = [];
  for (let seed = 1; seed <= 12; seed++) {
    using model = await loadModel(kernels, tinyFolder(TINY.llama, tinyTensors(TINY.llama, seed)));
    const { patterns } = forwardWith(createSession(model), ids, { patterns: [0, 1] });
    for (const kind of RANDOM_KINDS)
      data.push(patterns.flatMap((pattern) => headScores(pattern, detectionPattern(kind, ids))));
  }
  for (const [i, kind] of RANDOM_KINDS.entries()) {
    const scores = data.filter((_, at) => at % RANDOM_KINDS.length === i).flat();
    expect(scores.length).toBe(96);
    expectMean(scores, baselineScore(detectionPattern(kind, ids)));
  }
});

test.each<[string, () => unknown, string]>([
  [
    "an unknown kind",
    () => detectionPattern("local" as "first", [1]),
    '"first" or "uniform" or { offset } or { window }, got "local"',
  ],
  [
    "offset and window",
    () => detectionPattern({ offset: 1, window: 2 } as HeadKind, [1]),
    "kind expected one of offset and window, got both",
  ],
  [
    "a text that is too long",
    () => detectionPattern("first", { length: 16_385 } as string[]),
    "detectionPattern: tokens expected at most 16384, got 16385",
  ],
  ["a window of 0", () => detectionPattern({ window: 0 }, [1]), "kind.window expected"],
  [
    "other tokens",
    () => headScores({ data: new Float32Array(4), shape: [1, 2, 2] }, detectionPattern("first", [1])),
    "headScores: detection expected shape [2, 2], got [1, 1]",
  ],
  [
    "patterns of a later call",
    () => headScores({ data: new Float32Array(6), shape: [1, 2, 3] }, detectionPattern("first", [1, 2])),
    "pattern expected shape [heads, tokens, tokens]",
  ],
])("refuses %s", (_, call, text) => expect(call).toThrow(text));
