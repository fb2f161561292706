// The colours of maps in both modes. In a dark page they are those of all figures; in a light one 0 is the lightest, as paper is.

import { type Colour, mixColours, PALETTE, rampColour } from "../../src/tools/inspect/colours.ts";

/** White, gold, rose, violet: lightness falls in even steps. styles/maps.css has a copy, which a test compares. */
export const LIGHT_RAMP: readonly Colour[] = [
  [255, 254, 250],
  [239, 193, 82],
  [206, 120, 108],
  [133, 48, 112],
  [42, 16, 84],
];

/** The colour of a weight from 0 to 1. */
export function weightColour(value: number, isDark: boolean): Colour {
  if (isDark) return rampColour(value);
  const at = Math.min(1, Math.max(0, value)) * (LIGHT_RAMP.length - 1);
  const low = Math.min(LIGHT_RAMP.length - 2, Math.floor(at));
  return mixColours(LIGHT_RAMP[low] as Colour, LIGHT_RAMP[low + 1] as Colour, at - low);
}

/** Of differences, from -1 to 1: blue, the colour of 0, orange. */
export function differenceColour(value: number, isDark: boolean): Colour {
  const [less, more] = isDark ? [PALETTE[4], PALETTE[1]] : [PALETTE[0], PALETTE[5]];
  const zero: Colour = isDark ? [12, 12, 12] : [255, 254, 250];
  return mixColours(zero, (value < 0 ? less : more) as Colour, Math.sqrt(Math.min(1, Math.abs(value))));
}
