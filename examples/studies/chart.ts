// Line charts as SVG, for light and dark pages. Lines differ in colour, dash and marker.

import { cssColour, PALETTE } from "../../src/tools/inspect/colours.ts";
import { mean } from "./study.ts";
import { drawSvg, plain } from "./svg.ts";

/** A line with the range of its seeds around it. */
export interface Line {
  readonly name: string;
  readonly points: readonly Point[];
}

export interface Point {
  readonly x: number;
  readonly y: number;
  /** The ends of the range. Default y. */
  readonly low?: number;
  readonly high?: number;
  /** Text above the marker. */
  readonly label?: string | undefined;
}

/** An axis from its first tick to its last. */
export interface Axis {
  readonly title: string;
  readonly ticks: readonly number[];
  /** Distances of ratios rather than of differences. Default false. */
  readonly log?: boolean;
}

/** One of the charts of a figure. */
export interface Panel {
  readonly title: string;
  readonly x: Axis;
  readonly y: Axis;
  readonly lines: readonly Line[];
  /** Values that a reader compares with: lines across the chart. */
  readonly marks?: readonly ({ readonly name: string } & ({ readonly x: number } | { readonly y: number }))[];
}

/** Charts side by side, whose lines have common names. `description` says in words what is to be seen. */
export interface Figure {
  readonly title: string;
  readonly description: string;
  readonly panels: readonly Panel[];
  /** Panels in a row. Default 2. */
  readonly columns?: number;
}

const STYLE = `text{fill:#656d76}.grid{stroke:#888;stroke-opacity:.25}.mark{stroke:#808890;stroke-dasharray:2 3}
@media (prefers-color-scheme:dark){text{fill:#d0d7de}}`;
/** How lines are drawn, one after the other; markers are paths around 0, 0. */
const STYLES = [
  { dash: "none", marker: "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0" },
  { dash: "8 3", marker: "M-3-3h6v6h-6z" },
  { dash: "3 2", marker: "M0-4l4 7h-8z" },
  { dash: "12 3", marker: "M0 4l4-7h-8z" },
  { dash: "1 3", marker: "M-4-1h3v-3h2v3h3v2h-3v3h-2v-3h-3z" },
  { dash: "8 3 2 3", marker: "M0-4.5l4.5 4.5l-4.5 4.5l-4.5-4.5z" },
].map((style, i) => ({ ...style, colour: cssColour(PALETTE[i]!) }));
const styleOf = (line: number) => STYLES[line % STYLES.length]!;
const [WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM] = [380, 250, 60, 34, 14, 44];
/** More points than this are drawn as a line without markers. */
const MOST_MARKERS = 12;

/** A line through the means of several seeds, [seed][index of x], with their range. */
export function bandOf(
  name: string,
  xs: readonly number[],
  seeds: readonly (readonly number[])[],
  labels: readonly string[] = [],
): Line {
  const points = xs.map((x, i): Point => {
    const values = seeds.map((seed) => seed[i]!);
    return { x, y: mean(values), low: Math.min(...values), high: Math.max(...values), label: labels[i] };
  });
  return { name, points };
}

export function drawFigure({ title, description, panels, columns = 2 }: Figure): string {
  const names = [...new Set(panels.flatMap(({ lines }) => lines.map(({ name }) => name)))];
  const width = WIDTH * Math.min(columns, panels.length);
  const height = HEIGHT * Math.ceil(panels.length / columns);
  const legend = drawLegend(names, width, height);
  return drawSvg({ width, height: height + legend.height }, { title, description }, STYLE, [
    ...panels.map((panel, i) => {
      const [left, top] = [WIDTH * (i % columns), HEIGHT * Math.floor(i / columns)];
      return `<g transform="translate(${left} ${top})">\n${drawPanel(panel, names)}\n</g>`;
    }),
    legend.text,
  ]);
}

