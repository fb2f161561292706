import { expect, test } from "vitest";
import { columnsText, fitText, sizeText, widthOf } from "../../../src/cli/terminal.ts";

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

test.each([
  ["mat", 3],
  ["…▀é", 3],
  ["e\u0301", 1],
  ["\u200b", 0],
  ["猫が", 4],
  ["🐈", 2],
])("%j takes %i columns of a terminal", (text, columns) => expect(widthOf(text)).toBe(columns));

test.each([
  ["mat", 5, "mat  "],
  ["because", 7, "because"],
  ["because", 5, "beca…"],
  ["猫が座る", 5, "猫が…"],
  ["猫が座る", 4, "猫… "],
])("%j in %i columns is %j", (text, columns, fitted) => {
  expect(fitText(text, columns)).toBe(fitted);
  expect(widthOf(fitted)).toBe(columns);
});

test("columns of wide characters begin below each other", () => {
  expect(
    columnsText(
      [
        ["猫", "1"],
        ["cat", "20"],
      ],
      1,
    ),
  ).toBe("猫    1\ncat  20");
});
