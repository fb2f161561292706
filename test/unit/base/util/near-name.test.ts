import { expect, test } from "vitest";
import { nearestNames } from "../../../../src/base/util/strings.ts";

test("the nearest names come first: case and punctuation do not count, a common beginning counts most, then few wrong letters", () => {
  expect(nearestNames("qwen3_5", ["qwen2", "gemma3", "qwen3", "llama"])).toBe(' (nearest: "qwen3", "qwen2")');
  expect(nearestNames("MAX_TOKENS", ["cache", "maxTokens", "tokens"])).toBe(' (nearest: "maxTokens", "tokens")');
  expect(nearestNames("bnech", ["info", "bench"])).toBe(' (nearest: "bench")');
  expect(nearestNames("layerz", ["lawyer", "layers"])).toBe(' (nearest: "layers", "lawyer")');
  for (const given of [undefined, "bloom", ""]) expect(nearestNames(given, ["bert", "bc"])).toBe("");
});
