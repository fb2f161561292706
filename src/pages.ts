import { PAGE, PANEL } from "../assembly/layout.ts";
import type { PagesPtr } from "./abi.ts";
import type { CheckedConfig } from "./config.ts";
import type { Kernels } from "./kernels.ts";
import { aligned, Layout, pointer } from "./memory.ts";

/** What the pages of a layer depend on. */
export type PageShape = Pick<CheckedConfig, "numKvHeads" | "headDim" | "valueDim">;

/**
 * Keys and values of `batch` sequences in pages of 128 absolute positions, as attention_f32 reads them: for each kv head
 * K [16][headDim][8], then V [valueDim/8][128][8]. One block: the tables of addresses, then the pages.
 */
export interface Pages {
  readonly at: number;
  readonly batch: number;
  readonly pagesPerRow: number;
}

function pageBytes({ numKvHeads, headDim, valueDim }: PageShape): number {
  return aligned(numKvHeads * PAGE * (headDim + PANEL * Math.ceil(valueDim / PANEL)) * 4);
}

function tableBytes(pagesPerRow: number): number {
  return aligned(pagesPerRow * 4);
}

/** Bytes that `allocatePages` takes. */
export function pagesBytes(shape: PageShape, batch: number, maxSeqLen: number): number {
  const pagesPerRow = Math.ceil(maxSeqLen / PAGE);
  const layout = new Layout();
  layout.take(batch * tableBytes(pagesPerRow));
  layout.take(batch * pagesPerRow * pageBytes(shape));
  return layout.bytes;
}

/** Takes pages for `batch` sequences of up to `maxSeqLen` tokens. What they hold is unspecified, and never attended. */
export function allocatePages(
  where: string,
  { memory }: Kernels,
  shape: PageShape,
  batch: number,
  maxSeqLen: number,
): Pages {
  const pagesPerRow = Math.ceil(maxSeqLen / PAGE);
  const at = memory.allocate(where, pagesBytes(shape, batch, maxSeqLen));
  const first = at + batch * tableBytes(pagesPerRow);
  const pages: Pages = { at, batch, pagesPerRow };
  for (let b = 0; b < batch; b++) {
    const table = memory.u32(pageTable(pages, b), pagesPerRow);
    for (let p = 0; p < pagesPerRow; p++) table[p] = first + (b * pagesPerRow + p) * pageBytes(shape);
  }
  return pages;
}

/** The page table of one sequence. */
export function pageTable({ at, pagesPerRow }: Pages, batchRow: number): PagesPtr {
  return pointer.pages(at + batchRow * tableBytes(pagesPerRow));
}
