import { key_format, key_scales, keys_of, page_entry, value_format, value_scales, values_of } from "../cache/page";
import { FORMAT_F16, FORMAT_Q4, PAGE, PANEL, PANEL_BYTES_16, QUAD, ROW_STATE, SCRATCH_STRIP, STATISTICS_LISTS, TILE_ROWS } from "../layout";
import { end_key, first_key, is_masked, token_of } from "../mask";
import { has_many_subnormals } from "../math/half";
import { MADD_FUSES } from "../math/simd";
import { AttentionShape, AttentionShapePtr, F32Ptr, PagesPtr, StatisticsShape } from "../types";
import { finish_rows, start_rows } from "./begin_end";
import { widen_half_keys, widen_half_values, widen_nibble_keys, widen_nibble_values } from "./dequantize";
import { FEW_ROWS, scale_queries } from "./f16_page";
import { attend_page } from "./page_step";
import { CHUNK_BYTES, has_half_keys, has_integer_keys, has_only_halves, query_bytes, query_code_bytes, STATE_BYTES } from "./state";
import { finish_statistics, keep_maxima, kept_row, row_bytes, start_statistics, tile_rows } from "./statistics";

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
 * absolute keys PAGE·i.., page i as in page.ts, of float32; read where a key is attended, and up to 31 keys around within
 * the page. scratch: see layout.ts, 64-byte aligned, any content.
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
  attend_rows<f32, void>(out, q, pages, scratch, shape, changetype<StatisticsShape>(0), begin, end);
}

/**
 * attention_f32 over pages of the formats that shape.formats names.
 *
 * Keys of integer pages are multiplied by queries of 14 bits, q = s · Q with s = max|q| / 8191 over the row's scaled query;
 * values of integer pages by weights of 14 bits, w · scale = s · W with s = the largest in the page / 16383. Sums of
 * integers are exact, the floats around them are not fused.
 *
 * f16 and q4 are read from the page's first key to the last in range of TILE_ROWS rows, f16 also two bytes in front, and
 * with integer keys a byte of every 4 KB of the next page that is in range too.
 */
export function attention_pages(
  out: F32Ptr,
  q: F32Ptr,
  pages: PagesPtr,
  scratch: F32Ptr,
  shape: AttentionShapePtr,
  begin: i32,
  end: i32,
): void {
  attend_rows<u8, void>(out, q, pages, scratch, shape, changetype<StatisticsShape>(0), begin, end);
}

/** The kernel for pages of P, see page.ts. With S other than void it also measures the rows, see statistics.ts. */
// @ts-ignore: decorator
@inline
export function attend_rows<P, S>(
  out: F32Ptr,
  q: F32Ptr,
  pages: PagesPtr,
  scratch: F32Ptr,
  shape: AttentionShapePtr,
  statistics: StatisticsShape,
  begin: i32,
  end: i32,
): void {
  const s = changetype<AttentionShape>(shape);
  assert(s.headDim > 0 && s.valueDim > 0, "attention: headDim and valueDim must be positive");
  assert(s.numKvHeads > 0 && s.numHeads % s.numKvHeads == 0, "attention: numHeads must be whole groups");
  assert((scratch & 63) == 0, "attention: scratch must be 64-byte aligned");
  assert(begin >= 0 && end <= s.numHeads * s.qLen, "attention: rows must lie within numHeads · qLen");
  assert(s.left >= 0 && s.right >= 0, "attention: left and right must not be negative");
  assert((s.extraKey == 0) == (s.extraValue == 0), "attention: an extra key needs its value");
  const rows = s.qLen * (s.numHeads / s.numKvHeads);
  for (let r = begin; r < end; ) {
    // One token whose heads have keys of their own: see four_heads.ts.
    const four = (isFloat<P>() || has_only_halves(s)) && rows == 1 && end - r > 3 && !is_masked(s);
    if (four && attend_tile<P, S>(out, q, pages, scratch, s, statistics, r, 4)) {
      r += 4;
      continue;
    }
    const most = isVoid<S>() ? TILE_ROWS : tile_rows(statistics);
    const n = min(most, min(rows - (r % rows), end - r));
    attend_tile<P, S>(out, q, pages, scratch, s, statistics, r, n);
    r += n;
  }
}

