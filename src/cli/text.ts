/** Rows of cells as a table: the first `names` columns are words, which begin below each other, the others numbers, which end so. */
export function columnsText(rows: readonly (readonly string[])[], names: number): string {
  const widths = (rows[0] ?? []).map((_, i) => Math.max(...rows.map((row) => (row[i] as string).length)));
  return rows
    .map((row) => row.map((cell, i) => (i < names ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!))).join("  "))
    .join("\n");
}
