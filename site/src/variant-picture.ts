// A picture of a variant: what four heads have stored after some tokens, and what the last of them reads. Keys lie above their values.

import type { Variant } from "../worker/variant-layers.ts";
import { svg } from "./chart.ts";

/** Tokens of a picture, heads, and tokens of its window. */
export const STEPS = 12;
const HEADS = 4;
const PICTURE_WINDOW = 4;

/** Rows of keys and values; 0 of latents. */
const ROWS: Readonly<Record<Variant, number>> = { mha: 4, gqa: 2, mqa: 1, mla: 0, window: 4, sinks: 4 };
const hasWindow = (variant: Variant): boolean => variant === "window" || variant === "sinks";

const [WIDTH, HEIGHT] = [320, 150];
/** The middle of the heads, the first column, and the width of a column. */
const [HEAD_X, CELLS_X, STEP] = [18, 84, 19];
const CELL = 15;

/** The middle of row `i` of `count`. */
const rowY = (i: number, count: number): number => (HEIGHT / count) * (i + 0.5);

/** Draws the picture after token `step`, from 1. */
export function drawVariant(picture: SVGSVGElement, variant: Variant, step: number): void {
  const count = Math.max(1, ROWS[variant]);
  const first = hasWindow(variant) ? Math.max(0, step - PICTURE_WINDOW) : 0;
  const parts: SVGElement[] = [];
  for (let head = 0; head < HEADS; head++) {
    const row = Math.floor((head * count) / HEADS);
    const [from, to] = [rowY(head, HEADS), rowY(row, count)];
    parts.push(svg("path", { class: "wire", d: `M${HEAD_X + 9} ${from}L${CELLS_X - 4} ${to}` }));
    parts.push(svg("circle", { class: "head", cx: HEAD_X, cy: from, r: 9 }));
    parts.push(svg("text", { x: HEAD_X, y: from + 3.5, "text-anchor": "middle" }, `q${head + 1}`));
  }
  for (let row = 0; row < count; row++) {
    const y = rowY(row, count);
    if (variant === "sinks") parts.push(svg("circle", { class: "sink", cx: CELLS_X - 11, cy: y, r: 5 }));
    for (let token = 0; token < step; token++) {
      const state = token < first ? " dropped" : token === step - 1 ? " new" : "";
      const cell = (kind: string, top: number, height: number) =>
        svg("rect", { class: kind + state, x: CELLS_X + token * STEP, y: top, width: CELL, height, rx: 1.5 });
      if (variant === "mla") parts.push(cell("latent-cell", y - 13, 18), cell("key-cell", y + 7, 6));
      else parts.push(cell("key-cell", y - 13, 12), cell("value-cell", y + 1, 12));
    }
  }
  picture.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  picture.setAttribute("aria-label", `${describe(variant, step)} Four heads on the left, tokens from left to right.`);
  picture.replaceChildren(...parts);
}

/** What the picture shows after token `step`, in words. */
export function describe(variant: Variant, step: number): string {
  const kept = hasWindow(variant) ? Math.min(step, PICTURE_WINDOW) : step;
  const rows = ROWS[variant];
  const some = (count: number, name: string) => `${count} ${name}${count === 1 ? "" : "s"}`;
  if (rows === 0) return `${some(kept, "latent")} and ${some(kept, "rotated key")} are stored; each head reads all.`;
  const stored = `${some(kept * rows, "key")} and ${some(kept * rows, "value")} are stored`;
  const sharing = rows < HEADS ? `, shared by ${HEADS / rows} heads each` : "";
  const dropped = step > kept ? ` ${step - kept} older are dropped.` : "";
  const sink = variant === "sinks" ? ", and each has a sink" : "";
  return `${stored}${sharing}; each head reads ${some(kept, "token")}${sink}.${dropped}`;
}
