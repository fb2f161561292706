import { AttentionShapePtr, F32Ptr, PagesPtr, StatisticsShape, StatisticsShapePtr } from "../types";
import { attend_rows } from "./attention";

/**
 * attention_pages, with the same bits, which also measures the weights w[j] = e^(score[j] - lse) of rows begin..end on their keys:
 * rows[h, t] = lse, W = sum of w, the sum over keys [0, first), that over the last `last` keys of the row's range, then of
 * w / W: -sum of w ln w, sum of w |p - j|, 1 / sum of w²; 0; the topK largest w, descending, of equal ones the lowest key first,
 * and their keys, 0 and -1 where there are fewer. received[h, j] += sum of w over the rows, in float64, by ascending tokens.
 *
 * Weights are those of float32 scores before they are rounded to integers. A row that attends no key has zeros. Where keys
 * have less than 2^-40 of the weight, which only an extra key, a zero key or a sink can bring about, what is of w / W is 0.
 * A score that is NaN, or Infinity, makes the statistics of its row NaN, and `received` of the keys in the pages that it attends.
 *
 * scratch: see layout.ts. Rows of one kv head must not be measured at the same time where `received` is wanted.
 */
export function attention_statistics(
  out: F32Ptr,
  q: F32Ptr,
  pages: PagesPtr,
  scratch: F32Ptr,
  shape: AttentionShapePtr,
  statistics: StatisticsShapePtr,
  begin: i32,
  end: i32,
): void {
  const s = changetype<StatisticsShape>(statistics);
  assert(s.topK > 0 && s.first >= 0 && s.last >= 0, "attention_statistics: topK must be positive, first and last not negative");
  assert((s.work & 15) == 0, "attention_statistics: statistics must be 64-byte aligned");
  attend_rows<u8, StatisticsShape>(out, q, pages, scratch, shape, s, begin, end);
}
