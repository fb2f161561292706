import { expect, test } from "vitest";
import { findNearName, nearestNames } from "../../../../src/base/util/strings.ts";

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

test("a name that ends the text, or that it ends, is near", () => {
  expect(findNearName("max-new-tokens", ["tokens", "max-seq-len"])).toBe("tokens");
  expect(findNearName("seq-len", ["tokens", "max-seq-len"])).toBe("max-seq-len");
  expect(findNearName("at", ["format"])).toBeUndefined();
});

test("case and punctuation do not count, and a common beginning counts most", () => {
  expect(findNearName("MAX_TOKENS", ["cache", "maxTokens", "tokens"])).toBe("maxTokens");
  expect(nearestNames("qwen3_5", ["qwen2", "gemma3", "qwen3", "llama"])).toBe(' (nearest: "qwen3", "qwen2")');
  for (const given of [undefined, "bloom", ""]) expect(nearestNames(given, ["bert", "bc"])).toBe("");
});
