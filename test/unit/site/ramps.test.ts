// The colours of maps: lightness says the value, also to those who see fewer colours.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { differenceColour, LIGHT_RAMP, weightColour } from "../../../site/src/ramps.ts";
import type { Colour } from "../../../src/tools/inspect/colours.ts";

const linear = (value: number) => (value <= 10 ? value / 3294.6 : ((value / 255 + 0.055) / 1.055) ** 2.4);
const luminance = (red: number, green: number, blue: number) => 0.2126 * red + 0.7152 * green + 0.0722 * blue;
/** L* of CIELAB, 0 to 100. */
const lightness = (y: number) => (y > 0.008856 ? 116 * Math.cbrt(y) - 16 : 903.3 * y);

/** What people see without long, middle or short cones, in linear light (Machado, Oliveira and Fernandes 2009). */
const VISIONS: Readonly<Record<string, readonly (readonly [number, number, number])[]>> = {
  "all cones": [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ],
  protanopia: [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  deuteranopia: [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
  tritanopia: [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.3039],
  ],
};

function lightnessOf(colour: Colour, vision: string): number {
  const light = colour.map(linear);
  const seen = (VISIONS[vision] ?? []).map((row) => row.reduce((sum, part, i) => sum + part * (light[i] as number), 0));
  return lightness(Math.max(0, luminance(...(seen as [number, number, number]))));
}

const STEPS = 32;

test.each(Object.keys(VISIONS))(
  "with %s, each of 32 weights is darker than the one before on paper, lighter in the dark",
  (vision) => {
    for (const isDark of [false, true]) {
      const all = Array.from({ length: STEPS + 1 }, (_, i) => lightnessOf(weightColour(i / STEPS, isDark), vision));
      const steps = all.slice(1).map((each, i) => (each - (all[i] as number)) * (isDark ? 1 : -1));
      expect(Math.min(...steps)).toBeGreaterThan(0.8);
      expect(Math.max(...steps)).toBeLessThan(6);
    }
  },
);

test("0 is paper on paper and almost black in the dark, and both differences leave it", () => {
  expect(lightnessOf(weightColour(0, false), "all cones")).toBeGreaterThan(98);
  expect(lightnessOf(weightColour(0, true), "all cones")).toBeLessThan(5);
  for (const isDark of [false, true]) {
    const of = (value: number) => lightnessOf(differenceColour(value, isDark), "all cones");
    for (const value of [-0.25, -1, 0.25, 1]) expect(Math.abs(of(value) - of(0))).toBeGreaterThan(15);
  }
});

test("the key of maps has the colours of maps on paper", () => {
  const styles = readFileSync(join(import.meta.dirname, "../../../site/styles/maps.css"), "utf8");
  const light = styles.slice(styles.indexOf("prefers-color-scheme: light"));
  const [, stops = ""] = /linear-gradient\(to right, (rgb.+)\);/.exec(light) ?? [];
  const colours = Array.from(stops.matchAll(/rgb\((\d+) (\d+) (\d+)\)/g), (match) => match.slice(1).map(Number));
  expect(colours).toEqual(LIGHT_RAMP);
});
