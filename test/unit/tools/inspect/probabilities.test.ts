import { expect, test } from "vitest";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";
import { largestIds } from "../../../../src/tools/inspect/logits.ts";

test("largestIds gives the ids of the largest values, of equal ones the lower first", () => {
  const values = createRandom(7)
    .floats(500)
    .map((x) => Math.round(40 * x)); // many are equal
  const sorted = Array.from(values.keys()).sort((a, b) => values[b]! - values[a]! || a - b);
  for (const count of [0, 1, 8, 499, 500, 600]) expect(largestIds(values, count)).toEqual(sorted.slice(0, count));
});
