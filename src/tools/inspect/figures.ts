// Figures: attention maps, and the shapes that a batch has on its way through attention.

import { checkTensor, readTensor, type Tensor } from "../../base/tensor/tensor.ts";
import { expectInt, expectOneOf, MOST_HEADS, MOST_SEQUENCES, readFields, readList } from "../../base/util/arguments.ts";
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
function figure(width: number, height: number, title: string, description: string, parts: readonly string[]): string {
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${round(width)} ${round(height)}" width="${round(width)}" height="${round(height)}" role="img" font-family="system-ui, sans-serif" font-size="12" fill="currentColor">`,
    `<title>${escapeText(title)}</title>`,
    `<desc>${escapeText(description)}</desc>`,
    ...parts,
    "</svg>",
  ].join("\n");
}

/** A rectangle; `title` is what shows when it is pointed at. */
function rectangle(x: number, y: number, width: number, height: number, fill: string, title?: string): string {
  const [open, rest] = [
    `<rect x="${round(x)}" y="${round(y)}" width="${round(width)}" height="${round(height)}"`,
    `fill="${fill}"`,
  ];
  return title === undefined ? `${open} ${rest}/>` : `${open} ${rest}><title>${escapeText(title)}</title></rect>`;
}

/** A line of text whose base line begins, or with `anchor` ends or is centred, at x, y; `more` are further attributes. */
function line(x: number, y: number, text: string, anchor: "start" | "middle" | "end" = "start", more = ""): string {
  const at = anchor === "start" ? "" : ` text-anchor="${anchor}"`;
  return `<text x="${round(x)}" y="${round(y)}"${at}${more}>${escapeText(text)}</text>`;
}

/** A length in tenths of a pixel. */
function round(length: number): number {
  return Math.round(length * 10) / 10;
}

/** The colour of a head, and that of text on it. */
function headColour(head: number): readonly [fill: string, ink: string] {
  const colour = PALETTE[head % PALETTE.length] as Colour;
  return [cssColour(colour), inkOn(colour)];
}

/** What belongs to no head. */
const NEUTRAL = "#b0b0b0";

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
const [MOST_TOKENS, MOST_MAPS] = [128, 32];

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
  if (format === "text") return drawn.map((each) => mapAsText(each, tokens)).join("\n\n");
  return mapsAsSvg(drawn, tokens, title);
}

/** A head, with the weights of each query on all keys. */
interface DrawnHead {
  readonly head: number;
  readonly rows: readonly { readonly token: number; readonly weights: Float32Array }[];
}

