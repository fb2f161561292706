import { expect, test } from "vitest";
import { columnsText, sizeText } from "../../../src/cli/text.ts";

test("columns of words begin below each other, those of numbers end so", () => {
  expect(
    columnsText(
      [
        ["a", "bc"],
        ["def", "1"],
      ],
      1,
    ),
  ).toBe("a    bc\ndef   1");
});

test.each([
  [0, "0 bytes"],
  [999, "999 bytes"],
  [1234, "1.23 KB"],
  [182_344, "182 KB"],
  [4_500_000_000, "4.50 GB"],
])("%s bytes read %s", (bytes, text) => expect(sizeText(bytes)).toBe(text));
