import { weighColumns } from "./attention_values";
import { STATE_ALPHA, STATE_BYTES, STATE_HIGH, STATE_LOW } from "./attention_rows";
import { PAGE, PANEL } from "./layout";
import { AttentionShape, F32Ptr } from "./types";

// The slow road of attention_f32: a value that no row of the strip may see, or only some may, is not finite, and 0 · NaN
// is NaN. Keys are told apart by the rules, never by a weight of 0: an attended key whose weight underflowed must still
// spoil its row, as it does on the fast road.

/** One for each row of a strip, STATE_BYTES apart: alpha of rows whose output is already rescaled. */
const ONES = memory.data<f32>([
  1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
  1,
]);

/** The keep bytes (bias floats) of row r of a kv head's rows, from key 0; only where there are any. */
export function keepOf(shape: AttentionShape, kvHead: i32, group: i32, r: i32): usize {
  const token = r / group;
  const head = kvHead * group + r - token * group;
  return shape.keep + (<usize>head * shape.keepHeadStride + <usize>token * shape.keepRowStride);
}

export function biasOf(shape: AttentionShape, kvHead: i32, group: i32, r: i32): F32Ptr {
  const token = r / group;
  const head = kvHead * group + r - token * group;
  return shape.bias + ((<usize>head * shape.biasHeadStride + <usize>token * shape.biasRowStride) << 2);
}

/** allowed[j] = a bit for each row of the strip that may attend key j of the page, for the keys [first, last). */
export function classifyKeys(
  allowed: usize,
  state: usize,
  rows: i32,
  shape: AttentionShape,
  kvHead: i32,
  group: i32,
  r: i32,
  pageKey: i32,
  first: i32,
  last: i32,
): void {
  memory.fill(allowed + first, 0, last - first);
  let bit: u8 = 1;
  for (let i = 0; i < rows; i++) {
    const from = max(first, load<i32>(state, STATE_LOW) - pageKey);
    const to = min(last, load<i32>(state, STATE_HIGH) - pageKey);
    const keep = shape.keep ? keepOf(shape, kvHead, group, r + i) + pageKey : 0;
    const bias = shape.bias ? biasOf(shape, kvHead, group, r + i) + (<usize>pageKey << 2) : 0;
    for (let j = from; j < to; j++) {
      if (keep && !load<u8>(keep + j)) continue;
      if (bias && load<f32>(bias + (<usize>j << 2)) == -<f32>Infinity) continue;
      store<u8>(allowed + j, load<u8>(allowed + j) | bit);
    }
    state += STATE_BYTES;
    bit <<= 1;
  }
}

/**
 * o[:rows, :8] = alpha · o + sum of weight · value over the allowed keys of [first, last), in ascending order: keys of all
 * rows through the tile, keys of some rows row by row, keys of none not at all.
 */
export function weighMasked(
  o: F32Ptr,
  row: usize,
  state: usize,
  rows: i32,
  s: F32Ptr,
  v: F32Ptr,
  allowed: usize,
  first: i32,
  last: i32,
): void {
  for (let i = 0; i < rows; i++) {
    const at = o + row * i;
    const alpha = v128.load32_splat(state + STATE_BYTES * i, STATE_ALPHA);
    v128.store(at, f32x4.mul(v128.load(at), alpha));
    v128.store(at, f32x4.mul(v128.load(at, 16), alpha), 16);
  }
  const all = (1 << rows) - 1;
  let from = first;
  while (from < last) {
    const who = <i32>load<u8>(allowed + from);
    let to = from + 1;
    while (to < last && <i32>load<u8>(allowed + to) == who) to++;
    const p = s + (<usize>from << 2);
    const values = v + (<usize>from << 5);
    if (who == all) weighColumns(rows, o, row, ONES - STATE_ALPHA, p, values, to - from, 0);
    else {
      for (let i = 0; i < rows; i++) {
        if (who & (1 << i)) {
          weighColumns(1, o + row * i, row, ONES - STATE_ALPHA, p + ((<usize>i * PAGE) << 2), values, to - from, 0);
        }
      }
    }
    from = to;
  }
}
