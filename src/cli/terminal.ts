// What an output can show: its colours, and the columns of its lines.

import { UsageError } from "./args.ts";

/** The colours that values are shown in; without any, they are characters. */
export type Colours = "none" | "256" | "truecolor";

/** The option --colour. */
export const COLOUR_CHOICES = ["auto", "always", "never"] as const;

/** What is known of an output: of `process.stdout` and the environment. */
export interface Output {
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
