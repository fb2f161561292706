import { expect, test } from "vitest";
import { findNearName } from "../../../src/util/near-name.ts";

const NAMES = ["info", "run", "bench", "quantize", "report"];

test.each([
  ["inof", "info"],
  ["inf", "info"],
  ["bnech", "bench"],
  ["quantise", "quantize"],
  ["dequantize", "quantize"],
  ["reports", "report"],
  ["ru", "run"],
  ["rum", "run"],
  ["r", undefined],
  ["", undefined],
  ["xyz", undefined],
  ["benchmark", "bench"],
  ["constructor", undefined],
])("the name nearest to %j is %s", (text, name) => expect(findNearName(text, NAMES)).toBe(name));

test("of several near names, the nearest is taken", () => {
  expect(findNearName("layerz", ["lawyer", "layers"])).toBe("layers");
});
