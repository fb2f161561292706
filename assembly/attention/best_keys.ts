// The best keys of a row: those of the largest scores, descending, of equal scores the lowest key first.
//
// An entry of a list is a float64 whose order is that of the keys. It is the score, and in the 29 bits of the mantissa
// that a float32 leaves, the key if the score is negative, else LAST_KEY - key. Entries differ, so that maxima and
// minima keep a list in order. -Infinity stands for no key, and before each list stands Infinity.
//
// Whether a key is among the best cannot be predicted, and a branch that is mispredicted waits for the scores. So all
// rows of a strip are searched together: which rows have better keys, then which blocks of 32 keys of these have them,
// then which keys of these they are. Each is a list of items of four words, made without branches; the second begins
// where the first ends, and memory suffices for one item behind it, 4 blocks of each of STRIP_ROWS rows.

/** Keys are below: memory has no room for so many. */
const LAST_KEY = 0x1fffffff;

const ITEM: usize = 16;

/** The entry of a score above -Infinity, in both lanes. */
// @ts-ignore: decorator
@inline
function entry_of(score: f32, key: i32): v128 {
  // +0 for -0, to which it is equal, and the largest float for Infinity, which would become NaN.
  const bits = min<i32>(reinterpret<i32>(score + 0), 0x7f7fffff);
  const low = key ^ (~(bits >> 31) & LAST_KEY);
  return v128.or(f64x2.promote_low_f32x4(i32x4.splat(bits)), i64x2.splat(low));
}

/** The key of an entry, -1 of none. */
export function key_of(entry: f64): i32 {
  if (entry == -Infinity) return -1;
  const bits = reinterpret<i64>(entry);
  return <i32>((bits ^ ~(bits >> 63)) & LAST_KEY);
}

/** The score of an entry. */
// @ts-ignore: decorator
@inline
export function score_of(entry: f64): f32 {
  return <f32>reinterpret<f64>(reinterpret<i64>(entry) & ~(<i64>LAST_KEY));
}

/** The score of the last of a list of k. Scores that are as large come later, and have higher keys. */
// @ts-ignore: decorator
@inline
export function last_of_best(best: usize, k: i32): f32 {
  return score_of(load<f64>(best + (<usize>(k - 1) << 3)));
}

/** Less than k of the scores whose maxima these are, each of scores of its own; -Infinity for k above 8. */
// @ts-ignore: decorator
@inline
export function least_of_best(k: i32, m0: v128, m1: v128, m2: v128, m3: v128): f32 {
  if (k > 8) return f32.NEGATIVE_INFINITY;
  const a = f32x4.pmax(m0, m1);
  const b = f32x4.pmax(m2, m3);
  let four = f32x4.pmax(a, b);
  // The second of the four in each lane.
  if (k > 4) four = f32x4.pmax(f32x4.pmin(a, b), f32x4.pmax(f32x4.pmin(m0, m1), f32x4.pmin(m2, m3)));
  let other = v128.shuffle<f32>(four, four, 2, 3, 0, 1);
  four = k > 1 ? f32x4.pmin(four, other) : f32x4.pmax(four, other);
  other = v128.shuffle<f32>(four, four, 1, 0, 3, 2);
  four = k > 1 ? f32x4.pmin(four, other) : f32x4.pmax(four, other);
  const score = min<f32>(f32x4.extract_lane(four, 0), f32.MAX_VALUE);
  return score - (abs(score) * <f32>2.384185791015625e-7 + f32.MIN_NORMAL_VALUE);
}

/** Adds a row to the list that ends at `listed`, if its largest score is more than `least`. Returns the list's end. */
// @ts-ignore: decorator
@inline
export function list_row(listed: usize, scores: usize, best: usize, least: f32, largest: f32): usize {
  store<u32>(listed, <u32>scores);
  store<u32>(listed, <u32>best, 4);
  store<f32>(listed, least, 8);
  return listed + (largest > least ? ITEM : 0);
}

/**
 * Takes the listed rows' scores that are more than their `least` into their lists of the k best. A row has so many
 * bytes of scores, whole blocks, those of the keys from `key` on.
 */
export function take_keys(rows: usize, listed: usize, k: i32, bytes: usize, key: i32): void {
  let end = listed;
  for (let row = rows; row < listed; row += ITEM) {
    const scores = <usize>load<u32>(row);
    const best = load<u32>(row, 4);
    const least = v128.load32_splat(row, 8);
    let first = key;
    for (let at = scores; at < scores + bytes; at += 128) {
      const low = i8x16.bitmask(i8x16.narrow_i16x8_s(above(at, least), above(at + 32, least)));
      const high = i8x16.bitmask(i8x16.narrow_i16x8_s(above(at + 64, least), above(at + 96, least)));
      const hits = low | (high << 16);
      store<u32>(end, <u32>at);
      store<u32>(end, best, 4);
      store<i32>(end, first, 8);
      store<i32>(end, hits, 12);
      end += hits != 0 ? ITEM : 0;
      first += 32;
    }
  }

  let block = listed;
  let hits = load<i32>(block, 12);
  while (block < end) {
    const hit = ctz(hits);
    const score = load<f32>(<usize>load<u32>(block) + (<usize>hit << 2));
    insert(<usize>load<u32>(block, 4), k, entry_of(score, load<i32>(block, 8) + hit));
    hits &= hits - 1;
    block += hits == 0 ? ITEM : 0;
    const next = load<i32>(block, 12);
    hits = hits == 0 ? next : hits;
  }
}

/** Which of eight scores are more than `least`, as i16. */
// @ts-ignore: decorator
@inline
function above(at: usize, least: v128): v128 {
  return i16x8.narrow_i32x4_s(f32x4.gt(v128.load(at), least), f32x4.gt(v128.load(at, 16), least));
}

/** Each place takes the larger of what it has, and the smaller of the new entry and what the place before has. */
// @ts-ignore: decorator
@inline
function insert(best: usize, k: i32, entry: v128): void {
  let at = best + (<usize>((k - 1) & -2) << 3);
  let own = v128.load(at);
  for (; at >= best; at -= 16) {
    const before = v128.load(at - 16);
    v128.store(at, f64x2.pmax(own, f64x2.pmin(i64x2.shuffle(before, own, 1, 2), entry)));
    own = before;
  }
}
