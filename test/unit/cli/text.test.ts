import { expect, test } from "vitest";
import { columnsText } from "../../../src/cli/text.ts";

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
