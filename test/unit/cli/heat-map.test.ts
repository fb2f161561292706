// Heat maps of `headwise inspect`: what stands where, in characters and in colours.

import { describe, expect, test } from "vitest";
import { colourIndex, keysThatFit, mapLines, scaleText } from "../../../src/cli/inspection.ts";
import { coloursOf, columnsOf, widthOf } from "../../../src/cli/terminal.ts";
import { rampColour } from "../../../src/tools/inspect/colours.ts";

/** Weights [3, 3]; those behind a query are such as no map may show. */
const WEIGHTS = Float32Array.of(1, 0.5, 0.5, 0.25, 0.75, 0.5, 0, 0.09, 0.91);
const LABELS = ["0 the", "1 cat", "2 sat"];
type MapView = Parameters<typeof keysThatFit>[0];
const viewOf = (colours: MapView["colours"], columns = 80): MapView => ({ labels: LABELS, columns, colours });

const ESCAPES = new RegExp(`${String.fromCharCode(27)}\\[[\\d;]*m`, "g");
const withoutColours = (line: string) => line.replace(ESCAPES, "");

describe("maps", () => {
  test("in characters have a row for each query and a tenth for each step, and nothing behind the query", () => {
    expect(mapLines(WEIGHTS, 3, 0, viewOf("none"))).toEqual(["      012", "0 the @", "1 cat :#", "2 sat   @"]);
  });

  test("begin where they are asked to", () => {
    expect(mapLines(WEIGHTS, 3, 1, viewOf("none"))).toEqual(["      12", "1 cat #", "2 sat  @"]);
  });

  test("number every key by its last digit, and each tenth key", () => {
    const tokens = 12;
    const lines = mapLines(new Float32Array(tokens ** 2), tokens, 8, {
      ...viewOf("none"),
      labels: Array(12).fill("x"),
    });
    expect(lines.slice(0, 2)).toEqual(["    10", "  8901"]);
  });

  test("in colours have two queries a line, the upper one in the colour of text", () => {
    const [, first, second] = mapLines(WEIGHTS, 3, 0, viewOf("truecolor")) as [string, string, string];
    const colour = (layer: number, weight: number) => `\x1b[${layer};2;${rampColour(weight).join(";")}m`;
    const lower = `${colour(38, 0.75)}▄\x1b[0m`;
    expect(first).toBe(`0 the 1 cat ${colour(38, 1)}${colour(48, 0.25)}▀\x1b[0m${lower}`);
    expect(withoutColours(second)).toBe("2 sat       ▀▀▀");
    expect(second).toContain(colour(38, 0));
  });

  test("in 256 colours differ from those of 2^24 in their colours alone", () => {
    const [few, many] = (["256", "truecolor"] as const).map((colours) => mapLines(WEIGHTS, 3, 0, viewOf(colours)));
    expect(few?.map(withoutColours)).toEqual(many?.map(withoutColours));
    expect(few?.[1]).toContain("\x1b[38;5;");
    expect(few?.join("")).not.toContain(";2;");
  });

  test.each(["none", "256"] as const)("with colours %s fit into narrow lines", (colours) => {
    for (const columns of [20, 24, 40]) {
      const labels = Array.from({ length: 60 }, (_, i) => `${i} 猫 a long word`);
      const view = { labels, columns, colours };
      const keys = keysThatFit(view);
      expect(keys).toBeGreaterThan(4);
      const lines = mapLines(new Float32Array(keys * keys), keys, 0, view).map(withoutColours);
      expect(Math.max(...lines.map(widthOf))).toBe(columns);
    }
  });
});

test("the 256 colours of the scale get lighter or darker all along, by a thirtieth at most the other way", () => {
  const levels = [0, 95, 135, 175, 215, 255];
  const lightness = (index: number) => {
    const [r, g, b] = [36, 6, 1].map((step) => levels[Math.floor((index - 16) / step) % 6] as number);
    return 0.2126 * r! + 0.7152 * g! + 0.0722 * b!;
  };
  const indices = Array.from({ length: 101 }, (_, i) => colourIndex(rampColour(i / 100)));
  const steps = indices.map(lightness);
  const direction = Math.sign(steps[100]! - steps[0]!);
  expect(Math.abs(steps[100]! - steps[0]!)).toBeGreaterThan(150);
  for (const [i, step] of steps.entries())
    expect(direction * (step - (steps[i - 1] ?? step))).toBeGreaterThan(-255 / 30);
  expect(new Set(indices).size).toBeGreaterThan(10);
});

test("colours of the palette have its indices", () => {
  expect(colourIndex([0, 0, 0])).toBe(16);
  expect(colourIndex([255, 255, 255])).toBe(231);
  expect(colourIndex([90, 140, 250])).toBe(16 + 36 + 12 + 5);
});

test("the scale names its characters, or shows its colours", () => {
  expect(scaleText("none")).toBe('weights from 0 to 1: " .:-=+*#%@", a tenth each');
  expect(withoutColours(scaleText("256"))).toBe(`weights from 0 ${" ".repeat(20)} to 1`);
});

describe("colours", () => {
  const terminal = { isTTY: true, columns: 80, env: {} };
  test.each([
    ["auto", terminal, "256"],
    ["auto", { ...terminal, env: { COLORTERM: "truecolor" } }, "truecolor"],
    ["auto", { ...terminal, env: { COLORTERM: "24bit" } }, "truecolor"],
    ["auto", { ...terminal, env: { COLORTERM: "truecolor", NO_COLOR: "1" } }, "none"],
    ["auto", { ...terminal, env: { NO_COLOR: "" } }, "256"],
    ["auto", { ...terminal, env: { TERM: "dumb" } }, "none"],
    ["auto", { ...terminal, isTTY: false, env: { COLORTERM: "truecolor" } }, "none"],
    ["always", { ...terminal, isTTY: false, env: { NO_COLOR: "1" } }, "256"],
    ["always", { ...terminal, isTTY: false, env: { COLORTERM: "truecolor" } }, "truecolor"],
    ["never", { ...terminal, env: { COLORTERM: "truecolor" } }, "none"],
  ] as const)("%s of %j are %s", (choice, output, colours) => expect(coloursOf(choice, output)).toBe(colours));

  test("lines have the columns of the terminal, or those asked for", () => {
    expect(columnsOf("inspect", undefined, terminal)).toBe(80);
    expect(columnsOf("inspect", undefined, { ...terminal, columns: undefined })).toBe(100);
    expect(columnsOf("inspect", undefined, { ...terminal, columns: 7 })).toBe(20);
    expect(columnsOf("inspect", "44", terminal)).toBe(44);
    for (const width of ["19", "", "1e3", "-40"])
      expect(() => columnsOf("inspect", width, terminal)).toThrow(
        `inspect: --width expected an integer of 20 or more, got ${width}`,
      );
  });
});
