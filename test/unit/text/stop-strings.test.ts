import { array, assert, constantFrom, property, string } from "fast-check";
import { expect, test } from "vitest";
import { findStops, readStops } from "../../../src/text/generate-text.ts";
import { randomCases } from "../../support/random-cases.ts";

/** What comes of pieces: the text before the first stop string, and that string. */
function run(stops: readonly string[], pieces: readonly string[]): { text: string; stop?: string } {
  const finder = findStops(stops);
  let text = "";
  for (const piece of pieces) {
    const found = finder.push(piece);
    text += found.text;
    if (found.stop !== undefined) return { text, stop: found.stop };
  }
  return { text: text + finder.end() };
}

test("text that cannot belong to a stop string is given at once, the rest when that is certain", () => {
  const finder = findStops(["STOP", "\n\n"]);
  expect(["a S", "TO", "x\n", "b", "ST", "OP more"].map((piece) => finder.push(piece))).toEqual([
    ...[{ text: "a " }, { text: "" }, { text: "STOx" }, { text: "\nb" }, { text: "" }, { text: "", stop: "STOP" }],
  ]);
});

test("the result does not depend on how the text is divided", () => {
  const letters = constantFrom("a", "b", "😀");
  const short = string({ unit: letters, minLength: 1, maxLength: 3 });
  assert(
    property(array(short, { maxLength: 3 }), array(string({ unit: letters, maxLength: 4 })), (stops, pieces) => {
      const whole = pieces.join("");
      const divided = run(stops, pieces);
      expect(divided).toEqual(run(stops, [...whole]));
      // The plain search: the first end of a stop string, and the earliest beginning for it.
      const ends = Array.from({ length: whole.length }, (_, i) => i + 1).flatMap((end) =>
        stops.filter((stop) => whole.slice(0, end).endsWith(stop)).map((stop) => ({ end, stop })),
      );
      const [first] = ends.sort((a, b) => a.end - b.end || b.stop.length - a.stop.length);
      const { end, stop } = first ?? { end: whole.length, stop: "" };
      expect(divided).toEqual({ text: whole.slice(0, end - stop.length), ...(first ? { stop } : {}) });
    }),
    randomCases(500, 5),
  );
});

test.each([
  [["a", ""], 'stop[1] expected a string of 1 or more whole characters, got ""'],
  ["", 'stop expected a string of 1 or more whole characters, got ""'],
  [["\ud83d"], 'stop[0] expected a string of 1 or more whole characters, got "\\ud83d"'],
  [5, "stop expected a string of 1 or more whole characters, got 5"],
])("stop strings %j are refused", (stop, text) => {
  expect(() => readStops("generateText", stop)).toThrow(`generateText: ${text}`);
});
