// What figures are made of: elements of SVG as text, and what has which colour.

import { plainText } from "../util/errors.ts";
import { escapeHtml } from "../util/escape.ts";
import { type Colour, cssColour, inkOn, PALETTE, rampColour } from "./colours.ts";

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
export function weightColour(weight: number): string {
  return cssColour(rampColour(1 - weight));
}
