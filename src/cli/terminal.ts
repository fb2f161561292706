// What commands write to a terminal or a file, and read from standard input.

import { styleText } from "node:util";
import { UsageError } from "./args.ts";

// Standard output, which commands write here alone, so that an output that cannot be written ends each of them in the same way.

/** The exit code of a program that SIGPIPE ended, as shells report it: 128 and the number of the signal. */
const NO_READER = 128 + 13;

/** Writes a text and a line break. */
export function print(text: string): void {
  write(`${text}\n`);
}

/** Writes a text as it is. */
export function write(text: string): void {
  process.stdout.write(text);
}

/**
 * Ends the program once standard output cannot be written: without a word where its reader has ended, as `head` does, else with
 * the reason. `console.log` would lose these errors.
 */
export function watchOutput(): void {
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code === "EPIPE") process.exit(NO_READER);
    console.error(`headwise: standard output expected one that can be written, got ${error.message}`);
    process.exit(1);
  });
  // Progress and remarks that nobody reads are no reason to end.
  process.stderr.on("error", () => {});
}

// The text of a command: an argument, or "-" for what standard input gives.

/** A text as it was given, or all of standard input without the line break at its end, which `echo` and editors write. */
export async function readPrompt(given: string): Promise<string> {
  if (given !== "-") return given;
  const pieces: Uint8Array[] = [];
  for await (const piece of process.stdin) pieces.push(piece as Uint8Array);
  return new TextDecoder().decode(Buffer.concat(pieces)).replace(/\r?\n$/, "");
}

// What an output can show: its colours, and the columns of its lines.

/** The colours that values are shown in; without any, they are characters. */
export type Colours = "none" | "256" | "truecolor";

/** The option --colour. */
export const COLOUR_CHOICES = ["auto", "always", "never"] as const;

