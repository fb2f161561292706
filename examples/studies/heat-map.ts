// Tables of heads as SVG: a row for each layer, a column for each head, a shade and a number for each value.

import { cssColour, inkOn, rampColour } from "../../src/tools/inspect/colours.ts";
import { drawSvg, plain } from "./svg.ts";

/** One of the tables of a figure: values [layer][head]. */
export interface HeatMap {
  readonly title: string;
  readonly values: readonly (readonly number[])[];
}

/** Tables side by side. `description` says in words what is to be seen. */
export interface HeatMaps {
  readonly title: string;
  readonly description: string;
  readonly maps: readonly HeatMap[];
  /** The value of the darkest shade; 0 has none. */
  readonly most: number;
  readonly print: (value: number) => string;
  /** Tables in a row. Default 2. */
  readonly columns?: number;
}

// Cells have a light ground of their own, so that their numbers are legible on any page.
const STYLE = `.name{fill:#656d76}.cell{stroke:#afb8c1}
@media (prefers-color-scheme:dark){.name{fill:#d0d7de}}`;
const [CELL_WIDTH, CELL_HEIGHT, LEFT, TOP, GAP] = [38, 24, 62, 46, 14];

export function drawHeatMaps({ title, description, maps, most, print, columns = 2 }: HeatMaps): string {
  const [layers, heads] = [maps[0]!.values.length, maps[0]!.values[0]!.length];
  const width = LEFT + CELL_WIDTH * heads + GAP;
  const height = TOP + CELL_HEIGHT * layers + GAP;
  const drawMap = (map: HeatMap) => {
    const names = map.values[0]!.map(
      (_, head) =>
        `<text class="name" x="${LEFT + CELL_WIDTH * (head + 0.5)}" y="${TOP - 6}" text-anchor="middle">${head}</text>`,
    );
    const rows = map.values.flatMap((values, layer) => {
      const y = TOP + CELL_HEIGHT * layer;
      const cells = values.map((value, head) => {
        const colour = rampColour(1 - value / most);
        const x = LEFT + CELL_WIDTH * head;
        return (
          `<rect class="cell" x="${x}" y="${y}" width="${CELL_WIDTH}" height="${CELL_HEIGHT}" fill="${cssColour(colour)}"/>` +
          `<text fill="${inkOn(colour)}" x="${x + CELL_WIDTH / 2}" y="${y + 16}" text-anchor="middle">${print(value)}</text>`
        );
      });
      return [`<text class="name" x="${LEFT - 6}" y="${y + 16}" text-anchor="end">layer ${layer}</text>`, ...cells];
    });
    return [
      `<text class="name" x="${LEFT}" y="18" font-weight="600">${plain(map.title)}</text>`,
      ...names,
      ...rows,
    ].join("\n");
  };
  const size = { width: width * Math.min(columns, maps.length), height: height * Math.ceil(maps.length / columns) };
  const tables = maps.map((map, i) => {
    const [left, top] = [width * (i % columns), height * Math.floor(i / columns)];
    return `<g transform="translate(${left} ${top})">\n${drawMap(map)}\n</g>`;
  });
  return drawSvg(size, { title, description }, STYLE, tables);
}
