import { FORMAT_F32, PAGE, PANEL, PANEL_BYTES } from "../layout";
import { CacheShape, CacheShapePtr, F32Ptr, PagesPtr } from "../types";
import { load_key, load_value, store_key, store_value } from "./codecs";
import {
  key_at,
  key_format,
  key_scales,
  keys_of,
  page_entry,
  VALUE_PANEL_BYTES,
  value_at,
  value_format,
  value_scales,
  values_of,
} from "./page";

/**
 * pages[past + t] = k[t], v[t], bit for bit, for tokens begin..end and every kv head; k and v [token][kvHead][dim] by the
 * strides of the shape, pages as in page.ts, of float32. Columns of the last value panel beyond valueDim become 0; keys
 * outside the range keep what they hold. Ranges that are appended at the same time must not share a panel of keys. No
 * alignment is needed; k and v must not overlap the pages.
 */
export function append_f32(
  pages: PagesPtr,
  k: F32Ptr,
  v: F32Ptr,
  shape: CacheShapePtr,
  past: i32,
  begin: i32,
  end: i32,
): void {
  append_tokens<f32>(pages, k, v, shape, past, begin, end);
}

/**
 * append_f32 to pages of any format: f16 gets the nearest halves; q8 and q4 a scale a token and head, its largest
 * magnitude / 127 or / 7, and the nearest integers, halves to even. A token and head with NaN or an infinity has the scale
 * NaN.
 */
export function append_pages(
  pages: PagesPtr,
  k: F32Ptr,
  v: F32Ptr,
  shape: CacheShapePtr,
  past: i32,
  begin: i32,
  end: i32,
): void {
  append_tokens<u8>(pages, k, v, shape, past, begin, end);
}

/** The kernel for pages of P, see page.ts. */
// @ts-ignore: decorator
@inline
function append_tokens<P>(
  pages: PagesPtr,
  k: F32Ptr,
  v: F32Ptr,
  shape: CacheShapePtr,
  past: i32,
  begin: i32,
  end: i32,
): void {
  const s = changetype<CacheShape>(shape);
  const headDim = s.headDim;
  const valueDim = s.valueDim;
  assert(headDim > 0 && valueDim > 0, "append: headDim and valueDim must be positive");
  assert(past + begin >= 0, "append: positions must not be negative");
  const kBytes = <usize>s.kStride << 2;
  const vBytes = <usize>s.vStride << 2;
  for (let h = 0; h < s.numKvHeads; h++) {
    const kHead = k + ((<usize>h * s.kHeadStride) << 2);
    const vHead = v + ((<usize>h * s.vHeadStride) << 2);
    for (let t = begin, n = 0; t < end; t += n) {
      n = group(past + t, end - t);
      const source = kHead + <usize>t * kBytes;
      const entry = page_entry(pages, past + t);
      const format = key_format<P>(entry);
      if (isInteger<P>() && format != FORMAT_F32) {
        const keys = keys_of<P>(entry, h, headDim, valueDim);
        const scales = keys + key_scales(format, headDim);
        for (let i = 0; i < n; i++)
          store_key(format, keys, scales, (past + t + i) % PAGE, source + <usize>i * kBytes, headDim);
        continue;
      }
      const panel = key_at<P>(pages, h, headDim, valueDim, past + t);
      if (n == PANEL) transpose(panel, PANEL_BYTES, source, kBytes, headDim);
      else for (let d = 0; d < headDim; d++) copy_word(panel + <usize>d * PANEL_BYTES, source + (<usize>d << 2));
    }
    for (let t = begin; t < end; t++) {
      const source = vHead + <usize>t * vBytes;
      const entry = page_entry(pages, past + t);
      const format = value_format<P>(entry);
      if (isInteger<P>() && format != FORMAT_F32) {
        const values = values_of<P>(entry, h, headDim, valueDim);
        store_value(format, values, values + value_scales(format, valueDim), (past + t) % PAGE, source, valueDim);
        continue;
      }
      let panel = value_at<P>(pages, h, headDim, valueDim, past + t);
      for (let c = 0; c < valueDim; c += PANEL) {
        if (c + PANEL <= valueDim) copy_panel(panel, source + (<usize>c << 2));
        else {
          v128.store(panel, i32x4.splat(0));
          v128.store(panel, i32x4.splat(0), 16);
          for (let i = c; i < valueDim; i++) copy_word(panel + (<usize>(i - c) << 2), source + (<usize>i << 2));
        }
        panel += VALUE_PANEL_BYTES;
      }
    }
  }
}

/** k[t], v[t] = pages[past + t] for tokens begin..end and every kv head: the bits that append_f32 took. */
export function gather_f32(
  k: F32Ptr,
  v: F32Ptr,
  pages: PagesPtr,
  shape: CacheShapePtr,
  past: i32,
  begin: i32,
  end: i32,
): void {
  gather_tokens<f32>(k, v, pages, shape, past, begin, end);
}

/** gather_f32 from pages of any format: what they have made of the floats; an integer times its scale is rounded once. */
export function gather_pages(
  k: F32Ptr,
  v: F32Ptr,
  pages: PagesPtr,
  shape: CacheShapePtr,
  past: i32,
  begin: i32,
  end: i32,
): void {
  gather_tokens<u8>(k, v, pages, shape, past, begin, end);
}

