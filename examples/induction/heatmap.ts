// A head's attention map as lines of text: half blocks in 24-bit colour, or characters where there are no colours.

import type { Tensor } from "headwise";

const SHADES = " .:-=+*#%@";

/** From black over violet and orange to pale yellow. */
const STOPS: readonly (readonly [number, number, number])[] = [
  [8, 8, 16],
  [84, 24, 110],
  [186, 54, 85],
  [249, 142, 9],
  [252, 255, 190],
];

/** The lower triangle of head `head` of maps [numHeads, n, n]; a row of text is one query, or two with colours. */
export function heatMap({ data, shape }: Tensor, head: number, colours: boolean): string[] {
  const n = shape[1] as number;
  const weight = (query: number, key: number) =>
    query < n && key <= query ? (data[(head * n + query) * n + key] as number) : 0;
  const keys = Array.from({ length: n }, (_, key) => key);
  if (!colours) return keys.map((query) => keys.map((key) => (key > query ? " " : shade(weight(query, key)))).join(""));
  return Array.from({ length: Math.ceil(n / 2) }, (_, pair) => {
    const cells = keys.map((key) => {
      const [top, bottom] = [colour(weight(2 * pair, key)), colour(weight(2 * pair + 1, key))];
      return `\x1b[38;2;${top}m\x1b[48;2;${bottom}m▀`;
    });
    return `${cells.join("")}\x1b[0m`;
  });
}

/** Blocks of lines side by side, as many as fit in `width`, each below its title. */
export function sideBySide(
  blocks: readonly { title: string; lines: readonly string[]; width: number }[],
  width: number,
): string {
  const cell = Math.max(...blocks.map((block) => Math.max(block.width, block.title.length))) + 3;
  const perRow = Math.max(1, Math.floor((width + 3) / cell));
  const out: string[] = [];
  for (let first = 0; first < blocks.length; first += perRow) {
    const row = blocks.slice(first, first + perRow);
    out.push(
      row
        .map(({ title }) => title.padEnd(cell))
        .join("")
        .trimEnd(),
    );
    const height = Math.max(...row.map(({ lines }) => lines.length));
    for (let i = 0; i < height; i++)
      out.push(
        row
          .map((block) => (block.lines[i] ?? "") + " ".repeat(cell - block.width))
          .join("")
          .trimEnd(),
      );
    out.push("");
  }
  return out.join("\n");
}

function shade(weight: number): string {
  return SHADES[Math.min(SHADES.length - 1, Math.floor(weight * SHADES.length))] as string;
}

function colour(weight: number): string {
  const at = Math.min(Math.max(weight, 0), 1) * (STOPS.length - 1);
  const low = STOPS[Math.floor(at)] as readonly number[];
  const high = STOPS[Math.ceil(at)] as readonly number[];
  return low.map((from, i) => Math.round(from + (at - Math.floor(at)) * ((high[i] as number) - from))).join(";");
}
