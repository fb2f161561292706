import { PANEL } from "../assembly/layout.ts";

/** How a weight matrix of n outputs and k inputs lies in memory: [n, k] or [k, n], row-major. */
export type MatrixLayout = "out-in" | "in-out";

/** Panels that hold n columns. */
export function panelsOf(n: number): number {
  return Math.ceil(n / PANEL);
}

/** Floats of a packed [n, k] matrix: whole panels, [panels][k][8]. */
export function packedFloats(n: number, k: number): number {
  return panelsOf(n) * k * PANEL;
}

/**
 * Packs a matrix of n outputs and k inputs into `into`, which has packedFloats(n, k) floats: panel p holds the columns
 * 8p..8p+7 as [k][8], columns beyond n are +0. Several matrices that are used together (q, k and v) are packed one
 * behind the other, each into a part of its own.
 */
export function packPanels(into: Float32Array, w: Float32Array, n: number, k: number, layout: MatrixLayout): void {
  if (layout === "out-in") packRows(into, w, n, k);
  else packColumns(into, w, n, k);
}

/** From [n, k]: eight rows side by side, so that `into` is written once and in order. */
function packRows(into: Float32Array, w: Float32Array, n: number, k: number): void {
  const whole = n - (n % PANEL);
  let at = 0;
  for (let row = 0; row < whole; row += PANEL) {
    let r0 = row * k;
    let r1 = r0 + k;
    let r2 = r1 + k;
    let r3 = r2 + k;
    let r4 = r3 + k;
    let r5 = r4 + k;
    let r6 = r5 + k;
    let r7 = r6 + k;
    for (let i = 0; i < k; i++) {
      into[at] = w[r0++]!;
      into[at + 1] = w[r1++]!;
      into[at + 2] = w[r2++]!;
      into[at + 3] = w[r3++]!;
      into[at + 4] = w[r4++]!;
      into[at + 5] = w[r5++]!;
      into[at + 6] = w[r6++]!;
      into[at + 7] = w[r7++]!;
      at += PANEL;
    }
  }
  for (let i = 0; whole < n && i < k; i++)
    for (let column = 0; column < PANEL; column++) into[at++] = whole + column < n ? w[(whole + column) * k + i]! : 0;
}

/** From [k, n]: each row is cut into pieces of eight. */
function packColumns(into: Float32Array, w: Float32Array, n: number, k: number): void {
  const panels = panelsOf(n);
  for (let i = 0; i < k; i++) {
    let from = i * n;
    for (let p = 0; p < panels; p++) {
      let at = (p * k + i) * PANEL;
      const columns = Math.min(PANEL, n - p * PANEL);
      for (let column = 0; column < columns; column++) into[at++] = w[from++]!;
      for (let column = columns; column < PANEL; column++) into[at++] = 0;
    }
  }
}
