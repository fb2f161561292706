// The colours of figures, as people see them who lack one kind of cones: the matrices of Machado, Oliveira and Fernandes (2009) for a
// severity of 1, on linear sRGB.

import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { type Colour, inkOn, PALETTE, RAMP, rampColour } from "../../../../src/tools/inspect/colours.ts";
import { contrast, luminance } from "../../../support/luminance.ts";

const VISION = {
  normal: [1, 0, 0, 0, 1, 0, 0, 0, 1],
  protanopia: [0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216, -0.003882, -0.048116, 1.051998],
  deuteranopia: [0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.01182, 0.04294, 0.968881],
  tritanopia: [1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602, 0.004733, 0.691367, 0.3039],
};

/** Linear red, green and blue as someone sees them. */
function see(colour: Colour, vision: readonly number[]): [number, number, number] {
  const linear = colour.map((channel) => luminance([channel, channel, channel]));
  const row = (i: number) =>
    Math.min(
      1,
      Math.max(
        0,
        linear.reduce((sum, value, j) => sum + value * vision[3 * i + j]!, 0),
      ),
    );
  return [row(0), row(1), row(2)];
}

/** CIE 1976 L*a*b* of linear sRGB, for white of D65. */
function labOf([red, green, blue]: readonly [number, number, number]): [number, number, number] {
  const f = (value: number) => (value > (6 / 29) ** 3 ? Math.cbrt(value) : value / (3 * (6 / 29) ** 2) + 4 / 29);
  const x = f((0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505);
  const y = f(0.2126 * red + 0.7152 * green + 0.0722 * blue);
  const z = f((0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089);
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

describe.each(Object.entries(VISION))("%s", (_, vision) => {
  test("the lightness of the ramp rises with every hundredth", () => {
    const lightness = Array.from({ length: 101 }, (_, i) => labOf(see(rampColour(i / 100), vision))[0]);
    expect(lightness.filter((value, i) => i > 0 && value <= lightness[i - 1]!)).toEqual([]);
    expect(lightness.at(-1)! - lightness[0]!).toBeGreaterThan(90);
  });

  test("any two of the first six colours of the palette differ by more than 15 in L*a*b*", () => {
    const labs = PALETTE.slice(0, 6).map((colour) => labOf(see(colour, vision)));
    const distances = labs.flatMap((one, i) =>
      labs.slice(0, i).map((other) => Math.hypot(...one.map((value, j) => value - other[j]!))),
    );
    expect(Math.min(...distances)).toBeGreaterThan(15);
  });
});

test("text on any colour has a contrast of at least 4.5 to 1", () => {
  for (const colour of [...PALETTE, ...Array.from({ length: 256 }, (_, i) => rampColour(i / 255))]) {
    const ink = inkOn(colour) === "#fff" ? 1 : 0;
    expect(contrast(luminance(colour), ink), String(colour)).toBeGreaterThan(4.5);
  }
});

test("values beyond 0 and 1 have the colours of the ends", () => {
  expect(rampColour(-1)).toEqual(rampColour(0));
  expect(rampColour(2)).toEqual(rampColour(1));
});

test.each([
  ["examples/induction/heatmap.ts", /const STOPS[^=]*= \[([^;]+)\];/],
  ["examples/browser/maps.js", /const stops = \[(.+)\];/],
  ["examples/browser/maps.css", /linear-gradient\(to right, (.+)\);/],
  ["site/styles/maps.css", /linear-gradient\(to right, (rgb.+)\);/],
])("the ramp of %s is the same", (file, stops) => {
  const text = readFileSync(new URL(`../../../../${file}`, import.meta.url), "utf8");
  const colours = Array.from(stops.exec(text)![1]!.matchAll(/(\d+),? (\d+),? (\d+)/g), ([, ...channels]) =>
    channels.map(Number),
  );
  expect(colours).toEqual(RAMP);
});
