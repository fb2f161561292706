// What figures are made of: elements of SVG as text, and colours that those who do not see all colours tell apart.

import { plainText } from "../util/errors.ts";

/** What a figure is drawn as: SVG for pages and files, or lines of text for terminals. */
export type FigureFormat = "svg" | "text";

/** Text as content or attribute of an element. */
function escapeText(text: string): string {
  const names: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
  return plainText(text).replace(/[&<>"]/g, (character) => names[character] as string);
}

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

/** Colours that differ for all kinds of colour vision (Okabe and Ito 2008). A figure has a word or a number beside each, too. */
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#7f7f7f"] as const;

/** The colour of a head, and that of text on it, whose contrast is at least 5 to 1. */
export function headColour(head: number): readonly [fill: string, ink: string] {
  const index = head % COLOURS.length;
  return [COLOURS[index] as string, index === 0 ? "#fff" : "#000"];
}

/** What belongs to no head. */
export const NEUTRAL = "#b0b0b0";

/** The ends of a scale of one hue: almost white for 0, dark blue for 1. */
const [PALE, DARK] = [
  [247, 251, 255],
  [8, 48, 107],
] as const;

/** The colour of a weight from 0 to 1. Lightness falls with it, so that it reads without colours. */
export function weightColour(weight: number): string {
  const part = Math.min(1, Math.max(0, weight));
  return `rgb(${PALE.map((from, i) => Math.round(from + part * ((DARK[i] as number) - from))).join(",")})`;
}
