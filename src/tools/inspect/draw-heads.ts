// Figures of attention maps, and what figures are made of.

import { checkTensor, readTensor, type Tensor } from "../../base/tensor/tensor.ts";
import { expectInt, expectOneOf, readFields, readList } from "../../base/util/arguments.ts";
import { describe, plainText } from "../../base/util/errors.ts";
import { escapeHtml } from "../../base/util/strings.ts";
import { type Colour, cssColour, inkOn, PALETTE, rampColour } from "./colours.ts";

// What figures are made of: elements of SVG as text, and what has which colour.

/** What a figure is drawn as: SVG for pages and files, or lines of text for terminals. */
export type FigureFormat = "svg" | "text";

/** Text as content or attribute of an element. */
const escapeText = (text: string): string => escapeHtml(plainText(text));

/**
 * A figure, named by its title and described for those who do not see it. Text has the colour of the text around the figure, and
 * black in a file of its own.
 */
export function figure(
  width: number,
  height: number,
  title: string,
  description: string,
  parts: readonly string[],
): string {
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${round(width)} ${round(height)}" width="${round(width)}" height="${round(height)}" role="img" font-family="system-ui, sans-serif" font-size="12" fill="currentColor">`,
    `<title>${escapeText(title)}</title>`,
    `<desc>${escapeText(description)}</desc>`,
    ...parts,
    "</svg>",
  ].join("\n");
}

/** A rectangle; `title` is what shows when it is pointed at. */
export function rectangle(x: number, y: number, width: number, height: number, fill: string, title?: string): string {
  const [open, rest] = [
    `<rect x="${round(x)}" y="${round(y)}" width="${round(width)}" height="${round(height)}"`,
    `fill="${fill}"`,
  ];
  return title === undefined ? `${open} ${rest}/>` : `${open} ${rest}><title>${escapeText(title)}</title></rect>`;
}

/** A line of text whose base line begins, or with `anchor` ends or is centred, at x, y; `more` are further attributes. */
export function line(
  x: number,
  y: number,
  text: string,
  anchor: "start" | "middle" | "end" = "start",
  more = "",
): string {
  const at = anchor === "start" ? "" : ` text-anchor="${anchor}"`;
  return `<text x="${round(x)}" y="${round(y)}"${at}${more}>${escapeText(text)}</text>`;
}

/** A length in tenths of a pixel. */
function round(length: number): number {
  return Math.round(length * 10) / 10;
}

/** The colour of a head, and that of text on it. */
export function headColour(head: number): readonly [fill: string, ink: string] {
  const colour = PALETTE[head % PALETTE.length] as Colour;
  return [cssColour(colour), inkOn(colour)];
}

/** What belongs to no head. */
export const NEUTRAL = "#b0b0b0";

/** The colour of a weight from 0 to 1 on a light ground: the larger, the darker. */
function weightColour(weight: number): string {
  return cssColour(rampColour(1 - weight));
}

/** Options of `drawHeads`. */
export interface DrawHeadsOptions {
  /** Which heads, in this order. Default all, at most 32. */
  readonly heads?: readonly number[] | undefined;
  /** The text of each token, as many as there are keys. Default their numbers. */
  readonly tokens?: readonly string[] | undefined;
  /** What the figure shows. Default "Attention by head". */
  readonly title?: string | undefined;
  /** Default "svg". */
  readonly format?: FigureFormat | undefined;
}

/** Longest text, and most heads, of a figure: more would have cells that nobody sees. */
const [MOST_TOKENS, MOST_DRAWN] = [128, 32];

/** Pixels of a cell, of a character of a label, and between maps. */
const [CELL, CHARACTER, GAP] = [16, 7, 24];

/**
 * Heat maps of heads, side by side: a row for each query, a column for each key. In SVG, cells have their weight as a title, and the
 * description has the strongest key of each query. As text, a cell is ░ from 0.05, ▒ from 0.25, ▓ from 0.5 and █ from 0.75.
 * @param maps Softmax weights [heads, queries, keys] of `attendWithMaps`, `forwardWith` or `traceAttention`. With fewer queries than
 * keys, the queries are the last tokens.
 * @throws TypeError or RangeError naming the argument.
 * @example
 * import { drawHeads } from "headwise/inspect";
 * const maps = { data: Float32Array.of(1, 0, 0.1, 0.9, 1, 0, 0.6, 0.4), shape: [2, 2, 2] };
 * const svg = drawHeads(maps, { tokens: ["the", "cat"] });
 * console.log(svg.match(/<desc>.*<\/desc>/)?.[0]); // <desc>Head 0: the → the 1.00, cat → cat 0.90. Head 1: the → the 1.00, cat → the 0.60.</desc>
 * console.log(drawHeads(maps, { tokens: ["the", "cat"], heads: [1], format: "text" }).split("\n")[3]); // 1 cat ▓▓▒▒
 */
