// Heat maps of heads as lines of text: two queries a line in colours, one in characters.

import { type Colour, rampColour } from "../inspect/colours.ts";
import type { Colours } from "./terminal.ts";
import { fitText, widthOf } from "./text.ts";

/** How maps are shown. */
export interface MapView {
  /** What stands before the row of each token. */
  readonly labels: readonly string[];
  /** Of a line. */
  readonly columns: number;
  readonly colours: Colours;
}

/** Characters for weights of 0, 0.1, … 0.9 and more, from light to dark. */
const RAMP = " .:-=+*#%@";
const RESET = "\x1b[0m";
/** Upper and lower half of a cell in the colour of text. */
const [UPPER, LOWER] = ["▀", "▄"];
/** Columns of a label, and of the space behind it. */
const [LONGEST_LABEL, GAP] = [12, 1];

/** How wide the labels of rows are. Where two queries share a line, each has one. */
function sizesOf({ labels, columns, colours }: MapView) {
  const count = colours === "none" ? 1 : 2;
  const most = Math.min(LONGEST_LABEL, Math.floor(columns / (3 * count)));
  const width = Math.min(most, Math.max(...labels.map(widthOf)));
  return { count, width, all: count * (width + GAP) };
}

/** How many keys fit into a line. */
export function keysThatFit(view: MapView): number {
  return view.columns - sizesOf(view).all;
}

/**
 * The map of a head with weights [tokens, tokens], from the token `begin` on: a row for each query, a column for each key. Keys
 * behind a query, which it does not see, are empty.
 */
export function mapLines(weights: Float32Array, tokens: number, begin: number, view: MapView): string[] {
  const { labels, colours } = view;
  const { count, width, all } = sizesOf(view);
  const weight = (query: number, key: number) => {
    return query < tokens && key <= query ? (weights[query * tokens + key] as number) : undefined;
  };
  const shown = Array.from({ length: tokens - begin }, (_, i) => begin + i);
  const lines = shown
    .filter((_, i) => i % count === 0)
    .map((query) => {
      const label = (token: number) => fitText(token < tokens ? (labels[token] as string) : "", width);
      const names = Array.from({ length: count }, (_, i) => label(query + i) + " ".repeat(GAP));
      const cells = shown.map((key) => cellText(weight(query, key), weight(query + 1, key), colours));
      return (names.join("") + cells.join("")).trimEnd();
    });
  return [...keyNumbers(begin, tokens).map((line) => " ".repeat(all) + line), ...lines];
}

/** The numbers of keys: a line with each tenth, if there is any, and one with the last digits. */
function keyNumbers(begin: number, end: number): string[] {
  let tens = "";
  let units = "";
  for (let key = begin; key < end; key++) {
    if (key % 10 === 0 && key > 0) tens = tens.padEnd(units.length) + String(key);
    units += String(key % 10);
  }
  return tens === "" ? [units] : [tens, units];
}

/** A key of one query, or with colours of this and of the next one; undefined is what a query does not see. */
function cellText(upper: number | undefined, lower: number | undefined, colours: Colours): string {
  if (colours === "none") return upper === undefined ? " " : characterOf(upper);
  if (upper !== undefined && lower !== undefined)
    return `${paintCode(38, upper, colours)}${paintCode(48, lower, colours)}${UPPER}${RESET}`;
  if (upper !== undefined) return `${paintCode(38, upper, colours)}${UPPER}${RESET}`;
  return lower === undefined ? " " : `${paintCode(38, lower, colours)}${LOWER}${RESET}`;
}

const characterOf = (weight: number): string =>
  RAMP[Math.min(RAMP.length - 1, Math.floor(weight * RAMP.length))] ?? " ";

/** The scale of a map, from 0 to 1. */
export function scaleText(colours: Colours): string {
  if (colours === "none") return `weights from 0 to 1: "${RAMP}", a tenth each`;
  const steps = Array.from({ length: 20 }, (_, i) => `${paintCode(48, i / 19, colours)} `);
  return `weights from 0 ${steps.join("")}${RESET} to 1`;
}

/** The escape sequence of a weight's colour: `layer` is 38 for text, 48 for what is behind it. */
function paintCode(layer: 38 | 48, weight: number, colours: Exclude<Colours, "none">): string {
  const rgb = rampColour(weight);
  return colours === "truecolor" ? `\x1b[${layer};2;${rgb.join(";")}m` : `\x1b[${layer};5;${colourIndex(rgb)}m`;
}

/** Levels of a channel in the cube of 216 colours, those from 16 on, that terminals of 256 have alike. */
const LEVELS = [0, 95, 135, 175, 215, 255];

/** The nearest colour of the cube. */
export function colourIndex(rgb: Colour): number {
  const [red = 0, green = 0, blue = 0] = rgb.map((value) => {
    const away = LEVELS.map((level) => Math.abs(level - value));
    return away.indexOf(Math.min(...away));
  });
  return 16 + 36 * red + 6 * green + blue;
}
