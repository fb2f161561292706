import { expectFloats, expectInt, expectOneOf } from "../util/arguments.ts";
import { describe } from "../util/errors.ts";
import { pow } from "../util/math.ts";
import { isScore, MOST_HEADS } from "./limits.ts";

/**
 * The published ALiBi slopes (Press et al. 2022). For n heads, n a power of two, head h has the slope 2^(-8·(h + 1)/n). For
 * other counts, the largest power of two below gives the first slopes, and every second slope of twice that power the rest.
 * @returns One slope per head, [numHeads].
 * @throws TypeError or RangeError unless numHeads is an integer from 1 to 65 536.
 * @example
 * import { alibiSlopes } from "headwise";
 * console.log(alibiSlopes(4).join(" ")); // 0.25 0.0625 0.015625 0.00390625
 */
export function alibiSlopes(numHeads: number): Float32Array {
  expectInt("alibiSlopes", "numHeads", numHeads, 1, MOST_HEADS);
  const whole = 2 ** (31 - Math.clz32(numHeads));
  const slope = (step: number, heads: number) => pow(2, (-8 * step) / heads);
  return Float32Array.from({ length: numHeads }, (_, head) =>
    head < whole ? slope(head + 1, whole) : slope(2 * (head - whole) + 1, 2 * whole),
  );
}

/** The slopes [numHeads] of the option `alibi`. */
export function checkSlopes(where: string, alibi: "geometric" | Float32Array, numHeads: number): Float32Array {
  if (typeof alibi === "string") {
    expectOneOf(where, "alibi", alibi, ["geometric"]);
    return alibiSlopes(numHeads);
  }
  const slopes = expectFloats(where, "alibi", alibi);
  if (slopes.length !== numHeads)
    throw new RangeError(`${where}: alibi expected one slope per head (${numHeads}), got ${slopes.length}`);
  const odd = slopes.find((slope) => !isScore(slope));
  if (odd !== undefined)
    throw new RangeError(`${where}: alibi expected slopes from -1e38 to 1e38, got ${describe(odd)}`);
  return slopes.slice();
}
