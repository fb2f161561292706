import { expect, test } from "vitest";
import type { Tensor } from "../../../../src/entries/index.ts";
import { drawHeads, drawProjections, drawShapes, drawSplit, shapeTrace } from "../../../../src/entries/inspect.ts";
import { contrast, luminance } from "../../../support/luminance.ts";

const SIZES = { batch: 2, seqLen: 10, dModel: 512, numHeads: 8 };
const TOKENS = ["<the>", "cat\u0007", "&"];
const maps: Tensor = {
  data: Float32Array.of(1, 0, 0, 0.2, 0.8, 0, 0.04, 0.36, 0.6, 1, 0, 0, 0.75, 0.25, 0, 0.5, 0.3, 0.2),
  shape: [2, 3, 3],
};

test("the shapes are those of the tutorial, in its order", () => {
  expect(
    shapeTrace(SIZES)
      .map(({ name, shape }) => `${name} [${shape}]`)
      .join(" → "),
  ).toBe(
    "x [2,10,512] → q [2,10,512] → view [2,10,8,64] → transpose [2,8,10,64] → attention [2,8,10,64] → " +
      "transpose [2,10,8,64] → contiguous view [2,10,512] → W_o [2,10,512] → one head slice [2,10,64]",
  );
});

test("fewer heads of keys and values have shapes of their own, until they are repeated", () => {
  const steps = shapeTrace({ ...SIZES, numKvHeads: 2 });
  expect(steps.length).toBe(13);
  expect(steps.slice(4, 8).map(({ name, shape, heads }) => `${name} [${shape}] of ${heads}`)).toEqual([
    "k, v [2,10,128] of 2",
    "view of k, v [2,10,2,64] of 2",
    "transpose of k, v [2,2,10,64] of 2",
    "repeat of k, v [2,8,10,64] of 2",
  ]);
});

test.each([
  [{ ...SIZES, dModel: 10, numHeads: 3 }, "shapeTrace: d_model (10) must be divisible by n_heads (3)"],
  [{ ...SIZES, numKvHeads: 3 }, "shapeTrace: numHeads expected a multiple of numKvHeads (3), got 8"],
  [{ ...SIZES, batch: 0 }, "shapeTrace: batch expected an integer from 1 to 1048576, got 0"],
  [{ ...SIZES, heads: 3 }, 'shapeTrace: sizes expected only batch, seqLen, dModel, numHeads, numKvHeads, got "heads"'],
])("%j is refused", (sizes, message) => {
  expect(() => shapeTrace(sizes)).toThrow(message);
});

const FIGURES = {
  heads: (format?: "svg" | "text") => drawHeads(maps, { tokens: TOKENS, format }),
  shapes: (format?: "svg" | "text") => drawShapes({ ...SIZES, numKvHeads: 2 }, { format }),
  split: (format?: "svg" | "text") => drawSplit({ dModel: 32, numHeads: 4 }, { format }),
  projections: (format?: "svg" | "text") => drawProjections({ dModel: 512, numHeads: 8, numKvHeads: 2 }, { format }),
  "shapes with names above": () => drawShapes(SIZES, { labels: "above" }),
  "projections with names above": () => drawProjections({ dModel: 512, numHeads: 8 }, { labels: "above" }),
};

