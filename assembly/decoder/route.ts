import { exp_f32x4 } from "../math/exp";
import { sigmoid_f32x4 } from "../math/sigmoid";
import { hsum, load_first, store_first } from "../math/simd";
import { F32Ptr, F32PtrOrNull, I32Ptr, RouteShape, RouteShapePtr } from "../types";
import { top_k_row } from "./top_k";

/** What a sum of weights is at least, so that experts that all weigh 0 do not become NaN. */
const LEAST_SUM: f32 = 1e-20;

/**
 * The experts of tokens begin..end, by the logits of a router, [token][experts], rows `stride` floats apart:
 * ids[t, :topK] and weights[t, :topK] in descending order of choice, the lower id first where two are equal.
 * Logits become scores, in place: their softmax, or their sigmoid. A choice is a score plus its correction, where there is
 * one. Experts lie in `groups` of one size, of which only the `keepGroups` best take part: those with the largest choice, or
 * with the largest sum of two choices. A weight is the score without correction, divided by the sum of the topK scores
 * where `renormalise` is 1, times scale. A token depends on its own logits alone; NaN is chosen after all numbers.
 * scratch: experts + 3 · groups floats. No alignment is needed.
 */
export function route_f32(
  ids: I32Ptr,
  weights: F32Ptr,
  logits: F32Ptr,
  scratch: F32Ptr,
  correction: F32PtrOrNull,
  shape: RouteShapePtr,
  begin: i32,
  end: i32,
): void {
  const s = changetype<RouteShape>(shape);
  const experts = s.experts;
  const groups = s.groups;
  const topK = s.topK;
  const size = experts / groups;
  assert(groups > 0 && experts == groups * size && s.stride >= experts, "route_f32: groups must be of one size");
  assert(s.keepGroups > 0 && s.keepGroups <= groups, "route_f32: keepGroups must be within groups");
  assert(topK > 0 && topK <= s.keepGroups * size, "route_f32: topK must be within the experts of the groups kept");
  const choices = scratch;
  const best = choices + (<usize>experts << 2);
  const kept = best + (<usize>groups << 2);
  for (let t = begin; t < end; t++) {
    const scores = logits + ((<usize>t * s.stride) << 2);
    const tokenIds = ids + ((<usize>t * topK) << 2);
    const tokenWeights = weights + ((<usize>t * topK) << 2);
    if (s.sigmoid) sigmoid_row(scores, experts);
    else softmax_row(scores, experts);

    for (let e: usize = 0; e < <usize>experts << 2; e += 4)
      store<f32>(choices + e, load<f32>(scores + e) + (correction ? load<f32>(correction + e) : 0));
    for (let g = 0; g < groups; g++)
      store<f32>(best + (<usize>g << 2), best_of(choices + ((<usize>g * size) << 2), size, s.pairs != 0));
    keep_groups(choices, best, kept, size, groups, s.keepGroups);

    top_k_row(tokenWeights, tokenIds, choices, s.keepGroups * size, topK);
    let sum: f32 = 0;
    for (let j: usize = 0; j < <usize>topK << 2; j += 4) {
      const place = load<i32>(tokenIds + j);
      const id = load<i32>(kept + (<usize>(place / size) << 2)) * size + (place % size);
      const weight = load<f32>(scores + (<usize>id << 2));
      store<i32>(tokenIds + j, id);
      store<f32>(tokenWeights + j, weight);
      sum += weight;
    }
    for (let j: usize = 0; j < <usize>topK << 2; j += 4) {
      const weight = load<f32>(tokenWeights + j);
      store<f32>(tokenWeights + j, (s.renormalise ? weight / (sum + LEAST_SUM) : weight) * s.scale);
    }
  }
}

/** x[:n] = sigmoid(x[:n]). */
function sigmoid_row(x: F32Ptr, n: i32): void {
  for (; n > 0; n -= 4) {
    store_first(x, n, sigmoid_f32x4(load_first(x, n, 0)));
    x += 16;
  }
}

/** x[:n] = softmax(x[:n]); all NaN if one is, or if the largest is not finite. The sum is of 4 lanes by i & 3. */
function softmax_row(x: F32Ptr, n: i32): void {
  // A NaN that the maximum passes over makes the sum NaN.
  let largest = f32.NEGATIVE_INFINITY;
  for (let i = 0; i < n; i++) largest = max(largest, load<f32>(x + (<usize>i << 2)));
  const largest_f32x4 = f32x4.splat(largest);
  let sum_f32x4 = f32x4.splat(0);
  for (let i = 0; i < n; i += 4) {
    const at = x + (<usize>i << 2);
    const e_f32x4 = exp_f32x4(f32x4.sub(load_first(at, n - i, f32.NEGATIVE_INFINITY), largest_f32x4));
    sum_f32x4 = f32x4.add(sum_f32x4, e_f32x4);
    store_first(at, n - i, e_f32x4);
  }
  sum_f32x4 = f32x4.splat(hsum(sum_f32x4));
  for (let i = 0; i < n; i += 4) {
    const at = x + (<usize>i << 2);
    store_first(at, n - i, f32x4.div(load_first(at, n - i, 0), sum_f32x4));
  }
}

/** The largest of a group's choices, or with `pairs` the sum of its two largest; NaN counts as none. */
function best_of(choices: F32Ptr, size: i32, pairs: bool): f32 {
  let first = f32.NEGATIVE_INFINITY;
  let second = f32.NEGATIVE_INFINITY;
  for (let i = 0; i < size; i++) {
    const choice = load<f32>(choices + (<usize>i << 2));
    if (choice > first) {
      second = first;
      first = choice;
    } else if (choice > second) second = choice;
  }
  return pairs ? first + second : first;
}

/**
 * kept[:count] = the groups that are best, ascending, and their choices side by side, in place. Behind kept there are floats
 * for the scores of those groups.
 */
function keep_groups(choices: F32Ptr, best: F32Ptr, kept: I32Ptr, size: i32, groups: i32, count: i32): void {
  top_k_row(kept + (<usize>groups << 2), kept, best, groups, count);
  for (let i = 0; i < count; i++) {
    // The lowest that is left, by swapping.
    const at = kept + (<usize>i << 2);
    for (let j = i + 1; j < count; j++) {
      const other = kept + (<usize>j << 2);
      const lower = min(load<i32>(at), load<i32>(other));
      store<i32>(other, max(load<i32>(at), load<i32>(other)));
      store<i32>(at, lower);
    }
    const bytes = <usize>size << 2;
    memory.copy(choices + bytes * i, choices + bytes * load<i32>(at), bytes);
  }
}
