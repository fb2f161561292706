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

/** Of differences: -1 is blue, 0 almost black, 1 orange, which differ for every kind of colour vision. */
const SIGNED: Uint32Array = Uint32Array.from({ length: 256 }, (_, i) => {
  const value = Math.max(-1, (i - 128) / 127);
  const [red, green, blue] = value < 0 ? [86, 180, 255] : [255, 160, 20];
  const mix = (channel: number) => Math.round(12 + Math.sqrt(Math.abs(value)) * (channel - 12));
  return ((255 << 24) | (mix(blue!) << 16) | (mix(green!) << 8) | mix(red!)) >>> 0;
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
