import type { Tensor } from "./tensor.ts";

/**
 * Order of the dimensions of a tensor: "bhsd" [batch, heads, len, dim] or "bshd" [batch, len, heads, dim]. A tensor of rank 3
 * has no batch.
 */
export type HeadLayout = "bhsd" | "bshd";

/** The dimensions of a tensor of heads, in either layout; those of rank 3 are one sequence. */
export interface HeadSizes {
  readonly rank: number;
  readonly batch: number;
  readonly heads: number;
  readonly len: number;
  readonly dim: number;
}

export function headSizes({ shape }: Tensor, layout: HeadLayout): HeadSizes {
  const { length: rank } = shape;
  const [batch, second, third, dim] = (rank === 3 ? [1, ...shape] : shape) as [number, number, number, number];
  const [heads, len] = layout === "bhsd" ? [second, third] : [third, second];
  return { rank, batch, heads, len, dim };
}

export function headShape({ rank, batch, heads, len, dim }: HeadSizes, layout: HeadLayout): number[] {
  const shape = layout === "bhsd" ? [batch, heads, len, dim] : [batch, len, heads, dim];
  return shape.slice(-rank);
}

/** Floats between tokens and between heads in a block of `tokens` tokens that was copied with `eachRun`. */
export function blockStrides(
  { heads, dim }: HeadSizes,
  layout: HeadLayout,
  tokens: number,
): { stride: number; headStride: number } {
  return layout === "bhsd" ? { stride: dim, headStride: tokens * dim } : { stride: heads * dim, headStride: dim };
}

/** Calls copy(tensor offset, block offset, floats) for the runs of tokens begin..end of one batch row. */
export function eachRun(
  { heads, len, dim }: HeadSizes,
  layout: HeadLayout,
  batchRow: number,
  begin: number,
  end: number,
  copy: (tensorAt: number, blockAt: number, floats: number) => void,
): void {
  const tokens = end - begin;
  if (layout === "bshd") copy((batchRow * len + begin) * heads * dim, 0, tokens * heads * dim);
  else
    for (let h = 0; h < heads; h++) copy(((batchRow * heads + h) * len + begin) * dim, h * tokens * dim, tokens * dim);
}
