// Colours of values on canvases, from the ramp and the palette of all figures.

import { type Colour, mixColours, PALETTE, rampColour } from "../../src/tools/inspect/colours.ts";

/** A pixel as ImageData holds it: red is the first byte. */
const pixelOf = ([red, green, blue]: Colour): number => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;

const indexOf = (value: number): number => Math.min(255, Math.max(0, Math.round(value * 255)));

/** Of 0 to 1: 0 is dark. */
const COLOURS: Uint32Array = Uint32Array.from({ length: 256 }, (_, i) => pixelOf(rampColour(i / 255)));

/** Of differences, from -1 to 1: sky blue, almost black at 0, orange. */
const SIGNED: Uint32Array = Uint32Array.from({ length: 256 }, (_, i) => {
  const value = Math.max(-1, (i - 128) / 127);
  return pixelOf(mixColours([12, 12, 12], PALETTE[value < 0 ? 4 : 1] as Colour, Math.sqrt(Math.abs(value))));
});

/** Draws values [rows, columns] of 0 to 1, or signed ones of -1 to 1, on a canvas, one pixel each; nothing where a value is NaN. */
export function paint(
  canvas: HTMLCanvasElement,
  values: Float32Array,
  rows: number,
  columns: number,
  isSigned = false,
): void {
  if (canvas.width !== columns || canvas.height !== rows) {
    canvas.width = columns;
    canvas.height = rows;
  }
  const context = canvas.getContext("2d");
  if (!context || rows * columns === 0) return;
  const image = context.createImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < pixels.length; i++) {
    const value = values[i] as number;
    if (Number.isNaN(value)) continue;
    pixels[i] = (isSigned ? SIGNED[indexOf((128 + 127 * value) / 255)] : COLOURS[indexOf(value)]) as number;
  }
  context.putImageData(image, 0, 0);
}