test("names above the bars leave out the columns beside them, and cover no bar", () => {
  const widthOf = (svg: string) => Number(/viewBox="0 0 ([\d.]+)/.exec(svg)![1]);
  const svg = drawShapes(SIZES, { labels: "above" });
  expect([widthOf(drawShapes(SIZES)), widthOf(svg)]).toEqual([674, 320]);
  const tops = Array.from(svg.matchAll(/<rect x="0" y="([\d.]+)"/g), ([, y]) => Number(y));
  const names = Array.from(svg.matchAll(/<text x="0" y="([\d.]+)"/g), ([, y]) => Number(y));
  expect(tops.length).toBe(9);
  for (const [i, top] of tops.entries()) {
    expect(top - names[i]!).toBeGreaterThanOrEqual(4);
    expect(names[i]! - ((tops[i - 1] ?? -16) + 16)).toBeGreaterThanOrEqual(12);
  }
  expect(() => drawShapes(SIZES, { labels: "below" as "above" })).toThrow(
    'drawShapes: options.labels expected "beside" or "above", got "below"',
  );
});

test.each(Object.entries(FIGURES))("%s as SVG is well-formed, and has a title and a description first", (_, draw) => {
  const svg = draw();
  expect(svg).toMatch(
    /^<svg xmlns="http:\/\/www\.w3\.org\/2000\/svg" [^>]*role="img"[^>]*>\n<title>[^<]+<\/title>\n<desc>[^<]+<\/desc>\n/,
  );
  const open: string[] = [];
  for (const [, close, name, rest] of svg.matchAll(/<(\/?)(\w+)([^>]*)>/g))
    if (close) expect(open.pop()).toBe(name);
    else if (!rest?.endsWith("/")) open.push(name!);
  expect(open).toEqual([]);
  expect(svg).not.toMatch(/NaN|undefined|&(?!amp;|lt;|gt;|quot;)|[^\P{Cc}\n]/u);
  const [, width, height] = /viewBox="0 0 ([\d.]+) ([\d.]+)"/.exec(svg)!.map(Number) as [number, number, number];
  for (const [, x, y, w, h] of svg.matchAll(/<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"/g)) {
    expect(Number(x) + Number(w)).toBeLessThanOrEqual(width);
    expect(Number(y) + Number(h)).toBeLessThanOrEqual(height);
  }
});

test("numbers of heads are in the middle of their segments, and names of tokens end before their rows", () => {
  const texts = (svg: string, anchor: string) =>
    Array.from(svg.matchAll(/<text x="([\d.]+)" y="[\d.]+" text-anchor="(\w+)"[^>]*>([^<]*)/g))
      .filter((found) => found[2] === anchor)
      .map(([, x, , text]) => [Number(x), text]);
  const rectangles = (svg: string, title: RegExp) =>
    Array.from(svg.matchAll(/<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"[^>]*><title>([^<]*)/g))
      .filter((found) => title.test(found[3] as string))
      .map(([, x, width]) => [Number(x), Number(width)] as const);
  const split = drawSplit({ dModel: 32, numHeads: 4 });
  const segments = rectangles(split, /^head \d$/);
  expect(segments.length).toBeGreaterThanOrEqual(4);
  // A gap of 1 is part of a segment.
  expect(texts(split, "middle").map(([x]) => x)).toEqual(segments.map(([x, width]) => x + (width + 1) / 2));
  expect(texts(split, "middle").slice(0, 4)).toEqual(["0", "1", "2", "3"].map((head) => [expect.any(Number), head]));
  const heads = drawHeads(maps, { tokens: ["a", "b", "c"] });
  const lefts = [...new Set(rectangles(heads, /^a → a /).map(([x]) => x))];
  expect(lefts.length).toBe(2);
  expect(texts(heads, "end")).toEqual(lefts.flatMap((left) => ["a", "b", "c"].map((token) => [left - 4, token])));
});

test("cells have their weights, and are the darker the larger these are", () => {
  const cells = Array.from(drawHeads(maps).matchAll(/fill="rgb\((\d+),(\d+),(\d+)\)"><title>(\d) → (\d) ([\d.]+)</g));
  expect(cells.map(([, , , , query, key, weight]) => [query, key, weight])).toEqual(
    Array.from(maps.data, (weight, i) => [String(Math.floor(i / 3) % 3), String(i % 3), weight.toFixed(2)]),
  );
  const byWeight = cells.toSorted((a, b) => Number(a[6]) - Number(b[6]));
  const lights = byWeight.map(([, ...channels]) => luminance(channels.slice(0, 3).map(Number)));
  for (const [i, light] of lights.slice(1).entries()) expect(light).toBeLessThanOrEqual(lights[i]!);
});

test("text on the colour of a head has a contrast of 5 to 1", () => {
  const svg = drawShapes({ ...SIZES, numHeads: 8 });
  const form = /fill="rgb\((\d+),(\d+),(\d+)\)"><title>head \d<.*\n<text.*fill="(#\w{3})"/g;
  const pairs = Array.from(svg.matchAll(form), ([, ...fill]) => ({ ink: fill.pop(), fill: fill.map(Number) }));
  expect(new Set(pairs.map(({ fill }) => String(fill))).size).toBe(8);
  for (const { fill, ink } of pairs) expect(contrast(luminance(fill), ink === "#fff" ? 1 : 0)).toBeGreaterThan(5);
});

test("figures as text are these", () => {
  expect(FIGURES.heads("text")).toBe(
    [
      "head 0",
      "          0 1 2",
      "0 <the>  ██",
      "1 cat\uFFFD   ░░██",
      "2 &        ▒▒▓▓",
      "",
      "head 1",
      "          0 1 2",
      "0 <the>  ██",
      "1 cat\uFFFD   ██▒▒",
      "2 &      ▓▓▒▒░░",
    ].join("\n"),
  );
  expect(FIGURES.shapes("text").split("\n").slice(1, 9)).toEqual([
    "q                  [2, 10, 512]    ────────────────────────────────",
    "view               [2, 10, 8, 64]  00001111222233334444555566667777",
    "transpose          [2, 8, 10, 64]  0000 1111 2222 3333 4444 5555 6666 7777",
    "k, v               [2, 10, 128]    ────────",
    "view of k, v       [2, 10, 2, 64]  00001111",
    "transpose of k, v  [2, 2, 10, 64]  0000 1111",
    "repeat of k, v     [2, 8, 10, 64]  0000 0000 0000 0000 1111 1111 1111 1111",
    "attention          [2, 8, 10, 64]  0000 1111 2222 3333 4444 5555 6666 7777",
  ]);
  expect(FIGURES.split("text")).toBe(
    [
      "x          [32]      ────────────────────────────────",
      "W          [32, 32]  00000000111111112222222233333333",
      "q = x · W  [32]      00000000111111112222222233333333",
      "heads      4 × [8]   00000000 11111111 22222222 33333333",
    ].join("\n"),
  );
  expect(FIGURES.projections("text")).toBe(
    [
      "q  8 × 64, 262144 weights  00001111222233334444555566667777",
      "k  2 × 64, 65536 weights   00001111",
      "v  2 × 64, 65536 weights   00001111",
    ].join("\n"),
  );
});

test("fewer queries than keys are the last tokens", () => {
  const last = { data: maps.data.subarray(0, 3), shape: [1, 1, 3] };
  expect(drawHeads(last, { format: "text" }).split("\n")[2]).toBe("2 2  ██");
});

test.each([
  [
    () => drawHeads({ data: new Float32Array(6), shape: [1, 3, 2] }),
    "drawHeads: maps expected shape [heads, queries, keys] with 1 to 128 keys and no more queries, got [1, 3, 2]",
  ],
  [
    () => drawHeads({ data: new Float32Array(129), shape: [1, 1, 129] }),
    /^drawHeads: maps expected .* got \[1, 1, 129\]$/,
  ],
  [() => drawHeads(maps, { heads: [2] }), "drawHeads: options.heads[0] expected an integer from 0 to 1, got 2"],
  [() => drawHeads(maps, { heads: [] }), "drawHeads: options.heads expected 1 to 32 heads, got 0"],
  [() => drawHeads(maps, { tokens: ["a"] }), "drawHeads: options.tokens expected one for each key (3), got 1"],
  [() => drawHeads(maps, { format: "png" as "svg" }), 'drawHeads: options.format expected "svg" or "text", got "png"'],
  [() => drawHeads(maps, { title: 3 as unknown as string }), "drawHeads: options.title expected a string, got 3"],
  [() => drawShapes({ ...SIZES, numHeads: 128 }), "drawShapes: numHeads expected at most 64, got 128"],
  [() => drawShapes({ ...SIZES, dModel: 10 }), "drawShapes: d_model (10) must be divisible by n_heads (8)"],
  [
    () => drawSplit({ dModel: 8, numHeads: 2 }, { title: 3 as unknown as string }),
    "drawSplit: options.title expected a string, got 3",
  ],
  [
    () => drawProjections({ dModel: 8, numHeads: 0 }),
    "drawProjections: numHeads expected an integer from 1 to 65536, got 0",
  ],
])("%s is refused", (call, message) => {
  expect(call).toThrow(message);
});