/** The kernel for pages of P, see page.ts. */
// @ts-ignore: decorator
@inline
function gather_tokens<P>(
  k: F32Ptr,
  v: F32Ptr,
  pages: PagesPtr,
  shape: CacheShapePtr,
  past: i32,
  begin: i32,
  end: i32,
): void {
  const s = changetype<CacheShape>(shape);
  const headDim = s.headDim;
  const valueDim = s.valueDim;
  assert(headDim > 0 && valueDim > 0, "gather: headDim and valueDim must be positive");
  assert(past + begin >= 0, "gather: positions must not be negative");
  const kBytes = <usize>s.kStride << 2;
  const vBytes = <usize>s.vStride << 2;
  for (let h = 0; h < s.numKvHeads; h++) {
    const kHead = k + ((<usize>h * s.kHeadStride) << 2);
    const vHead = v + ((<usize>h * s.vHeadStride) << 2);
    for (let t = begin, n = 0; t < end; t += n) {
      n = group(past + t, end - t);
      const target = kHead + <usize>t * kBytes;
      const entry = page_entry(pages, past + t);
      const format = key_format<P>(entry);
      if (isInteger<P>() && format != FORMAT_F32) {
        const keys = keys_of<P>(entry, h, headDim, valueDim);
        const scales = keys + key_scales(format, headDim);
        for (let i = 0; i < n; i++)
          load_key(target + <usize>i * kBytes, format, keys, scales, (past + t + i) % PAGE, headDim);
        continue;
      }
      const panel = key_at<P>(pages, h, headDim, valueDim, past + t);
      if (n == PANEL) transpose_back(target, kBytes, panel, PANEL_BYTES, headDim);
      else for (let d = 0; d < headDim; d++) copy_word(target + (<usize>d << 2), panel + <usize>d * PANEL_BYTES);
    }
    for (let t = begin; t < end; t++) {
      const target = vHead + <usize>t * vBytes;
      const entry = page_entry(pages, past + t);
      const format = value_format<P>(entry);
      if (isInteger<P>() && format != FORMAT_F32) {
        const values = values_of<P>(entry, h, headDim, valueDim);
        load_value(target, format, values, values + value_scales(format, valueDim), (past + t) % PAGE, valueDim);
        continue;
      }
      let panel = value_at<P>(pages, h, headDim, valueDim, past + t);
      for (let c = 0; c < valueDim; c += PANEL) {
        if (c + PANEL <= valueDim) copy_panel(target + (<usize>c << 2), panel);
        else for (let i = c; i < valueDim; i++) copy_word(target + (<usize>i << 2), panel + (<usize>(i - c) << 2));
        panel += VALUE_PANEL_BYTES;
      }
    }
  }
}

/** How many keys go together: a whole panel where one starts and there are enough, otherwise one. */
// @ts-ignore: decorator
@inline
function group(position: i32, left: i32): i32 {
  return position % PANEL == 0 && left >= PANEL ? PANEL : 1;
}

/** 8 rows of `columns` floats become `columns` rows of 8. */
// @ts-ignore: decorator
@inline
function transpose(to: usize, toBytes: usize, from: usize, fromBytes: usize, columns: i32): void {
  const wide = columns & ~3;
  const from4 = from + (fromBytes << 2);
  for (let d = 0; d < wide; d += 4) {
    const at = <usize>d << 2;
    const panel = to + <usize>d * toBytes;
    transpose_4x4(panel, toBytes, from + at, fromBytes);
    transpose_4x4(panel + 16, toBytes, from4 + at, fromBytes);
  }
  for (let d = wide; d < columns; d++)
    for (let i = 0; i < PANEL; i++)
      copy_word(to + <usize>d * toBytes + (<usize>i << 2), from + <usize>i * fromBytes + (<usize>d << 2));
}

/** `columns` rows of 8 floats become 8 rows of `columns`. */
// @ts-ignore: decorator
@inline
function transpose_back(to: usize, toBytes: usize, from: usize, fromBytes: usize, columns: i32): void {
  const wide = columns & ~3;
  const to4 = to + (toBytes << 2);
  for (let d = 0; d < wide; d += 4) {
    const at = <usize>d << 2;
    const panel = from + <usize>d * fromBytes;
    transpose_4x4(to + at, toBytes, panel, fromBytes);
    transpose_4x4(to4 + at, toBytes, panel + 16, fromBytes);
  }
  for (let d = wide; d < columns; d++)
    for (let i = 0; i < PANEL; i++)
      copy_word(to + <usize>i * toBytes + (<usize>d << 2), from + <usize>d * fromBytes + (<usize>i << 2));
}

// @ts-ignore: decorator
@inline
function transpose_4x4(to: usize, toBytes: usize, from: usize, fromBytes: usize): void {
  const a = v128.load(from);
  const b = v128.load(from + fromBytes);
  const c = v128.load(from + 2 * fromBytes);
  const d = v128.load(from + 3 * fromBytes);
  const abLow = v128.shuffle<f32>(a, b, 0, 4, 1, 5);
  const abHigh = v128.shuffle<f32>(a, b, 2, 6, 3, 7);
  const cdLow = v128.shuffle<f32>(c, d, 0, 4, 1, 5);
  const cdHigh = v128.shuffle<f32>(c, d, 2, 6, 3, 7);
  v128.store(to, v128.shuffle<f64>(abLow, cdLow, 0, 2));
  v128.store(to + toBytes, v128.shuffle<f64>(abLow, cdLow, 1, 3));
  v128.store(to + 2 * toBytes, v128.shuffle<f64>(abHigh, cdHigh, 0, 2));
  v128.store(to + 3 * toBytes, v128.shuffle<f64>(abHigh, cdHigh, 1, 3));
}

// @ts-ignore: decorator
@inline
function copy_panel(to: usize, from: usize): void {
  v128.store(to, v128.load(from));
  v128.store(to, v128.load(from, 16), 16);
}

/** As an integer, so that no engine can quiet a NaN. */
// @ts-ignore: decorator
@inline
function copy_word(to: usize, from: usize): void {
  store<u32>(to, load<u32>(from));
}
