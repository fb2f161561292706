// node bench/peaks/roofline.ts RESULT.json…: draws docs/roofline.svg from the results of `npm run bench -- --json
// RESULT.json`, one file or several of different parts. Roofs and points are the fastest samples, which are close to what
// an idle machine does.

import { readFileSync, writeFileSync } from "node:fs";
import type { CaseRow } from "../lib/case-part.ts";
import { describeOrigin, type Origin } from "../lib/machine.ts";
import type { PeakRow } from "./machine-peaks.ts";

type Result = Origin & {
  readonly parts: { readonly peaks: PeakRow[]; readonly kernels: CaseRow[]; readonly layers: CaseRow[] };
};

const WIDTH = 960;
const HEIGHT = 600;
const MARGIN = { left: 60, right: 24, top: 28, bottom: 92 };
/** Operations per byte, and 1e9 operations per second: powers of two that include every point. */
const X_RANGE = [2 ** -3, 2 ** 12] as const;
const Y_RANGE = [2 ** 2, 2 ** 6] as const;
/** Operations per byte where the names of the horizontal roofs begin: few points are near. */
const ROOF_LABELS = 10;
const FONT = 12;
/** The width of a letter, approximately. */
const LETTER = 6.8;

const INK = "#808890";
/** Readable on white and on black. */
const COLOURS: Readonly<Record<string, string>> = {
  ...{ linear_f32: "#2f81f7", attention_f32: "#d9730d", attend: "#2da05a", "attend, one token": "#a371f7" },
};

const share = (value: number, [from, to]: readonly [number, number]) => Math.log(value / from) / Math.log(to / from);
const xOf = (intensity: number) => MARGIN.left + share(intensity, X_RANGE) * (WIDTH - MARGIN.left - MARGIN.right);
const yOf = (gflops: number) => HEIGHT - MARGIN.bottom - share(gflops, Y_RANGE) * (HEIGHT - MARGIN.top - MARGIN.bottom);

