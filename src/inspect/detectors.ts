import { checkTensor, createFloats, readTensor, type Tensor } from "../tensor/tensor.ts";
import { expectFlag, expectInt, expectOneOf, readFields, readList } from "../util/arguments.ts";
import { describe } from "../util/errors.ts";

/**
 * What a head may do, as a pattern [tokens, tokens] of where each token would look:
 *
 * | | the token at i looks at |
 * |---|---|
 * | `"previous"` | i - 1 |
 * | `{ offset: k }` | i - k |
 * | `"duplicate"` | earlier places of the same token |
 * | `"induction"` | the places behind earlier ones of the same token: what followed it before |
 * | `"first"` | 0, where heads look that have nothing to do |
 * | `{ window: w }` | i - w + 1 to i |
 * | `"uniform"` | all of 0 to i, by 1 / (i + 1) each |
 */
export type HeadKind =
  | "previous"
  | "duplicate"
  | "induction"
  | "first"
  | "uniform"
  | { readonly offset: number }
  | { readonly window: number };

const NAMES = ["previous", "duplicate", "induction", "first", "uniform"] as const;

/** Longest text of a detection: its pattern has the square of it. */
const MOST_TOKENS = 16_384;

/**
 * The pattern [tokens, tokens] of a kind of heads for a text, with 1 where a token would look ("uniform": 1 / (i + 1)). Duplicate and
 * induction patterns are those of TransformerLens' `head_detector`.
 * @param tokens Ids of the text, or anything whose equality is that of its tokens.
 * @throws TypeError or RangeError naming the argument.
 * @example
 * import { detectionPattern } from "headwise/inspect";
 * const { data } = detectionPattern("induction", [7, 3, 7, 3]);
 * console.log(data.subarray(8, 12).join(" ")); // 0 1 0 0: the second 7 looks at what followed the first
 */
export function detectionPattern(kind: HeadKind, tokens: readonly unknown[]): Tensor {
  const where = "detectionPattern";
  const ids = Array.from(readList(where, "tokens", tokens, MOST_TOKENS));
  const n = ids.length;
  const looks = looksOf(where, kind, ids);
  const data = createFloats(where, "pattern", n * n);
  for (let i = 0; i < n; i++) for (let j = 0; j <= i; j++) data[i * n + j] = looks(i, j);
  return { data, shape: [n, n] };
}

/** How much the token at i would look at that at j <= i. */
function looksOf(where: string, kind: HeadKind, ids: readonly unknown[]): (i: number, j: number) => number {
  if (kind !== null && typeof kind === "object") {
    const { offset, window } = readFields(where, "kind", kind as { offset?: number; window?: number }, [
      "offset",
      "window",
    ]);
    if ((offset === undefined) === (window === undefined))
      throw new TypeError(
        `${where}: kind expected one of offset and window, got ${offset === undefined ? "none" : "both"}`,
      );
    if (window !== undefined) {
      const width = expectInt(where, "kind.window", window);
      return (i, j) => Number(i - j < width);
    }
    const by = expectInt(where, "kind.offset", offset, 0);
    return (i, j) => Number(i - j === by);
  }
  switch (expectOneOf(where, "kind", kind, NAMES)) {
    case "previous":
      return (i, j) => Number(i - j === 1);
    case "duplicate":
      return (i, j) => Number(j < i && ids[i] === ids[j]);
    case "induction":
      return (i, j) => Number(j > 0 && ids[i] === ids[j - 1]);
    case "first":
      return (_, j) => Number(j === 0);
    default:
      return (i) => 1 / (i + 1);
  }
}

/** Options of `headScores`. */
export interface HeadScoreOptions {
  /**
   * "mul", the default: the share of all attention that lies where the detection pattern is, Σ pattern·detection / Σ pattern. "abs":
   * 1 - the mean over tokens of Σ |pattern - detection|.
   */
  readonly measure?: "mul" | "abs" | undefined;
  /** Leave out attention to the first token. Default false. */
  readonly excludeFirst?: boolean | undefined;
  /** Leave out attention of each token to itself. Default false. */
  readonly excludeCurrent?: boolean | undefined;
}

/**
 * How well each head matches a detection pattern, by the definitions of TransformerLens' `detect_head`. 1 is a perfect match.
 * Compare with the score of a head without preferences, which gives each of its keys the same weight: that of the pattern "uniform"
 * against the same detection pattern.
 * @param pattern Softmax weights [heads, tokens, tokens] of `forwardWith` or `attendWithMaps`.
 * @param detection [tokens, tokens] of `detectionPattern`, or one of your own.
 * @returns A score for each head.
 * @throws TypeError or RangeError naming the argument.
 * @example
 * import { detectionPattern, headScores } from "headwise/inspect";
 * const pattern = { data: Float32Array.of(1, 0, 0.75, 0.25), shape: [1, 2, 2] };
 * console.log(headScores(pattern, detectionPattern("previous", [5, 6]))[0]); // 0.375: 0.75 of 2
 */
export function headScores(pattern: Tensor, detection: Tensor, options: HeadScoreOptions = {}): number[] {
  const where = "headScores";
  const given = readFields(where, "options", options, ["measure", "excludeFirst", "excludeCurrent"]);
  const measure = expectOneOf(where, "options.measure", given.measure ?? "mul", ["mul", "abs"]);
  const excludeFirst = expectFlag(where, "options.excludeFirst", given.excludeFirst);
  const excludeCurrent = expectFlag(where, "options.excludeCurrent", given.excludeCurrent);
  const { data, shape } = checkTensor(where, "pattern", readTensor(where, "pattern", pattern), [3]);
  const { data: wanted, shape: wantedShape } = checkTensor(
    where,
    "detection",
    readTensor(where, "detection", detection),
    [2],
  );
  const [heads, n, keys] = shape as [number, number, number];
  if (n !== keys || n === 0)
    throw new RangeError(`${where}: pattern expected shape [heads, tokens, tokens], got ${describe(shape)}`);
  if (wantedShape[0] !== n || wantedShape[1] !== n)
    throw new RangeError(`${where}: detection expected shape [${n}, ${n}], got [${wantedShape.join(", ")}]`);
  return Array.from({ length: heads }, (_, head) => {
    let [matched, all, apart] = [0, 0, 0];
    for (let i = 0; i < n; i++)
      for (let j = 0; j <= i; j++) {
        if ((excludeFirst && j === 0) || (excludeCurrent && j === i)) continue;
        const weight = data[(head * n + i) * n + j] as number;
        const want = wanted[i * n + j] as number;
        matched += weight * want;
        all += weight;
        apart += Math.abs(weight - want);
      }
    return measure === "mul" ? matched / all : 1 - apart / n;
  });
}
