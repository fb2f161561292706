import { strip_rows } from "../attention/attention";
import { finish_rows, start_rows } from "../attention/begin_end";
import { softmax_scores } from "../attention/online_softmax";
import { apply_rules } from "../attention/page_step";
import { quantize_rows_of_weights } from "../attention/pv_page";
import {
  CHUNK_BYTES,
  end_key_of_any,
  first_key_of_any,
  has_integer_keys,
  query_code_bytes,
  STATE_BYTES,
} from "../attention/state";
import { FORMAT_F16, PAGE, PANEL, QUERY_CHUNK, ROW_STATE, SCRATCH_STRIP, TILE_ROWS } from "../layout";
import { end_key, first_key } from "../mask";
import { widen_rows } from "../math/half";
import { AttentionShape, AttentionShapePtr, F32Ptr, PagesPtr } from "../types";
import { pv_codes, qk_codes, quantize_queries } from "./codes";
import {
  code_pair_bytes,
  latent_at,
  latent_format,
  latent_page,
  latent_scales,
  rotated_scales,
  whole_panels,
} from "./page";
import { pv_latents } from "./pv";
import { qk_latents } from "./qk";

/**
 * attention_f32 for one kv head whose value is the beginning of its key: k[j] = latent j (page.ts), v[j] = its first
 * valueDim components. headDim is `dim` of page.ts: queries come with zeros where latents have their padding. All pages have
 * the format that shape.formats names: f16 is read as the floats that gather_latents gives, q8 as attention_pages reads
 * integers.
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

/** Rows of the next strip when `left` are left: where pages have integers, a product takes a register. */
// @ts-ignore: decorator
@inline
function next_strip(left: i32, integers: bool): i32 {
  if (!integers) return strip_rows(left);
  if (left < 6) return left;
  return left == 6 ? 3 : 4;
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
  const integers = has_integer_keys(shape);
  const queryBytes = CHUNK_BYTES * ((dim + QUERY_CHUNK - 1) / QUERY_CHUNK);
  const outputBytes = <usize>columns << 2;
  const codeBytes = integers ? query_code_bytes(dim) : 0;
  const states = scratch;
  const queries = states + STATE_BYTES * TILE_ROWS;
  const outputs = queries + queryBytes * TILE_ROWS;
  const strip = outputs + outputBytes * TILE_ROWS;
  const codes = scratch + (<usize>(TILE_ROWS * (ROW_STATE + dim + columns) + SCRATCH_STRIP) << 2);
  const panel = codes + codeBytes * TILE_ROWS;
  const wide = panel + (<usize>(PAGE * PANEL) << 2);
  for (let i = 0; i < n; ) {
    const rows = next_strip(n - i, integers);
    const qs = queries + queryBytes * i;
    start_rows<f32>(rows, states + STATE_BYTES * i, qs, 0, outputs + outputBytes * i, q, shape, r + i, columns);
    if (integers) quantize_queries(rows, codes + codeBytes * i, qs, columns, dim);
    i += rows;
  }
  // Both ends of a row's keys move with its token.
  const high = end_key(shape, (r + n - 1) / shape.numHeads);
  for (let key = first_key(shape, r / shape.numHeads) & -PAGE; key < high; key += PAGE) {
    let latents = latent_page(pages, key);
    if (latent_format(pages, key) == FORMAT_F16) {
      widen_rows(wide, latents, ((min(high - key, PAGE) + 1) >> 1) * (dim >> 2), false);
      latents = wide;
    }
    for (let i = 0; i < n; ) {
      const rows = next_strip(n - i, integers);
      const at = states + STATE_BYTES * i;
      const o = outputs + outputBytes * i;
      const x = integers ? codes + codeBytes * i : queries + queryBytes * i;
      attend_page(integers, rows, strip, x, o, columns, at, latents, panel, shape, r + i, key);
      i += rows;
    }
  }
  finish_rows(n, states, outputs, out, shape, r, columns);
}

/** Scores, rules, online softmax and PV product of a strip with one page. `x` are its queries, integers with `integers`. */
function attend_page(
  integers: bool,
  rows: i32,
  s: F32Ptr,
  x: usize,
  o: F32Ptr,
  columns: i32,
  states: usize,
  latents: usize,
  panel: F32Ptr,
  shape: AttentionShape,
  r: i32,
  key: i32,
): void {
  const first = first_key_of_any(states, rows, key);
  const last = end_key_of_any(states, rows, key);
  if (first >= last) return;
  const dim = shape.headDim;
  const start = first & -PANEL;
  const end = (last + PANEL - 1) & -PANEL;
  const at = <usize>start << 2;
  const pairs = (end - start) >> 1;
  const scales = latent_scales(latents, dim);
  if (integers) {
    const from = latents + code_pair_bytes(dim) * (start >> 1);
    qk_codes(rows, s + at, x, from, scales + at, rotated_scales(latents, dim) + at, columns, dim, pairs);
  } else qk_latents(rows, s + at, x, latent_at(latents, dim, start), dim, pairs);
  apply_rules(rows, s, states, shape, r, key, start, end);
  softmax_scores(s, rows, start, end, states);
  if (integers) {
    quantize_rows_of_weights(rows, s, states, scales, shape, r, key, start, end);
    pv_codes(rows, o, columns, states, s, latents, dim, first, last);
  } else pv_latents(rows, o, columns, states, s, latents, panel, shape, r, key, first, last);
}