/** What is known of an output: of `process.stdout` and the environment. */
interface Output {
  readonly isTTY: boolean;
  /** Columns of the terminal; undefined elsewhere. */
  readonly columns: number | undefined;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** What is known of `process.stdout`. */
export function standardOutput(): Output {
  const { isTTY = false, columns } = process.stdout;
  return { isTTY, columns, env: process.env };
}

/** The colours of an output. A terminal has colours unless NO_COLOR is set (https://no-color.org) or TERM is "dumb". */
export function coloursOf(choice: (typeof COLOUR_CHOICES)[number], { isTTY, env }: Output): Colours {
  const hasColours = isTTY && !env.NO_COLOR && env.TERM !== "dumb";
  if (choice === "never" || (choice === "auto" && !hasColours)) return "none";
  return ["truecolor", "24bit"].includes(env.COLORTERM ?? "") ? "truecolor" : "256";
}

/** Columns of an output that is no terminal, and the fewest that maps and lists are made for. */
const [OTHER_COLUMNS, FEWEST_COLUMNS] = [100, 20];

/** The columns of lines: those of the option --width, or of the terminal. */
export function columnsOf(command: string, width: string | undefined, { columns }: Output): number {
  if (width === undefined) return Math.max(FEWEST_COLUMNS, columns || OTHER_COLUMNS);
  const given = Number(width);
  if (/^\d+$/.test(width) && given >= FEWEST_COLUMNS) return given;
  throw new UsageError(`${command}: --width expected an integer of ${FEWEST_COLUMNS} or more, got ${width}`);
}

/** Rows of cells as a table. The first `names` columns are aligned to the left, the others to the right. */
export function columnsText(rows: readonly (readonly string[])[], names: number): string {
  const widths = (rows[0] ?? []).map((_, i) => Math.max(...rows.map((row) => widthOf(row[i] as string))));
  const padded = (cell: string, i: number) => {
    const space = " ".repeat(widths[i]! - widthOf(cell));
    return i < names ? cell + space : space + cell;
  };
  return rows.map((row) => row.map(padded).join("  ")).join("\n");
}

/** Text without control characters, which a terminal would interpret: names come from files. */
export function plainText(text: string): string {
  return text.replace(/[\p{Cc}\p{Bidi_Control}]/gu, "\uFFFD");
}

/** Bytes in a unit for people, such as 1.23 MB. */
export function sizeText(bytes: number): string {
  const units = ["bytes", "KB", "MB", "GB", "TB"];
  let [size, unit] = [bytes, 0];
  for (; size >= 1000 && unit < units.length - 1; unit++) size /= 1000;
  return `${unit === 0 ? size : size.toPrecision(3)} ${units[unit]}`;
}

/** Colours a text for a terminal. */
export function paint(colour: "green" | "red", text: string): string {
  return process.stdout.isTTY ? styleText(colour, text) : text;
}

/** Characters of East Asian scripts and emoji, which terminals show in two columns. */
const WIDE =
  /[\u1100-\u115F\u2E80-\u303E\u3041-\uA4CF\uAC00-\uD7A3\uF900-\uFAFF\uFE30-\uFE6F\uFF00-\uFF60\uFFE0-\uFFE6\u{20000}-\u{3FFFD}]|\p{Emoji_Presentation}/u;
/** Marks on the character before, and characters without a form. */
const JOINED = /[\p{Mn}\p{Me}\p{Cf}]/u;

const widthOfCharacter = (character: string): number => (JOINED.test(character) ? 0 : WIDE.test(character) ? 2 : 1);

/** Columns of a terminal that a text takes. */
export function widthOf(text: string): number {
  return Array.from(text).reduce((sum, character) => sum + widthOfCharacter(character), 0);
}

/** A text in `columns` columns, with spaces or without its end. */
export function fitText(text: string, columns: number): string {
  let [kept, width] = [text, widthOf(text)];
  if (width > columns) {
    [kept, width] = ["", 1];
    for (const character of text) {
      const more = widthOfCharacter(character);
      if (width + more > columns) break;
      kept += character;
      width += more;
    }
    kept += "…";
  }
  return kept + " ".repeat(columns - width);
}

/** The stream that progress is written to, a terminal or not. */
export interface ProgressStream {
  readonly isTTY?: boolean;
  readonly columns?: number;
  write(text: string): unknown;
}

interface Progress {
  /** Reports the fraction that is done, 0 to 1, with `what` beside it. */
  at(share: number, what: string): void;
  /** Erases the bar. */
  end(): void;
}

/** Milliseconds before the first update on a terminal, between updates there, and between lines elsewhere. */
const FIRST = 500;
const BAR_EVERY = 100;
const LINE_EVERY = 5000;
const BAR_WIDTH = 24;
const ERASE = "\r\u001b[K";

/** A progress bar on a terminal, occasional lines elsewhere, and nothing for work that is done soon or without a stream. */
export function createProgress(stream: ProgressStream | undefined, now: () => number): Progress {
  if (stream === undefined) return { at() {}, end() {} };
  const every = stream.isTTY ? BAR_EVERY : LINE_EVERY;
  let next = now() + (stream.isTTY ? FIRST : LINE_EVERY);
  let drawn = false;
  return {
    at(share, what) {
      if (now() < next) return;
      next = now() + every;
      const text = `${`${Math.floor(100 * share)}`.padStart(3)} %  ${what}`;
      if (!stream.isTTY) {
        stream.write(`${text.trimStart()}\n`);
        return;
      }
      const full = Math.floor(BAR_WIDTH * share);
      const line = `[${"#".repeat(full)}${".".repeat(BAR_WIDTH - full)}] ${text}`;
      // A line that wraps could not be erased.
      stream.write(`${ERASE}${line.slice(0, (stream.columns ?? 80) - 1)}`);
      drawn = true;
    },
    end() {
      if (drawn) stream.write(ERASE);
      drawn = false;
    },
  };
}