/** Rows of the next strip when `left` are left: few sizes, none that wastes a row. */
// @ts-ignore: decorator
@inline
export function strip_rows(left: i32): i32 {
  if (left < 6) return left;
  return MADD_FUSES && left != 7 && left != 8 ? 6 : 4;
}

/**
 * Rows r..r+n-1 of one kv head, n <= TILE_ROWS, or one row of each of four: through all pages that any of them may attend.
 * Returns false, with nothing in `out`, where four rows meet what one row after the other is faster for.
 */
function attend_tile<P, S>(
  out: F32Ptr,
  q: F32Ptr,
  pages: PagesPtr,
  scratch: F32Ptr,
  shape: AttentionShape,
  statistics: StatisticsShape,
  r: i32,
  n: i32,
): bool {
  const rows = shape.qLen * (shape.numHeads / shape.numKvHeads);
  const kvHead = r / rows;
  const headDim = shape.headDim;
  const valueDim = shape.valueDim;
  const columns = (valueDim + PANEL - 1) & -PANEL;
  // How far apart in a page the kv heads of four rows are.
  const apart = n > rows ? <usize>(PAGE * (headDim + columns)) << (isFloat<P>() ? 2 : 1) : 0;
  const queryBytes = query_bytes(headDim);
  const outputBytes = <usize>columns << 2;
  const states = scratch;
  const queries = states + STATE_BYTES * TILE_ROWS;
  const outputs = queries + queryBytes * TILE_ROWS;
  const strip = outputs + outputBytes * TILE_ROWS;
  const codeBytes = isInteger<P>() && has_integer_keys(shape) ? query_code_bytes(headDim) : 0;
  const codes = scratch + (<usize>(TILE_ROWS * (ROW_STATE + headDim + columns) + SCRATCH_STRIP) << 2);
  const wideKeys = codes + codeBytes * TILE_ROWS;
  const wideValues = wideKeys + wide_key_bytes(shape.formats, headDim);

  const few = isInteger<P>() && n <= FEW_ROWS;
  let scaled = few && has_half_keys(shape);
  for (let i = 0; i < n; ) {
    const height = strip_rows(n - i);
    const o = outputs + outputBytes * i;
    const x = codeBytes > 0 ? codes + codeBytes * i : 0;
    start_rows<P>(height, states + STATE_BYTES * i, queries + queryBytes * i, x, o, q, shape, r + i, columns);
    if (isInteger<P>() && scaled) scaled = scale_queries(queries + queryBytes * i, height, headDim);
    i += height;
  }
  if (isInteger<P>() && apart != 0 && !scaled) return false;
  const lists = isVoid<S>() ? 0 : scratch + (<usize>statistics.work << 2);
  const measured = isVoid<S>() ? 0 : lists + STATISTICS_LISTS;
  let many = false;
  // Both ends of a row's keys move with its token.
  const low = first_key(shape, token_of(shape, r)) & -PAGE;
  const high = end_key(shape, token_of(shape, r + n - 1));
  const pageCount = isVoid<S>() ? 0 : (max(0, high - low) + PAGE - 1) / PAGE;
  if (!isVoid<S>()) start_statistics(n, states, measured, shape, statistics, r, pageCount);
  for (let key = low; key < high; key += PAGE) {
    const entry = page_entry(pages, key);
    const keys = key_format<P>(entry);
    const values = value_format<P>(entry);
    let k = keys_of<P>(entry, kvHead, headDim, valueDim);
    let v = values_of<P>(entry, kvHead, headDim, valueDim);
    const kScales = keys > FORMAT_F16 ? k + key_scales(keys, headDim) : 0;
    const vScales = values > FORMAT_F16 ? v + value_scales(values, valueDim) : 0;
    const storedKeys = k;
    const storedValues = v;
    let kWide: usize = 0;
    let vWide: usize = 0;
    if (keys == FORMAT_F16 && scaled && !many) kWide = wideKeys;
    else if (keys == FORMAT_F16) {
      widen_half_keys(wideKeys, k, headDim, high - key);
      k = wideKeys;
    } else if (keys == FORMAT_Q4) {
      widen_nibble_keys(wideKeys, k, headDim, high - key);
      k = wideKeys;
    }
    if (values == FORMAT_F16 && few && !many) vWide = wideValues;
    else if (values == FORMAT_F16) {
      widen_half_values(wideValues, v, columns / PANEL, high - key);
      v = wideValues;
    } else if (values == FORMAT_Q4) {
      widen_nibble_values(wideValues, v, columns / PANEL, high - key);
      v = wideValues;
    }
    if (isInteger<P>() && kScales != 0 && key + PAGE < high)
      touch_keys(page_entry(pages, key + PAGE), kvHead, headDim, valueDim);
    for (let i = 0; i < n; ) {
      const height = strip_rows(n - i);
      const o = outputs + outputBytes * i;
      const x = kScales ? codes + codeBytes * i : queries + queryBytes * i;
      const state = states + STATE_BYTES * i;
      const strips = isVoid<S>() ? 0 : measured + row_bytes(statistics) * i;
      const page = (key - low) / PAGE;
      const kept = isVoid<S>() ? 0 : kept_row(measured, statistics, page, i);
      // Weights stay as they are unless integers, or halves, are multiplied by them.
      attend_page<P, S>(
        kept != 0 && vScales == 0 && vWide == 0 ? kept : strip,
        x,
        o,
        state,
        height,
        k,
        kScales,
        kWide,
        v,
        vScales,
        vWide,
        apart,
        shape,
        r + i,
        key,
        statistics,
        lists,
        strips,
        kept,
      );
      if (!isVoid<S>() && kept != 0) keep_maxima(height, state, measured, statistics, page, i);
      i += height;
    }
    // What one page had many of, the next is taken to have: only the time that it takes depends on it.
    if (isInteger<P>() && few && (keys == FORMAT_F16 || values == FORMAT_F16))
      many =
        (keys == FORMAT_F16 && has_many_subnormals(storedKeys, PAGE / PANEL, headDim, headDim * PANEL_BYTES_16)) ||
        (values == FORMAT_F16 && has_many_subnormals(storedValues, columns / PANEL, PAGE, PAGE * PANEL_BYTES_16));
    if (isInteger<P>() && apart != 0 && many) return false;
  }
  finish_rows(n, states, outputs, out, shape, r, columns);
  if (!isVoid<S>()) finish_statistics(n, states, measured, shape, statistics, r, low, pageCount);
  return true;
}

/**
 * Reads a byte of every 4 KB of what comes next, where prefetching begins anew: integers are so few that it would hardly
 * get going. Nothing uses the bytes; a load is kept because it may trap.
 */
// @ts-ignore: decorator
@inline
function touch_keys(entry: u32, kvHead: i32, headDim: i32, valueDim: i32): void {
  const end = values_of<u8>(entry, kvHead, headDim, valueDim) + value_scales(value_format<u8>(entry), valueDim);
  for (let at = keys_of<u8>(entry, kvHead, headDim, valueDim); at < end; at += 4096) load<u8>(at);
}

/** Room for the keys of a head as floats where pages have f16, as bytes where they have q4. */
// @ts-ignore: decorator
@inline
function wide_key_bytes(formats: i32, headDim: i32): usize {
  if (formats & (1 << FORMAT_F16)) return <usize>(PAGE * headDim) << 2;
  return formats & (1 << FORMAT_Q4) ? <usize>(PAGE * ((headDim + QUAD - 1) & -QUAD)) : 0;
}
