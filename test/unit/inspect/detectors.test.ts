import { expect, test } from "vitest";
import { loadKernels, type Tensor } from "../../../src/entries/index.ts";
import { detectionPattern, forwardWith, type HeadKind, headScores } from "../../../src/entries/inspect.ts";
import { createSession, loadModel, models } from "../../../src/entries/models.ts";
import { TINY, tinyFolder } from "../../support/tiny-models.ts";

const rows = ({ data, shape }: Tensor) =>
  Array.from({ length: shape[0]! }, (_, i) => [...data.subarray(i * shape[1]!, (i + 1) * shape[1]!)].join(" "));

test.each<[HeadKind, string[]]>([
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

test("heads of random weights lie near the baseline of previous tokens", async () => {
  const kernels = await loadKernels({ models });
  const session = createSession(await loadModel(kernels, tinyFolder(TINY.llama)));
  const ids = Array.from({ length: 120 }, (_, i) => (i * 29) % 67);
  const { patterns } = forwardWith(session, ids, { patterns: [0] });
  const baseline = ids.reduce((sum, _, i) => sum + (i > 0 ? 1 / (i + 1) : 0), 0) / ids.length;
  for (const score of headScores(patterns[0]!, detectionPattern("previous", ids))) {
    expect(score).toBeGreaterThan(baseline / 3);
    expect(score).toBeLessThan(3 * baseline);
  }
});

test.each<[string, () => unknown, string]>([
  ["an unknown kind", () => detectionPattern("next" as "first", [1]), 'kind expected "previous" or'],
  [
    "offset and window",
    () => detectionPattern({ offset: 1, window: 2 } as HeadKind, [1]),
    "kind expected one of offset and window, got both",
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
