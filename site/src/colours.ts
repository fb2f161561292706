// Values as colours on canvases, drawn again when the colours of the page change.

import type { Colour } from "../../src/tools/inspect/colours.ts";
import { differenceColour, weightColour } from "./ramps.ts";

/** A pixel as ImageData holds it: red is the first byte. */
const pixelOf = ([red, green, blue]: Colour): number => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;

const indexOf = (value: number): number => Math.min(255, Math.max(0, Math.round(value * 255)));

const table = (colour: (value: number) => Colour): Uint32Array =>
  Uint32Array.from({ length: 256 }, (_, i) => pixelOf(colour(i / 255)));
const tables = (isDark: boolean) => ({
  weights: table((value) => weightColour(value, isDark)),
  differences: table((value) => differenceColour(Math.max(-1, (255 * value - 128) / 127), isDark)),
});
const [LIGHT, DARK] = [tables(false), tables(true)];

const scheme = matchMedia("(prefers-color-scheme: dark)");
/** How each canvas that is on the page is drawn. */
const drawings = new WeakMap<HTMLCanvasElement, () => void>();
scheme.addEventListener("change", () => {
  for (const canvas of document.querySelectorAll("canvas")) drawings.get(canvas)?.();
});

/**
 * Draws values [rows, columns] of 0 to 1, or signed ones of -1 to 1, on a canvas, one pixel each. Nothing, so that the ground shows,
 * where a value is NaN, and where a later token is masked: above the diagonal of a square map a weight of exactly 0.
 */
export function paint(
  canvas: HTMLCanvasElement,
  values: Float32Array,
  rows: number,
  columns: number,
  isSigned = false,
): void {
  const draw = () => {
    if (canvas.width !== columns || canvas.height !== rows) {
      canvas.width = columns;
      canvas.height = rows;
    }
    const context = canvas.getContext("2d");
    if (!context || rows * columns === 0) return;
    const { weights, differences } = scheme.matches ? DARK : LIGHT;
    const image = context.createImageData(columns, rows);
    const pixels = new Uint32Array(image.data.buffer);
    for (let row = 0, i = 0; row < rows; row++)
      for (let column = 0; column < columns; column++, i++) {
        const value = values[i] as number;
        const isMasked = value === 0 && column > row && rows === columns;
        if (isMasked || Number.isNaN(value)) continue;
        pixels[i] = (isSigned ? differences[indexOf((128 + 127 * value) / 255)] : weights[indexOf(value)]) as number;
      }
    context.putImageData(image, 0, 0);
  };
  drawings.set(canvas, draw);
  draw();
}