export function drawHeads(maps: Tensor, options: DrawHeadsOptions = {}): string {
  const where = "drawHeads";
  const given = readFields(where, "options", options, ["heads", "tokens", "title", "format"]);
  const { data, shape } = checkTensor(where, "maps", readTensor(where, "maps", maps), [3]);
  const [numHeads, queries, keys] = shape as [number, number, number];
  if (numHeads === 0 || queries === 0 || keys > MOST_TOKENS || queries > keys)
    throw new RangeError(
      `${where}: maps expected shape [heads, queries, keys] with 1 to ${MOST_TOKENS} keys and no more queries, got [${shape.join(", ")}]`,
    );
  const heads = readHeads(where, given.heads ?? Array.from({ length: numHeads }, (_, head) => head), numHeads);
  const tokens = readTokens(where, given.tokens, keys);
  const format = expectOneOf(where, "options.format", given.format ?? "svg", ["svg", "text"]);
  const { title = "Attention by head" } = given;
  if (typeof title !== "string")
    throw new TypeError(`${where}: options.title expected a string, got ${describe(title)}`);
  const drawn = heads.map(
    (head): DrawnHead => ({
      head,
      rows: Array.from({ length: queries }, (_, i) => {
        const from = (head * queries + i) * keys;
        return { token: keys - queries + i, weights: data.subarray(from, from + keys) };
      }),
    }),
  );
  if (format === "text") return drawn.map((each) => textOf(each, tokens)).join("\n\n");
  return svgOf(drawn, tokens, title);
}

/** A head, with the weights of each query on all keys. */
interface DrawnHead {
  readonly head: number;
  readonly rows: readonly { readonly token: number; readonly weights: Float32Array }[];
}

function readHeads(where: string, heads: unknown, numHeads: number): number[] {
  const name = "options.heads";
  const read = Array.from(
    readList(where, name, heads, MOST_DRAWN, (head, i) => expectInt(where, `${name}[${i}]`, head, 0, numHeads - 1)),
  );
  if (read.length > 0 && read.length <= MOST_DRAWN) return read;
  throw new RangeError(`${where}: ${name} expected 1 to ${MOST_DRAWN} heads, got ${read.length}`);
}

function readTokens(where: string, tokens: readonly string[] | undefined, keys: number): readonly string[] {
  if (tokens === undefined) return Array.from({ length: keys }, (_, token) => String(token));
  const read = Array.from(
    readList(where, "options.tokens", tokens, keys, (token, i) => {
      if (typeof token === "string") return plainText(token);
      throw new TypeError(`${where}: options.tokens[${i}] expected a string, got ${describe(token)}`);
    }),
  );
  if (read.length === keys) return read;
  throw new RangeError(`${where}: options.tokens expected one for each key (${keys}), got ${read.length}`);
}

function svgOf(drawn: readonly DrawnHead[], tokens: readonly string[], title: string): string {
  const labels = CHARACTER * Math.max(...tokens.map(({ length }) => length)) + 8;
  const [across, down] = [CELL * tokens.length, CELL * (drawn[0]?.rows.length ?? 0)];
  const top = 24 + labels;
  const parts = drawn.flatMap(({ head, rows }, n) => {
    const left = n * (labels + across + GAP) + labels;
    const cells = rows.flatMap(({ token, weights }, i) => [
      line(left - 4, top + CELL * i + 12, tokens[token] as string, "end"),
      ...Array.from(weights, (weight, j) =>
        rectangle(
          left + CELL * j,
          top + CELL * i,
          CELL - 1,
          CELL - 1,
          weightColour(weight),
          sayWeight(tokens, token, j, weight),
        ),
      ),
    ]);
    const columns = tokens.map((token, j) => {
      const [x, y] = [left + CELL * j + 12, top - 4];
      return line(x, y, token, "start", ` transform="rotate(-90 ${x} ${y})"`);
    });
    return [line(left, 14, `Head ${head}`, "start", ' font-weight="bold"'), ...columns, ...cells];
  });
  const described = drawn.map(
    ({ head, rows }) =>
      `Head ${head}: ${rows.map(({ token, weights }) => sayWeight(tokens, token, ...strongest(weights))).join(", ")}.`,
  );
  const width = drawn.length * (labels + across + GAP) - GAP;
  return figure(width, top + down, title, described.join(" "), parts);
}

function strongest(weights: Float32Array): [key: number, weight: number] {
  const most = weights.reduce((a, b) => Math.max(a, b));
  return [weights.indexOf(most), most];
}

function sayWeight(tokens: readonly string[], query: number, key: number, weight: number): string {
  return `${tokens[query]} → ${tokens[key]} ${weight.toFixed(2)}`;
}

/** Where each shade begins. */
const SHADES = [
  [0.75, "██"],
  [0.5, "▓▓"],
  [0.25, "▒▒"],
  [0.05, "░░"],
] as const;

function textOf({ head, rows }: DrawnHead, tokens: readonly string[]): string {
  const digits = String(tokens.length - 1).length;
  const words = Math.max(...rows.map(({ token }) => (tokens[token] as string).length));
  const keys = tokens.map((_, key) => String(key % 100).padStart(2)).join("");
  const lines = rows.map(({ token, weights }) => {
    const cells = Array.from(weights, (weight) => SHADES.find(([from]) => weight >= from)?.[1] ?? "  ");
    return `${String(token).padStart(digits)} ${(tokens[token] as string).padEnd(words)}  ${cells.join("")}`.trimEnd();
  });
  return [`head ${head}`, " ".repeat(digits + words + 3) + keys, ...lines].join("\n");
}
