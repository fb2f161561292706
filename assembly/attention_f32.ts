import { biasOf, classifyKeys, keepOf, weighMasked } from "./attention_masked";
import { finishRow, STATE_BYTES, STATE_HIGH, STATE_LOW, startRow } from "./attention_rows";
import { scoreKeys } from "./attention_scores";
import { biasScores, capScores, excludeScores, keepScores, slopeScores, softenScores } from "./attention_softmax";
import { weigh_1x32, weigh_2x16, weigh_3x16, weigh_6x8_causal, weighColumns } from "./attention_values";
import { PAGE, PANEL, ROW_STATE, TILE_ROWS } from "./layout";
import { AttentionShape, AttentionShapePtr, F32Ptr, PagesPtr } from "./types";

/** Bytes of a row of scores, and of a value panel. */
const STRIP_BYTES: usize = PAGE << 2;
const VALUE_PANEL_BYTES: usize = (PAGE * PANEL) << 2;
/** Rows of the tallest strip. */
const STRIP_ROWS = 6;

/**
 * out[t, h, :valueDim] = softmax over j of rules(scale · q[t, h] · k[j, h/G]), times v[j, h/G], over the keys j that query t
 * may attend; G = numHeads / numKvHeads.
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
  const rows = s.qLen * (s.numHeads / s.numKvHeads);
  for (let at = begin; at < end; ) {
    const kvHead = at / rows;
    const r = at - kvHead * rows;
    const n = min(TILE_ROWS, min(rows - r, end - at));
    attendTile(out, q, pages, scratch, s, kvHead, r, n);
    at += n;
  }
}

/** Rows r..r+n-1 of a kv head, n <= TILE_ROWS: through all pages that any of them may attend. */
function attendTile(
  out: F32Ptr,
  q: F32Ptr,
  pages: PagesPtr,
  scratch: F32Ptr,
  shape: AttentionShape,
  kvHead: i32,
  r: i32,
  n: i32,
): void {
  const group = shape.numHeads / shape.numKvHeads;
  const headDim = shape.headDim;
  const valuePanels = (shape.valueDim + PANEL - 1) / PANEL;
  const queryBytes = <usize>headDim << 2;
  const outputBytes = (<usize>valuePanels * PANEL) << 2;
  const states = scratch;
  const queries = states + STATE_BYTES * TILE_ROWS;
  const outputs = queries + queryBytes * TILE_ROWS;
  const strip = outputs + outputBytes * TILE_ROWS;

  let low = i32.MAX_VALUE;
  let high = 0;
  for (let i = 0; i < n; i++) {
    const token = (r + i) / group;
    const head = kvHead * group + (r + i - token * group);
    const state = states + STATE_BYTES * i;
    startRow(
      state,
      queries + queryBytes * i,
      outputs + outputBytes * i,
      q + ((<usize>token * shape.qStride + <usize>head * shape.qHeadStride) << 2),
      shape,
      token,
      head,
      kvHead,
      valuePanels * PANEL,
    );
    if (load<i32>(state, STATE_HIGH) > 0) low = min(low, load<i32>(state, STATE_LOW));
    high = max(high, load<i32>(state, STATE_HIGH));
  }

  const headBytes = STRIP_BYTES * headDim + VALUE_PANEL_BYTES * valuePanels;
  for (let key = low & -PAGE; key < high; key += PAGE) {
    const k = <usize>load<u32>(pages + ((key / PAGE) << 2)) + headBytes * kvHead;
    for (let i = 0; i < n; ) {
      const left = n - i;
      const height = left > 8 || left == 6 ? 6 : left > 6 ? 4 : left;
      attendPage(
        strip,
        queries + queryBytes * i,
        outputs + outputBytes * i,
        states + STATE_BYTES * i,
        height,
        k,
        shape,
        kvHead,
        group,
        r + i,
        key,
        valuePanels,
      );
      i += height;
    }
  }

  for (let i = 0; i < n; i++) {
    const token = (r + i) / group;
    const head = kvHead * group + (r + i - token * group);
    const to = out + ((<usize>token * shape.outStride + <usize>head * shape.outHeadStride) << 2);
    finishRow(states + STATE_BYTES * i, outputs + outputBytes * i, to, shape, token, head);
  }
}

