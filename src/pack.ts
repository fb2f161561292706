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
