// The colours of all figures: people who see fewer colours can distinguish them. Examples that are copied without the repository,
// and style sheets, have copies of the ramp, which a test compares.

/** Red, green and blue, each of 0 to 255. */
export type Colour = readonly [red: number, green: number, blue: number];

/**
 * Colours of what has no order (Okabe and Ito 2008): blue, orange, green, purple, sky blue, vermilion, yellow, grey. A figure has a
 * word, a number or a dash beside each, too.
 */
export const PALETTE: readonly Colour[] = [
  [0, 114, 178],
  [230, 159, 0],
  [0, 158, 115],
  [204, 121, 167],
  [86, 180, 233],
  [213, 94, 0],
  [240, 228, 66],
  [127, 127, 127],
];

/** Colours of values: black, violet, red, orange, pale yellow. */
export const RAMP: readonly Colour[] = [
  [8, 8, 16],
  [84, 24, 110],
  [186, 54, 85],
  [249, 142, 9],
  [252, 255, 190],
];

/**
 * The colour of a value from 0, which is dark, to 1, as in the figures of `drawHeads`. Lightness rises with the value, so that it reads
 * without colours.
 * @param value Less than 0 counts as 0, more than 1 as 1.
 * @example
 * import { rampColour } from "headwise/inspect";
 * console.log(rampColour(0), rampColour(1)); // [ 8, 8, 16 ] [ 252, 255, 190 ]
 */
export function rampColour(value: number): Colour {
  const at = Math.min(1, Math.max(0, value)) * (RAMP.length - 1);
  const low = Math.min(RAMP.length - 2, Math.floor(at));
  return mixColours(RAMP[low] as Colour, RAMP[low + 1] as Colour, at - low);
}

/** `share` of the way from one colour to another. */
export function mixColours(from: Colour, to: Colour, share: number): Colour {
  const mix = (i: 0 | 1 | 2) => Math.round(from[i] + share * (to[i] - from[i]));
  return [mix(0), mix(1), mix(2)];
}

/** As style sheets and SVG write it. */
export function cssColour([red, green, blue]: Colour): string {
  return `rgb(${red},${green},${blue})`;
}

/** Black or white text, whichever has more contrast on a colour of the palette or the ramp: at least 4.5 to 1. */
export function inkOn([red, green, blue]: Colour): "#000" | "#fff" {
  // The weights of luminance, on squares instead of the powers that sRGB is made of.
  const brightness = 0.21 * red * red + 0.72 * green * green + 0.07 * blue * blue;
  return brightness > WHITE_UP_TO ? "#000" : "#fff";
}

const WHITE_UP_TO = 0.2 * 255 * 255;
