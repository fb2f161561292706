import { styleText } from "node:util";

/** Rows of cells as a table. The first `names` columns are aligned to the left, the others to the right. */
export function columnsText(rows: readonly (readonly string[])[], names: number): string {
  const widths = (rows[0] ?? []).map((_, i) => Math.max(...rows.map((row) => widthOf(row[i] as string))));
  const padded = (cell: string, i: number) => {
    const space = " ".repeat(widths[i]! - widthOf(cell));
    return i < names ? cell + space : space + cell;
  };
  return rows.map((row) => row.map(padded).join("  ")).join("\n");
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
