import { strip_rows } from "../attention/attention";
import { finish_rows, start_rows } from "../attention/begin_end";
import { softmax_scores } from "../attention/online_softmax";
import { apply_rules } from "../attention/page_step";
import { CHUNK_BYTES, end_key_of_any, first_key_of_any, STATE_BYTES } from "../attention/state";
import { PAGE, PANEL, QUERY_CHUNK, ROW_STATE, SCRATCH_STRIP, TILE_ROWS } from "../layout";
import { end_key, first_key } from "../mask";
import { AttentionShape, AttentionShapePtr, F32Ptr, PagesPtr } from "../types";
import { latent_at, latent_page, whole_panels } from "./page";
import { pv_latents } from "./pv";
import { qk_latents } from "./qk";

/**
 * attention_f32 for one kv head whose value is the beginning of its key: k[j] = latent j (page.ts), v[j] = its first
 * valueDim components. headDim is that of page.ts: queries come with zeros where latents have their padding.
 */
export function attention_latents(
  out: F32Ptr,
  q: F32Ptr,
  pages: PagesPtr,
  scratch: F32Ptr,
  shape: AttentionShapePtr,
  begin: i32,
  end: i32,
): void {
  const s = changetype<AttentionShape>(shape);
  assert(s.headDim > 0 && s.headDim % PANEL == 0, "attention_latents: headDim must be whole panels");
  assert(s.valueDim > 0 && s.valueDim <= s.headDim, "attention_latents: valueDim must be from 1 to headDim");
  assert(s.numKvHeads == 1, "attention_latents: numKvHeads must be 1");
  assert((scratch & 63) == 0, "attention_latents: scratch must be 64-byte aligned");
  assert(begin >= 0 && end <= s.numHeads * s.qLen, "attention_latents: rows must lie within numHeads · qLen");
  assert(s.left >= 0 && s.right >= 0, "attention_latents: left and right must not be negative");
  for (let at = begin; at < end; at += TILE_ROWS)
    attend_tile(out, q, pages, scratch, s, at, min(TILE_ROWS, end - at));
}

/** Rows r..r+n-1, n <= TILE_ROWS: through all pages that any of them may attend. */
function attend_tile(
  out: F32Ptr,
  q: F32Ptr,
  pages: PagesPtr,
  scratch: F32Ptr,
  shape: AttentionShape,
  r: i32,
  n: i32,
): void {
  const dim = shape.headDim;
  const columns = whole_panels(shape.valueDim);
  const queryBytes = CHUNK_BYTES * ((dim + QUERY_CHUNK - 1) / QUERY_CHUNK);
  const outputBytes = <usize>columns << 2;
  const states = scratch;
  const queries = states + STATE_BYTES * TILE_ROWS;
  const outputs = queries + queryBytes * TILE_ROWS;
  const strip = outputs + outputBytes * TILE_ROWS;
  const panel = scratch + (<usize>(TILE_ROWS * (ROW_STATE + dim + columns) + SCRATCH_STRIP) << 2);
  for (let i = 0; i < n; ) {
    const rows = strip_rows(n - i);
    const o = outputs + outputBytes * i;
    start_rows<f32>(rows, states + STATE_BYTES * i, queries + queryBytes * i, 0, o, q, shape, 0, r + i, columns);
    i += rows;
  }
  // Both ends of a row's keys move with its token.
  const high = end_key(shape, (r + n - 1) / shape.numHeads);
  for (let key = first_key(shape, r / shape.numHeads) & -PAGE; key < high; key += PAGE) {
    const latents = latent_page(pages, key);
    for (let i = 0; i < n; ) {
      const rows = strip_rows(n - i);
      const at = states + STATE_BYTES * i;
      const first = first_key_of_any(at, rows, key);
      const last = end_key_of_any(at, rows, key);
      if (first < last) {
        const start = first & -PANEL;
        const end = (last + PANEL - 1) & -PANEL;
        const from = latent_at(latents, dim, start);
        qk_latents(rows, strip + (<usize>start << 2), queries + queryBytes * i, from, dim, (end - start) >> 1);
        apply_rules(rows, strip, at, shape, 0, r + i, key, start, end);
        softmax_scores(strip, rows, start, end, at);
        const o = outputs + outputBytes * i;
        pv_latents(rows, o, columns, at, strip, latents, panel, shape, r + i, key, first, last);
      }
      i += rows;
    }
  }
  finish_rows(n, states, outputs, out, shape, 0, r, columns);
}