function drawPanel({ title, x, y, lines, marks = [] }: Panel, names: readonly string[]): string {
  const [right, bottom] = [WIDTH - RIGHT, HEIGHT - BOTTOM];
  const toX = scaleOf(x, LEFT, right);
  const toY = scaleOf(y, bottom, TOP);
  const parts = [`<text x="${LEFT}" y="18" font-weight="600">${plain(title)}</text>`];
  for (const tick of x.ticks)
    parts.push(`<text x="${toX(tick)}" y="${bottom + 16}" text-anchor="middle">${tick}</text>`);
  for (const tick of y.ticks)
    parts.push(
      `<path class="grid" d="M${LEFT} ${toY(tick)}H${right}"/>`,
      `<text x="${LEFT - 6}" y="${toY(tick) + 4}" text-anchor="end">${tick}</text>`,
    );
  const middle = fixed((TOP + bottom) / 2);
  parts.push(
    `<text x="${(LEFT + right) / 2}" y="${bottom + 34}" text-anchor="middle">${plain(x.title)}</text>`,
    `<text transform="translate(14 ${middle}) rotate(-90)" text-anchor="middle">${plain(y.title)}</text>`,
  );
  for (const mark of marks) {
    const [path, at] =
      "y" in mark
        ? [`M${LEFT} ${toY(mark.y)}H${right}`, `x="${LEFT + 4}" y="${fixed(toY(mark.y) - 4)}"`]
        : [`M${toX(mark.x)} ${TOP}V${bottom}`, `x="${fixed(toX(mark.x) + 4)}" y="${TOP + 10}"`];
    parts.push(`<path class="mark" d="${path}"/>`, `<text ${at} font-size="11">${plain(mark.name)}</text>`);
  }
  for (const line of lines) parts.push(drawLine(line, names.indexOf(line.name), toX, toY));
  return parts.join("\n");
}

type Scale = (value: number) => number;

function drawLine({ points }: Line, line: number, toX: Scale, toY: Scale): string {
  const { colour } = styleOf(line);
  const path = (at: readonly (readonly [number, number])[]) => `M${at.map((point) => point.join(" ")).join("L")}`;
  const edge = (side: "low" | "high") => points.map((point) => [toX(point.x), toY(point[side] ?? point.y)] as const);
  const parts = [
    `<path d="${path([...edge("high"), ...edge("low").toReversed()])}Z" fill="${colour}" fill-opacity=".18"/>`,
    `<path d="${path(points.map(({ x, y }) => [toX(x), toY(y)]))}" ${strokeOf(line)}/>`,
  ];
  if (points.length <= MOST_MARKERS)
    for (const { x, y, label } of points) {
      parts.push(drawMarker(line, toX(x), toY(y)));
      if (label !== undefined)
        parts.push(
          `<text x="${toX(x)}" y="${fixed(toY(y) - 8)}" text-anchor="middle" font-size="11">${plain(label)}</text>`,
        );
    }
  return parts.join("\n");
}

const strokeOf = (line: number) =>
  `fill="none" stroke="${styleOf(line).colour}" stroke-width="2" stroke-dasharray="${styleOf(line).dash}"`;

const drawMarker = (line: number, x: number, y: number) =>
  `<path transform="translate(${x} ${y})" d="${styleOf(line).marker}" fill="${styleOf(line).colour}"/>`;

/** The names of the lines, in rows as wide as the figure. */
function drawLegend(names: readonly string[], width: number, top: number): { text: string; height: number } {
  let [x, y] = [LEFT, top + 12];
  const parts = names.map((name, i) => {
    const space = 44 + 7 * name.length;
    if (x + space > width && x > LEFT) [x, y] = [LEFT, y + 20];
    const sample = `<path d="M${x} ${y}h26" ${strokeOf(i)}/>\n${drawMarker(i, x + 13, y)}`;
    const part = `${sample}\n<text x="${x + 32}" y="${y + 4}">${plain(name)}</text>`;
    x += space;
    return part;
  });
  return { text: parts.join("\n"), height: y - top + 14 };
}

function scaleOf({ ticks, log = false }: Axis, from: number, to: number): Scale {
  const of = log ? Math.log2 : (value: number) => value;
  const [first, last] = [of(ticks[0]!), of(ticks.at(-1)!)];
  return (value) => fixed(from + ((of(value) - first) / (last - first)) * (to - from));
}

const fixed = (value: number) => Number(value.toFixed(1));