/** A strip of rows r.. with the keys of one page that starts at absolute key `key`: scores, rules, softmax, values. */
function attendPage(
  s: F32Ptr,
  queries: F32Ptr,
  o: F32Ptr,
  states: usize,
  rows: i32,
  k: F32Ptr,
  shape: AttentionShape,
  kvHead: i32,
  group: i32,
  r: i32,
  key: i32,
  valuePanels: i32,
): void {
  // [first, last): keys that some row attends; `shared`: whether every row attends all of them.
  let first = PAGE;
  let last = 0;
  let latestFirst = 0;
  let earliestLast = PAGE;
  for (let i = 0; i < rows; i++) {
    const from = max(load<i32>(states + STATE_BYTES * i, STATE_LOW) - key, 0);
    const to = min(load<i32>(states + STATE_BYTES * i, STATE_HIGH) - key, PAGE);
    if (from < to) {
      first = min(first, from);
      last = max(last, to);
    }
    latestFirst = max(latestFirst, from);
    earliestLast = min(earliestLast, to);
  }
  if (first >= last) return;
  const shared = latestFirst <= first && earliestLast >= last;

  const keys = rows > 3 ? 8 : rows > 1 ? 16 : 32;
  const start = first & -keys;
  const end = (last + keys - 1) & -keys;
  scoreKeys(rows, s, queries, k, shape.headDim, start, end);
  const ruled = shape.softcap > 0 || shape.slopes != 0 || shape.bias != 0 || shape.keep != 0;
  for (let i = 0; i < rows; i++) {
    const state = states + STATE_BYTES * i;
    const row = s + STRIP_BYTES * i;
    let from = max(load<i32>(state, STATE_LOW) - key, 0);
    let to = min(load<i32>(state, STATE_HIGH) - key, PAGE);
    if (from >= to) {
      from = end;
      to = end;
    }
    if (ruled) applyRules(row, shape, kvHead, group, r + i, key, start, end, from, to);
    excludeScores(row, start, from);
    excludeScores(row, to, end);
    softenScores(row, start, end, state);
  }

  const v = k + STRIP_BYTES * shape.headDim;
  const n = last - first;
  const p = s + (<usize>first << 2);
  const values = v + (<usize>first << 5);
  const outputBytes = (<usize>valuePanels * PANEL) << 2;
  const masked = shape.keep != 0 || shape.bias != 0;
  const check: i32 = masked || !shared ? 1 : 0;

  if (check && !masked && rows == STRIP_ROWS && latestFirst <= first) {
    const high = load<i32>(states, STATE_HIGH);
    let stairs = true;
    for (let i = 1; i < STRIP_ROWS; i++) {
      if (load<i32>(states + STATE_BYTES * i, STATE_HIGH) != high + i) stairs = false;
    }
    if (stairs) {
      const whole = high - key - first;
      const from = max(0, -whole);
      for (let c = 0; c < valuePanels; c++) {
        weigh_6x8_causal(o + (c << 5), outputBytes, states, p, values + VALUE_PANEL_BYTES * c, whole, from, n - whole);
      }
      return;
    }
  }

  const allowed = s + STRIP_BYTES * STRIP_ROWS;
  let classified = false;
  for (let c = 0; c < valuePanels; ) {
    const to = o + (<usize>c << 5);
    const from = values + VALUE_PANEL_BYTES * c;
    let wide = 1;
    let failed = 0;
    if (rows == 1 && valuePanels - c > 3) {
      wide = 4;
      failed = weigh_1x32(to, outputBytes, states, p, from, n, check);
    } else if (rows == 2 && valuePanels - c > 1) {
      wide = 2;
      failed = weigh_2x16(to, outputBytes, states, p, from, n, check);
    } else if (rows == 3 && valuePanels - c > 1) {
      wide = 2;
      failed = weigh_3x16(to, outputBytes, states, p, from, n, check);
    } else failed = weighColumns(rows, to, outputBytes, states, p, from, n, check);
    if (failed) {
      if (!classified) {
        classifyKeys(allowed, states, rows, shape, kvHead, group, r, key, first, last);
        classified = true;
      }
      for (let i = c; i < c + wide; i++) {
        weighMasked(o + (<usize>i << 5), outputBytes, states, rows, s, v + VALUE_PANEL_BYTES * i, allowed, first, last);
      }
    }
    c += wide;
  }
}

/** The rules of one row on its scores: softcap, ALiBi, bias, keep. [from, to) is what it may attend of [start, end). */
function applyRules(
  row: F32Ptr,
  shape: AttentionShape,
  kvHead: i32,
  group: i32,
  r: i32,
  key: i32,
  start: i32,
  end: i32,
  from: i32,
  to: i32,
): void {
  if (shape.softcap > 0) capScores(row, start, end, shape.softcap);
  if (shape.slopes) {
    const token = r / group;
    const head = kvHead * group + r - token * group;
    const slope = load<f32>(shape.slopes + (<usize>head << 2));
    slopeScores(row, start, end, slope, shape.qStart + token - key);
  }
  if (shape.bias) biasScores(row, biasOf(shape, kvHead, group, r) + (<usize>key << 2), from, to);
  if (shape.keep) keepScores(row, keepOf(shape, kvHead, group, r) + key, from, to);
}
