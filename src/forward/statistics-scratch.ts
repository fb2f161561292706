import {
  KEPT_END,
  KEPT_ROW,
  KEPT_ROWS,
  PAGE,
  QUAD,
  STATISTICS_LISTS,
  STATISTICS_ROW,
  TILE_ROWS,
} from "../../assembly/layout.ts";
import type { AttentionShape } from "../wasm/abi.ts";

/** Bytes of scratch of attention_statistics behind that of attention_pages; keptPages is 0 if `received` is not wanted. */
export function statisticsBytes(topK: number, keptPages: number): number {
  const rows = TILE_ROWS * (STATISTICS_ROW + 8 * QUAD * Math.ceil(topK / QUAD));
  return STATISTICS_LISTS + rows + (keptPages && 8 * TILE_ROWS + keptPages * KEPT_ROWS * KEPT_ROW + KEPT_END);
}

/** The most pages that the rows of a tile attend. */
export function keptPages({ left, right }: Pick<AttentionShape, "left" | "right">, kvLen: number): number {
  return Math.min(Math.ceil(kvLen / PAGE), 1 + Math.ceil((left + KEPT_ROWS + right) / PAGE));
}
