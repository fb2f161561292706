import { attend_page } from "./attention_page";
import { finish_rows, start_rows } from "./attention_rows";
import { CHUNK_BYTES, STATE_BYTES, TILE_HEIGHT } from "./attention_state";
import { PAGE, PANEL, QUERY_CHUNK, TILE_ROWS } from "./layout";
import { end_key, first_key } from "./mask";
import { key_at } from "./page";
import { AttentionShape, AttentionShapePtr, F32Ptr, PagesPtr } from "./types";

/**
 * out[t, h, :valueDim] = sum over j of softmax(score[j]) · v[j, h/G], where G = numHeads / numKvHeads, p = qStart + t,
 * score[j] = softcap(scale · q[t, h] · k[j, h/G]) - slope[h] · |p - j| + bias[h, t, j],
 * over the keys j in [max(0, p - left), min(kvLen, p + right + 1)) that keep and bias do not exclude. Before them come
 * the extra key, the zero key and the sink, where there are any. A row that attends nothing is zeros and its
 * lse -Infinity.
 *
 * Rows begin..end of numKvHeads · qLen · G, row (kvHead · qLen + t) · G + g for head h = kvHead · G + g. Bits depend on
 * no cut of the rows, no tile, and on nothing that an excluded key, an unwritten slot of a page or the scratch holds.
 *
 * q and out: heads by the strides of `shape`, in floats, any alignment; neither overlaps anything else. pages: for the
 * absolute keys PAGE·i.., page i = [numKvHeads] of K [PAGE/8][headDim][8] and V [ceil(valueDim/8)][PAGE][8]; read where
 * a key is attended, and up to 31 keys around within the page. scratch: see layout.ts, 64-byte aligned, any content.
 */
export function attention_f32(
  out: F32Ptr,
  q: F32Ptr,
  pages: PagesPtr,
  scratch: F32Ptr,
  shape: AttentionShapePtr,
  begin: i32,
  end: i32,
): void {
  const s = changetype<AttentionShape>(shape);
  assert(s.headDim > 0 && s.valueDim > 0, "attention_f32: headDim and valueDim must be positive");
  assert(s.numKvHeads > 0 && s.numHeads % s.numKvHeads == 0, "attention_f32: numHeads must be whole groups");
  assert((scratch & 63) == 0, "attention_f32: scratch must be 64-byte aligned");
  assert(begin >= 0 && end <= s.numHeads * s.qLen, "attention_f32: rows must lie within numHeads · qLen");
  assert(s.left >= 0 && s.right >= 0, "attention_f32: left and right must not be negative");
  assert((s.extraKey == 0) == (s.extraValue == 0), "attention_f32: an extra key needs its value");
  const rows = s.qLen * (s.numHeads / s.numKvHeads);
  for (let at = begin; at < end; ) {
    const kvHead = at / rows;
    const r = at - kvHead * rows;
    const n = min(TILE_ROWS, min(rows - r, end - at));
    attend_tile(out, q, pages, scratch, s, kvHead, r, n);
    at += n;
  }
}

/** Rows of the next strip when `left` are left: few sizes, none that wastes a row. */
// @ts-ignore: decorator
@inline
function strip_rows(left: i32): i32 {
  if (left < 6) return left;
  return TILE_HEIGHT == 6 && left != 7 && left != 8 ? 6 : 4;
}

/** Rows r..r+n-1 of a kv head, n <= TILE_ROWS: through all pages that any of them may attend. */
function attend_tile(
  out: F32Ptr,
  q: F32Ptr,
  pages: PagesPtr,
  scratch: F32Ptr,
  shape: AttentionShape,
  kvHead: i32,
  r: i32,
  n: i32,
): void {
  const columns = (shape.valueDim + PANEL - 1) & -PANEL;
  const queryBytes = CHUNK_BYTES * ((shape.headDim + QUERY_CHUNK - 1) / QUERY_CHUNK);
  const outputBytes = <usize>columns << 2;
  const states = scratch;
  const queries = states + STATE_BYTES * TILE_ROWS;
  const outputs = queries + queryBytes * TILE_ROWS;
  const strip = outputs + outputBytes * TILE_ROWS;

  for (let i = 0; i < n; ) {
    const height = strip_rows(n - i);
    const o = outputs + outputBytes * i;
    start_rows(height, states + STATE_BYTES * i, queries + queryBytes * i, o, q, shape, kvHead, r + i, columns);
    i += height;
  }
  // Both ends of a row's keys move with its token.
  const group = shape.numHeads / shape.numKvHeads;
  const high = end_key(shape, (r + n - 1) / group);
  for (let key = first_key(shape, r / group) & -PAGE; key < high; key += PAGE) {
    const k = key_at(pages, kvHead, shape.headDim, shape.valueDim, key);
    for (let i = 0; i < n; ) {
      const height = strip_rows(n - i);
      const o = outputs + outputBytes * i;
      attend_page(strip, queries + queryBytes * i, o, states + STATE_BYTES * i, height, k, shape, kvHead, r + i, key);
      i += height;
    }
  }
  finish_rows(n, states, outputs, out, shape, kvHead, r, columns);
}
