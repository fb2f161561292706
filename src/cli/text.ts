import { styleText } from "node:util";

/** Rows of cells as a table. The first `names` columns are aligned to the left, the others to the right. */
export function columnsText(rows: readonly (readonly string[])[], names: number): string {
  const widths = (rows[0] ?? []).map((_, i) => Math.max(...rows.map((row) => (row[i] as string).length)));
  return rows
    .map((row) => row.map((cell, i) => (i < names ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!))).join("  "))
    .join("\n");
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
