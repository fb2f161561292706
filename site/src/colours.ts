// Colours of values: a table of 256, dark to light in even steps of lightness, so that it reads without colour too.

/** Black over violet and orange to pale yellow. */
const STOPS = [
  [8, 8, 16],
  [84, 24, 110],
  [186, 54, 85],
  [249, 142, 9],
  [252, 255, 190],
] as const;

/** Pixels as ImageData holds them: red is the first byte. */
export const COLOURS: Uint32Array = Uint32Array.from({ length: 256 }, (_, i) => {
  const at = (i / 255) * (STOPS.length - 1);
  const low = Math.min(STOPS.length - 2, Math.floor(at));
  const [from, to] = [STOPS[low] as readonly number[], STOPS[low + 1] as readonly number[]];
  const [red, green, blue] = from.map((value, c) => Math.round(value + (at - low) * ((to[c] as number) - value)));
  return ((255 << 24) | (blue! << 16) | (green! << 8) | red!) >>> 0;
});

/** The colour of a value of 0 to 1, for style sheets. */
export function cssColour(value: number): string {
  const pixel = COLOURS[indexOf(value)] as number;
  return `rgb(${pixel & 255} ${(pixel >> 8) & 255} ${(pixel >> 16) & 255})`;
}

const indexOf = (value: number): number => Math.min(255, Math.max(0, Math.round(value * 255)));

/** Draws values [rows, columns] of 0 to `most` on a canvas, one pixel each; nothing where a value is NaN. */
export function paint(canvas: HTMLCanvasElement, values: Float32Array, rows: number, columns: number, most = 1): void {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  if (!context || rows * columns === 0) return;
  const image = context.createImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  const scale = 1 / most;
  for (let i = 0; i < pixels.length; i++) {
    const value = (values[i] as number) * scale;
    pixels[i] = Number.isNaN(value) ? 0 : (COLOURS[indexOf(value)] as number);
  }
  context.putImageData(image, 0, 0);
}