function readHeads(where: string, heads: unknown, numHeads: number): number[] {
  const name = "options.heads";
  const read = Array.from(
    readList(where, name, heads, MOST_MAPS, (head, i) => expectInt(where, `${name}[${i}]`, head, 0, numHeads - 1)),
  );
  if (read.length > 0 && read.length <= MOST_MAPS) return read;
  throw new RangeError(`${where}: ${name} expected 1 to ${MOST_MAPS} heads, got ${read.length}`);
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

function mapsAsSvg(drawn: readonly DrawnHead[], tokens: readonly string[], title: string): string {
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

function mapAsText({ head, rows }: DrawnHead, tokens: readonly string[]): string {
  const digits = String(tokens.length - 1).length;
  const words = Math.max(...rows.map(({ token }) => (tokens[token] as string).length));
  const keys = tokens.map((_, key) => String(key % 100).padStart(2)).join("");
  const lines = rows.map(({ token, weights }) => {
    const cells = Array.from(weights, (weight) => SHADES.find(([from]) => weight >= from)?.[1] ?? "  ");
    return `${String(token).padStart(digits)} ${(tokens[token] as string).padEnd(words)}  ${cells.join("")}`.trimEnd();
  });
  return [`head ${head}`, " ".repeat(digits + words + 3) + keys, ...lines].join("\n");
}

// The shapes on the way through attention.

/** The sizes of a layer. */
export interface LayerSizes {
  /** Floats of a row of x: D. */
  readonly dModel: number;
  /** Query heads: H, a divisor of dModel. */
  readonly numHeads: number;
  /** Heads of keys and values, a divisor of numHeads. Default numHeads. */
  readonly numKvHeads?: number | undefined;
}

/** The sizes of a layer and of what it reads. */
export interface ShapeSizes extends LayerSizes {
  /** Sequences: B. */
  readonly batch: number;
  /** Tokens of a sequence: S. */
  readonly seqLen: number;
}

/** A tensor on the way through attention. */
export interface ShapeStep {
  /** What it is, or what made it of the one before. */
  readonly name: string;
  /** Dimensions, the outermost first. */
  readonly shape: readonly number[];
  /** The letter of each dimension: B sequences, S tokens, D floats of a row, H heads, d floats of a head. */
  readonly axes: "BSD" | "BSHd" | "BHSd" | "BSd";
  /** How many different heads it holds: fewer than H where heads are repeated. */
  readonly heads: number;
}

const LAYER_FIELDS = ["dModel", "numHeads", "numKvHeads"] as const;

/**
 * The shapes that a batch has on its way through attention, in the words of PyTorch; one head of the result of attention comes last.
 * With fewer heads of keys and values, these have steps of their own. Nothing is computed, and this package moves no data for a
 * view or a transposition: its heads are strides.
 * @throws TypeError or RangeError naming the field.
 * @example
 * import { shapeTrace } from "headwise/inspect";
 * const steps = shapeTrace({ batch: 2, seqLen: 10, dModel: 512, numHeads: 8 });
 * const text = steps.map(({ name, shape }) => `${name} [${shape}]`);
 * console.log(text.slice(0, 4).join(" → ")); // x [2,10,512] → q [2,10,512] → view [2,10,8,64] → transpose [2,8,10,64]
 * console.log(text.slice(4, 8).join(" → ")); // attention [2,8,10,64] → transpose [2,10,8,64] → contiguous view [2,10,512] → W_o [2,10,512]
 * console.log(text[8]); // one head slice [2,10,64]
 */
export function shapeTrace(sizes: ShapeSizes): ShapeStep[] {
  return stepsOf("shapeTrace", sizes);
}

/** `shapeTrace` for the function `where`. */
function stepsOf(where: string, sizes: ShapeSizes): ShapeStep[] {
  const { batch, seqLen, ...layer } = readFields(where, "sizes", sizes, ["batch", "seqLen", ...LAYER_FIELDS]);
  const B = expectInt(where, "batch", batch, 1, MOST_SEQUENCES);
  const S = expectInt(where, "seqLen", seqLen);
  const { numHeads: H, numKvHeads: kvHeads, headDim: d } = checkSizes(where, layer);
  const rows = (name: string, heads = H): ShapeStep => ({ name, shape: [B, S, heads * d], axes: "BSD", heads });
  const view = (name: string, heads = H): ShapeStep => ({ name, shape: [B, S, heads, d], axes: "BSHd", heads });
  const apart = (name: string, heads = H): ShapeStep => ({ name, shape: [B, heads, S, d], axes: "BHSd", heads });
  return [
    rows("x"),
    rows("q"),
    view("view"),
    apart("transpose"),
    ...(kvHeads < H
      ? [
          rows("k, v", kvHeads),
          view("view of k, v", kvHeads),
          apart("transpose of k, v", kvHeads),
          { ...apart("repeat of k, v"), heads: kvHeads },
        ]
      : []),
    apart("attention"),
    view("transpose"),
    rows("contiguous view"),
    rows("W_o"),
    { name: "one head slice", shape: [B, S, d], axes: "BSd", heads: 1 },
  ];
}

/** Checks the sizes of a layer, and fills in the default. */
function checkSizes(where: string, sizes: LayerSizes): Required<LayerSizes> & { readonly headDim: number } {
  const given = readFields(where, "sizes", sizes, LAYER_FIELDS);
  const dModel = expectInt(where, "dModel", given.dModel);
  const numHeads = expectInt(where, "numHeads", given.numHeads, 1, MOST_HEADS);
  const numKvHeads = given.numKvHeads === undefined ? numHeads : expectInt(where, "numKvHeads", given.numKvHeads);
  if (dModel % numHeads !== 0)
    throw new RangeError(`${where}: d_model (${dModel}) must be divisible by n_heads (${numHeads})`);
  if (numHeads % numKvHeads !== 0)
    throw new RangeError(`${where}: numHeads expected a multiple of numKvHeads (${numKvHeads}), got ${numHeads}`);
  return { dModel, numHeads, numKvHeads, headDim: dModel / numHeads };
}

/** Options of `drawShapes`, `drawSplit` and `drawProjections`. */
export interface DrawOptions {
  /** What the figure shows. Each function has a title of its own. */
  readonly title?: string | undefined;
  /** Default "svg". */
  readonly format?: FigureFormat | undefined;
  /** Where names and sizes are in SVG: "beside" the bars, the default, or "above" them, for narrow pages (320 pixels for 8 heads). */
  readonly labels?: "beside" | "above" | undefined;
}

/** Most heads of a figure: more look alike. */
const MOST_CUT = 64;

/** Numbers side by side: `part` of the widest bar, cut into `segments` of `heads` different heads; 0 segments belong to no head. */
interface Bar {
  readonly name: string;
  readonly size: string;
  readonly part: number;
  readonly segments: number;
  readonly heads: number;
  /** Whether the segments stand apart. */
  readonly apart?: boolean;
  /** Rows of numbers, as high as so many bars. Default 1. */
  readonly rows?: number;
}

/**
 * The shapes of `shapeTrace` as a figure: a bar for each tensor, as wide as the floats of a token, cut into heads where these are an
 * axis, and with heads apart where they come before tokens. As text, a segment has the last digit of its head.
 * @throws TypeError or RangeError naming the argument.
 * @example
 * import { drawShapes } from "headwise/inspect";
 * const text = drawShapes({ batch: 2, seqLen: 10, dModel: 512, numHeads: 8 }, { format: "text" });
 * console.log(text.split("\n")[3]); // transpose [2, 8, 10, 64] 0000 1111 2222 3333 4444 5555 6666 7777
 */
export function drawShapes(sizes: ShapeSizes, options: DrawOptions = {}): string {
  const where = "drawShapes";
  const steps = stepsOf(where, sizes);
  const { dModel, headDim } = { dModel: steps[0]?.shape[2] as number, headDim: steps.at(-1)?.shape[2] as number };
  const bars = steps.map(({ name, shape, axes, heads }): Bar => {
    const count = axes === "BSd" ? 1 : axes === "BSD" ? 0 : (shape[axes.indexOf("H")] as number);
    const floats = count === 0 ? (shape[2] as number) : count * headDim;
    const size = `[${shape.join(", ")}]`;
    return { name, size, part: floats / dModel, segments: count, heads, apart: axes === "BHSd" };
  });
  return draw(where, bars, options, "Shapes on the way through attention");
}

/**
 * Mixing before splitting: each number of q mixes all numbers of x, by a column of W; only then q is cut into heads. So a head
 * sees all of x, whatever its columns are.
 * @throws TypeError or RangeError naming the argument.
 * @example
 * import { drawSplit } from "headwise/inspect";
 * console.log(drawSplit({ dModel: 32, numHeads: 4 }, { format: "text" }).split("\n")[3]); // heads 4 × [8] 00000000 11111111 22222222 33333333
 */
export function drawSplit(sizes: LayerSizes, options: DrawOptions = {}): string {
  const where = "drawSplit";
  const { dModel, numHeads, headDim } = checkSizes(where, sizes);
  const segments = { part: 1, segments: numHeads, heads: numHeads };
  const bars: readonly Bar[] = [
    { name: "x", size: `[${dModel}]`, part: 1, segments: 0, heads: 0 },
    { name: "W", size: `[${dModel}, ${dModel}]`, ...segments, rows: 4 },
    { name: "q = x · W", size: `[${dModel}]`, ...segments },
    { name: "heads", size: `${numHeads} × [${headDim}]`, ...segments, apart: true },
  ];
  return draw(where, bars, options, "Mixing all of x before splitting into heads");
}

/**
 * The projections of a layer: a bar for each, as wide as its rows, cut into heads, with the number of its weights. Keys and values
 * that query heads share are shorter.
 * @throws TypeError or RangeError naming the argument.
 * @example
 * import { drawProjections } from "headwise/inspect";
 * const text = drawProjections({ dModel: 512, numHeads: 8, numKvHeads: 2 }, { format: "text" });
 * console.log(text.split("\n")[1]); // k 2 × 64, 65536 weights 00001111
 */
export function drawProjections(sizes: LayerSizes, options: DrawOptions = {}): string {
  const where = "drawProjections";
  const { dModel, numHeads, numKvHeads, headDim } = checkSizes(where, sizes);
  const bar = (name: string, heads: number): Bar => ({
    name,
    size: `${heads} × ${headDim}, ${dModel * heads * headDim} weights`,
    ...{ part: heads / numHeads, segments: heads, heads },
  });
  const bars = [bar("q", numHeads), bar("k", numKvHeads), bar("v", numKvHeads)];
  return draw(where, bars, options, "Projections to queries, keys and values");
}

function draw(where: string, bars: readonly Bar[], options: DrawOptions, ownTitle: string): string {
  const given = readFields(where, "options", options, ["title", "format", "labels"]);
  const { title = ownTitle, format = "svg" } = given;
  if (typeof title !== "string")
    throw new TypeError(`${where}: options.title expected a string, got ${describe(title)}`);
  const most = Math.max(...bars.map(({ segments }) => segments));
  if (most > MOST_CUT) throw new RangeError(`${where}: numHeads expected at most ${MOST_CUT}, got ${most}`);
  const labels = expectOneOf(where, "options.labels", given.labels ?? "beside", ["beside", "above"]);
  const isSvg = expectOneOf(where, "options.format", format, ["svg", "text"]) === "svg";
  return isSvg ? barsAsSvg(bars, title, labels) : barsAsText(bars);
}

/** Characters of the widest bar, where its segments have so many or more. */
const CHARACTERS = 32;

function barsAsText(bars: readonly Bar[]): string {
  const widest = (texts: readonly string[]) => Math.max(...texts.map(({ length }) => length));
  const [names, sizes] = [widest(bars.map(({ name }) => name)), widest(bars.map(({ size }) => size))];
  const most = Math.max(...bars.map(({ part, segments }) => segments / part));
  const characters = most * Math.max(1, Math.floor(CHARACTERS / most));
  return bars
    .map(({ name, size, part, segments, heads, apart }) => {
      const width = Math.round(characters * part);
      const drawn = Array.from({ length: segments }, (_, i) =>
        String(headOf(i, segments, heads) % 10).repeat(width / segments),
      );
      const text = segments === 0 ? "─".repeat(width) : drawn.join(apart ? " " : "");
      return `${name.padEnd(names)}  ${size.padEnd(sizes)}  ${text}`;
    })
    .join("\n");
}

/** Pixels of the height of a bar, between bars and between heads. */
const [THICK, SPACE, APART] = [16, 12, 3];

/** Pixels of the widest bar, where bars and sizes begin, and of a line of text above a bar. */
const PLACES = {
  beside: { widest: 384, left: 266, sizes: 116, above: 0 },
  above: { widest: 296, left: 0, sizes: 116, above: 18 },
} as const;

function barsAsSvg(bars: readonly Bar[], title: string, labels: keyof typeof PLACES): string {
  const { widest, left, sizes, above } = PLACES[labels];
  let y = SPACE;
  const parts = bars.flatMap(({ name, size, part, segments, heads, apart, rows = 1 }) => {
    const top = y + above;
    y = top + THICK * rows + SPACE;
    const width = widest * part;
    const each = width / (segments || 1);
    const cells = Array.from({ length: segments || 1 }, (_, i) => {
      const x = left + i * (each + (apart ? APART : 0));
      if (segments === 0) return [rectangle(x, top, width, THICK, NEUTRAL)];
      const head = headOf(i, segments, heads);
      const [fill, ink] = headColour(head);
      const cell = rectangle(x, top, each - 1, THICK * rows, fill, `head ${head}`);
      // Where there is room for its number.
      return each < 14 ? [cell] : [cell, line(x + each / 2, top + 12, String(head), "middle", ` fill="${ink}"`)];
    });
    const base = top + 12 - above;
    return [line(0, base, name), line(sizes, base, size), ...cells.flat()];
  });
  const described = bars.map(({ name, size, segments, heads, apart }) => {
    const cut =
      segments === 0 ? "" : `, cut into ${segments} segments of ${heads} heads${apart ? ", which stand apart" : ""}`;
    return `${name}: ${size}${cut}.`;
  });
  return figure(
    left + widest + APART * Math.max(...bars.map((bar) => bar.segments)),
    y,
    title,
    described.join(" "),
    parts,
  );
}

/** The head of a segment: several that follow each other belong to one head where heads are repeated. */
function headOf(segment: number, segments: number, heads: number): number {
  return Math.floor(segment / (segments / heads));
}