const round = (value: number) => Number(value.toFixed(1));
const escaped = (text: string) => text.replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`);
const line = (x1: number, y1: number, x2: number, y2: number, style: string) =>
  `<line x1="${round(x1)}" y1="${round(y1)}" x2="${round(x2)}" y2="${round(y2)}" ${style}/>`;
const text = (x: number, y: number, content: string, style = "") =>
  `<text x="${round(x)}" y="${round(y)}" ${style}>${escaped(content)}</text>`;

function powers([from, to]: readonly [number, number]): number[] {
  return Array.from({ length: Math.round(Math.log2(to / from)) + 1 }, (_, i) => from * 2 ** i);
}

function axes(): string[] {
  const [bottom, right] = [yOf(Y_RANGE[0]), xOf(X_RANGE[1])];
  const faint = `stroke="${INK}" stroke-opacity="0.2"`;
  return [
    ...powers(X_RANGE).flatMap((x) => [
      line(xOf(x), bottom, xOf(x), MARGIN.top, faint),
      text(xOf(x), bottom + 18, x < 1 ? `1/${1 / x}` : `${x}`, `text-anchor="middle"`),
    ]),
    ...powers(Y_RANGE).flatMap((y) => [
      line(MARGIN.left, yOf(y), right, yOf(y), faint),
      text(MARGIN.left - 8, yOf(y) + 4, `${y}`, `text-anchor="end"`),
    ]),
    text((MARGIN.left + right) / 2, bottom + 38, "operations per byte that must be read", `text-anchor="middle"`),
    text(MARGIN.left - 44, MARGIN.top - 12, "GFLOP/s"),
  ];
}

interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
}

/** Whether two boxes of one line of text touch. */
const touches = (a: Box, b: Box) => a.x < b.x + b.width && b.x < a.x + a.width && Math.abs(a.y - b.y) < FONT;

/** Horizontal roofs of arithmetic, and slopes of reading from working sets of each size. */
function roofs(peaks: readonly PeakRow[], taken: Box[]): string[] {
  const top = peaks.find(({ loop }) => loop === "fma")!.bestRate;
  const style = `stroke="${INK}" stroke-opacity="0.6" stroke-width="1.5"`;
  const drawn: string[] = [];
  for (const { loop, bestRate } of peaks.filter(({ unit }) => unit === "GFLOP/s")) {
    const content = `${loop} ${bestRate.toFixed(0)} GFLOP/s`;
    const label = {
      x: xOf(ROOF_LABELS),
      y: yOf(bestRate) + (loop === "fma" ? -6 : 15),
      width: content.length * LETTER,
    };
    taken.push(label);
    drawn.push(
      line(xOf(X_RANGE[0]), yOf(bestRate), xOf(X_RANGE[1]), yOf(bestRate), style),
      text(label.x, label.y, content),
    );
  }
  // The labels of slopes of nearly the same speed follow each other along the line.
  let [before, along] = [0, 0];
  for (const { loop, bestRate } of peaks.filter(({ unit }) => unit === "GB/s")) {
    const from = Math.max(X_RANGE[0], Y_RANGE[0] / bestRate);
    const [x1, y1, x2, y2] = [xOf(from), yOf(bestRate * from), xOf(top / bestRate), yOf(top)];
    const angle = Math.atan2(y2 - y1, x2 - x1);
    const content = `${loop} ${bestRate.toFixed(0)} GB/s`;
    along = before < 2 * bestRate ? along : 0;
    const [x, y] = [x1 + along * Math.cos(angle) + 2, y1 + along * Math.sin(angle) - 6];
    const rotated = `font-size="10" transform="rotate(${round((angle * 180) / Math.PI)} ${round(x)} ${round(y)})"`;
    for (let at = 0; at < content.length * LETTER; at += LETTER)
      taken.push({ x: x + at * Math.cos(angle), y: y + at * Math.sin(angle), width: LETTER });
    drawn.push(line(x1, y1, x2, y2, style), text(x, y, content, rotated));
    along += content.length * LETTER;
    before = bestRate;
  }
  return drawn;
}

/** Points, and a label for each that has room for one. */
function points(rows: readonly CaseRow[], taken: Box[]): string[] {
  const drawn = rows.map((row) => ({ row, x: xOf(row.intensity), y: yOf(Math.max(row.bestGflops, Y_RANGE[0])) }));
  const dots = drawn.map(({ x, y }) => ({ x: x - 5, y: y + 4, width: 10 }));
  return drawn.flatMap(({ row, x, y }) => {
    const style = `fill="${COLOURS[row.kernel]}"`;
    const dot = `<circle cx="${round(x)}" cy="${round(y)}" r="4" ${style}/>`;
    const width = row.shape.length * LETTER;
    const places = [
      { x: x + 8, y: y + 4, at: x + 8, anchor: "start" },
      { x: x - 8 - width, y: y + 4, at: x - 8, anchor: "end" },
      { x: x - width / 2, y: y - 9, at: x, anchor: "middle" },
      { x: x - width / 2, y: y + 18, at: x, anchor: "middle" },
    ].map((place) => ({ ...place, width }));
    const free = places.find(
      (place) =>
        place.x > MARGIN.left && place.x + width < WIDTH && ![...taken, ...dots].some((other) => touches(place, other)),
    );
    if (!free) return [dot];
    taken.push(free);
    return [dot, text(free.at, free.y, row.shape, `${style} text-anchor="${free.anchor}"`)];
  });
}

function legend(): string[] {
  return Object.entries(COLOURS).flatMap(([name, colour], i) => {
    const [x, y] = [MARGIN.left + 150 * i, HEIGHT - 34];
    return [`<circle cx="${x}" cy="${y - 4}" r="4" fill="${colour}"/>`, text(x + 10, y, name)];
  });
}

function draw(result: Result): string {
  const taken: Box[] = [];
  // Only these are made of float32 multiply-adds, which the roofs are about.
  const relaxed = [...result.parts.layers, ...result.parts.kernels].filter(
    ({ build, kernel }) => build === "relaxed" && kernel in COLOURS,
  );
  const caption = `${describeOrigin(result)}; relaxed build, fastest samples`;
  const body = [
    ...axes(),
    ...roofs(result.parts.peaks, taken),
    ...points(relaxed, taken),
    ...legend(),
    text(MARGIN.left, HEIGHT - 12, caption, `font-size="10"`),
  ];
  const head = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="system-ui, sans-serif" font-size="${FONT}" fill="${INK}" role="img">`;
  return `${[head, "<title>Roofline of the kernels and of whole layers</title>", ...body, "</svg>"].join("\n")}\n`;
}

function readResults(paths: readonly string[]): Result {
  const results = paths.map((path): Partial<Result> => JSON.parse(readFileSync(path, "utf8")));
  const some = <R>(name: string, rows: R[]): R[] => {
    if (rows.length === 0) throw new RangeError(`roofline: files expected a part ${name}, got none`);
    return rows;
  };
  const parts = {
    peaks: some(
      "peaks",
      results.flatMap(({ parts }) => parts?.peaks ?? []),
    ),
    kernels: some(
      "kernels",
      results.flatMap(({ parts }) => parts?.kernels ?? []),
    ),
    layers: some(
      "layers",
      results.flatMap(({ parts }) => parts?.layers ?? []),
    ),
  };
  return { ...(results[0] as Result), parts };
}

const paths = process.argv.slice(2);
if (paths.length === 0) throw new TypeError("roofline: RESULT.json expected as the argument, got none");
writeFileSync(new URL("../../docs/roofline.svg", import.meta.url), draw(readResults(paths)));
