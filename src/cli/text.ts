/** Rows of cells as a table. The first `names` columns are aligned to the left, the others to the right. */
export function columnsText(rows: readonly (readonly string[])[], names: number): string {
  const widths = (rows[0] ?? []).map((_, i) => Math.max(...rows.map((row) => (row[i] as string).length)));
  return rows
    .map((row) => row.map((cell, i) => (i < names ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!))).join("  "))
    .join("\n");
}
