import { expectOneOf, readFields } from "../../base/util/arguments.ts";
import { describe } from "../../base/util/errors.ts";
import { type FigureFormat, figure, headColour, line, NEUTRAL, rectangle } from "./draw-heads.ts";
import { checkSizes, type LayerSizes, type ShapeSizes, stepsOf } from "./shape-trace.ts";

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
const MOST_DRAWN = 64;

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
  if (most > MOST_DRAWN) throw new RangeError(`${where}: numHeads expected at most ${MOST_DRAWN}, got ${most}`);
  const labels = expectOneOf(where, "options.labels", given.labels ?? "beside", ["beside", "above"]);
  const isSvg = expectOneOf(where, "options.format", format, ["svg", "text"]) === "svg";
  return isSvg ? svgOf(bars, title, labels) : textOf(bars);
}

/** Characters of the widest bar, where its segments have so many or more. */
const CHARACTERS = 32;

function textOf(bars: readonly Bar[]): string {
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
const [THICK, GAP, APART] = [16, 12, 3];

/** Pixels of the widest bar, where bars and sizes begin, and of a line of text above a bar. */
const PLACES = {
  beside: { widest: 384, left: 266, sizes: 116, above: 0 },
  above: { widest: 296, left: 0, sizes: 116, above: 18 },
} as const;

function svgOf(bars: readonly Bar[], title: string, labels: keyof typeof PLACES): string {
  const { widest, left, sizes, above } = PLACES[labels];
  let y = GAP;
  const parts = bars.flatMap(({ name, size, part, segments, heads, apart, rows = 1 }) => {
    const top = y + above;
    y = top + THICK * rows + GAP;
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
